//! The summary of all rows: counts, a table of labels against verdicts, and the rows that disagree.

use std::fmt::Write;

use hapo_core::{counted, printable};
use serde::Serialize;
use serde_json::Value;

/// Rows that are listed; beyond, they are counted alone.
const MOST_LISTED: usize = 1_000;

/// Rows that are shown where people read.
const MOST_SHOWN: usize = 20;

const VERDICTS: [&str; 3] = ["correct", "wrong", "unparsable"];

#[derive(Default, Serialize)]
pub(super) struct Summary {
    pub(super) rows: usize,
    correct: usize,
    wrong: usize,
    unparsable: usize,
    pub(super) malformed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Labels>,
}

/// The verdicts of [`VERDICTS`], by label.
#[derive(Default, Serialize)]
struct Labels {
    labelled_true: [usize; 3],
    labelled_false: [usize; 3],
    agreement: f64,
    disagreements: Vec<Disagreement>,
}

#[derive(Serialize)]
struct Disagreement {
    row: usize,
    label: bool,
    verdict: &'static str,
    gold: String,
    answer: String,
    reason: String,
}

impl Summary {
    /// Counts the verdict on the last row.
    pub(super) fn add(&mut self, gold: &str, label: Option<bool>, it: &hapo_verify::Judgement) {
        let verdict = it.verdict.name();
        let kind = VERDICTS.iter().position(|name| *name == verdict).expect("one of three");
        *[&mut self.correct, &mut self.wrong, &mut self.unparsable][kind] += 1;
        let Some(label) = label else { return };
        let labels = self.labels.get_or_insert_default();
        let row = if label { &mut labels.labelled_true } else { &mut labels.labelled_false };
        row[kind] += 1;
        if label != it.verdict.is_correct() && labels.disagreements.len() < MOST_LISTED {
            labels.disagreements.push(Disagreement {
                row: self.rows,
                label,
                verdict,
                gold: gold.to_owned(),
                answer: it.extracted.clone().unwrap_or_default(),
                reason: it.reason.to_string(),
            });
        }
        let [yes, no] = [labels.labelled_true, labels.labelled_false];
        let all: usize = yes.iter().chain(&no).sum();
        labels.agreement = (yes[0] + no[1] + no[2]) as f64 / all as f64;
    }

    pub(super) fn text(&self) -> String {
        let Summary { rows, correct, wrong, unparsable, malformed, labels } = self;
        let rows = counted(*rows, "row", "rows");
        let mut text = format!(
            "{rows}: {correct} correct, {wrong} wrong, {unparsable} unparsable, {malformed} malformed\n"
        );
        if let Some(labels) = labels {
            labels.write(&mut text).expect("a string takes all");
        }
        text.truncate(text.trim_end().len());
        text
    }
}

impl Labels {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let [yes, no] = [self.labelled_true, self.labelled_false];
        writeln!(out, "{:<12}{:>9}{:>9}{:>12}", "", VERDICTS[0], VERDICTS[1], VERDICTS[2])?;
        for (name, row) in [("label true", yes), ("label false", no)] {
            writeln!(out, "{name:<12}{:>9}{:>9}{:>12}", row[0], row[1], row[2])?;
        }
        let n_differing = yes[1] + yes[2] + no[0];
        let (share, rows) = (100.0 * self.agreement, counted(n_differing, "row", "rows"));
        writeln!(out, "agreement {share:.2} %, {rows} disagree")?;
        for it in self.disagreements.iter().take(MOST_SHOWN) {
            let (gold, answer) = (printable(&it.gold), printable(&it.answer));
            let Disagreement { row, label, verdict, reason, .. } = it;
            writeln!(
                out,
                "  row {row}: label {label}, {verdict}: {answer:?} for {gold:?}: {reason}"
            )?;
        }
        if n_differing > MOST_SHOWN {
            writeln!(out, "  and {} more", n_differing - MOST_SHOWN)?;
        }
        Ok(())
    }
}

/// The label of a row: true or false, 1 or 0, or such a word.
pub(super) fn label(value: Option<&Value>) -> Result<bool, String> {
    let word = match value {
        Some(Value::String(it)) => it.trim().to_lowercase(),
        Some(it) => it.to_string(),
        None => "nothing".to_owned(),
    };
    match word.as_str() {
        "true" | "1" | "1.0" | "yes" | "correct" => Ok(true),
        "false" | "0" | "0.0" | "no" | "wrong" | "incorrect" => Ok(false),
        _ => Err(format!("expected true or false, got {word}")),
    }
}
