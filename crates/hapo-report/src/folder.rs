//! A run folder, read as far as it can be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::metrics::{self, Columns};

/// How far below a named folder runs are looked for.
const DEPTH: usize = 2;

/// What a run folder holds. Whatever is missing or broken is told in `notes`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// How the page calls it: the folder's name.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) columns: Columns,
    /// The resolved recipe, `section.key` to its value as TOML.
    pub(crate) recipe: BTreeMap<String, String>,
    pub(crate) gate: Option<GateTable>,
    /// Steps whose rollouts are kept.
    pub(crate) rollout_steps: Vec<u64>,
    pub(crate) state: State,
    pub(crate) notes: Vec<String>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Every step of the recipe is logged.
    Finished,
    /// A process holds the folder's lock.
    Running,
    /// Neither.
    Unfinished,
}

/// The part of `gate.json` that the page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GateTable {
    #[serde(default)]
    pub(crate) gate: serde_json::Value,
    #[serde(default, alias = "failure_level")]
    pub(crate) success_limit: Option<u64>,
    #[serde(default)]
    pub(crate) gamma0: Option<f64>,
    #[serde(default)]
    pub(crate) turn_off_epoch: Option<f64>,
    #[serde(default)]
    pub(crate) steps_per_epoch: Option<u64>,
    /// The first step at which the gate is closed for good.
    #[serde(default)]
    pub(crate) extinct_at_step: Option<u64>,
    #[serde(default)]
    pub(crate) rungs: Vec<Rung>,
}

/// A number of successes and the step from which groups with so many are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rung {
    pub(crate) successes: u64,
    #[serde(default)]
    pub(crate) first_closed_step: Option<u64>,
}

impl GateTable {
    /// The step at which the highest rung closes: the gate begins to anneal.
    pub(crate) fn annealing_from(&self) -> Option<u64> {
        let highest = self.rungs.iter().max_by_key(|it| it.successes)?;
        highest.first_closed_step
    }
}

impl Run {
    /// The recipe's steps.
    pub(crate) fn planned(&self) -> Option<u64> {
        self.recipe.get("steps")?.parse().ok()
    }

    /// A text of the recipe, without its quotes.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        Some(self.recipe.get(key)?.trim_matches('"'))
    }

    /// What tells recipes apart but for their seeds and names.
    pub(crate) fn recipe_without_seed(&self) -> Vec<(&String, &String)> {
        let seedless = |key: &str| !matches!(key, "seed" | "name" | "data.seed");
        self.recipe.iter().filter(|it| seedless(it.0)).collect()
    }

    pub(crate) fn rollouts_of(&self, step: u64) -> PathBuf {
        self.path
            .join("rollouts")
            .join(format!("step-{step:06}.jsonl.zst"))
    }
}

/// The runs of `folders`, each a run or a folder of runs.
///
/// # Errors
/// A folder that is neither.
pub(crate) fn find(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    for it in folders {
        if found(std::slice::from_ref(it)).is_empty() {
            return Err(Error::NoRun(it.clone()));
        }
    }
    Ok(found(folders))
}

/// As [`find`], for folders that may hold a run later.
pub(crate) fn found(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for it in folders {
        expand(it, DEPTH, &mut all);
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|it| seen.insert(it.clone()));
    all
}

fn expand(folder: &Path, depth: usize, all: &mut Vec<PathBuf>) {
    if folder.join("recipe.toml").is_file() || folder.join("metrics.jsonl").is_file() {
        all.push(folder.to_owned());
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    if depth == 0 {
        return;
    }
    let mut below: Vec<PathBuf> = entries
        .filter_map(std::result::Result::ok)
        .map(|it| it.path())
        .filter(|it| it.is_dir())
        .collect();
    below.sort();
    for it in below {
        expand(&it, depth - 1, all);
    }
}

/// Reads runs and gives each a name of its own: as much of the end of its path as it takes.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Run>> {
    let mut runs = paths
        .iter()
        .map(|it| read(it))
        .collect::<Result<Vec<_>>>()?;
    for parts in 1..=6 {
        let names: Vec<String> = paths.iter().map(|it| end_of(it, parts)).collect();
        for (run, name) in runs.iter_mut().zip(&names) {
            run.name.clone_from(name);
        }
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        if distinct.len() == names.len() {
            break;
        }
    }
    Ok(runs)
}

fn end_of(path: &Path, parts: usize) -> String {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let all: Vec<String> = whole
        .iter()
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    all[all.len().saturating_sub(parts)..].join("/")
}

