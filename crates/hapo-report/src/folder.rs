//! A run folder, read as far as it can be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hapo_core::ScheduleTable;
use hapo_run::{Columns, EarlyEnd, RunFolder, is_locked, recipe_entries};
use serde::Serialize;

use crate::error::{Error, Result};

/// How far below a named folder runs are looked for.
const DEPTH: usize = 2;

/// What a run folder holds. Whatever is missing or broken is said in `notes`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// How the page calls it: the folder's name.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) columns: Columns,
    /// The resolved recipe, `section.key` to its value as TOML.
    pub(crate) recipe: BTreeMap<String, String>,
    /// What resolved the recipe: version, commit and CPU.
    pub(crate) build: Option<String>,
    pub(crate) gate: Option<ScheduleTable>,
    /// Steps whose rollouts are kept.
    pub(crate) rollout_steps: Vec<u64>,
    pub(crate) state: State,
    /// Why it has ended before its last step.
    pub(crate) ended_early: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Every step of the recipe is logged, or the run has ended early.
    Finished,
    /// A process holds the folder's lock.
    Running,
    /// Neither.
    Unfinished,
}

/// The step at which the highest rung closes: the gate begins to anneal.
pub(crate) fn annealing_from(gate: &ScheduleTable) -> Option<u64> {
    let highest = gate.rungs.iter().max_by_key(|it| it.successes)?;
    Some(highest.first_closed_step)
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
    let run = RunFolder(folder);
    if run.recipe().is_file() || run.metrics().is_file() {
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
    let mut runs = paths.iter().map(|it| read(it)).collect::<Result<Vec<_>>>()?;
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
    let all: Vec<String> = whole.iter().map(|it| it.to_string_lossy().into_owned()).collect();
    all[all.len().saturating_sub(parts)..].join("/")
}

fn read(path: &Path) -> Result<Run> {
    let folder = RunFolder(path);
    let mut notes = Vec::new();
    let columns = Columns::read(&folder.metrics(), &mut notes)?;
    let (recipe, build) = read_recipe(folder, &mut notes)?;
    let gate = read_gate(folder, &mut notes)?;
    let mut run = Run {
        name: String::new(),
        path: path.to_owned(),
        columns,
        recipe,
        build,
        gate,
        rollout_steps: folder.rollout_steps(),
        state: State::Unfinished,
        ended_early: None,
        notes,
    };
    let logged = run.columns.steps().last().copied().unwrap_or(0.0);
    let end = EarlyEnd::read(folder).filter(|it| logged == it.step as f64);
    run.ended_early = end.map(|it| it.because);
    run.state = match run.planned() {
        _ if run.ended_early.is_some() => State::Finished,
        Some(planned) if logged >= planned as f64 => State::Finished,
        _ if is_locked(&folder.lock()) => State::Running,
        _ => State::Unfinished,
    };
    // Imitation samples nothing.
    if run.rollout_steps.is_empty() && run.columns.get("reward/policy_only").is_some() {
        run.notes.push("No rollouts are kept; there are none to browse.".to_owned());
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

/// The recipe's entries, and the build that its first line names.
type RecipeAndBuild = (BTreeMap<String, String>, Option<String>);

fn read_recipe(folder: RunFolder<'_>, notes: &mut Vec<String>) -> Result<RecipeAndBuild> {
    let Some(text) = read_text(&folder.recipe())? else {
        notes.push("recipe.toml is missing.".to_owned());
        return Ok((BTreeMap::new(), None));
    };
    let first = text.lines().next().unwrap_or_default();
    let build = first.strip_prefix("# resolved by ").map(ToOwned::to_owned);
    let recipe = recipe_entries(&text).unwrap_or_else(|it| {
        notes.push(format!("recipe.toml cannot be read: {it}."));
        BTreeMap::new()
    });
    Ok((recipe, build))
}

fn read_gate(folder: RunFolder<'_>, notes: &mut Vec<String>) -> Result<Option<ScheduleTable>> {
    let Some(text) = read_text(&folder.gate())? else {
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
