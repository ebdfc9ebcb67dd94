//! `hapo completions`: a shell's script that completes commands, flags and values.

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

/// Bash writes no space behind `--set optim.lr=`.
const NO_SPACE: &str = "
_hapo_values() {
    _hapo \"$@\"
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -F _hapo_values -o bashdefault -o default hapo
";

pub(crate) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    use std::io::Write;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hapo", &mut script);
    if args.shell == Shell::Bash {
        script.extend_from_slice(NO_SPACE.as_bytes());
    }
    std::io::stdout().write_all(&script)?;
    Ok(())
}
