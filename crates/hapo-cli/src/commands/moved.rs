//! Commands that are `hapo-lab`'s.

use crate::failure::bad_input;

/// Arguments that another program reads.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Says where the command is, with the same arguments.
pub(crate) fn refusal(command: &str, args: &Args) -> anyhow::Error {
    let words = std::iter::once(command).chain(args.arguments.iter().map(String::as_str));
    let typed = words.collect::<Vec<_>>().join(" ");
    bad_input(
        format!("moved to hapo-lab: cargo run --release -p hapo-lab -- {typed}"),
        "type it in a checkout of the repository; the wheel does not contain hapo-lab",
    )
}
