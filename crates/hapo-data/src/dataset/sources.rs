//! The files of a data set: a file, a folder in one of the shapes in which `datasets` and the hub leave
//! them, or a pattern.

use crate::refuse::{DAMAGED, of_file};
use hapo_core::{Refusal, found_at, if_there};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, ffi::OsStr, fmt::Display, fs};

const DEPTH: u32 = 4;
/// Endings of files with rows, before those of compression.
const ENDINGS: [&str; 8] = ["jsonl", "ndjson", "json", "parquet", "arrow", "feather", "csv", "tsv"];
/// JSON beside the rows.
const NOT_ROWS: [&str; 4] =
    ["dataset_info.json", "dataset_dict.json", "state.json", "dataset_infos.json"];
/// Names of splits other than the training split.
const OTHER_SPLITS: [&str; 9] =
    ["test", "validation", "valid", "val", "dev", "eval", "evaluation", "heldout", "holdout"];

/// The files with the rows of `path`, in order: all files that match a pattern (`data/train-*.parquet`); of a folder
/// its training split, or all files if it has no splits.
pub fn data_files(path: &Path) -> Result<Vec<PathBuf>, Refusal> {
    match found_at(path)? {
        Some(found) if found.is_dir() => files_of_folder(path),
        None if path.to_string_lossy().contains(['*', '?', '[']) => files_of_pattern(path),
        _ => Ok(vec![path.to_owned()]),
    }
}

fn unclear(path: &Path, problem: impl Display) -> Refusal {
    of_file(path, problem, "name a file, a folder with one data set, or a pattern")
}

fn files_of_pattern(pattern: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let found = glob::glob(&pattern.to_string_lossy())
        .map_err(|it| unclear(pattern, format!("no pattern of file names: {it}")))?;
    let mut files = Vec::new();
    for it in found {
        let it = it.map_err(|it| unclear(pattern, it.to_string()))?;
        let is_file = found_at(&it)?.is_some_and(|it| it.is_file());
        files.extend(is_file.then_some(it));
    }
    if files.is_empty() {
        return Err(unclear(pattern, "no file has such a name"));
    }
    Ok(files)
}

fn files_of_folder(folder: &Path) -> Result<Vec<PathBuf>, Refusal> {
    if let Some(Splits { splits }) = read_json(&folder.join("dataset_dict.json"))? {
        let split = match &splits[..] {
            [only] => only,
            all if all.iter().any(|it| it == "train") => "train",
            all => {
                let splits = listed(all.iter().map(|it| folder.join(it)));
                let problem = format!("no split named train, name one of {splits}");
                return Err(unclear(folder, problem));
            }
        };
        return files_of_folder(&folder.join(split));
    }
    // `Dataset.save_to_disk` names its shards in order.
    if let Some(state) = read_json::<State>(&folder.join("state.json"))? {
        return Ok(state.data_files.into_iter().map(|it| folder.join(it.filename)).collect());
    }
    let mut all = Vec::new();
    collect(folder, DEPTH, &mut all)?;
    all.sort();
    let split = |it: &Path| split_of(it.strip_prefix(folder).unwrap_or(it));
    let training = all.iter().any(|it| split(it) == Split::Train);
    let kept: Vec<PathBuf> =
        all.iter().filter(|it| !training || split(it) == Split::Train).cloned().collect();
    if kept.is_empty() {
        return Err(unclear(folder, "no file with rows in it (JSON, Parquet, Arrow, CSV)"));
    }
    let others = listed(kept.iter().filter(|it| !training && split(it) == Split::Other));
    if !others.is_empty() {
        return Err(unclear(folder, format!("no training split, name one of {others}")));
    }
    // The original MATH: a folder for each class, a numbered file for each problem.
    let is_numbered = |it: &PathBuf| {
        let stem = it.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        it.extension() == Some(OsStr::new("json")) && stem.bytes().all(|byte| byte.is_ascii_digit())
    };
    if kept.iter().all(is_numbered) {
        return Ok(kept);
    }
    let folders: BTreeSet<&Path> = kept.iter().filter_map(|it| it.parent()).collect();
    if folders.len() > 1 {
        let problem = format!("rows in several folders, name one of {}", listed(folders));
        return Err(unclear(folder, problem));
    }
    Ok(kept)
}

fn listed(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> String {
    let all = paths.into_iter().map(|it| it.as_ref().display().to_string());
    all.collect::<Vec<_>>().join(", ")
}

#[derive(Deserialize)]
struct Splits {
    splits: Vec<String>,
}

#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    data_files: Vec<Shard>,
}

#[derive(Deserialize)]
struct Shard {
    filename: String,
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, Refusal> {
    let Some(bytes) = if_there(path, fs::read(path))? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|it| of_file(path, it, DAMAGED))
}

fn collect(folder: &Path, depth: u32, into: &mut Vec<PathBuf>) -> Result<(), Refusal> {
    let io = |source| Refusal::io("read", folder)(source);
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(['.', '_']) {
            continue;
        }
        if found_at(&path)?.is_some_and(|it| it.is_dir()) {
            if depth > 0 {
                collect(&path, depth - 1, into)?;
            }
        } else if has_rows(&name) {
            into.push(path);
        }
    }
    Ok(())
}

fn has_rows(name: &str) -> bool {
    let name = name.to_lowercase();
    let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let ending = Path::new(plain).extension().and_then(OsStr::to_str).unwrap_or_default();
    ENDINGS.contains(&ending) && !NOT_ROWS.contains(&plain)
}

#[derive(Clone, Copy, PartialEq)]
enum Split {
    Train,
    Other,
    None,
}

/// The split that a file's name or its folders' names speak of.
fn split_of(path: &Path) -> Split {
    let text = path.to_string_lossy().to_lowercase();
    let mut words = text.split(|it: char| !it.is_ascii_alphanumeric());
    if words.clone().any(|it| it == "train" || it == "training") {
        Split::Train
    } else if words.any(|it| OTHER_SPLITS.contains(&it)) {
        Split::Other
    } else {
        Split::None
    }
}
