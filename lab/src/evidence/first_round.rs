//! The first round: its records, and what its arms were called.

use std::path::Path;

use anyhow::Result;

use crate::family::arm::{RowName, Section};
use crate::family::record::Record;
use crate::family::tables::Done;

/// The table of the pretrained model.
pub(crate) const REAL: &str = "pretrained";

const RUNGS: [&str; 5] = ["0", "0.1", "0.5", "1", "5"];

/// Records, and what is added to the names of their arms, which stand in another record as well.
const FILES: [(&str, &str); 4] =
    [("ladder", ""), ("teachers", ""), ("real", ""), ("ladder-level", "-1e-4")];

const LADDER: &[(&str, &str)] = &[
    ("base", "base"),
    ("grpo", "GRPO"),
    ("sft-grpo", "SFT, then GRPO"),
    ("trapo", "TRAPO"),
    ("hapo", "HAPO"),
];
const TEACHERS: &[(&str, &str)] = &[
    ("sft-grpo", "SFT, then GRPO"),
    ("trapo", "TRAPO"),
    ("hapo", "HAPO"),
    ("hapo-open", "HAPO, not annealed"),
];

/// The runs of all records; one that is not there is left out.
pub(crate) fn read(folder: &Path) -> Result<Done> {
    let mut done = Done::new();
    for (file, suffix) in FILES {
        let path = folder.join(format!("{file}.runs.jsonl"));
        if !path.exists() {
            continue;
        }
        let runs = Record::read(&path)?.of_tables();
        done.extend(runs.into_iter().map(|((arm, seed), run)| ((arm + suffix, seed), run)));
    }
    Ok(done)
}

pub(crate) fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = RUNGS
        .iter()
        .map(|rung| {
            let of = |method: &str| format!("rung-{rung}-{method}");
            let mut rows = rows(LADDER, of);
            if *rung == "0" {
                rows.push(row(of("sft-grpo-1e-4"), "SFT, then GRPO, the other level rate"));
            }
            let title = format!("{rung} % of the hard documents in the teacher's style");
            section(
                &format!("{rung} %"),
                &title,
                rows,
                ["grpo", "sft-grpo", "trapo"].map(of),
                &of("hapo"),
            )
        })
        .collect();
    for (name, title) in [
        ("exact", "The shipped base, exact traces, 240 steps"),
        ("ceiling", "The shipped base, a style that imitation does not learn, 240 steps"),
    ] {
        let of = |method: &str| format!("{name}-{method}");
        let mut rows = rows(TEACHERS, of);
        rows.insert(0, row("exact-grpo".to_owned(), "GRPO"));
        let baselines = vec!["exact-grpo".to_owned(), of("sft-grpo"), of("trapo"), of("hapo-open")];
        if name == "ceiling" {
            rows[1].label += ", last step handed on (withdrawn)";
        }
        sections.push(section(name, title, rows, baselines, &of("hapo")));
    }
    let labels = [
        ("base", "as it is"),
        ("grpo", "GRPO"),
        ("sft", "SFT"),
        ("sft-grpo", "SFT, then GRPO"),
        ("trapo", "TRAPO"),
        ("hapo", "HAPO"),
    ];
    let of = |method: &str| format!("real-{method}");
    let title = "A pretrained model, 24 steps of GSM8K, one seed";
    let baselines = ["grpo", "sft", "sft-grpo", "trapo"].map(of);
    let real = section(REAL, title, rows(&labels, of), baselines, &of("hapo"));
    sections.push(Section { seeds: 1, ..real });
    sections
}

fn rows(labels: &[(&str, &str)], of: impl Fn(&str) -> String) -> Vec<RowName> {
    labels.iter().map(|(method, label)| row(of(method), label)).collect()
}

fn row(arm: String, label: &str) -> RowName {
    RowName { arm, label: label.to_owned() }
}

fn section(
    name: &str,
    title: &str,
    rows: Vec<RowName>,
    baselines: impl IntoIterator<Item = String>,
    hapo: &str,
) -> Section {
    let pairs = baselines.into_iter().map(|baseline| (hapo.to_owned(), baseline)).collect();
    Section { name: name.to_owned(), title: title.to_owned(), rows, pairs, seeds: 5 }
}
