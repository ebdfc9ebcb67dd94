//! `hapo fetch`: models and datasets of the hub, before they are needed.

use crate::support::hub;

/// Fetch models and datasets into the cache of the Hugging Face hub, so that later commands work offline.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo fetch Qwen/Qwen2.5-0.5B-Instruct hf://datasets/openai/gsm8k"
)]
pub(crate) struct Args {
    // Not a doc comment: Markdown would wrap the address.
    #[arg(
        required = true,
        value_name = "NAME",
        help = "Models as org/name@revision, datasets as hf://datasets/org/name@revision[/file]"
    )]
    names: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    for name in &args.names {
        if name.starts_with("hf://datasets/") {
            outln!("{}", hub::data_file(std::path::Path::new(name))?.display());
        } else {
            outln!("{}", hub::model_folder(name)?);
        }
    }
    Ok(())
}
