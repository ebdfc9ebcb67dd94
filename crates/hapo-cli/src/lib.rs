//! The command `hapo`: samples, verifies, gates, injects, trains, evaluates and reports.
//!
//! A library so that `hapo-lab` shares its options, its progress and its way of ending with an error. The price: what the
//! two share is public.

/// `println!` that hands a closed pipe to the caller as an error instead of panicking.
#[macro_export]
macro_rules! outln {
    () => { $crate::outln!("") };
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), "{}", $crate::shown(&format!($($arg)*)))?
    }};
}

/// `eprintln!` that goes on where standard error is closed: a run must not end with the reader of its progress.
#[macro_export]
macro_rules! errln {
    () => { $crate::errln!("") };
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{}", $crate::printable(&format!($($arg)*)));
    }};
}

pub use hapo_core::printable;

/// A text for standard output. Models, files and servers wrote parts of it: on a terminal their escapes are not obeyed.
pub fn shown(text: &str) -> Cow<'_, str> {
    if std::io::stdout().is_terminal() { printable(text).into() } else { text.into() }
}

#[macro_use]
pub mod support;

mod commands;
pub mod failure;
mod help;
mod progress;
pub mod scoring;

use std::{borrow::Cow, ffi::OsString, io::IsTerminal};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::support::arguments::{count, finish_reward};

pub use crate::commands::export::Tracking;
pub use crate::commands::train::{ProgressObserver, sources_of, usual_run_dir};

use crate::commands::{
    chat, completions, data, doctor, eval, export, fetch, generate, grade, list, logprobs, merge,
    methods, new, plan, push, quickstart, recipe, replay, report, runs, schedule, serve, teacher,
    train,
};

/// The version and, where it is known, the commit.
pub const VERSION: &str = env!("HAPO_VERSION");

const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    failed: a full disk, a loss that is NaN or infinite, a guard that stopped the run
  2    bad input or usage; the message names the file, the row and the field
  130  stopped by a second Ctrl-C, or before the first step; else the first saves a checkpoint and ends with 0

Results and --json go to standard output, progress and messages to standard error.
Colours stay away where NO_COLOR is set or the output is no terminal.";

/// The output of `hapo` without a command.
const WHAT_NEXT: &str = "\
hapo trains language models by reinforcement learning with verifiable rewards.

Where to begin:
  hapo quickstart                          a whole run in minutes, no downloads, with a page at the end
  hapo train builtin:first                 a run that learns in 10 seconds; `hapo list recipes` has others
  hapo new --model DIR --data FILE         a recipe for your model and your data; `hapo recipe` explains its keys
  hapo report RUN                          a page of a run: is it learning, is the gate closed, why that verdict
  hapo report RUN --every 10               the same page while the run goes
  hapo generate --model builtin:base '12345+67890+13579=?'

`hapo help` lists every command, `hapo COMMAND --help` begins with an example.";

/// Post-training of language models by reinforcement learning with verifiable rewards, with a
/// teacher that helps only while it is needed.
#[derive(Parser)]
#[command(
    name = "hapo",
    version = VERSION,
    before_help = "Example: hapo quickstart        a whole run in minutes, no downloads",
    after_help = AFTER_HELP
)]
struct Cli {
    /// Worker threads; results do not depend on it.
    #[arg(long, global = true, value_name = "N", env = "HAPO_THREADS", value_parser = count(1024))]
    threads: Option<usize>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the demonstration: GRPO and HAPO from one base model, compared on held-out problems
    Quickstart(quickstart::Args),
    /// Train by a recipe
    Train(train::Args),
    /// Evaluate a model on your problems, or on the built-in task's
    Eval(eval::Args),
    /// Sample completions
    Generate(generate::Args),
    /// Talk to a model in the terminal
    Chat(chat::Args),
    /// Serve a model over HTTP, for clients of `openai`
    Serve(serve::Args),
    /// Grade completions against gold answers
    Grade(grade::Args),
    /// Inspect, check and convert files of problems; make the built-in task's
    Data(data::Args),
    /// Print log-probabilities, entropies and greedy continuations of token sequences
    Logprobs(logprobs::Args),
    /// Merge an adapter into the weights of its model
    Merge(merge::Args),
    /// Recompute the loss and the gradient of a run's step from its rollouts
    Replay(replay::Args),
    /// Ask a teacher for solutions, verify them, and keep the best
    Teacher(teacher::Args),
    /// Print when the teacher may help, step by step; of a recipe: hapo plan
    Schedule(schedule::Args),
    /// Explain the keys of a recipe
    Recipe(recipe::Args),
    /// Fetch models and datasets of the hub, to work offline later
    Fetch(fetch::Args),
    /// Write a recipe for your model and your data
    New(new::Args),
    /// Estimate the memory and the time of a run before it starts
    Plan(plan::Args),
    /// Make a self-contained page of runs, with figures for papers
    Report(report::Args),
    /// List runs, the latest first
    Runs(runs::Args),
    /// Find what is wrong with a run of hapo, TRL or verl, or a reward
    Doctor(doctor::Args),
    /// Write a run's numbers to a table or to a tracker
    Export(export::Args),
    /// Upload a checkpoint or a model folder to the Hugging Face hub
    Push(push::Args),
    /// Print the table of the methods, or the page of one
    Methods(methods::Args),
    /// List methods, operators, graders, templates, layouts, benchmarks, recipes
    List(list::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

impl Command {
    /// The option that names the output, for hints.
    fn output_option(&self) -> &'static str {
        match self {
            Self::Train(_) => "--run-dir",
            Self::Teacher(_) => "--output",
            Self::Eval(_) | Self::Generate(_) | Self::Quickstart(_) => "--out",
            _ => "output",
        }
    }
}

/// Runs the command that these arguments name, the program's first, and gives its exit code. Help and wrong usage may
/// end the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    #[cfg(unix)]
    support::interrupt::settle_signals();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match help::in_groups(Cli::command())
        .try_get_matches_from(&arguments)
        .and_then(|it| Cli::from_arg_matches(&it))
    {
        Ok(cli) => cli,
        Err(error) => return help::refuse(&error, &Cli::command(), &arguments),
    };
    let threads = threads(cli.threads);
    let Some(command) = cli.command else {
        return what_next().map_or_else(|error| failure::report(&error, "output"), |()| 0);
    };
    let output = command.output_option();
    let done = match command {
        Command::Quickstart(args) => quickstart::run(&args, threads),
        Command::Train(args) => train::run(&args, threads),
        Command::Eval(args) => eval::run(&args, threads),
        Command::Generate(args) => generate::run(&args, threads),
        Command::Chat(args) => chat::run(&args, threads),
        Command::Serve(args) => serve::run(&args, threads),
        Command::Grade(args) => grade::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Logprobs(args) => logprobs::run(&args, threads),
        Command::Merge(args) => merge::run(&args, threads),
        Command::Replay(args) => replay::run(&args, threads),
        Command::Teacher(args) => teacher::run(&args),
        Command::Schedule(args) => schedule::run(&args),
        Command::Recipe(args) => recipe::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::New(args) => new::run(&args, threads),
        Command::Plan(args) => plan::run(&args, threads),
        Command::Report(args) => report::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Push(args) => push::run(&args),
        Command::Methods(args) => methods::run(&args),
        Command::List(args) => list::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
    };
    match done.and_then(|()| finish_reward()) {
        Ok(()) => 0,
        Err(error) => failure::report(&error, output),
    }
}

/// The worker threads that `--threads` asks for, else one for each core.
pub fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

fn what_next() -> anyhow::Result<()> {
    outln!("{WHAT_NEXT}");
    Ok(())
}
