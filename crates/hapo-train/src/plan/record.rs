//! The injections of a recorded run, step by step: those that the gate `yoked` repeats.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use hapo_core::found_at;
use hapo_run::RunFolder;
use serde_json::Value;

use crate::Result;
use crate::recipe::{Recipe, refused_recipe};

const GROUPS: [&str; 3] = ["groups/all_fail", "groups/partially_solved", "groups/all_solved"];

/// The injections in each step of the run that `hapo.record` names; none where the gate reads none.
///
/// # Errors
/// A file that cannot be read, or that does not say them for every step of the recipe.
pub(super) fn injections_of(recipe: &Recipe) -> Result<Arc<[u64]>> {
    let hapo = recipe.hapo.as_ref();
    let Some(hapo) = hapo.filter(|it| it.gate.reads.contains(&"record")) else {
        return Ok([].into());
    };
    let path = Path::new(&hapo.record);
    let is_dir = found_at(path)?.is_some_and(|it| it.is_dir());
    let path = if is_dir { RunFolder(path).metrics() } else { path.to_owned() };
    let refused = |problem: String| {
        let problem = format!("{}: {problem}", path.display());
        let hint = "name the folder of a run of at least as many steps, or its metrics.jsonl";
        refused_recipe(recipe.name(), "hapo.record", problem, hint)
    };
    let text = fs::read_to_string(&path).map_err(|it| refused(it.to_string()))?;
    let mut injections = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let at_line = |problem: String| refused(format!("line {}: {problem}", number + 1));
        let line: Value = serde_json::from_str(line).map_err(|it| at_line(it.to_string()))?;
        let of = |name: &str| {
            let number = line.get(name).and_then(Value::as_f64);
            number.ok_or_else(|| at_line(format!("expected a number `{name}`")))
        };
        let step = of("step")? as u64;
        // What is measured before the first step is no step.
        if step > 0 {
            let groups = GROUPS.iter().map(|it| of(it)).sum::<Result<f64>>()?;
            injections.insert(step, (of("gate/beta")? * groups).round() as u64);
        }
    }
    let missing =
        |step| refused(format!("expected {} steps, step {step} is missing", recipe.steps));
    let of_step = |step: u64| injections.get(&step).copied().ok_or_else(|| missing(step));
    (1..=recipe.steps).map(of_step).collect()
}
