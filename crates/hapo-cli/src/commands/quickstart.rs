//! `hapo quickstart`: the built-in demonstration, end to end, no downloads.

use std::path::PathBuf;

use anyhow::Result;

use crate::commands::demonstration::{Demonstration, Stopped};
use crate::commands::train::ProgressObserver;
use crate::support::device::ComputeArg;
use crate::support::interrupt;

/// The built-in demonstration: GRPO and HAPO from the same base model, compared on held-out problems.
///
/// The runs are kept; a demonstration that was stopped resumes where it was.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo quickstart --minutes 5 --seed 1")]
pub(crate) struct Args {
    /// Roughly how long it may take on 2 cores; scales the steps of every run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Seed of the runs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the runs
    #[arg(long, default_value = "runs/quickstart")]
    out: PathBuf,
    #[command(flatten)]
    compute: ComputeArg,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
    /// Open the page of the runs in a browser at the end
    #[arg(long)]
    open: bool,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let (seed, minutes) = (args.seed, args.minutes);
    let mut name = format!("seed-{seed}-minutes-{minutes}");
    let compute = args.compute.set();
    if compute.is_some() {
        name += &format!("-{}", args.compute.or_f32());
    }
    let sets: Vec<String> = compute.into_iter().collect();
    let demonstration = Demonstration::new(args.out.join(name), minutes, seed, threads, &sets)?;
    let say = |text: &str| {
        if !args.quiet {
            errln!("{text}");
        }
    };
    say(&demonstration.plan());
    let stop = interrupt::flag()?;
    let outcome = demonstration.run(&|label, steps| {
        Box::new(ProgressObserver::new(label, steps, args.quiet, stop.clone()))
    })?;
    let table = match outcome {
        Ok(it) => it,
        Err(Stopped { label, step }) => {
            say(&format!("stopped in {label} after step {step}; the same command resumes"));
            return Ok(());
        }
    };
    let folder = demonstration.folder.clone();
    let page = folder.join("report.html");
    let html = hapo_report::report(std::slice::from_ref(&folder))?;
    hapo_run::write_atomically(&page, html.as_bytes())?;
    if args.json {
        outln!("{}", serde_json::to_string(&table)?);
    } else {
        outln!("{}", table.render());
        outln!("runs: {}", folder.display());
        outln!("page: {}", page.display());
    }
    if args.open {
        super::report::open(&page);
    }
    Ok(())
}
