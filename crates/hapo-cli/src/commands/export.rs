//! `hapo export`: the numbers of runs, elsewhere.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use hapo_report::LoggedRun;
use serde_json::{Value, json};

use crate::failure::bad_input;

/// The program that logs with a tracker's own package.
const SCRIPT: &str = include_str!("export.py");
/// Between two looks at a running run.
const PAUSE: Duration = Duration::from_secs(2);

/// Where numbers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// A table: a row for each step of each run, a column for each metric
    Csv,
    /// Weights & Biases
    Wandb,
    /// Trackio
    Trackio,
    /// `MLflow`
    Mlflow,
}

/// The numbers of runs as a table, or into a tracker.
///
/// A tracker is driven through its own Python package, which finds its account, its address and its offline mode in
/// its own environment variables. Each run becomes a run of the tracker, with the resolved recipe as its settings;
/// names of metrics are those of metrics.jsonl (`MLflow` has no `@`: `eval/avg_at_k`).
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo export runs/try --to csv -o try.csv\n         WANDB_MODE=offline hapo export runs/try --to wandb --project sums --follow"
)]
pub(crate) struct Args {
    /// Run folders, or folders of runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where the numbers go
    #[arg(long, value_enum, default_value_t = Target::Csv)]
    to: Target,
    /// File of the table [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The tracker's project or experiment
    #[arg(long, default_value = "hapo")]
    project: String,
    /// Send new steps as they are logged, until no run is running
    #[arg(long)]
    follow: bool,
    /// The Python that has the tracker's package
    #[arg(long, default_value = "python3", env = "HAPO_PYTHON")]
    python: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let tracker = match args.to {
        Target::Csv => return table(args),
        Target::Wandb => "wandb",
        Target::Trackio => "trackio",
        Target::Mlflow => "mlflow",
    };
    if args.out.is_some() {
        return Err(bad_input(
            "--out: only a table is written to a file",
            "leave it out, or choose --to csv",
        ));
    }
    let mut senders: Vec<Sender> = Vec::new();
    loop {
        let runs = hapo_report::logged_runs(&args.runs)?;
        for it in &runs {
            let known = senders.iter().position(|sender| sender.run == it.name());
            if let Some(at) = known {
                senders[at].send(it)?;
            } else {
                let mut sender = Sender::start(args, tracker, it)?;
                sender.send(it)?;
                senders.push(sender);
            }
        }
        if !args.follow || !runs.iter().any(LoggedRun::is_running) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for it in senders {
        it.finish(tracker)?;
    }
    Ok(())
}

fn table(args: &Args) -> Result<()> {
    if args.follow {
        return Err(bad_input("--follow: a table is written once", "choose a tracker with --to"));
    }
    let table = hapo_report::csv(&hapo_report::logged_runs(&args.runs)?);
    match &args.out {
        Some(file) => hapo_run::write_atomically(file, table.as_bytes())?,
        None => std::io::stdout().write_all(table.as_bytes())?,
    }
    Ok(())
}

/// One run and the process that logs it.
struct Sender {
    run: String,
    process: Child,
    /// The last step that was sent.
    last: u64,
}

impl Sender {
    fn start(args: &Args, tracker: &str, run: &LoggedRun) -> Result<Self> {
        let mut process = Command::new(&args.python)
            .args(["-c", SCRIPT, tracker, &args.project])
            .stdin(Stdio::piped())
            // The package's own output is not the result of this command.
            .stdout(std::io::stderr())
            .spawn()
            .map_err(|it| {
                bad_input(
                    format!("{} cannot start: {it}", args.python.display()),
                    format!("name the Python that has {tracker} with --python"),
                )
            })?;
        let first = json!({ "run": run.name(), "settings": run.settings() });
        // A process that ended says why when it is waited for.
        let _ = write_line(&mut process, &first);
        Ok(Self { run: run.name().to_owned(), process, last: 0 })
    }

    fn send(&mut self, run: &LoggedRun) -> Result<()> {
        for (step, metrics) in run.steps_after(self.last) {
            let line = json!({ "step": step, "metrics": metrics });
            if write_line(&mut self.process, &line).is_err() {
                return self.ended();
            }
            self.last = step;
        }
        Ok(())
    }

    /// The process took no more lines: it ended before its time.
    fn ended(&mut self) -> Result<()> {
        let status = self.process.wait().context("the tracker's process")?;
        anyhow::bail!("{}: the tracker's process ended early ({status})", self.run)
    }

    fn finish(mut self, tracker: &str) -> Result<()> {
        drop(self.process.stdin.take());
        let status = self.process.wait().context("the tracker's process")?;
        anyhow::ensure!(status.success(), "{}: {tracker} failed ({status})", self.run);
        errln!("{}: logged up to step {}", self.run, self.last);
        Ok(())
    }
}

fn write_line(process: &mut Child, line: &Value) -> std::io::Result<()> {
    let stdin = process.stdin.as_mut().expect("it is piped");
    writeln!(stdin, "{line}")?;
    stdin.flush()
}
