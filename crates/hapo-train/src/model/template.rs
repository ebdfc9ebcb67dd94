//! Which template a model's prompts have where nobody names one: one rule for every command.

use std::path::Path;

use hapo_core::Refusal;
use hapo_data::{CHAT, TemplateChoice};
use hapo_model::Tokenizer;

use crate::Result;
use crate::checkpoint::trained_template;
use crate::model::builtin::BUILTIN_BASE;
use crate::model::init;
use crate::recipe::{AUTO, DataSection, DataSource, ModelSource, Recipe, of_another_recipe};

const CHATML: &str = "chatml";
const NONE: &str = "none";
const IM_END: &str = "<|im_end|>";

/// The template of a command line or a recipe.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateRequest<'a> {
    /// Its name, where one is given.
    pub name: Option<&'a str>,
    pub system: Option<&'a str>,
    /// The text after the problem in the user's turn.
    pub suffix: Option<&'a str>,
}

/// A template, and why it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenTemplate {
    pub name: String,
    pub system: Option<String>,
    /// The text after the problem in the user's turn.
    pub suffix: Option<String>,
    because: Option<&'static str>,
}

impl ChosenTemplate {
    pub fn choice(&self) -> TemplateChoice<'_> {
        TemplateChoice {
            name: &self.name,
            system: self.system.as_deref(),
            suffix: self.suffix.as_deref(),
        }
    }

    /// The message about a template chosen by default.
    pub fn note(&self) -> Option<String> {
        self.because.map(|it| format!("template: {}, {it}", self.name))
    }

    /// The template that a run settled before, with the texts of now.
    pub(crate) fn kept(now: &DataSection, before: &DataSection) -> Self {
        let text = |now: &Option<String>, before: &Option<String>| now.clone().or(before.clone());
        Self {
            name: before.template.clone(),
            system: text(&now.template_system, &before.template_system),
            suffix: text(&now.template_suffix, &before.template_suffix),
            because: None,
        }
    }

    fn new(asked: TemplateRequest<'_>, name: &str, because: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            system: asked.system.map(str::to_owned),
            suffix: asked.suffix.map(str::to_owned),
            because: Some(because),
        }
    }
}

/// The template of a model by its folder, or of [`BUILTIN_BASE`]: the requested one, else the
/// one it was trained with here, else its own, else that of its tokenizer.
pub fn template_of(asked: TemplateRequest<'_>, model: &str) -> Result<ChosenTemplate> {
    let chosen = if let Some(name) = asked.name {
        ChosenTemplate { because: None, ..ChosenTemplate::new(asked, name, "") }
    } else if model == BUILTIN_BASE {
        ChosenTemplate::new(asked, CHATML, "the built-in task's")
    } else {
        of_folder(asked, Path::new(model))?
    };
    chosen.choice().check()?;
    Ok(chosen)
}

fn of_folder(asked: TemplateRequest<'_>, folder: &Path) -> Result<ChosenTemplate> {
    if let Some(trained) = trained_template(folder)? {
        let (system, suffix) = (trained.system.as_deref(), trained.suffix.as_deref());
        let asked = TemplateRequest {
            name: None,
            system: asked.system.or(system),
            suffix: asked.suffix.or(suffix),
        };
        return Ok(ChosenTemplate::new(asked, &trained.name, "which it was trained with"));
    }
    hapo_model::folder::read_config(folder)?;
    let files = hapo_model::folder::read_chat_files(folder)?;
    let tokenizer = || Tokenizer::open(folder);
    of_files(asked, &files, folder, tokenizer)
}

fn of_files(
    asked: TemplateRequest<'_>,
    files: &[(&'static str, Vec<u8>)],
    folder: &Path,
    tokenizer: impl FnOnce() -> Result<Tokenizer, Refusal>,
) -> Result<ChosenTemplate> {
    let read = || -> Result<_, Refusal> {
        if hapo_model::chat_files(files, folder)?.template.is_some() {
            return Ok((CHAT, "the model's own"));
        }
        Ok(match tokenizer()?.id(IM_END) {
            Some(_) => (CHATML, "as the model has none of its own and knows <|im_end|>"),
            None => (NONE, "as the model has none of its own"),
        })
    };
    let (name, because) = read()?;
    Ok(ChosenTemplate::new(asked, name, because))
}

/// The template of a recipe's prompts, whose model is looked for only where the template depends on it.
pub(crate) fn template_of_recipe(
    recipe: &Recipe,
    model: &dyn Fn() -> Result<ModelSource>,
) -> Result<ChosenTemplate> {
    let data = recipe.data();
    let asked = TemplateRequest {
        name: Some(data.template.as_str()).filter(|it| *it != AUTO),
        system: data.template_system.as_deref(),
        suffix: data.template_suffix.as_deref(),
    };
    if asked.name.is_some() {
        return template_of(asked, BUILTIN_BASE);
    }
    if data.train == DataSource::Corpus {
        // Its documents are written in it.
        let chatml = ChosenTemplate::new(TemplateRequest::default(), CHATML, "");
        return Ok(ChosenTemplate { because: None, ..chatml });
    }
    match model()? {
        ModelSource::Folder(path) => template_of(asked, &path),
        ModelSource::Init(init) if init.tokenizer.is_none() => template_of(asked, BUILTIN_BASE),
        ModelSource::Init(init) => {
            let (tokenizer, files) = init::tokenizer_of(&init)?;
            of_files(asked, &files, Path::new("model.init.tokenizer"), || Ok(tokenizer))
        }
        ModelSource::Stage(name, _) => Err(of_another_recipe(&name)),
    }
}
