//! The data of a page: one block of bytes that the page's script reads.
//!
//! The block is the length of a JSON text (four bytes, little-endian), the text padded to a multiple of
//! eight, and the columns of every run as 64-bit floats: the numbers of `metrics.jsonl`, bit for bit.

use hapo_run::{Columns, recipe_differences};
use serde::Serialize;
use serde_json::{Value, json};

use crate::drawing::Drawing;
use crate::evaluation::Table;
use crate::folder::{Run, annealing_from, lines};
use crate::headline::headline;
use crate::summary::facts;

/// Most rows of all runs together; longer runs are thinned, and the page says so.
const ROWS: usize = 20_000;

/// The block of bytes for `runs`. `browsed` are the steps of each run whose rollouts the page carries; it reloads itself
/// after `every` seconds.
pub(crate) fn block(
    runs: &[Run],
    tables: &[Table],
    browsed: &[Vec<u64>],
    every: Option<u64>,
) -> Vec<u8> {
    let share = (ROWS / runs.len().max(1)).max(2);
    let mut columns: Vec<Columns> = Vec::new();
    let mut described = Vec::new();
    let mut offset = 0;
    for (run, steps) in runs.iter().zip(browsed) {
        let every = run.columns.rows().div_ceil(share).max(1);
        let thinned = run.columns.thinned(every);
        described.push(describe(run, &thinned, offset, every, steps));
        offset += thinned.names().len() * thinned.rows();
        columns.push(thinned);
    }
    let recipes: Vec<_> = runs.iter().map(|run| &run.recipe).collect();
    let manifest = json!({
        "every": every,
        "headline": headline(runs, tables),
        "drawn": Drawing::new(runs).page(),
        "runs": described,
        "lines": lines(runs),
        "differences": recipe_differences(&recipes),
        "tables": tables,
    });
    assemble(&manifest, &columns)
}

fn describe(run: &Run, columns: &Columns, offset: usize, every: usize, steps: &[u64]) -> Value {
    let mut notes = run.notes.clone();
    if every > 1 {
        notes.push(format!(
            "Every {every}th of {} logged steps has its numbers here.",
            run.columns.rows()
        ));
    }
    json!({
        "name": run.name,
        "path": run.path.display().to_string(),
        "method": run.text("method"),
        "seed": run.recipe.get("seed"),
        "planned": run.planned(),
        "state": run.state,
        "facts": facts(run),
        "notes": notes,
        "columns": columns.names(),
        "rows": columns.rows(),
        "offset": offset,
        "shift": run.shift,
        "gate": run.gate.as_ref().map(|it| json!({
            "gamma0": it.gamma0, "success_limit": it.success_limit, "turn_off_epoch": it.turn_off_epoch,
            "extinct_at_step": it.extinct_at_step, "annealing_from": annealing_from(it),
        })),
        "recipe": run.recipe,
        "rollout_steps": steps,
        "rollout_steps_kept": run.rollout_steps.len(),
    })
}

fn assemble(manifest: &impl Serialize, columns: &[Columns]) -> Vec<u8> {
    let mut text = serde_json::to_vec(manifest).expect("a manifest is plain data");
    while !(text.len() + 4).is_multiple_of(8) {
        text.push(b' ');
    }
    let length = u32::try_from(text.len()).expect("a manifest is below 4 GB");
    let mut block = length.to_le_bytes().to_vec();
    block.extend(text);
    for it in columns {
        for name in it.names() {
            let column = it.get(name).expect("its own name");
            block.extend(column.iter().flat_map(|it| it.to_le_bytes()));
        }
    }
    block
}
