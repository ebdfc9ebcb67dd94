//! `hapo-lab paper`: each table and figure of the paper at CPU size, by one command.
//!
//! The runs are those of [`crate::family::paper`]; the page and its figures come from their record alone.

mod figures;
mod page;

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_cli::support::arguments::count;
use hapo_run::write_atomically;

use crate::family::make::study;
use crate::family::paper::{SECTIONS, STABILITY_TABLE, write_stability_file};
use crate::family::plan::StudyPlan;
use crate::family::record::Record;
use crate::family::{StudyProgress, arm::Section};

/// Each table and figure of the paper at CPU size: runs, page and pictures.
///
/// Runs that are in the record are not made again, so the command continues where it stopped. About two hours on two
/// cores without the stability study, which takes another 90 minutes and is made where it is named.
#[derive(clap::Args)]
#[command(
    before_help = "Examples: hapo-lab paper --jobs 2\n          hapo-lab paper --only stability --jobs 2\n          hapo-lab paper --tables"
)]
pub(crate) struct Args {
    /// Only these: table-1, table-2, gamma0, stability
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these rows of them, such as paper-trapo
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Seeds of each row, in place of the tables' own numbers
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1, value_parser = count(1 << 32))]
    jobs: usize,
    /// Folder of the runs
    #[arg(long, default_value = "runs/paper")]
    out: PathBuf,
    /// Folder of the record paper.runs.jsonl, of the page paper.md and of its figures
    #[arg(long, default_value = "docs/results")]
    records: PathBuf,
    /// Make the page and the figures of the runs that are in the record, and start none
    #[arg(long)]
    tables: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
}

const RECORD: &str = "paper.runs.jsonl";

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let record = args.records.join(RECORD);
    if !args.tables {
        let plan = args.plan(threads)?;
        write_stability_file(&plan.out)?;
        let observer = StudyProgress::new(args.quiet, args.jobs == 1)?;
        let outcome = study(&plan, &observer)?;
        hapo_run::create_folder(&args.records)?;
        write_atomically(&record, &std::fs::read(plan.out.join("family.runs.jsonl"))?)?;
        if !args.quiet {
            eprintln!(
                "{}: {} of {} runs are missing",
                record.display(),
                outcome.missing,
                outcome.runs
            );
        }
    }
    write_page(&record, &args.records)
}

/// Writes the page and its figures of a record.
fn write_page(record: &Path, out: &Path) -> Result<()> {
    let done = Record::read(record)?.of_tables();
    for (name, svg) in figures::all(&done) {
        write_atomically(&out.join(name), svg.as_bytes())?;
    }
    Ok(write_atomically(&out.join("paper.md"), page::of(&done)?.as_bytes())?)
}

/// The page and its figures in `out`, where `records` have a record.
pub(crate) fn write_results(records: &Path, out: &Path) -> Result<()> {
    let record = records.join(RECORD);
    if record.exists() { write_page(&record, out) } else { Ok(()) }
}

impl Args {
    fn plan(&self, threads: usize) -> Result<StudyPlan> {
        let known = || SECTIONS.iter().map(|it| it.name.as_str());
        if let Some(name) = self.only.iter().find(|name| known().all(|it| it != **name)) {
            let hint = format!("tables are {}", known().collect::<Vec<_>>().join(", "));
            return Err(bad_input(format!("expected a table of the paper, got `{name}`"), hint));
        }
        let wanted = |it: &&Section| match &self.only[..] {
            [] => it.name != STABILITY_TABLE,
            only => only.contains(&it.name),
        };
        let record = self.records.join(RECORD);
        let sections: Vec<&Section> = SECTIONS.iter().filter(wanted).collect();
        crate::family::make::require_arms(&self.arms, &sections)?;
        Ok(StudyPlan {
            arms: self.arms.clone(),
            seeds: self.seeds,
            jobs: self.jobs,
            record: if record.exists() { Record::read(&record)? } else { Record::default() },
            ..StudyPlan::new(sections, threads, self.out.clone())
        })
    }
}
