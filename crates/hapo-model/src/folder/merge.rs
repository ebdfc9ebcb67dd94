//! A folder and an adapter of it as one folder, tensor by tensor.

use std::path::Path;

use hapo_core::Refusal;
use hapo_kernels::{Cpu, CpuWeight, Held, MatShape, Matrix};

use super::adapter::AdapterFolder;
use super::read::{Fingerprint, ModelFolder, read_weights};
use super::write::{Layout, write, write_gguf};
use crate::{
    config::TensorSpec, config::dtype::Dtype, files::refused, linear::add_product,
    param_layout::transpose,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Folder(Dtype),
    Gguf(Dtype),
}

/// Writes W + s·(A·B)ᵀ for every matrix with a pair, and every other tensor unchanged; without an adapter all of them
/// are. One tensor is in memory at a time, as f32. Tokenizer, chat template and end tokens are those that the adapter was
/// trained with, where its folder has them.
pub fn merge(
    out: &Path,
    form: Form,
    model: &ModelFolder,
    adapter: Option<&AdapterFolder>,
    device: &Cpu,
) -> Result<(), Refusal> {
    let (mut files, mut config) = (model.tokenizer_files()?, model.config.clone());
    if let Some(adapter) = adapter {
        let mut fingerprint = Fingerprint::default();
        read_weights(model, |spec, values| fingerprint.add(spec, values))?;
        adapter.check(&config, &fingerprint.to_string())?;
        (files, config.eos) = adapter.trained_with(files, &config)?;
    }
    let shard_bytes = Layout::default().shard_bytes;
    let (Form::Folder(dtype) | Form::Gguf(dtype)) = form;
    let layout = Layout { dtype, shard_bytes, tokenizer_files: &files };
    let source = |spec: &TensorSpec| merged(spec, model, adapter, device);
    match form {
        Form::Folder(_) => write(out, &config, &layout, source).map(drop),
        Form::Gguf(_) => write_gguf(out, &config, &layout, source),
    }
}

fn merged(
    spec: &TensorSpec,
    model: &ModelFolder,
    adapter: Option<&AdapterFolder>,
    device: &Cpu,
) -> Result<Vec<f32>, Refusal> {
    let mut values = model.tensor(&spec.name)?.expect("a folder has the tensors of its model");
    let Some(adapter) = adapter else { return Ok(values) };
    let Some([mut a, b]) = adapter.pair_of(&spec.name)? else { return Ok(values) };
    let ([outputs, inputs], rank) = ([spec.shape[0], spec.shape[1]], adapter.shape.rank);
    let scale = adapter.shape.scale() as f32;
    for it in &mut a {
        *it *= scale;
    }
    let mut factor = CpuWeight::zeros(device, [rank, outputs], Held::Plain)?;
    factor.write(device, 0, &transpose(&b, outputs, rank));
    values = transpose(&values, outputs, inputs);
    // The products of the decoder, so that a merged model has the bits of one that was merged in memory.
    let shape = MatShape { rows: inputs, inputs: rank, outputs };
    add_product(device, shape, &transpose(&a, rank, inputs), &factor, &mut values)?;
    let values = transpose(&values, inputs, outputs);
    match values.iter().find(|it| !it.is_finite()) {
        None => Ok(values),
        Some(it) => {
            let expected = "a finite sum of model and adapter";
            Err(refused(&adapter.dir, &spec.name, expected, it))
        }
    }
}
