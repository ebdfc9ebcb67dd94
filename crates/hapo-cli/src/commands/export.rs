//! `hapo export`: the numbers of runs, elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::{io::Write, time::Duration};

use anyhow::{Context, Result};
use hapo_report::Run;
use serde_json::{Value, json};

use crate::{
    commands::runs::warn_of_unreadable, failure::bad_input, progress::tell,
    support::arguments::not_an_input, support::machine,
};

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
    #[value(help = "MLflow")]
    Mlflow,
}

/// The numbers of runs as a table, or into a tracker.
///
/// A tracker is driven through its own Python package, which finds its account, its address and its offline mode in
/// its own environment variables. Each run becomes a run of the tracker, with the resolved recipe as its settings;
/// names of metrics are those of metrics.jsonl (without `@` in the last: `eval/avg_at_k`).
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
        let hint = "leave it out, or choose --to csv";
        return Err(bad_input("--out: only a table is written to a file", hint));
    }
    let mut loggers: Vec<Logger> = Vec::new();
    loop {
        let runs = hapo_report::logged_runs(&args.runs)?;
        for it in &runs {
            let folder = it.folder();
            let known = loggers.iter().position(|logger| logger.folder == folder);
            if known.is_none() {
                warn_of_unreadable(&it.name, &it.unreadable);
                loggers.push(Logger::start(&args.python, tracker, &args.project, it)?);
            }
            let at = known.unwrap_or(loggers.len() - 1);
            loggers[at].send(it)?;
        }
        if !args.follow || !runs.iter().any(Run::is_running) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for it in loggers {
        let (run, last) = (it.run.clone(), it.last);
        it.finish(tracker)?;
        errln!("{run}: logged up to step {last}");
    }
    Ok(())
}

/// The tracker of a recipe's `track`, which gets each step while the run trains. Nothing that fails there stops the run.
pub struct Tracking {
    tracker: &'static str,
    /// Dropped when the run is over.
    over: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Tracking {
    /// Begins where the recipe says so.
    pub fn of(recipe: &hapo_train::Recipe, folder: &Path) -> Option<Self> {
        let tracker = recipe.track?.name();
        let ((over, is_over), (end, ended)) = (mpsc::channel(), mpsc::channel());
        let folder = folder.to_owned();
        let run = folder.display().to_string();
        let failed = move |error: anyhow::Error| {
            tell(&format!(
                "warning: {error:#}; the run goes on, and `hapo export {run} --to {tracker}` logs it later"
            ));
        };
        let late = failed.clone();
        let started = std::thread::Builder::new().spawn(move || {
            follow(tracker, &folder, &is_over).unwrap_or_else(late);
            // Nobody waits any more after the time below.
            let _ = end.send(());
        });
        if let Err(error) = started {
            failed(error.into());
        }
        Some(Self { tracker, over: Some(over), ended })
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        const GRACE: Duration = Duration::from_mins(1);
        drop(self.over.take());
        if self.ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            tell(&format!("warning: {} has not finished after a minute", self.tracker));
        }
    }
}

fn follow(tracker: &str, folder: &Path, is_over: &Receiver<()>) -> Result<()> {
    let python = machine::python();
    let project = std::env::var("WANDB_PROJECT").unwrap_or_else(|_| "hapo".to_owned());
    let mut logger: Option<Logger> = None;
    loop {
        let is_last = is_over.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout);
        // A run that loads has no folder yet. On EIO the next look, or the last, has the steps.
        for run in hapo_report::logged_runs(&[folder.to_owned()]).unwrap_or_default() {
            let logger = match &mut logger {
                Some(it) => it,
                none => none.insert(Logger::start(Path::new(&python), tracker, &project, &run)?),
            };
            logger.send(&run)?;
        }
        if is_last {
            return logger.map_or(Ok(()), |it| it.finish(tracker));
        }
    }
}

fn table(args: &Args) -> Result<()> {
    if args.follow {
        return Err(bad_input("--follow: a table is written once", "choose a tracker with --to"));
    }
    if let Some(file) = &args.out {
        not_an_input(file, &args.runs, "csv")?;
    }
    let runs = hapo_report::logged_runs(&args.runs)?;
    for it in &runs {
        warn_of_unreadable(&it.name, &it.unreadable);
    }
    let table = hapo_report::csv(&runs);
    match &args.out {
        Some(file) => Ok(hapo_run::write_atomically(file, table.as_bytes())?),
        None => Ok(std::io::stdout().write_all(table.as_bytes())?),
    }
}

struct Logger {
    folder: PathBuf,
    /// Its name when it was first seen, which the tracker has.
    run: String,
    process: Child,
    last: u64,
}

impl Logger {
    fn start(python: &Path, tracker: &str, project: &str, run: &Run) -> Result<Self> {
        let mut process = Command::new(python)
            .args(["-c", SCRIPT, tracker, project])
            .stdin(Stdio::piped())
            // The package's own output is not the result of this command.
            .stdout(std::io::stderr())
            .spawn()
            .map_err(|it| {
                let hint = format!("name the Python that has {tracker} with HAPO_PYTHON");
                bad_input(format!("{} cannot start: {it}", python.display()), hint)
            })?;
        let first = json!({ "run": run.name, "settings": run.settings() });
        // A process that ended says why when it is waited for.
        let _ = write_line(&mut process, &first);
        Ok(Self { folder: run.folder(), run: run.name.clone(), process, last: 0 })
    }

    fn send(&mut self, run: &Run) -> Result<()> {
        for (step, metrics) in run.steps_after(self.last) {
            let line = json!({ "step": step, "metrics": metrics });
            if write_line(&mut self.process, &line).is_err() {
                let status = self.process.wait().context("the tracker's process")?;
                anyhow::bail!("{}: the tracker's process ended early ({status})", self.run);
            }
            self.last = step;
        }
        Ok(())
    }

    fn finish(mut self, tracker: &str) -> Result<()> {
        drop(self.process.stdin.take());
        let status = self.process.wait().context("the tracker's process")?;
        anyhow::ensure!(status.success(), "{}: {tracker} failed ({status})", self.run);
        Ok(())
    }
}

fn write_line(process: &mut Child, line: &Value) -> std::io::Result<()> {
    let stdin = process.stdin.as_mut().expect("it is piped");
    writeln!(stdin, "{line}")?;
    stdin.flush()
}
