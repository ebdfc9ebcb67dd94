//! Recipes that come with the program, by their names: `builtin:NAME`.

use std::path::Path;

use hapo_core::found_at;

use super::words::did_you_mean;
use crate::{Result, recipe::refused_recipe};

pub(super) const PREFIX: &str = "builtin:";

#[derive(Clone, Copy, Debug)]
pub struct BuiltinRecipe {
    pub name: &'static str,
    pub text: &'static str,
}

impl BuiltinRecipe {
    pub fn summary(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }

    /// Hours on two cores, where the recipe has them.
    pub fn hours(&self) -> Option<&'static str> {
        let planned = self.text.lines().nth(1)?.strip_prefix("# Planned: ")?;
        planned.split_once(", the run ")?.1.split_once(" h on two cores").map(|it| it.0)
    }
}

macro_rules! recipes {
    ($($name:literal in $file:literal,)+) => {
        &[$(BuiltinRecipe {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/", $file)),
        },)+]
    };
}

pub const BUILTIN_RECIPES: &[BuiltinRecipe] = recipes![
    "first" in "first.toml",
    "smoke" in "smoke.toml",
    "hapo-method" in "mini/hapo-method.toml",
    "smollm2-135m-gsm8k" in "ready/smollm2-135m-gsm8k.toml",
    "smollm2-135m-math" in "ready/smollm2-135m-math.toml",
    "qwen2.5-0.5b-gsm8k" in "ready/qwen2.5-0.5b-gsm8k.toml",
    "qwen2.5-0.5b-math" in "ready/qwen2.5-0.5b-math.toml",
    "qwen3-0.6b-gsm8k" in "ready/qwen3-0.6b-gsm8k.toml",
    "qwen3-0.6b-math" in "ready/qwen3-0.6b-math.toml",
    "llama-3.2-1b-gsm8k" in "ready/llama-3.2-1b-gsm8k.toml",
    "llama-3.2-1b-math" in "ready/llama-3.2-1b-math.toml",
];

pub(super) fn find(name: &str) -> Result<&'static BuiltinRecipe> {
    BUILTIN_RECIPES.iter().find(|it| it.name == name).ok_or_else(|| {
        let known: Vec<&str> = BUILTIN_RECIPES.iter().map(|it| it.name).collect();
        let problem = format!("no such recipe, expected one of: {}", known.join(", "));
        let hint = did_you_mean(name, &known, PREFIX, "`hapo list recipes` says what each is for");
        refused_recipe(format!("{PREFIX}{name}"), "", problem, hint)
    })
}

/// The refusal of a file that is not there and has the name of a built-in recipe.
pub(super) fn refuse_bare_name(path: &Path) -> Result<()> {
    match BUILTIN_RECIPES.iter().find(|it| path == Path::new(it.name)) {
        Some(it) if found_at(path)?.is_none() => {
            let hint = format!("the recipe that comes with hapo is `{PREFIX}{}`", it.name);
            Err(refused_recipe(path.display().to_string(), "", "no such file", hint))
        }
        _ => Ok(()),
    }
}
