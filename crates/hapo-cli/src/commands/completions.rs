//! `hapo completions`: what a shell needs to complete commands and flags.

use anyhow::Result;
use clap_complete::Shell;

/// A completion script for a shell.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo completions bash > ~/.local/share/bash-completion/completions/hapo\n         hapo completions zsh > ~/.zfunc/_hapo"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<()> {
    use std::io::Write;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hapo", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
