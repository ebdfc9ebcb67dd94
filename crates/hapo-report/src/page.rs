//! The page: one HTML file with its style, its script and its data.
//!
//! Everything that comes from a run travels as compressed data and is set as text by the script, or stands escaped in a
//! figure; nothing of it is ever markup. The page's policy lets no other script run and no address be fetched.

use std::{collections::BTreeSet, io::Write};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use flate2::{Compression, write::GzEncoder};
use hapo_run::{Columns, recipe_differences};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::folder::{Run, annealing_from, lines};
use crate::{drawing::Drawing, evaluation, headline::headline, rollouts, summary::facts};

const SHELL: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// Most bytes of rollouts in a page, as they are written there.
const ROLLOUT_BYTES: usize = 4 << 20;
const ROLLOUT_STEPS: usize = 24;

/// The page of `runs`; one that is written again reloads itself after so many seconds.
pub(crate) fn of(mut runs: Vec<Run>, every: Option<u64>) -> String {
    let tables = evaluation::tables(&mut runs);
    let share = ROLLOUT_BYTES / runs.len().max(1);
    let mut blocks = String::new();
    let mut browsed = Vec::new();
    for (at, run) in runs.iter_mut().enumerate() {
        let (steps, text) = stored_rollouts(run, at, share);
        browsed.push(steps);
        blocks += &text;
    }
    let data = packed(&block(&runs, &tables, &browsed, every));
    blocks += &format!("<script type=\"application/octet-stream\" id=\"data\">{data}</script>\n");
    let title = match runs.as_slice() {
        [one] => one.name.clone(),
        all => format!("{} runs", all.len()),
    };
    fill(&title, &blocks)
}

fn fill(title: &str, blocks: &str) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'none'; img-src data:; base-uri 'none'; form-action 'none'",
        BASE64.encode(Sha256::digest(SCRIPT)),
        BASE64.encode(Sha256::digest(STYLE)),
    );
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // The title and the blocks come last: their contents are not searched for placeholders.
    let page = SHELL.replace("{{policy}}", &policy).replace("{{style}}", STYLE);
    let mut page = page.replace("{{script}}", SCRIPT);
    for (place, text) in [("{{blocks}}", blocks), ("{{title}}", &escaped)] {
        let at = page.find(place).expect("the shell has the place");
        page.replace_range(at..at + place.len(), text);
    }
    page
}

/// The rollouts that a page carries: the last step, the first, and those between by halves, as long as there is room.
fn stored_rollouts(run: &mut Run, at: usize, room: usize) -> (Vec<u64>, String) {
    let (mut steps, mut text, mut problems) = (Vec::new(), String::new(), Vec::new());
    for step in by_halves(&run.rollout_steps) {
        if steps.len() == ROLLOUT_STEPS {
            break;
        }
        let read = rollouts::read(run, step).inspect_err(|it| problems.push(it.to_string()));
        let Ok(read) = read else { continue };
        let block = packed(read.to_string().as_bytes());
        if text.len() + block.len() > room {
            continue;
        }
        text += &format!(
            "<script type=\"application/octet-stream\" id=\"rollouts-{at}-{step}\">{block}</script>\n"
        );
        steps.push(step);
    }
    steps.sort_unstable();
    if let Some(first) = problems.first() {
        let n = problems.len();
        run.notes.push(format!("Rollouts of {n} steps cannot be read, the first: {first}."));
    }
    (steps, text)
}

/// The last, the first, the middle, the middles of the halves, and so on.
fn by_halves(steps: &[u64]) -> Vec<u64> {
    let n = steps.len();
    let cuts = std::iter::successors(Some(1_usize), |parts| Some(2 * parts));
    let halves = cuts.take_while(|parts| *parts <= 2 * n);
    let between = halves.flat_map(|parts| (0..parts).map(move |it| it * n / parts));
    let mut taken = BTreeSet::new();
    let places = n.checked_sub(1).into_iter().chain(between);
    places.filter(|at| taken.insert(*at)).map(|at| steps[at]).collect()
}

/// Bytes as a page carries them: gzip, then base64.
fn packed(bytes: &[u8]) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("writing to memory does not fail");
    BASE64.encode(encoder.finish().expect("writing to memory does not fail"))
}

/// Most rows of all runs together; longer runs are thinned, and the page says so.
const ROWS: usize = 20_000;

/// The data that the page's script reads: the length of a JSON text (four bytes, little-endian), the text padded to a
/// multiple of eight, and the columns of every run as 64-bit floats: the numbers of `metrics.jsonl`, bit for bit.
/// `browsed` are the steps of each run whose rollouts the page carries; it reloads itself after `every` seconds.
fn block(
    runs: &[Run],
    tables: &[evaluation::Table],
    browsed: &[Vec<u64>],
    every: Option<u64>,
) -> Vec<u8> {
    let share = (ROWS / runs.len().max(1)).max(2);
    let (mut described, mut numbers) = (Vec::new(), Vec::new());
    for (run, steps) in runs.iter().zip(browsed) {
        let every = run.columns.rows().div_ceil(share).max(1);
        let thinned = run.columns.thinned(every);
        described.push(describe(run, &thinned, numbers.len() / 8, every, steps));
        let columns = thinned.names().iter().filter_map(|name| thinned.get(name));
        numbers.extend(columns.flatten().flat_map(|it| it.to_le_bytes()));
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
    let mut text = manifest.to_string();
    while !(text.len() + 4).is_multiple_of(8) {
        text.push(' ');
    }
    let length = u32::try_from(text.len()).expect("a manifest is below 4 GB");
    [&length.to_le_bytes(), text.as_bytes(), &numbers].concat()
}

fn describe(run: &Run, columns: &Columns, offset: usize, every: usize, steps: &[u64]) -> Value {
    let mut notes = run.notes.clone();
    if every > 1 {
        let logged = run.columns.rows();
        notes.push(format!("Every {every}th of {logged} logged steps has its numbers here."));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_by_halves_from_the_last() {
        let steps: Vec<u64> = (1..=8).collect();
        let order = by_halves(&steps);
        assert_eq!(order[..4], [8, 1, 5, 3]);
        assert_eq!(order.len(), 8);
        assert_eq!(by_halves(&[7]), [7]);
        assert_eq!(by_halves(&[]), [0_u64; 0]);
    }

    #[test]
    fn a_title_is_text() {
        let page = fill("<b>{{style}}&", "");
        assert!(page.contains("<title>&lt;b&gt;{{style}}&amp; · hapo</title>"));
    }
}
