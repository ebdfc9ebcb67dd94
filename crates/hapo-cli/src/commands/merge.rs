//! `hapo merge`: a model and its adapter as one model.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_kernels::Compute;
use hapo_model::folder;

use crate::support::{device, hub};

/// Add an adapter to the weights of its model and write the sum as a whole model.
///
/// The folder has the number format of most of the model's weights, its tokenizer and its chat template. Every sum is
/// made in f32 and rounded once.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo merge --model builtin:base --adapter runs/try/checkpoints/step-000016 -o merged"
)]
pub(crate) struct Args {
    /// Hugging Face folder, org/name@revision of the hub, or builtin:base
    #[arg(long)]
    model: String,
    /// PEFT folder of an adapter of the model
    #[arg(long, value_name = "DIR")]
    adapter: PathBuf,
    /// The folder to write
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let model = hub::model_folder(&args.model)?;
    let built_in = (model == hapo_train::BUILTIN_BASE).then(hapo_train::base_folder).transpose()?;
    let model = built_in.as_ref().map_or(Path::new(&model), |it| it.path());
    let (model, adapter) = (folder::open(model)?, folder::open_adapter(&args.adapter)?);
    folder::merge(&args.output, &model, &adapter, &device::cpu(threads, Compute::F32)?)?;
    errln!("written {}", args.output.display());
    Ok(())
}
