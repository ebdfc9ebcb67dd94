//! Which files of a repository are wanted.

use crate::hub::id::is_plain_path;
use hapo_core::{Refusal, found_at, if_there, is_among};
use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path};

/// The files that run a model. Weights in one file are preferred to shards, as the reader of folders prefers them.
pub(crate) fn model_files(names: &[String]) -> Vec<&str> {
    const WITH_WEIGHTS: &str = "config.json generation_config.json tokenizer.json tokenizer_config.json \
         special_tokens_map.json added_tokens.json vocab.json merges.txt chat_template.jinja";
    const SINGLE: &str = "model.safetensors";
    const INDEX: &str = "model.safetensors.index.json";
    let is_single = names.iter().any(|it| it == SINGLE);
    let is_wanted = |name: &str| {
        let is_shard = name.starts_with("model-") && name.ends_with(".safetensors");
        let is_weights = if is_single { name == SINGLE } else { name == INDEX || is_shard };
        is_weights || is_among(WITH_WEIGHTS, name)
    };
    let root = |name: &&str| !name.contains('/') && is_plain_path(name) && is_wanted(name);
    names.iter().map(String::as_str).filter(root).collect()
}

pub(crate) fn is_data_file(name: &str) -> bool {
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    let ending = Path::new(name).extension().and_then(|it| it.to_str());
    matches!(ending, Some("parquet" | "jsonl" | "json" | "arrow")) && is_plain_path(name)
}

/// The files of a folder and of those in it, by their relative paths; a link to nothing is none.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<String>, Refusal> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in if_there(&at, fs::read_dir(&at))?.into_iter().flatten() {
            let path = entry.map_err(Refusal::io("read", &at))?.path();
            let Some(found) = found_at(&path)? else { continue };
            if found.is_dir() {
                folders.push(path);
            } else if let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) {
                names.push(name.to_owned());
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// One of the files that a large one is cut into: `train-00000-of-00005.jsonl`.
struct Shard<'n> {
    stem: &'n str,
    number: u32,
    /// As it is written, with its zeros.
    count: &'n str,
    ending: &'n str,
}

impl<'n> Shard<'n> {
    fn of(name: &'n str) -> Option<Self> {
        let is_digit = |it: char| it.is_ascii_digit();
        let (before, after) = name.rsplit_once("-of-")?;
        let stem = before.trim_end_matches(is_digit);
        let rest = after.trim_start_matches(is_digit);
        let (number, count) = (&before[stem.len()..], &after[..after.len() - rest.len()]);
        // Older tools put a hash of the shard between its number and its ending.
        let ending = rest.find('.').map_or("", |at| &rest[at..]);
        let is_count = (1..=6).contains(&count.len()) && count.len() == number.len();
        is_count.then_some(Shard { stem, number: number.parse().ok()?, count, ending })
    }
}

pub(crate) fn is_shard(name: &str) -> bool {
    Shard::of(name).is_some()
}

/// The shards that are not among the names, as far as the names of the others speak of them.
pub(crate) fn missing_shards(names: &[&str]) -> Vec<String> {
    let mut sets: BTreeMap<(&str, &str), (BTreeSet<u32>, &str)> = BTreeMap::new();
    for it in names.iter().filter_map(|it| Shard::of(it)) {
        let set = sets.entry((it.stem, it.count)).or_insert((BTreeSet::new(), it.ending));
        set.0.insert(it.number);
    }
    let mut missing = Vec::new();
    for ((stem, count), (present, ending)) in sets {
        let (width, n) = (count.len(), count.parse::<u32>().unwrap_or(0));
        // Most count from 0, some from 1.
        let first = u32::from(present.contains(&n));
        let absent = (first..first + n).filter(|it| !present.contains(it));
        missing.extend(absent.map(|it| format!("{stem}{it:0width$}-of-{count}{ending}")));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_speak_of_their_siblings() {
        let cases: [(&[&str], &[i32]); 4] = [
            (&["data/train-00001-of-00003.jsonl.gz"], &[0, 2]),
            (&["data/train-00003-of-00003.jsonl.gz"], &[1, 2]),
            (&["data/train-00000-of-00003-abc.jsonl.gz"], &[1, 2]),
            (&["data/train-00000-of-00001.jsonl.gz", "data/train.jsonl", "a-of-b", "1-of-02"], &[]),
        ];
        for (names, expected) in cases {
            let name = |number: &i32| format!("data/train-{number:05}-of-00003.jsonl.gz");
            let expected: Vec<String> = expected.iter().map(name).collect();
            assert_eq!(missing_shards(names), expected, "{names:?}");
        }
        assert_eq!(missing_shards(&["00-of-02", "b/0-of-2.x"]), ["01-of-02", "b/1-of-2.x"]);
        assert!(is_shard("model-00001-of-00002.safetensors"));
        assert!(!is_shard("one-of-many.jsonl"));
    }
}
