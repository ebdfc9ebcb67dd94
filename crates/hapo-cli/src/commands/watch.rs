//! `hapo watch`: the report's page, live.

use std::path::PathBuf;

use anyhow::Result;
use hapo_report::LiveView;

/// The page of `hapo report`, live: it follows runs that continue, end, start again or are resumed.
///
/// Nothing can be changed through it. It listens on this machine alone unless --host says otherwise; there is no
/// password, so a --host that others can reach shows them prompts and completions.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo watch runs/try --port 8080")]
pub(crate) struct Args {
    /// Run folders, or folders of runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Port; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Address or name to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    hapo_report::require_runs(&args.runs)?;
    let view = LiveView::bind(&args.runs, &args.host, args.port)?;
    if view.is_public() {
        errln!(
            "warning: whoever reaches {} can read the runs' prompts and completions",
            view.url()
        );
    }
    outln!("{}", view.url());
    view.serve()?;
    Ok(())
}

/// Serves a run's page in the background and gives its address.
pub(crate) fn serve_aside(run_dir: &std::path::Path, port: u16) -> Result<String> {
    let view = LiveView::bind(&[run_dir.to_owned()], "127.0.0.1", port)?;
    let url = view.url();
    view.serve_aside()?;
    Ok(url)
}
