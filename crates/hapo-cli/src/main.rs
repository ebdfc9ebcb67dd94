//! `hapo`: samples, verifies, gates, injects, trains, evaluates and reports.
#![expect(
    clippy::print_stderr,
    reason = "the command line is the one crate that prints"
)]

/// `println!` that hands a closed pipe to the caller as an error instead of panicking.
macro_rules! outln {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($arg)*)?
    }};
}

mod commands;
mod failure;
mod hub;
mod interrupt;
mod model;
mod parquet_rows;
mod progress;

use clap::{Parser, Subcommand};

use crate::commands::{
    eval, generate, grade, list, logprobs, quickstart, replay, schedule, serve, train,
};

/// Post-training of language models by reinforcement learning with verifiable rewards, with a
/// teacher that helps only while it is needed.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Start with `hapo quickstart`: a whole run in minutes, no downloads."
)]
struct Cli {
    /// Worker threads; results do not depend on it.
    #[arg(long, global = true, value_name = "N", env = "HAPO_THREADS")]
    threads: Option<usize>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The built-in demonstration: GRPO and HAPO from the same base model, compared on held-out problems
    Quickstart(quickstart::Args),
    /// Train by a recipe
    Train(train::Args),
    /// Evaluate a model on the built-in task's held-out sets or on a file of problems
    Eval(eval::Args),
    /// Sample completions
    Generate(generate::Args),
    /// Serve a model over HTTP: chat completions and completions, as `openai` clients ask for them
    Serve(serve::Args),
    /// Grade completions against gold answers
    Grade(grade::Args),
    /// Log-probabilities, entropies and greedy continuations of token sequences
    Logprobs(logprobs::Args),
    /// Recompute a recorded batch: losses, gradient norms, parameters after each step
    Replay(replay::Args),
    /// The gate's table: when the teacher may enter, step by step
    Schedule(schedule::Args),
    /// What there is: methods, operators, graders, templates, layouts, benchmarks
    List(list::Args),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let threads = cli
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    let done = match cli.command {
        Command::Quickstart(args) => quickstart::run(&args, threads),
        Command::Train(args) => train::run(&args, threads),
        Command::Eval(args) => eval::run(&args, threads),
        Command::Generate(args) => generate::run(&args, threads),
        Command::Serve(args) => serve::run(&args, threads),
        Command::Grade(args) => grade::run(&args),
        Command::Logprobs(args) => logprobs::run(&args, threads),
        Command::Replay(args) => replay::run(&args, threads),
        Command::Schedule(args) => schedule::run(&args),
        Command::List(args) => list::run(&args),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
