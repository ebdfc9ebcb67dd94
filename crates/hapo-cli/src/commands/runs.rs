//! `hapo runs`: the runs of a folder, a line each.

use crate::progress::duration;

/// A table of runs, the latest first.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo runs")]
pub(crate) struct Args {
    /// Run folders, or folders of runs
    #[arg(value_name = "FOLDER", default_value = "runs")]
    folders: Vec<std::path::PathBuf>,
    /// Print JSON: a list of runs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runs = hapo_report::overview(&args.folders)?;
    for it in &runs {
        warn_of_unreadable(&it.name, &it.unreadable);
    }
    if args.json {
        outln!("{}", serde_json::to_string(&runs)?);
        return Ok(());
    }
    let titles = ["run", "method", "steps", "reward", "eval", "state", "last step"];
    let mut table = vec![titles.map(str::to_owned).to_vec()];
    table.extend(runs.iter().map(cells));
    outln!("{}", hapo_eval::padded(&table).trim_end());
    if let Some(latest) = runs.first() {
        errln!("to see the latest: hapo report {}", latest.path);
    }
    Ok(())
}

/// Says which files of a run are missing from what is printed.
pub(super) fn warn_of_unreadable(run: &str, files: &[String]) {
    for it in files {
        errln!("warning: {run}: {it}");
    }
}

fn cells(run: &hapo_report::RunLine) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let ends = |ends: [f64; 2]| format!("{:.3} → {:.3}", ends[0], ends[1]);
    vec![
        // A name may hold line feeds.
        hapo_core::excerpt(&run.name, usize::MAX),
        or_dash(run.method.clone()),
        run.planned.map_or_else(|| run.steps.to_string(), |it| format!("{}/{it}", run.steps)),
        or_dash(run.reward.map(ends)),
        or_dash(run.evaluation.map(ends)),
        run.state.to_owned(),
        or_dash(run.seconds_ago.map(|it| format!("{} ago", duration(it as f64)))),
    ]
}
