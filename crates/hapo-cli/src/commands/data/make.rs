//! `hapo data make`: the built-in task's problems as a file, or those of a task of reasoning-gym.

use std::{path::PathBuf, process::Command};

use anyhow::Result;
use hapo_data::{Format, Writer, Written};

use super::say_written;
use crate::support::arguments::{OverrideArgs, count, not_an_input};
use crate::{failure::bad_input, support::machine};

#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo data make recipes/smoke.toml --set data.teacher_coverage=1 -o task.jsonl"
)]
pub(super) struct Args {
    /// The recipe: a file, builtin:NAME of `hapo list recipes`; or gym:NAME, a task of reasoning-gym
    recipe: PathBuf,
    /// Number of a gym's rows
    #[arg(long, value_name = "N", value_parser = count(1 << 30))]
    count: Option<usize>,
    /// Seed of a gym's rows
    #[arg(long, value_name = "S")]
    seed: Option<u32>,
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
    if let Some(task) = args.recipe.to_str().and_then(|name| name.strip_prefix("gym:")) {
        return gym(task, args);
    }
    if args.count.or(args.seed.map(|_| 0)).is_some() {
        let hint = "a recipe has data.prompts and data.seed: --set data.prompts=640";
        return Err(bad_input("--count and --seed are of gym:NAME", hint));
    }
    let stages = hapo_train::Recipe::load_stages(&args.recipe, &args.overrides.overrides())?;
    let recipe = stages.last().expect("a recipe has a stage");
    if recipe.data.train != hapo_train::recipe::DataSource::Builtin {
        let (file, train) = (args.recipe.display(), recipe.data.train.name());
        let hint = "only a recipe with data.train = \"builtin\" has problems that are made";
        return Err(bad_input(format!("{file}: data.train is {train}"), hint));
    }
    not_an_input(&args.output, &[&args.recipe], "")?;
    let mut writer = Writer::create(&args.output, Format::Own)?;
    for example in &hapo_train::builtin_prompts(recipe)?.examples {
        writer.write(example)?;
    }
    say_written(&writer.finish()?, &args.output, args.json)
}

/// Writes the rows that Python's `hapo.tasks` makes, as they are: its grader reads all their fields.
fn gym(task: &str, args: &Args) -> Result<()> {
    let (Some(count), Some(seed)) = (args.count, args.seed) else {
        let example = "hapo data make gym:gsm_symbolic --count 640 --seed 0 -o gym.jsonl";
        return Err(bad_input(format!("gym:{task}: expected --count and --seed"), example));
    };
    if args.output.extension().is_none_or(|ending| ending != "jsonl") {
        let problem = format!("--output {}: a gym's rows are JSON lines", args.output.display());
        return Err(bad_input(problem, "end its name in .jsonl"));
    }
    let overrides = args.overrides.overrides();
    if let Some(key) = overrides.unset.first() {
        return Err(bad_input(format!("--unset {key}: gym:{task} has no recipe"), "leave it out"));
    }
    let python = machine::python();
    let mut command = Command::new(&python);
    // Some tasks draw from sets of texts, whose order is that of their hashes.
    command.env("PYTHONHASHSEED", "0").args(["-m", "hapo.tasks", "make", task]);
    command.args(["--count", &count.to_string(), "--seed", &seed.to_string()]);
    command.args(overrides.set.iter().map(|set| format!("--set={set}")));
    let name = python.display();
    let made = command.output().map_err(|error| {
        bad_input(format!("{name} cannot start: {error}"), "name a Python with HAPO_PYTHON")
    })?;
    let said = String::from_utf8_lossy(&made.stderr);
    match made.status.code() {
        Some(0) => {}
        // Python's own refusal: a message and a hint are its last lines.
        Some(2) if !said.contains("usage: ") => {
            let mut lines = said.lines().rev();
            let hint = lines.next().unwrap_or_default();
            return Err(bad_input(lines.next().unwrap_or_default(), hint));
        }
        _ => {
            let last = said.trim().lines().next_back().unwrap_or("it ended early");
            let hint = "pip install \"hapo[gym]\", or name the Python that has it with HAPO_PYTHON";
            return Err(bad_input(format!("gym:{task}: {name}: {last}"), hint));
        }
    }
    hapo_run::write_atomically(&args.output, &made.stdout)?;
    let rows = made.stdout.split(|byte| *byte == b'\n').count() as u64 - 1;
    let (left_out, why) = (count as u64 - rows, "the task does not accept its own answer");
    if left_out > 0 {
        errln!("warning: gym:{task}: {left_out} of {count} rows left out: {why}");
    }
    let written = Written { rows, teachers_left_out: 0, systems_left_out: 0, without_source: 0 };
    say_written(&written, &args.output, args.json)
}
