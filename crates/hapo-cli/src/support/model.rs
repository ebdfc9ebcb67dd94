//! Opening a model for a command.

use std::path::Path;

use anyhow::Result;
use hapo_data::TemplateChoice;
use hapo_kernels::Device;
use hapo_model::{LoadedModel, Model, Tokenizer};
use hapo_sampler::ChatFormat;

use crate::failure::bad_input;
use crate::support::hub;

/// A model and its chat format. The longest sequence is the model's own limit, or
/// `PROMPT_TOKENS` and `max_new_tokens`, whichever is shorter.
pub(crate) fn open<'a, D: Device>(
    path: &str,
    template: impl Into<TemplateChoice<'a>>,
    max_new_tokens: usize,
    device: D,
) -> Result<(Model<D>, ChatFormat)> {
    const PROMPT_TOKENS: usize = 4096;
    let template = template.into();
    template.check()?;
    let mut loaded = open_loaded(path, PROMPT_TOKENS + max_new_tokens, device)?;
    let template = hapo_sampler::choose_template(template, path, &loaded.tokenizer_files)?;
    loaded.model.pack_exact()?;
    let chat_format = ChatFormat::new(loaded.tokenizer, template, &loaded.model.config().eos)?;
    Ok((loaded.model, chat_format))
}

/// A tokenizer by its `tokenizer.json` or the folder that has one.
pub(crate) fn open_tokenizer(path: &Path) -> Result<Tokenizer> {
    if path.is_dir() {
        return Ok(Tokenizer::open(path)?);
    }
    let bytes = std::fs::read(path).map_err(|it| {
        bad_input(
            format!("cannot read {}: {it}", path.display()),
            "name a tokenizer.json or the folder of a model",
        )
    })?;
    Ok(Tokenizer::from_bytes(path, &bytes)?)
}

/// A model by its folder or its name on the hub, for sequences of `context` tokens.
pub(crate) fn open_loaded<D: Device>(
    path: &str,
    context: usize,
    device: D,
) -> Result<LoadedModel<D>> {
    let loaded = hapo_train::open_model_on(&hub::model_folder(path)?, context, device)?;
    for it in &loaded.warnings {
        eprintln!("warning: {it}");
    }
    Ok(loaded)
}

/// Warns if a checkpoint of `hapo train` is sampled with another template than it was trained with.
pub(crate) fn warn_of_another_template(path: &str, chat_format: &ChatFormat) {
    let trained = hapo_train::checkpoint::trained_template(Path::new(path));
    if let Some((name, hash)) = trained
        && hash != chat_format.template.hash()
    {
        eprintln!(
            "warning: {path} was trained with template `{name}`, and is sampled with `{}`{}",
            chat_format.template.name(),
            if name == chat_format.template.name() { " of another text" } else { "" }
        );
    }
}
