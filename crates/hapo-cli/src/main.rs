//! The command `hapo`.

fn main() -> std::process::ExitCode {
    hapo_cli::run(std::env::args_os()).into()
}
