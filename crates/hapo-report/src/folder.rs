//! A run folder, read as far as it can be read.

use std::path::{Component, Path, PathBuf};
use std::{collections::BTreeMap, fs};

use hapo_core::{Refusal, ScheduleTable, found_at, if_there};
use hapo_run::{
    Change, Columns, EarlyEnd, RunFolder, changes, entries, held_out_metric, is_locked, read_json,
    recipe_entries,
};
use serde::Serialize;

/// How far below a named folder runs are looked for.
const DEPTH: usize = 2;

/// The contents of a run folder. Missing or broken parts are listed in `notes`.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The folder's name, with as much of its path as tells it from the others.
    pub name: String,
    pub(crate) path: PathBuf,
    pub(crate) columns: Columns,
    /// The resolved recipe, `section.key` to its value as TOML.
    pub(crate) recipe: BTreeMap<String, String>,
    /// The build that resolved the recipe: version, commit and CPU.
    pub(crate) build: Option<String>,
    pub(crate) gate: Option<ScheduleTable>,
    /// Metrics of what it started from.
    start: BTreeMap<String, f64>,
    pub(crate) shift: f64,
    /// The stage that it continues, among the runs that were read.
    pub(crate) continues: Option<usize>,
    pub(crate) rollout_steps: Vec<u64>,
    pub(crate) state: State,
    pub(crate) ended_early: Option<String>,
    /// Its files that cannot be read, each with the reason; they are among the notes too.
    pub unreadable: Vec<String>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Every step of the recipe is logged, or the run has ended early.
    Finished,
    /// A process holds the folder's lock.
    Running,
    #[default]
    Unfinished,
}

/// The step at which the highest rung closes: the gate begins to anneal.
pub(crate) fn annealing_from(gate: &ScheduleTable) -> Option<u64> {
    Some(gate.rungs.iter().max_by_key(|it| it.successes)?.first_closed_step)
}

impl Run {
    pub(crate) fn planned(&self) -> Option<u64> {
        self.recipe.get("steps")?.parse().ok()
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        Some(self.recipe.get(key)?.trim_matches('"'))
    }

    /// The steps at which a metric is logged and its values; of an evaluation also that of the start, at step 0.
    pub(crate) fn points(&self, metric: &str) -> impl Iterator<Item = (f64, f64)> {
        let start = self.start.get(metric).copied().filter(|_| metric.starts_with("eval/"));
        let values = self.columns.get(metric).unwrap_or_default().iter().copied();
        let values = self.columns.steps().iter().copied().zip(values);
        start.map(|it| (0.0, it)).into_iter().chain(values.filter(|it| it.1.is_finite()))
    }

    pub(crate) fn evaluations(&self) -> Vec<(f64, f64)> {
        self.points(held_out_metric(&self.columns)).collect()
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        changes(&self.columns, &self.start)
    }

    fn seeds(&self) -> [Option<&String>; 2] {
        ["seed", "data.seed"].map(|key| self.recipe.get(key))
    }

    pub(crate) fn recipe_without_seed(&self) -> Vec<(&String, &String)> {
        let seedless = |key: &str| !matches!(key, "seed" | "name" | "data.seed");
        self.recipe.iter().filter(|it| seedless(it.0)).collect()
    }
}

/// The runs of `folders`, each a run or a folder of runs.
pub(crate) fn find(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
    let mut all = Vec::new();
    for folder in folders {
        let before = all.len();
        expand(folder, DEPTH, &mut all)?;
        if all.len() == before {
            let text = format!(
                "{} holds no run: expected recipe.toml or metrics.jsonl in it, or in folders below it",
                folder.display()
            );
            return Err(Refusal::input(text).hint("name the --run-dir of a `hapo train`, or a folder of such folders; `hapo quickstart` makes three in minutes"));
        }
    }
    // A link to a run is no other run.
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|path| seen.insert(canonical(path)));
    Ok(all)
}

