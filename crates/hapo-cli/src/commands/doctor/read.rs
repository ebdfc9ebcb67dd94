//! Reads a run: a folder or a log of hapo, TRL or verl.

use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at, if_there};
use hapo_run::{Columns, Role, RunFolder, entries, read_rollouts, recipe_entries};

use super::record::{Answer, ROWS, Record, thinned};
use super::{trl, verl};

/// How far below the named folder files are looked for, and how many.
const DEPTH: usize = 4;
const ENTRIES: usize = 20_000;

/// Reads a folder or a log; an error where nothing in it is known.
pub(super) fn read(path: &Path) -> Result<Record, Refusal> {
    let Some(found) = found_at(path)? else {
        return Err(Refusal::machine(format!("{}: no such file or folder", path.display())));
    };
    if found.is_file() {
        let mut log = trl::log(path).or_else(|_| verl::log(path)).or_else(|_| own_log(path))?;
        log.open.push("settings: a log has none".to_owned());
        return Ok(log);
    }
    if found_at(&RunFolder(path).recipe())?.is_some() {
        return Ok(own(path));
    }
    let (mut files, mut open) = (Vec::new(), Vec::new());
    walk(path, DEPTH, &mut files, &mut open);
    files.sort();
    let Some(mut record) = trl::folder(path, &files).or_else(|| verl::folder(path, &files)) else {
        let is_stage = |it: &PathBuf| matches!(found_at(&RunFolder(it).recipe()), Ok(Some(_)));
        if let Some(stage) = entries(path)?.into_iter().filter(is_stage).min() {
            let (path, stage) = (path.display(), stage.display());
            return Err(Refusal::machine(format!("{path} is no run, but {stage} is: name it")));
        }
        let expected = "expected recipe.toml of hapo, trainer_state.json of TRL, or the JSON lines of verl's trainer.logger=[file]";
        return Err(Refusal::machine(format!("{} holds no run: {expected}", path.display())));
    };
    record.open.append(&mut open);
    Ok(record)
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, open: &mut Vec<String>) {
    let all = match entries(folder) {
        Ok(all) => all,
        Err(it) => return open.push(format!("left out: {it}")),
    };
    for it in all {
        match if_there(&it, it.symlink_metadata()) {
            Ok(Some(found)) if found.is_file() && files.len() < ENTRIES => files.push(it),
            Ok(Some(found)) if found.is_dir() && depth > 0 => walk(&it, depth - 1, files, open),
            Ok(_) => {}
            Err(problem) => open.push(format!("left out: {problem}")),
        }
    }
}

fn own_log(path: &Path) -> Result<Record, Refusal> {
    let mut record = Record { path: path.to_owned(), ..Record::default() };
    record.columns = Columns::read(path, &mut record.open)?;
    match record.columns.rows() {
        0 => Err(Refusal::machine(format!("{} holds no step of a run", path.display()))),
        _ => Ok(record),
    }
}

fn own(path: &Path) -> Record {
    let (folder, file) = (RunFolder(path), RunFolder(path).recipe());
    let mut record = Record { path: path.to_owned(), ..Record::default() };
    let columns = Columns::read(&folder.metrics(), &mut record.open);
    let recipe = if_there(&file, std::fs::read(&file));
    let (start, steps) = (folder.start_metrics(), folder.rollout_steps());
    let checkpoints = folder.list_checkpoints();
    record.columns = record.take(columns).unwrap_or_default();
    record.start = record.take(start).unwrap_or_default();
    let recipe = record.take(recipe).flatten().unwrap_or_default();
    record.settings = recipe_entries(&String::from_utf8_lossy(&recipe)).unwrap_or_default();
    let checkpoints = record.take(checkpoints).unwrap_or_default();
    record.model = checkpoints.into_iter().next().map(|it| it.1);
    for step in thinned(record.take(steps).unwrap_or_default()) {
        let place = folder.rollouts_of(step);
        let lines = read_rollouts(&place);
        let lines = record.take(lines).unwrap_or_default().into_iter();
        let policy = lines.filter(|it| matches!(it.role, Role::Policy | Role::Replaced));
        record.answers.extend(policy.take(ROWS).map(|it| Answer {
            step,
            // A response that is cut off is paid by another rule.
            reward: it.ended.then(|| it.reward()),
            prompt: it.problem,
            completion: it.completion,
            gold: Some(it.answer),
            place: place.display().to_string(),
        }));
    }
    let [data, eval_data] = ["data.train", "eval.data"].map(|key| {
        let path = record.setting(key).map(PathBuf::from)?;
        record.existing(path)
    });
    record.data.extend(data);
    record.eval_data.extend(eval_data);
    record
}
