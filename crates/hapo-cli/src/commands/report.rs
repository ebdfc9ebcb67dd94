//! `hapo report`: a page, and figures for papers.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{sync::mpsc, time::Duration};

use anyhow::Result;

/// One self-contained page of one or several runs.
///
/// A folder that holds runs below it, such as a quickstart's, stands for all of them. Runs that differ in their
/// seed alone are drawn as one line with a band. The page needs no network; a run that is broken or still going
/// gives a page with what there is.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo report runs/try -o report.html\n         hapo report runs/grpo runs/hapo -o both.html --figures figures\n         hapo report runs/try --every 10 --open"
)]
pub(crate) struct Args {
    /// Run folders, or folders of runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where the page goes
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    out: PathBuf,
    /// Write each figure as SVG into this folder
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Write the page again every SECONDS until the runs end; the browser follows
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    every: Option<u64>,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Print the files' names as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    crate::support::arguments::not_an_input(&args.out, &args.runs, "html")?;
    let is_open = args.every.map_or(Ok(false), |seconds| follow(args, seconds))?;
    let page = hapo_report::report(&args.runs)?;
    hapo_run::write_atomically(&args.out, page.as_bytes())?;
    let figures = args.figures.as_ref().map(|folder| hapo_report::figures(&args.runs, folder));
    let figures = figures.transpose()?.unwrap_or_default();
    // As text: a path that is no UTF-8 has no JSON.
    let figures: Vec<String> = figures.iter().map(|it| it.display().to_string()).collect();
    let out = args.out.display().to_string();
    if args.json {
        outln!("{}", serde_json::json!({ "page": out, "bytes": page.len(), "figures": figures }));
    } else {
        for it in [&out].into_iter().chain(&figures) {
            outln!("{it}");
        }
        // An adapter's checkpoint is no model by itself.
        if let Some((_, model)) = hapo_run::RunFolder(&args.runs[0]).list_checkpoints()?.first() {
            let config = model.join("config.json");
            if hapo_core::found_at(&config)?.is_some() {
                errln!("to try the model: hapo chat --model {}", model.display());
            }
        }
    }
    if args.open && !is_open {
        open(&args.out);
    }
    Ok(())
}

/// Writes the page of growing runs again and again; says whether a browser shows it already.
fn follow(args: &Args, seconds: u64) -> Result<bool> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        // Nobody listens while the last page is written.
        let _ = stop.send(());
    })?;
    let mut is_open = false;
    while let Some(page) = hapo_report::growing_report(&args.runs, seconds)? {
        hapo_run::write_atomically(&args.out, page.as_bytes())?;
        if !std::mem::replace(&mut is_open, true) {
            errln!("{} is written again every {seconds} s; Ctrl-C ends that", args.out.display());
            if args.open {
                open(&args.out);
            }
        }
        if stopped.recv_timeout(Duration::from_secs(seconds)).is_ok() {
            break;
        }
    }
    Ok(is_open)
}

/// Opens a file as the desktop would; where there is no desktop, says so.
pub(crate) fn open(path: &Path) {
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let mut command = std::process::Command::new(program);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(it) = command.spawn() {
        errln!("cannot open {} with {program}: {it}", path.display());
    }
}