/// A path without links, where there is something at it.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    // On EIO the path is as it was given: a link to a run counts as another run, under another name.
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn expand(folder: &Path, depth: usize, all: &mut Vec<PathBuf>) -> Result<(), Refusal> {
    let run = RunFolder(folder);
    for file in [run.recipe(), run.metrics()] {
        if found_at(&file)?.is_some_and(|it| it.is_file()) {
            all.push(folder.to_owned());
            return Ok(());
        }
    }
    if depth == 0 || found_at(folder)?.is_none_or(|it| !it.is_dir()) {
        return Ok(());
    }
    let mut below = entries(folder)?;
    below.sort();
    for it in below {
        match expand(&it, depth - 1, all) {
            // Somebody else's folder, which may not be read.
            Err(refusal) if refusal.is_bad_input() => {}
            expanded => expanded?,
        }
    }
    Ok(())
}

/// Reads runs and gives each a name of its own: as much of the end of its path as it takes, and all that is below the folder
/// of all of them where runs lie at different depths, so that a stage is not called `seed-0/grpo` beside `trapo/seed-0`.
pub(crate) fn read_all(paths: &[PathBuf]) -> Vec<Run> {
    let mut runs: Vec<Run> = paths.iter().map(|it| read(it)).collect();
    let paths: Vec<Vec<String>> = paths.iter().map(|it| parts_of(it)).collect();
    for (run, name) in runs.iter_mut().zip(names(&paths)) {
        run.name = name;
    }
    for at in 0..runs.len() {
        let stage = runs[at].text("model.path").and_then(|it| it.strip_prefix("stage:"));
        let name = stage.map(|it| it.split('@').next().unwrap_or_default());
        let before = name.and_then(|name| Some(runs[at].path.parent()?.join(name)));
        runs[at].continues = runs.iter().position(|it| Some(&it.path) == before.as_ref());
    }
    for at in 0..runs.len() {
        let mut before = runs[at].continues;
        // Stages name earlier ones alone; a folder that was written by hand may not.
        for _ in 0..runs.len() {
            let Some(stage) = before.map(|it| &runs[it]) else { break };
            let (steps, next) = (stage.columns.steps().last().copied(), stage.continues);
            runs[at].shift += steps.unwrap_or(0.0);
            before = next;
        }
    }
    runs
}

fn names(paths: &[Vec<String>]) -> Vec<String> {
    let ends = |count: usize| paths.iter().map(|it| last(it, count)).collect::<Vec<_>>();
    let least = (1..=6).find(|it| are_distinct(&ends(*it))).unwrap_or(6);
    let shared = (0..).take_while(|at| {
        let first = paths.first().and_then(|it| it.get(*at));
        first.is_some() && paths.iter().all(|it| it.get(*at) == first)
    });
    let shared = shared.count();
    let name = |path: &Vec<String>| match path.len() - shared {
        below if below <= DEPTH + 1 => last(path, least.max(below)),
        _ => last(path, least),
    };
    paths.iter().map(name).collect()
}

fn are_distinct(names: &[String]) -> bool {
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    distinct.len() == names.len()
}

fn parts_of(path: &Path) -> Vec<String> {
    let whole = canonical(path);
    let folders = whole.components().filter(|it| matches!(it, Component::Normal(_)));
    folders.map(|it| it.as_os_str().to_string_lossy().into_owned()).collect()
}

fn last(parts: &[String], count: usize) -> String {
    parts[parts.len().saturating_sub(count)..].join("/")
}

/// Reads a run. A file that the system does not give is no reason to keep the other runs from the reader.
fn read(path: &Path) -> Run {
    let folder = RunFolder(path);
    let (mut notes, mut unreadable) = (Vec::new(), Vec::new());
    let columns = found_or(&mut unreadable, Columns::read(&folder.metrics(), &mut notes));
    let (recipe, build) = found_or(&mut unreadable, read_recipe(folder, &mut notes));
    let gate = found_or(&mut unreadable, read_gate(folder, &mut notes));
    let start = found_or(&mut unreadable, folder.start_metrics());
    let rollout_steps = found_or(&mut unreadable, folder.rollout_steps());
    let end = found_or(&mut unreadable, read_json::<EarlyEnd>(&folder.early_end()));
    notes.extend(unreadable.iter().map(|it| format!("Left out: {it}.")));
    let mut run = Run {
        path: path.to_owned(),
        columns,
        recipe,
        build,
        gate,
        start,
        rollout_steps,
        unreadable,
        notes,
        ..Run::default()
    };
    let logged = run.columns.steps().last().copied().unwrap_or(0.0);
    run.ended_early = end.filter(|it| logged == it.step as f64).map(|it| it.because);
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
    run
}

