//! Opening a model for a command.

use std::path::Path;

use anyhow::Result;
use hapo_kernels::Device;
use hapo_model::{LoadedModel, Model, Tokenizer};
use hapo_sampler::ChatFormat;
use hapo_train::{ChosenTemplate, TemplateRequest};

use crate::failure::bad_input;
use crate::support::hub;

/// The template of a local model's prompts; says which where nobody named it.
pub(crate) fn template(asked: TemplateRequest<'_>, model: &str) -> Result<ChosenTemplate> {
    let folder = match asked.name {
        Some(_) => model.to_owned(),
        None => hub::model_folder(model)?,
    };
    let chosen = hapo_train::template_of(asked, &folder)?;
    if let Some(note) = chosen.note() {
        eprintln!("{note} (--template names another)");
    }
    Ok(chosen)
}

/// A model and its chat format. The longest sequence is the model's own limit, or
/// `PROMPT_TOKENS` and `max_new_tokens`, whichever is shorter.
pub(crate) fn open<D: Device>(
    path: &str,
    template: &ChosenTemplate,
    max_new_tokens: usize,
    device: D,
) -> Result<(Model<D>, ChatFormat)> {
    const PROMPT_TOKENS: usize = 4096;
    let mut loaded = open_loaded(path, PROMPT_TOKENS + max_new_tokens, device)?;
    let template = hapo_sampler::choose_template(template.choice(), path, &loaded.tokenizer_files)?;
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
    if let Some(trained) = trained
        && trained.hash != chat_format.template.hash()
    {
        let name = &trained.name;
        eprintln!(
            "warning: {path} was trained with template `{name}`, and is sampled with `{}`{}",
            chat_format.template.name(),
            if *name == chat_format.template.name() { " of another text" } else { "" }
        );
    }
}