fn read(path: &Path) -> Result<Run> {
    let mut notes = Vec::new();
    let columns = metrics::read(&path.join("metrics.jsonl"), &mut notes)?;
    let recipe = read_recipe(path, &mut notes)?;
    let gate = read_gate(path, &mut notes)?;
    let rollout_steps = rollout_steps(path);
    let mut run = Run {
        name: String::new(),
        path: path.to_owned(),
        columns,
        recipe,
        gate,
        rollout_steps,
        state: State::Unfinished,
        notes,
    };
    let logged = run.columns.steps().last().copied().unwrap_or(0.0);
    run.state = match run.planned() {
        Some(planned) if logged >= planned as f64 => State::Finished,
        _ if is_locked(&path.join("run.lock")) => State::Running,
        _ => State::Unfinished,
    };
    // Imitation samples nothing.
    if run.rollout_steps.is_empty() && run.columns.get("reward/policy_only").is_some() {
        run.notes
            .push("No rollouts are kept; there are none to browse.".to_owned());
    }
    Ok(run)
}

fn read_text(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(it) => Ok(Some(String::from_utf8_lossy(&it).into_owned())),
        Err(it) if it.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(it) => Err(Error::io("read", path)(it)),
    }
}

fn read_recipe(folder: &Path, notes: &mut Vec<String>) -> Result<BTreeMap<String, String>> {
    let mut flat = BTreeMap::new();
    match read_text(&folder.join("recipe.toml"))? {
        None => notes.push("recipe.toml is missing.".to_owned()),
        Some(text) => match text.parse::<toml::Table>() {
            Ok(it) => flatten("", &toml::Value::Table(it), &mut flat),
            Err(it) => notes.push(format!("recipe.toml cannot be read: {}.", it.message())),
        },
    }
    Ok(flat)
}

fn flatten(path: &str, value: &toml::Value, flat: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = match path {
                    "" => key.clone(),
                    _ => format!("{path}.{key}"),
                };
                flatten(&path, value, flat);
            }
        }
        other => {
            flat.insert(path.to_owned(), other.to_string());
        }
    }
}

fn read_gate(folder: &Path, notes: &mut Vec<String>) -> Result<Option<GateTable>> {
    let Some(text) = read_text(&folder.join("gate.json"))? else {
        return Ok(None);
    };
    match serde_json::from_str(&text) {
        Ok(it) => Ok(Some(it)),
        Err(it) => {
            notes.push(format!("gate.json cannot be read: {it}."));
            Ok(None)
        }
    }
}

fn rollout_steps(folder: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(folder.join("rollouts")) else {
        return Vec::new();
    };
    let mut steps: Vec<u64> = entries
        .filter_map(std::result::Result::ok)
        .filter_map(|it| {
            let name = it.file_name();
            let digits = name
                .to_str()?
                .strip_prefix("step-")?
                .strip_suffix(".jsonl.zst")?;
            digits.parse().ok()
        })
        .collect();
    steps.sort_unstable();
    steps
}

/// Whether a process holds the lock. The list of the system is read rather than the lock tried: a try
/// would refuse a run that starts at that moment.
#[cfg(target_os = "linux")]
pub(crate) fn is_locked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(inode) = fs::metadata(path).map(|it| it.ino()) else {
        return false;
    };
    let suffix = format!(":{inode}");
    fs::read_to_string("/proc/locks").is_ok_and(|locks| {
        locks.lines().any(|line| {
            let mut fields = line.split_whitespace();
            fields.any(|it| it == "FLOCK") && fields.any(|it| it.ends_with(&suffix))
        })
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_locked(_path: &Path) -> bool {
    false
}

/// Sets of runs that differ in their seed alone, in the order of their first.
pub(crate) fn seed_groups(runs: &[Run]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let same = |group: &&mut Vec<usize>| {
            let first = &runs[group[0]];
            !run.recipe.is_empty() && first.recipe_without_seed() == run.recipe_without_seed()
        };
        match groups.iter_mut().find(same) {
            Some(it) => it.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Keys in which recipes differ, with the value in each run.
pub(crate) fn differences(runs: &[Run]) -> Vec<(String, Vec<Option<String>>)> {
    let keys: std::collections::BTreeSet<&String> =
        runs.iter().flat_map(|it| it.recipe.keys()).collect();
    keys.into_iter()
        .map(|key| {
            let values = runs.iter().map(|it| it.recipe.get(key).cloned()).collect();
            (key.clone(), values)
        })
        .filter(|it: &(_, Vec<_>)| it.1.iter().any(|value| *value != it.1[0]))
        .collect()
}
