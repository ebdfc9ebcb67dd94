//! Names of the hub where a path is expected.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_net::hub::{Hub, ParsedName, Progress, parse_name};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::bad_input;
use crate::progress::{speaks_json, tell};

/// The folder of a model: itself where it is one (or a built-in), fetched where it is a name of the hub.
pub fn model_folder(name: &str) -> Result<String> {
    if name == hapo_train::BUILTIN_BASE {
        return Ok(name.to_owned());
    }
    match parse_name(name)? {
        ParsedName::Path => {
            let checkpoints = hapo_run::RunFolder(Path::new(name)).list_checkpoints()?;
            match checkpoints.first() {
                Some((_, latest)) if !hapo_model::folder::is_model(Path::new(name))? => {
                    let problem = format!("{name}: expected a model, got the folder of a run");
                    Err(bad_input(problem, format!("its latest model is {}", latest.display())))
                }
                _ => Ok(name.to_owned()),
            }
        }
        ParsedName::Model(id) => {
            let snapshot = Hub::from_env().model(&id, &mut DownloadProgress::new("fetching"))?;
            Ok(snapshot.folder.display().to_string())
        }
        ParsedName::Dataset(_) => Err(bad_input(
            format!("{name}: expected a model, got a data set"),
            "models are named org/name@revision",
        )),
    }
}

/// A folder with the config.json of a model of the hub; `None` for a folder of this machine.
pub(crate) fn config_folder(name: &str) -> Result<Option<String>> {
    if name == hapo_train::BUILTIN_BASE {
        return Ok(None);
    }
    let ParsedName::Model(id) = parse_name(name)? else { return Ok(None) };
    let folder = Hub::from_env().model_config(&id, &mut DownloadProgress::new("fetching"))?;
    Ok(Some(folder.display().to_string()))
}

/// A file of data: itself, or fetched where it is `hf://datasets/…`.
pub fn data_file(file: &Path) -> Result<PathBuf> {
    let Some(name) = file.to_str().filter(|it| it.starts_with("hf://")) else {
        if let Some(name) = file.to_str().filter(|name| is_bare_name(name))
            && hapo_core::found_at(file)?.is_none()
        {
            let hint = format!("a dataset of the hub is hf://datasets/{name}");
            return Err(bad_input(format!("no such file: {name}"), hint));
        }
        return Ok(file.to_owned());
    };
    match parse_name(name)? {
        ParsedName::Path => Ok(file.to_owned()),
        ParsedName::Dataset(it) => {
            Ok(Hub::from_env().dataset(&it, &mut DownloadProgress::new("fetching"))?)
        }
        ParsedName::Model(_) => Err(bad_input(
            format!("{name}: expected a data set, got a model"),
            "data sets are named hf://datasets/org/name@revision[/file]",
        )),
    }
}

/// True for `org/name` without an ending, as the hub names datasets.
fn is_bare_name(path: &str) -> bool {
    let Some((org, name)) = path.split_once('/') else { return false };
    let is_part =
        |it: &str| !it.is_empty() && !it.starts_with('.') && !it.contains(['/', '*', '?']);
    is_part(org) && is_part(name) && Path::new(name).extension().is_none()
}

/// Downloads on standard error: a bar on a terminal, a line per file otherwise.
pub(crate) struct DownloadProgress {
    verb: &'static str,
    bar: Option<ProgressBar>,
}

impl DownloadProgress {
    pub(crate) fn new(verb: &'static str) -> Self {
        Self { verb, bar: None }
    }
}

impl Progress for DownloadProgress {
    fn begin(&mut self, file: &str, done: u64, total: u64) {
        if speaks_json() || !std::io::stderr().is_terminal() {
            let from = if done == 0 { String::new() } else { format!(", from byte {done}") };
            return tell(&format!("{} {file} ({total} bytes{from})", self.verb));
        }
        let style = ProgressStyle::with_template(
            "{msg} {bar:28} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}",
        )
        .expect("the template is a constant")
        .progress_chars("━╸ ");
        let bar = ProgressBar::new(total).with_style(style);
        bar.set_message(file.to_owned());
        bar.set_position(done);
        self.bar = Some(bar);
    }

    fn advance(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => tell(text),
        }
    }
}
