//! The model that a run starts from: read from a folder, drawn at random, or the built-in base, which is shipped inside the
//! program; its adapter and its template.

pub(crate) mod init;
pub(crate) mod lora;
pub(crate) mod template;

use std::{fs, path::Path};

use hapo_core::Refusal;
use hapo_model::{Config, config_json};

use crate::Result;

/// The files of `models/base`, made by `recipes/base.toml`.
const FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../../models/base/config.json")),
    ("generation_config.json", include_bytes!("../../models/base/generation_config.json")),
    ("model.safetensors", include_bytes!("../../models/base/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../models/base/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../models/base/tokenizer_config.json")),
];

/// The base model of the built-in task, as it is shipped.
pub const BUILTIN_BASE: &str = "builtin:base";

pub(crate) fn file(name: &str) -> &'static [u8] {
    FILES.iter().find(|(file, _)| *file == name).expect("it is one of the base model's").1
}

pub(crate) fn config() -> Result<Config> {
    let named = |name: &'static str| (Path::new(name), file(name));
    let (config, text) = named("config.json");
    Ok(config_json::parse(config, text, Some(named("generation_config.json")))?.config)
}

/// The base model as a Hugging Face folder that is removed again.
pub fn base_folder() -> Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("hapo-base-").tempdir();
    let folder = folder.map_err(Refusal::io("create", &std::env::temp_dir()))?;
    for (name, bytes) in FILES {
        let path = folder.path().join(name);
        fs::write(&path, bytes).map_err(Refusal::io("write", &path))?;
    }
    Ok(folder)
}
