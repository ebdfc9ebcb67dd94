//! `hapo merge`: a model, with its adapter or without, as one folder or file.

use std::path::{Path, PathBuf};

use hapo_model::Dtype;
use hapo_model::folder::{self, Form};

use crate::support::arguments::one_of;
use crate::support::{device, hub};

/// Write a model as a whole: its adapter added, or in another form or number format.
///
/// The output has the number format of most of the model's weights, its tokenizer and its chat template. Every sum is
/// made in f32 and rounded once.
#[derive(clap::Args)]
#[command(
    before_help = "Examples: hapo merge --model builtin:base --adapter runs/try/checkpoints/step-000016 -o merged\n          hapo merge --model merged --to gguf -o merged.gguf"
)]
pub(crate) struct Args {
    /// Hugging Face folder, GGUF file, org/name@revision of the hub, or builtin:base
    #[arg(long)]
    model: String,
    /// PEFT folder of an adapter of the model
    #[arg(long, value_name = "DIR", required_unless_present_any = ["to", "dtype"])]
    adapter: Option<PathBuf>,
    /// Output: a folder of safetensors, or a GGUF file for llama.cpp
    #[arg(long, value_name = "FORM", value_parser = one_of(FORMS))]
    to: Option<AsForm>,
    /// Number format of the output; `f32` keeps what a quantised GGUF file has beyond bf16 [default: the model's]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(DTYPES))]
    dtype: Option<Dtype>,
    /// The folder or file to write
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
}

type AsForm = fn(Dtype) -> Form;

const FORMS: &[(&str, AsForm)] = &[("folder", Form::Folder), ("gguf", Form::Gguf)];
const DTYPES: &[(&str, Dtype)] = &[("f32", Dtype::F32), ("bf16", Dtype::Bf16), ("f16", Dtype::F16)];

pub(crate) fn run(args: &Args, threads: usize) -> anyhow::Result<()> {
    let model = hub::model_folder(&args.model)?;
    let built_in = (model == hapo_train::BUILTIN_BASE).then(hapo_train::base_folder).transpose()?;
    let model = built_in.as_ref().map_or(Path::new(&model), |it| it.path());
    let (mut model, mut adapter) = (folder::open(model)?, None);
    if let Some(dir) = &args.adapter {
        adapter = Some(folder::open_adapter(dir)?);
    } else if args.dtype == Some(Dtype::F32) {
        model = model.in_f32();
    }
    let dtype = args.dtype.unwrap_or_else(|| model.stored_dtype());
    let form = args.to.unwrap_or(Form::Folder)(dtype);
    let device = device::cpu(threads, hapo_kernels::Compute::F32)?;
    folder::merge(&args.output, form, &model, adapter.as_ref(), &device)?;
    errln!("written {}", args.output.display());
    Ok(())
}
