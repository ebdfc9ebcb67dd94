use anyhow::Result;
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args) -> Result<()> {
    Ok(())
}
