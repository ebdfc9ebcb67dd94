//! Keys that a recipe leaves to the model: found before the run starts, and kept in its folder as if
//! they had been written.
//!
//! They depend on the recipe and on the model's folder alone, never on the machine, so that a seed
//! means the same run everywhere.

use std::path::Path;

use hapo_run::RunFolder;
use toml::Value;

use crate::checkpoint;
use crate::error::{Error, Result};
use crate::plan::{config_of, micro_batch_tokens};
use crate::recipe::{AUTO, MicroBatch, ModelSource, Overrides, Recipe};
use crate::template::{ChosenTemplate, template_of_recipe};

/// The recipe with nothing left to the model, and the template if it was.
///
/// # Errors
/// A model that cannot be read, a template that does not take the recipe's texts.
pub(crate) fn settled(recipe: &Recipe) -> Result<(Recipe, Option<ChosenTemplate>)> {
    let mut template = None;
    let mut keys = Vec::new();
    if recipe.data().template == AUTO {
        let it = template_of_recipe(recipe)?;
        keys.extend(template_keys(&it.name, it.system.as_deref(), it.suffix.as_deref()));
        template = Some(it);
    }
    if recipe.optim().micro_batch_tokens == MicroBatch::Auto {
        let tokens = micro_batch_tokens(recipe, &config_of(recipe)?);
        keys.push(format!("optim.micro_batch_tokens={tokens}"));
    }
    if keys.is_empty() {
        return Ok((recipe.clone(), None));
    }
    Ok((recipe.with(&Overrides::set(keys.iter().map(String::as_str)))?, template))
}

/// The recipe with what the run in a folder has settled before; what is left needs its model.
pub(crate) fn as_before(recipe: &Recipe, run_dir: &Path) -> Result<Recipe> {
    let file = RunFolder(run_dir).recipe();
    let before = std::fs::read_to_string(&file).ok();
    let before = before.and_then(|it| Recipe::parse_resolved(&it, "recipe.toml").ok());
    let Some(before) = before else {
        return with_model_of_stage(recipe, run_dir);
    };
    let mut keys = Vec::new();
    let (now, then) = (recipe.data(), before.data());
    if now.template == AUTO && then.template != AUTO {
        let system = now.template_system.as_deref().or(then.template_system.as_deref());
        let suffix = now.template_suffix.as_deref().or(then.template_suffix.as_deref());
        keys.extend(template_keys(&then.template, system, suffix));
    }
    if let (MicroBatch::Auto, MicroBatch::Tokens(tokens)) =
        (recipe.optim().micro_batch_tokens, before.optim().micro_batch_tokens)
    {
        keys.push(format!("optim.micro_batch_tokens={tokens}"));
    }
    let recipe = recipe.with(&Overrides::set(keys.iter().map(String::as_str)))?;
    let is_open =
        recipe.data().template == AUTO || recipe.optim().micro_batch_tokens == MicroBatch::Auto;
    if is_open { with_model_of_stage(&recipe, run_dir) } else { Ok(recipe) }
}

/// The recipe with `stage:NAME` replaced by that stage's last checkpoint, which lies beside `run_dir`.
pub(crate) fn with_model_of_stage(recipe: &Recipe, run_dir: &Path) -> Result<Recipe> {
    if let ModelSource::Stage(name) = recipe.model() {
        let beside = run_dir.parent().unwrap_or(Path::new(".")).join(name);
        let (_, checkpoint) =
            RunFolder(&beside).list_checkpoints().into_iter().next().ok_or_else(|| {
                Error::Stage {
                    problem: format!("stage {name} has no checkpoint in {}", beside.display()),
                }
            })?;
        checkpoint::verify(&checkpoint)?;
        let folder = checkpoint.display().to_string();
        return Ok(recipe.clone().with_model_folder(&folder));
    }
    Ok(recipe.clone())
}

fn template_keys<'a>(
    name: &'a str,
    system: Option<&'a str>,
    suffix: Option<&'a str>,
) -> impl Iterator<Item = String> + use<'a> {
    let keys = [("template", Some(name)), ("template_system", system), ("template_suffix", suffix)];
    keys.into_iter()
        .filter_map(|(key, value)| Some(format!("data.{key}={}", Value::String(value?.to_owned()))))
}
