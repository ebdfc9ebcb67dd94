//! Run folders to pages: the report and its figures; and to tables and trackers.
//!
//! A run folder is read as far as possible. Missing or broken parts become notes on the page; only a folder without a
//! run is an error. Runs are read with the types of `hapo-run` that wrote them. This crate writes nothing into them.

mod drawing;
mod evaluation;
mod export;
mod figures;
mod folder;
mod headline;
mod page;
mod rollouts;
mod summary;

use std::path::{Path, PathBuf};

use hapo_core::Refusal;
use hapo_run::write_atomically;

pub use export::{RunLine, csv, logged_runs, overview};
pub use folder::Run;
pub use summary::seeks_answers;

/// A self-contained page of the runs in `folders`; each is a run or holds runs below it.
pub fn report(folders: &[PathBuf]) -> Result<String, Refusal> {
    Ok(page::of(logged_runs(folders)?, None))
}

/// The page of runs that go on, which a browser reads again after so many seconds; `None` where every run has ended.
pub fn growing_report(folders: &[PathBuf], seconds: u64) -> Result<Option<String>, Refusal> {
    let runs = logged_runs(folders)?;
    let goes_on = runs.iter().any(|run| run.state != folder::State::Finished);
    Ok(goes_on.then(|| page::of(runs, Some(seconds))))
}

/// One figure of a run as SVG; `None` where the run has no such numbers.
pub fn figure(run: &Path, id: &str) -> Result<Option<String>, Refusal> {
    let runs = logged_runs(&[run.to_owned()])?;
    Ok(drawing::files(&runs).into_iter().find(|it| it.0 == id).map(|it| it.1))
}

/// Writes every figure of the runs in `folders` as SVG into `out`, and gives the files' names.
pub fn figures(folders: &[PathBuf], out: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let runs = logged_runs(folders)?;
    std::fs::create_dir_all(out).map_err(Refusal::io("create", out))?;
    let write = |(id, svg): (&str, String)| {
        let path = out.join(format!("{id}.svg"));
        write_atomically(&path, svg.as_bytes()).map(|()| path)
    };
    drawing::files(&runs).into_iter().map(write).collect()
}
