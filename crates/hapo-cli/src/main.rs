//! The command `hapo`.

fn main() -> std::process::ExitCode {
    hapo_cli::main()
}
