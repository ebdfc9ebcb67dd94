//! `hapo-lab`: studies of methods, teachers and base models, and benchmarks of this machine.
//!
//! The project's own experiments; no user needs them to train a model. The wheel leaves it out.
#![expect(clippy::print_stderr, reason = "a command prints")]

mod bench;
mod chart;
mod evidence;
mod exact;
mod family;
mod paper;
mod replay;
mod seeds;

use clap::{Parser, Subcommand};
use hapo_cli::failure;
use hapo_cli::support::arguments::count;

/// Studies of methods, teachers and base models, and benchmarks of this machine.
#[derive(Parser)]
#[command(
    name = "hapo-lab",
    version = hapo_cli::VERSION,
    before_help = "Example: hapo-lab family --only 0-exact --jobs 2"
)]
struct Cli {
    /// Worker threads; results do not depend on it.
    #[arg(long, global = true, value_name = "N", env = "HAPO_THREADS", value_parser = count(1024))]
    threads: Option<usize>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ways of using a teacher side by side: methods, bases, teachers, seeds
    Family(Box<family::Args>),
    /// Each table and figure of the paper at CPU size
    Paper(paper::Args),
    /// Every table and picture of docs/results, from its records
    Evidence(evidence::Args),
    /// This machine's tokens per second: training, sampling, decoding, a whole step, grading
    Bench(bench::Args),
    /// A recorded batch, computed again: losses, gradient norms, parameters after each step
    Replay(replay::Args),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let threads = hapo_cli::threads(cli.threads);
    let done = match &cli.command {
        Command::Family(args) => family::run(args, threads),
        Command::Paper(args) => paper::run(args, threads),
        Command::Evidence(args) => evidence::run(args),
        Command::Bench(args) => bench::run(args, threads),
        Command::Replay(args) => replay::run(args, threads),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => failure::report(&error, "--out").into(),
    }
}
