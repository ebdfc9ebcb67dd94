//! Which template a model's prompts have where nobody names one: one rule for every command.

use std::path::Path;

use hapo_data::{CHAT, TemplateChoice};
use hapo_model::Tokenizer;
use hapo_verify::Extraction;

use crate::Result;
use crate::checkpoint::{STATE, state_of};
use crate::model::{BUILTIN_BASE, init};
use crate::recipe::{AUTO, DataSection, DataSource, ModelSource, Recipe, of_another_recipe};

const CHATML: &str = "chatml";

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
        let (system, suffix) = (self.system.as_deref(), self.suffix.as_deref());
        TemplateChoice { name: &self.name, system, suffix }
    }

    /// The message about a template chosen by default.
    pub fn note(&self) -> Option<String> {
        self.because.map(|it| format!("template: {}, {it}", self.name))
    }

    /// The template of a recipe before, with the texts that are asked for in the place of its own.
    pub(crate) fn of_recipe(
        before: &DataSection,
        asked: TemplateChoice,
        because: Option<&'static str>,
    ) -> Self {
        let TemplateChoice { name, system, suffix } = before.template_choice();
        // The built-in corpus is written in its own and names none.
        let name = if name == AUTO { CHATML } else { name };
        let (system, suffix) = (asked.system.or(system), asked.suffix.or(suffix));
        Self::new(TemplateChoice { name, system, suffix }, because)
    }

    fn new(choice: TemplateChoice, because: Option<&'static str>) -> Self {
        let [system, suffix] = [choice.system, choice.suffix].map(|it| it.map(str::to_owned));
        Self { name: choice.name.to_owned(), system, suffix, because }
    }
}

/// The template of a model by its folder, or of [`BUILTIN_BASE`]: the requested one, and for [`AUTO`] the
/// one it was trained with here, else its own, else that of its tokenizer.
pub fn template_of(asked: TemplateChoice, model: &str) -> Result<ChosenTemplate> {
    let folder = Path::new(model);
    let chosen = if asked.name != AUTO {
        ChosenTemplate::new(asked, None)
    } else if model == BUILTIN_BASE {
        ChosenTemplate::new(TemplateChoice { name: CHATML, ..asked }, Some("the built-in task's"))
    } else if let Some((trained, _)) = trained_template(folder, asked)? {
        trained
    } else {
        hapo_model::folder::read_config(folder)?;
        let files = hapo_model::folder::read_chat_files(folder)?;
        of_files(asked, &files, folder, || Tokenizer::open(folder))?
    };
    chosen.choice().check()?;
    Ok(chosen)
}

/// The template that the model in `folder` was trained with under the texts that are asked for, and its hash. None for a
/// folder that is not such a checkpoint, or whose recipe is of another version.
pub fn trained_template(
    folder: &Path,
    asked: TemplateChoice,
) -> Result<Option<(ChosenTemplate, String)>> {
    let because = Some("which it was trained with");
    let chosen = |it: Recipe| ChosenTemplate::of_recipe(&it.data, asked, because);
    Ok(trained_by(folder)?.map(|(recipe, hash)| (chosen(recipe), hash)))
}

/// The grader and the extraction of the run that trained the model in `folder`. None as in [`trained_template`].
pub fn trained_grading(folder: &Path) -> Result<Option<(String, Extraction)>> {
    Ok(trained_by(folder)?.map(|(it, _)| (it.data.grader.clone(), it.data.extraction)))
}

/// The recipe that a checkpoint is of, and the hash of its template.
fn trained_by(folder: &Path) -> Result<Option<(Recipe, String)>> {
    let Some(state) = state_of(folder)? else { return Ok(None) };
    let recipe = Recipe::parse_resolved(&state.recipe, STATE).ok();
    Ok(recipe.map(|it| (it, state.template_hash)))
}

fn of_files(
    asked: TemplateChoice,
    files: &[(&'static str, Vec<u8>)],
    folder: &Path,
    tokenizer: impl FnOnce() -> Result<Tokenizer>,
) -> Result<ChosenTemplate> {
    let (name, because) = if hapo_model::chat_files(files, folder)?.template.is_some() {
        (CHAT, "the model's own")
    } else if tokenizer()?.id("<|im_end|>").is_some() {
        (CHATML, "as the model has none of its own and knows <|im_end|>")
    } else {
        ("none", "as the model has none of its own")
    };
    Ok(ChosenTemplate::new(TemplateChoice { name, ..asked }, Some(because)))
}

/// The template of a recipe's prompts, whose model is looked for only where the template depends on it.
pub(crate) fn template_of_recipe(
    recipe: &Recipe,
    model: &dyn Fn() -> Result<ModelSource>,
) -> Result<ChosenTemplate> {
    let asked = recipe.data.template_choice();
    if asked.name != AUTO {
        return template_of(asked, BUILTIN_BASE);
    }
    if recipe.data.train == DataSource::Corpus {
        // Its documents are written in it.
        return Ok(ChosenTemplate::new(TemplateChoice::named(CHATML), None));
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
