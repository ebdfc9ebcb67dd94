//! Models and data sets of a hub, as folders and files of the cache.

use crate::hub::fetch::{Absent, Fetcher, shown};
use crate::hub::id::{DatasetFile, RepoId};
use crate::hub::names::{files_below, is_data_file, is_shard, missing_shards, model_files};
use crate::hub::{Hub, Progress, Result, Snapshot};
use hapo_core::Refusal;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";

impl Hub {
    /// The folder of a model with the files that run it: configuration, tokenizer, chat template, and the weights in
    /// safetensors; or its only GGUF file, where it has no configuration. Cached files are not fetched again; if the hub
    /// is unreachable, a whole snapshot of the cache is used, with a note.
    pub fn model(&self, id: &RepoId, progress: &mut dyn Progress) -> Result<Snapshot> {
        let fetcher = Fetcher::new(self, id, "models");
        let is_whole = |folder: &Path| {
            let names = files_below(folder)?;
            let is_weights = |it: &String| it.ends_with(".safetensors") && !it.contains('/');
            let is_folder = names.iter().any(|it| it == CONFIG) && names.iter().any(is_weights);
            Ok(is_folder || gguf_files(&names).len() == 1)
        };
        let (commit, names) = match fetcher.listing(progress)? {
            Ok(listing) => listing,
            Err(why) => return fetcher.cached(&is_whole, &why, progress),
        };
        if let Some(file) = only_gguf(id, &names)? {
            return Ok(Snapshot { folder: fetcher.fetch(&commit, &[file], progress)?, commit });
        }
        let wanted = model_files(&names);
        let has = |name: &str| wanted.contains(&name);
        let has_weights = wanted.iter().any(|it| it.ends_with(".safetensors"));
        let needed = [
            (has(CONFIG), CONFIG),
            (has("tokenizer.json"), "tokenizer.json"),
            (has_weights, "weights in safetensors"),
        ];
        if let Some((_, missing)) = needed.iter().find(|it| !it.0) {
            return Err(Refusal::input(format!("{id} has no {missing}")));
        }
        Ok(Snapshot { folder: fetcher.fetch(&commit, &wanted, progress)?, commit })
    }

    /// A folder with the config.json of a model, which is fetched without its weights, or with its only GGUF file.
    pub fn model_config(&self, id: &RepoId, progress: &mut dyn Progress) -> Result<PathBuf> {
        let fetcher = Fetcher::new(self, id, "models");
        let has = |folder: &Path| {
            let names = files_below(folder)?;
            Ok(names.iter().any(|it| it == CONFIG) || gguf_files(&names).len() == 1)
        };
        let (commit, names) = match fetcher.listing(progress)? {
            Ok(listing) => listing,
            Err(why) => return Ok(fetcher.cached(&has, &why, progress)?.folder),
        };
        fetcher.fetch(&commit, &[only_gguf(id, &names)?.unwrap_or(CONFIG)], progress)
    }

    /// A file of a dataset, or a pattern for the shards of its training split.
    pub fn dataset(&self, wanted: &DatasetFile, progress: &mut dyn Progress) -> Result<PathBuf> {
        let fetcher = Fetcher::new(self, &wanted.repo, "datasets");
        let (commit, names) = match fetcher.listing(progress)? {
            Ok(listing) => listing,
            Err(why) => return cached_dataset(&fetcher, wanted.path.as_deref(), &why, progress),
        };
        let files = fetcher.data_files(wanted.path.as_deref(), &names)?;
        fetcher.keep_listing(&commit, &names)?;
        Ok(found(&fetcher.fetch(&commit, &files, progress)?, &files))
    }
}

/// The GGUF files of a model without a configuration.
fn gguf_files(names: &[String]) -> Vec<&str> {
    let is_gguf =
        |it: &&str| !it.contains('/') && Path::new(it).extension().is_some_and(|it| it == "gguf");
    let is_folder = names.iter().any(|it| it == CONFIG);
    names.iter().map(String::as_str).filter(|it| !is_folder && is_gguf(it)).collect()
}

/// The only one of them, if there is any.
fn only_gguf<'n>(id: &RepoId, names: &'n [String]) -> Result<Option<&'n str>> {
    let all = gguf_files(names);
    if all.len() > 1 {
        let what = format!("{id} has no {CONFIG} and several GGUF files: {}", shown(&all));
        return Err(Refusal::input(what).hint("download one of them and name the file"));
    }
    Ok(all.first().copied())
}

/// A data set out of the cache, which may have a part of it: the shards that were asked for by their names.
fn cached_dataset(
    fetcher: &Fetcher<'_>,
    path: Option<&str>,
    why: &Absent,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let nothing = || fetcher.absent(&fetcher.what(None), why);
    let Snapshot { folder, commit } = fetcher.snapshot()?.ok_or_else(nothing)?;
    let names = files_below(&folder)?;
    if !names.iter().any(|it| path.map_or_else(|| is_data_file(it), |path| it == path)) {
        return Err(nothing());
    }
    let listing = fetcher.kept_listing(&commit)?.filter(|_| path.is_none());
    let files = fetcher.data_files(path, listing.as_ref().unwrap_or(&names))?;
    let is_unlisted = path.is_none() && listing.is_none();
    let missing: Vec<String> = if is_unlisted {
        missing_shards(&files)
    } else {
        let absent = files.iter().filter(|it| !names.iter().any(|name| name == **it));
        absent.map(|it| (*it).to_owned()).collect()
    };
    match &missing[..] {
        [] => {}
        [only] => return Err(fetcher.absent(&fetcher.what(Some(only)), why)),
        several => {
            let what = format!("{} ({})", fetcher.what(None), shown(several));
            return Err(fetcher.absent(&what, why));
        }
    }
    fetcher.note_cache(why, progress);
    if is_unlisted && !files.iter().all(|it| is_shard(it)) {
        let (what, files) = (fetcher.what(None), shown(&files));
        progress.note(&format!("{what}: taking {files} from the cache; the hub may have more"));
    }
    Ok(found(&folder, &files))
}

/// The only file, or a pattern for several shards.
fn found(folder: &Path, files: &[&str]) -> PathBuf {
    match files {
        [only] => folder.join(only),
        shards => folder.join(shards[0]).with_file_name("train*"),
    }
}
