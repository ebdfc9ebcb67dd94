//! A folder and an adapter of it as one folder, tensor by tensor.

use std::path::Path;

use hapo_core::Refusal;
use hapo_kernels::{Accumulate, Buffer, Device, Held, MatShape, NumberFormat, Output};

use super::adapter::AdapterFolder;
use super::read::{Fingerprint, ModelFolder, read_weights};
use super::write::{Layout, write};
use crate::config::{Config, TensorSpec};
use crate::files::refused;
use crate::param_layout::transpose;

/// Writes W + s·(A·B)ᵀ for every matrix with a pair, and every other tensor unchanged, in the number format of most of
/// the model's weights. One tensor is in memory at a time, as f32. Tokenizer, chat template and end tokens are those that
/// the adapter was trained with, where its folder has them.
pub fn merge<D: Device>(
    out: &Path,
    model: &ModelFolder,
    adapter: &AdapterFolder,
    device: &D,
) -> Result<(), Refusal> {
    let mut fingerprint = Fingerprint::default();
    read_weights(model, |spec, values| fingerprint.add(spec, values))?;
    adapter.check(&model.config, &fingerprint.to_string())?;
    let (files, eos) = adapter.trained_with(model.tokenizer_files()?, &model.config)?;
    let config = Config { eos, ..model.config.clone() };
    let tokenizer_files: Vec<(&str, &[u8])> =
        files.iter().map(|it| (it.0, it.1.as_slice())).collect();
    let (dtype, shard_bytes) = (model.stored_dtype(), Layout::default().shard_bytes);
    let layout = Layout { dtype, shard_bytes, tokenizer_files: &tokenizer_files };
    let mut refused: Option<Refusal> = None;
    let written = write(out, &config, &layout, |spec| {
        merged(spec, model, adapter, device).unwrap_or_else(|it| {
            refused.get_or_insert(it);
            Vec::new()
        })
    });
    match refused {
        Some(it) => Err(it),
        None => written,
    }
}

/// A tensor of the merged model.
fn merged<D: Device>(
    spec: &TensorSpec,
    model: &ModelFolder,
    adapter: &AdapterFolder,
    device: &D,
) -> Result<Vec<f32>, Refusal> {
    let mut values = model.tensor(&spec.name)?.expect("a folder has the tensors of its model");
    let Some([mut a, b]) = adapter.pair_of(&spec.name)? else {
        return Ok(values);
    };
    let ([outputs, inputs], rank) = ([spec.shape[0], spec.shape[1]], adapter.shape.rank);
    let scale = adapter.shape.scale() as f32;
    for it in &mut a {
        *it *= scale;
    }
    let buf = |values: &[f32]| -> Result<D::Buf, Refusal> {
        let mut it = device.alloc(values.len(), NumberFormat::F32)?;
        device.upload(values, it.first_mut(values.len()));
        Ok(it)
    };
    // The products of the decoder, so that a merged model has the bits of one that was merged in memory.
    let (a, mut w) =
        (buf(&transpose(&a, rank, inputs))?, buf(&transpose(&values, outputs, inputs))?);
    let mut factor = device.weight([rank, outputs], Held::Plain)?;
    device.write(&mut factor, 0, &transpose(&b, outputs, rank));
    let len = values.len();
    let shape = MatShape { rows: inputs, inputs: rank, outputs };
    device.enter(|| {
        let (weight, onto) = (&factor, Accumulate::Existing);
        device.product(shape, a.first(a.len()), [Output { weight, onto, y: w.first_mut(len) }]);
    });
    device.download(w.first(len), &mut values);
    device.check()?;
    let values = transpose(&values, inputs, outputs);
    match values.iter().find(|it| !it.is_finite()) {
        None => Ok(values),
        Some(it) => {
            let expected = "a finite sum of model and adapter";
            Err(refused(&adapter.dir, &spec.name, expected, it))
        }
    }
}
