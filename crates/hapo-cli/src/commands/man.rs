//! `hapo man`: the manual as pages of man.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The manual page, or one for each command.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo man | man -l -\n         hapo man --dir man1")]
pub(crate) struct Args {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, command: clap::Command) -> Result<()> {
    use std::io::Write;
    let Some(folder) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        std::io::stdout().write_all(&page)?;
        return Ok(());
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("cannot write the pages into {}", folder.display()))?;
    outln!("{}", folder.display());
    Ok(())
}
