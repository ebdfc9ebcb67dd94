//! Which files of a repository are wanted.

use std::fs;
use std::path::Path;

use crate::id::is_plain_path;

/// The files of a model that are needed to run it. Weights in one file are preferred to shards, as
/// the reader of folders prefers them.
pub(crate) fn model_files(names: &[String]) -> Vec<&str> {
    const WITH_WEIGHTS: &[&str] = &[
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
    ];
    const SINGLE: &str = "model.safetensors";
    const INDEX: &str = "model.safetensors.index.json";
    let is_single = names.iter().any(|it| it == SINGLE);
    let is_wanted = |name: &str| {
        WITH_WEIGHTS.contains(&name)
            || if is_single {
                name == SINGLE
            } else {
                name == INDEX
                    || (name.starts_with("model-")
                        && Path::new(name).extension().is_some_and(|it| it == "safetensors"))
            }
    };
    let root = |name: &&str| !name.contains('/') && is_plain_path(name) && is_wanted(name);
    names.iter().map(String::as_str).filter(root).collect()
}

pub(crate) fn is_data_file(name: &str) -> bool {
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    Path::new(name)
        .extension()
        .and_then(|it| it.to_str())
        .is_some_and(|it| matches!(it, "parquet" | "jsonl" | "json" | "arrow"))
        && is_plain_path(name)
}

pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) {
                names.push(name.to_owned());
            }
        }
    }
    names.sort_unstable();
    names
}
