//! `hapo grade`: verdicts on completions.

use anyhow::Result;

/// Grade completions against gold answers.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    outln!("soon");
    Ok(())
}