/// A value that was read, or its default, with the reason kept.
fn found_or<T: Default>(reasons: &mut Vec<String>, read: Result<T, Refusal>) -> T {
    read.unwrap_or_else(|it| {
        reasons.push(it.to_string());
        T::default()
    })
}

fn read_text(path: &Path) -> Result<Option<String>, Refusal> {
    Ok(if_there(path, fs::read(path))?.map(|it| String::from_utf8_lossy(&it).into_owned()))
}

/// The recipe's entries, and the build that its first line names.
type RecipeAndBuild = (BTreeMap<String, String>, Option<String>);

fn read_recipe(folder: RunFolder<'_>, notes: &mut Vec<String>) -> Result<RecipeAndBuild, Refusal> {
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

fn read_gate(
    folder: RunFolder<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<ScheduleTable>, Refusal> {
    let Some(text) = read_text(&folder.gate())? else { return Ok(None) };
    let note = |it: &serde_json::Error| notes.push(format!("gate.json cannot be read: {it}."));
    Ok(serde_json::from_str(&text).inspect_err(note).ok())
}

/// Sets of runs that differ in their seed alone, in the order of their first. A copy of a run has its seed, and is none of
/// another one.
pub(crate) fn seed_groups(runs: &[Run]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let same = |group: &&mut Vec<usize>| {
            let first = &runs[group[0]];
            !run.recipe.is_empty()
                && first.recipe_without_seed() == run.recipe_without_seed()
                && group.iter().all(|it| runs[*it].seeds() != run.seeds())
        };
        match groups.iter_mut().find(same) {
            Some(it) => it.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// [`seed_groups`], the stages of a recipe together: what is drawn as one line.
pub(crate) fn lines(runs: &[Run]) -> Vec<Vec<usize>> {
    let mut lines = Vec::new();
    let mut later = seed_groups(runs);
    lines.extend(later.extract_if(.., |it| runs[it[0]].continues.is_none()));
    while !later.is_empty() {
        let before = later.len();
        for line in &mut lines {
            let follows = |it: &mut Vec<usize>| {
                runs[it[0]].continues.is_some_and(|before| line.contains(&before))
            };
            let next: Vec<_> = later.extract_if(.., follows).collect();
            line.extend(next.concat());
        }
        if later.len() == before {
            lines.append(&mut later);
        }
    }
    lines
}

/// Names of [`lines`]: a run by its own name, several by the common part of their paths, such as `trapo` for
/// `trapo/seed-0` and `trapo/seed-1` or for `trapo-0` and `trapo-1`, with as many trailing parts as tell the groups
/// apart.
pub(crate) fn group_names(runs: &[Run], groups: &[Vec<usize>]) -> Vec<String> {
    let has_stages = |group: &[usize]| group.iter().any(|it| runs[*it].continues.is_some());
    let path = |it: usize, group: &[usize]| match runs[it].path.parent() {
        Some(parent) if has_stages(group) => parts_of(parent),
        _ => parts_of(&runs[it].path),
    };
    let first = groups.iter().map(|it| {
        if has_stages(it) { last(&path(it[0], it), 1) } else { runs[it[0]].name.clone() }
    });
    let first: Vec<String> = first.collect();
    let shared = groups.iter().map(|group| {
        let mut paths: Vec<_> = group.iter().map(|it| path(*it, group)).collect();
        paths.dedup();
        if paths.len() > 1 { shared_path(&paths) } else { None }
    });
    let shared: Vec<Option<(Vec<String>, usize)>> = shared.collect();
    let name = |at: usize, more: usize| {
        let shared = shared[at].as_ref().map(|(parts, least)| last(parts, least + more));
        shared.unwrap_or_else(|| first[at].clone())
    };
    let named = |more| -> Vec<String> { (0..groups.len()).map(|at| name(at, more)).collect() };
    let tell_apart =
        |names: &Vec<String>| are_distinct(names) && names.iter().all(|it| !it.is_empty());
    (0..6).map(named).find(tell_apart).unwrap_or(first)
}

/// The folders that paths share, where seeds differ what their names share but for the number; and how many of the last ones
/// a name needs at the least, which are those from the one that says what the seeds are of.
fn shared_path(paths: &[Vec<String>]) -> Option<(Vec<String>, usize)> {
    let (first, others) = paths.split_first()?;
    if others.iter().any(|it| it.len() != first.len()) {
        return None;
    }
    let mut shared = Vec::new();
    let mut from = None;
    for (at, part) in first.iter().enumerate() {
        let name = if others.iter().all(|it| it[at] == *part) {
            part.as_str()
        } else {
            let common =
                others.iter().fold(part.as_str(), |it, other| common_start(it, &other[at]));
            let name = without_number(common);
            from.get_or_insert(shared.len().saturating_sub(usize::from(name.is_empty())));
            name
        };
        if !name.is_empty() {
            shared.push(name.to_owned());
        }
    }
    let least = shared.len() - from?.min(shared.len());
    Some((shared, least))
}

fn common_start<'a>(a: &'a str, b: &str) -> &'a str {
    let end = a.char_indices().zip(b.chars()).find(|((_, a), b)| a != b);
    let end = end.map_or(a.len().min(b.len()), |((at, _), _)| at);
    &a[..end]
}

/// `trapo` of `trapo-seed-1`, nothing of `seed-1`.
fn without_number(name: &str) -> &str {
    let separator = ['-', '_', '.', '='];
    let name = name.trim_end_matches(|it: char| it.is_ascii_digit()).trim_end_matches(separator);
    name.strip_suffix("seed").unwrap_or(name).trim_end_matches(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_called_by_as_much_as_tells_them_apart() {
        let named = |paths: &[&str]| {
            let parts = paths.iter().map(|it| it.split('/').map(str::to_owned).collect());
            names(&parts.collect::<Vec<_>>())
        };
        for (paths, expected) in [
            (&["home/runs/trapo"][..], &["trapo"][..]),
            (&["runs/grpo", "runs/hapo"], &["grpo", "hapo"]),
            (&["runs/grpo/seed-0", "runs/hapo/seed-0"], &["grpo/seed-0", "hapo/seed-0"]),
            (
                &["runs/trapo/seed-0", "runs/sft-grpo/seed-0/grpo"],
                &["trapo/seed-0", "sft-grpo/seed-0/grpo"],
            ),
            (&["a/b/c/d/e/f", "g/h"], &["f", "g/h"]),
        ] {
            assert_eq!(named(paths), expected);
        }
    }

    #[test]
    fn seeds_are_called_by_what_their_paths_share() {
        let named = |paths: &[&str]| {
            let parts = paths.iter().map(|it| it.split('/').map(str::to_owned).collect());
            let parts: Vec<Vec<String>> = parts.collect();
            shared_path(&parts).map(|(parts, least)| last(&parts, least))
        };
        for (paths, name) in [
            (&["runs/trapo/seed-0", "runs/trapo/seed-1"][..], "trapo"),
            (&["runs/sft-grpo/seed-0/grpo", "runs/sft-grpo/seed-3/grpo"], "sft-grpo/grpo"),
            (&["mini/grpo-0", "mini/grpo-1", "mini/grpo-2"], "grpo"),
            (&["qwen2-10", "qwen2-11"], "qwen2"),
            (&["a/trapo-seed10", "a/trapo-seed1"], "trapo"),
            (&["a/é-1", "a/é-2"], "é"),
            (&["a/x", "b/x"], "x"),
            (&["0", "1"], ""),
        ] {
            assert_eq!(named(paths).as_deref(), Some(name), "{paths:?}");
        }
        assert_eq!(named(&["a/b", "a"]), None);
        assert_eq!(named(&["a/b", "a/b"]), None, "two of the same place");
    }
}
