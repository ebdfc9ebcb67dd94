//! Many runs, a line each.

use std::path::PathBuf;
use std::time::SystemTime;

use hapo_core::Refusal;
use hapo_run::RunFolder;
use serde::Serialize;

use crate::folder::{self, Run, State};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunLine {
    /// As much of its path as tells it from the others.
    pub name: String,
    /// As text: a path that is no UTF-8 has no JSON.
    pub path: String,
    pub method: Option<String>,
    pub steps: u64,
    pub planned: Option<u64>,
    /// `finished`, `running`, or `unfinished` where no process trains in the folder.
    pub state: &'static str,
    /// Mean reward of the policy's own rollouts over the first and the last tenth of the steps.
    pub reward: Option<[f64; 2]>,
    /// The first evaluation, that of the start where there is one, and the last: avg@k, or the mean reward where one other
    /// than 0 and 1 occurred.
    pub evaluation: Option<[f64; 2]>,
    /// Seconds since it last wrote a step.
    pub seconds_ago: Option<u64>,
    /// Its files that cannot be read, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// The runs in `folders`, the latest first; each folder is a run or holds runs below it.
///
/// # Errors
/// A folder without a run.
pub fn overview(folders: &[PathBuf]) -> Result<Vec<RunLine>, Refusal> {
    let runs = folder::read_all(&folder::find(folders)?);
    let mut lines: Vec<RunLine> = runs.iter().map(line).collect();
    lines.sort_by_key(|it| it.seconds_ago);
    Ok(lines)
}

fn line(run: &Run) -> RunLine {
    // On EIO the age is not told; what cannot be read is named beside the line.
    let written = std::fs::metadata(RunFolder(&run.path).metrics()).and_then(|it| it.modified());
    let age = written.ok().and_then(|it| SystemTime::now().duration_since(it).ok());
    let looks = run.evaluations();
    RunLine {
        name: run.name.clone(),
        path: run.path.display().to_string(),
        method: run.text("method").map(str::to_owned),
        steps: run.columns.steps().last().map_or(0, |it| *it as u64),
        planned: run.planned(),
        state: match run.state {
            State::Finished => "finished",
            State::Running => "running",
            State::Unfinished => "unfinished",
        },
        reward: run.columns.ends("reward/policy_only").map(|it| it.0),
        evaluation: looks.first().zip(looks.last()).map(|(first, last)| [first.1, last.1]),
        seconds_ago: age.map(|it| it.as_secs()),
        unreadable: run.unreadable.clone(),
    }
}
