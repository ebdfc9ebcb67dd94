//! `hapo data make`: the built-in task's problems as a file.

use std::path::PathBuf;

use anyhow::Result;
use hapo_data::{Format, Writer};
use hapo_train::Recipe;
use hapo_train::recipe::DataSource;

use super::say_written;
use crate::failure::bad_input;
use crate::support::arguments::not_an_input;
use crate::support::overrides::OverrideArgs;

#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo data make recipes/smoke.toml --set data.teacher_coverage=1 -o task.jsonl"
)]
pub(super) struct Args {
    /// The recipe: a file, or builtin:NAME of `hapo list recipes`
    recipe: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// File to write; .jsonl, .json or .parquet says how
    #[arg(short, long)]
    output: PathBuf,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let stages = Recipe::load_stages(&args.recipe, &args.overrides.overrides())?;
    let recipe = stages.last().expect("a recipe has a stage");
    if recipe.data().train != DataSource::Builtin {
        return Err(bad_input(
            format!("{}: data.train is {}", args.recipe.display(), recipe.data().train.name()),
            "only a recipe with data.train = \"builtin\" has problems that are made",
        ));
    }
    not_an_input(&args.output, &[&args.recipe], "")?;
    let mut writer = Writer::create(&args.output, Format::Own)?;
    for example in &hapo_train::builtin_prompts(recipe)?.examples {
        writer.write(example)?;
    }
    say_written(&writer.finish()?, &args.output, args.json)
}
