//! `hapo recipe`: recipes as files.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::failure::bad_input;

/// Recipes as files.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo recipe upgrade my-recipe.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Rewrite the spellings of earlier versions in place; comments and layout stay
    Upgrade {
        /// The recipe
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Command::Upgrade { file } = &args.command;
    let name = file.display();
    let before = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let after = hapo_train::recipe::upgrade(&before)
        .map_err(|it| bad_input(format!("{name}: {it}"), "a recipe is a TOML file"))?;
    if after == before {
        outln!("{name}: nothing to rewrite");
        return Ok(());
    }
    hapo_run::write_atomically(file, after.as_bytes())?;
    let lines = before.lines().zip(after.lines());
    let changed = lines.filter(|it| it.0 != it.1).count();
    outln!("{name}: {changed} lines rewritten");
    Ok(())
}
