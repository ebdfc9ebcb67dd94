//! The numbers of runs for other tools: a table, the lines that a tracker logs, or a line for each run.

use std::{collections::BTreeSet, path::PathBuf, time::SystemTime};

use hapo_core::Refusal;
use hapo_run::{RunFolder, recipe_value};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::folder::{self, Run, State};

/// The runs in `folders`, as far as they are logged; each is a run or holds runs below it.
pub fn logged_runs(folders: &[PathBuf]) -> Result<Vec<Run>, Refusal> {
    Ok(folder::read_all(&folder::find(folders)?))
}

impl Run {
    /// Its folder, without the links that lead there: its name changes when other runs appear, this does not.
    pub fn folder(&self) -> PathBuf {
        folder::canonical(&self.path)
    }

    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// A tracker's settings of a run: the resolved recipe, key by key, and the build.
    pub fn settings(&self) -> Value {
        let mut settings: Map<String, Value> =
            self.recipe.iter().map(|(key, toml)| (key.clone(), value_of(toml))).collect();
        settings.insert("build".to_owned(), json!(self.build));
        Value::Object(settings)
    }

    pub fn steps_after(&self, last: u64) -> Vec<(u64, Map<String, Value>)> {
        let columns = &self.columns;
        let numbers = |row: usize| {
            let number = |name: &String| {
                let value = columns.get(name)?[row];
                value.is_finite().then(|| (name.clone(), json!(value)))
            };
            columns.names().iter().filter(|it| *it != "step").filter_map(number).collect()
        };
        let rows = columns.steps().iter().enumerate().filter(|(_, step)| **step > last as f64);
        rows.map(|(row, step)| (*step as u64, numbers(row))).collect()
    }
}

fn value_of(toml: &str) -> Value {
    serde_json::to_value(recipe_value(toml)).unwrap_or_else(|_| json!(toml))
}

/// A table with a row for each step of each run and a column for each name; empty where a step has no number.
pub fn csv(runs: &[Run]) -> String {
    let mut seen = BTreeSet::from(["step"]);
    let names = runs.iter().flat_map(|it| it.columns.names()).map(String::as_str);
    let names: Vec<&str> = names.filter(|it| seen.insert(it)).collect();
    let mut table = csv::Writer::from_writer(Vec::new());
    let written = "a table in memory can be written";
    table.write_record(["run", "step"].iter().chain(&names)).expect(written);
    for run in runs {
        let columns: Vec<Option<&[f64]>> = names.iter().map(|it| run.columns.get(it)).collect();
        for (row, step) in run.columns.steps().iter().enumerate() {
            let numbers = columns.iter().map(|column| match column {
                Some(column) if column[row].is_finite() => column[row].to_string(),
                _ => String::new(),
            });
            let cells = [run.name.clone(), step.to_string()].into_iter().chain(numbers);
            table.write_record(cells).expect(written);
        }
    }
    String::from_utf8(table.into_inner().expect(written)).expect("names and numbers are text")
}

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

/// The runs in `folders`, the latest first; each folder is a run or holds runs below it, or is refused.
pub fn overview(folders: &[PathBuf]) -> Result<Vec<RunLine>, Refusal> {
    let mut lines: Vec<RunLine> = logged_runs(folders)?.iter().map(line).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &std::path::Path, name: &str, metrics: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("metrics.jsonl"), metrics).unwrap();
        let recipe =
            "# resolved by hapo 1\nsteps = 2\n[optim]\nlr = 1e-4\n[data]\ntrain = [\"a\"]\n";
        std::fs::write(path.join("recipe.toml"), recipe).unwrap();
    }

    #[test]
    fn a_table_has_every_name_once_and_gaps_where_a_run_has_none() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), "a", "{\"step\":1,\"loss\":0.5,\"x,y\":null}\n{\"step\":2,\"loss\":3}\n");
        run(dir.path(), "b", "{\"step\":1,\"reward/mean\":0.25}\n");
        let runs = logged_runs(&[dir.path().to_owned()]).unwrap();
        let expected = "run,step,loss,\"x,y\",reward/mean\na,1,0.5,,\na,2,3,,\nb,1,,,0.25\n";
        assert_eq!(csv(&runs), expected);
    }

    #[test]
    fn trackers_get_new_steps_and_the_recipe_as_values() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), "a", "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":null,\"lr\":1}\n");
        let it = &logged_runs(&[dir.path().join("a")]).unwrap()[0];
        assert_eq!(it.name, "a");
        assert!(!it.is_running());
        let steps = it.steps_after(1);
        assert_eq!(serde_json::to_string(&steps).unwrap(), r#"[[2,{"lr":1.0}]]"#);
        let settings =
            json!({ "steps": 2, "optim.lr": 1e-4, "data.train": ["a"], "build": "hapo 1" });
        assert_eq!(it.settings(), settings);
    }
}
