//! The rows of the paper at CPU size: its two tables, its sensitivity and its stability study.

use std::path::Path;
use std::sync::LazyLock;

use anyhow::Result;
use hapo_cli::scoring::model_name;
use hapo_data::task::{Split, TaskSet, TeacherSteps, make_set};
use hapo_data::write_row;

use crate::family::arm::{Arm, Base, LEVELS, RowName, Section, recipe};

/// A row of Table 1 or 2: its arm, its label, and its average accuracy in the paper with Qwen2.5-3B and 7B, in per cent.
pub(crate) struct Printed {
    pub(crate) arm: &'static str,
    pub(crate) label: &'static str,
    pub(crate) paper: [Option<f64>; 2],
}

macro_rules! printed {
    ($($arm:literal $label:literal $three:expr, $seven:expr;)*) => {
        &[$(Printed { arm: $arm, label: $label, paper: [$three, $seven] }),*]
    };
}

pub(crate) const TABLE_1: &[Printed] = printed! {
    "base" "base" Some(11.08), Some(12.59);
    "grpo" "GRPO" Some(25.66), Some(35.38);
    "sft" "SFT" Some(15.59), Some(17.84);
    "sft-grpo" "SFT-GRPO" Some(22.87), Some(22.26);
    "luffy" "LUFFY" Some(26.15), Some(35.71);
    "luffy-hapo" "LUFFY-HAPO" Some(27.66), Some(36.58);
    "srft" "SRFT" Some(25.88), Some(33.70);
    "srft-hapo" "SRFT-HAPO" Some(26.96), Some(38.22);
    "trapo" "TRAPO" Some(24.87), Some(33.37);
    "hapo-table1" "TRAPO-HAPO" Some(28.90), Some(36.08);
};

pub(crate) const TABLE_2: &[Printed] = printed! {
    "trapo" "TRAPO" Some(24.87), None;
    "hindsight" "+ Hindsight" Some(23.80), None;
    "gated-m0" "+ Hindsight + Gating (the text: m = 0)" Some(28.90), None;
    "hapo-method" "+ Hindsight + Gating + Annealing (m = 0)" Some(27.64), None;
    "hapo-table1" "+ Hindsight + Gating (the appendix: γ0 = .3)" Some(28.90), None;
    "annealed-03" "+ Hindsight + Gating + Annealing (γ0 = .3)" Some(27.64), None;
};

/// Hosts with their arms at γ0 = .3, .5 and .7, and with the annealed gate.
pub(crate) const HOSTS: [(&str, &str, [&str; 3], &str); 3] = [
    ("LUFFY", "luffy", ["luffy-hapo", "luffy-gamma0-0.5", "luffy-gamma0-0.7"], "luffy-hapo-method"),
    ("SRFT", "srft", ["srft-hapo", "srft-gamma0-0.5", "srft-gamma0-0.7"], "srft-hapo-method"),
    ("TRAPO", "trapo", ["hapo-table1", "trapo-gamma0-0.5", "trapo-gamma0-0.7"], "hapo-method"),
];

/// The stability study: arm, label, recipe, keys on top.
pub(crate) const STABILITY: [(&str, &str, &str, &[&str]); 4] = [
    ("stability-open", "open", recipe!("stability-open"), &[]),
    ("stability-annealed", "annealed", recipe!("stability-annealed"), &[]),
    ("stability-grpo", "GRPO", recipe!("grpo"), &["metrics.kl_every=10"]),
    (
        "stability-policy-only",
        "open, policy-only advantages",
        recipe!("stability-open"),
        &["advantage.group=policy-only"],
    ),
];
pub(crate) const STABILITY_TABLE: &str = "stability";
/// Stands for the folder of the study.
pub(crate) const STUDY_FOLDER: &str = "{STUDY}";
const STABILITY_FILE: &str = "stability.jsonl";
const STABILITY_LEVELS: &[(&str, u32)] = &[("multiply", 6), ("linear", 4)];
/// Solvable problems of the stability study, and as many that nothing solves.
const SOLVABLE: usize = 640;

/// What every run of the stability study has: its file, a trace for each problem, three times the usual rate, the paper's
/// entropy bonus, and a look each 25 steps.
const STABILITY_SETS: [&str; 7] = [
    "data.train={STUDY}/stability.jsonl",
    "steps=400",
    "optim.lr=3e-4",
    "loss.entropy_coef=0.001",
    "eval.suite=development",
    "eval.every=25",
    "checkpoint.every=25",
];

macro_rules! recipes {
    ($($name:literal),* $(,)?) => {
        [$(($name, recipe!($name))),*]
    };
}

pub(crate) fn arms() -> impl Iterator<Item = Arm> {
    let of_tables = recipes![
        "grpo",
        "sft",
        "sft-grpo",
        "luffy",
        "luffy-hapo",
        "srft",
        "srft-hapo",
        "trapo",
        "hapo-table1",
        "hindsight",
        "gated-m0",
        "hapo-method",
        "annealed-03",
        "luffy-hapo-method",
        "srft-hapo-method",
        "luffy-gamma0-0.5",
        "luffy-gamma0-0.7",
        "srft-gamma0-0.5",
        "srft-gamma0-0.7",
        "trapo-gamma0-0.5",
        "trapo-gamma0-0.7",
    ];
    let arm = |name: &str, recipe| Arm {
        name: arm_name(name),
        recipe,
        sets: Vec::new(),
        unset: Vec::new(),
        search: String::new(),
        tuned: None,
        base: Base::Shipped,
        levels: LEVELS,
        teacher: TeacherSteps::Exact,
    };
    let stability = STABILITY.map(|(name, _, text, sets)| Arm {
        sets: STABILITY_SETS.iter().chain(sets).map(|it| (*it).to_owned()).collect(),
        unset: ["data.prompts", "data.teacher_coverage", "data.levels"].map(str::to_owned).to_vec(),
        levels: STABILITY_LEVELS,
        ..arm(name, Some(text))
    });
    let tables = of_tables.into_iter().map(move |(name, text)| arm(name, Some(text)));
    std::iter::once(arm("base", None)).chain(tables).chain(stability)
}

pub(crate) fn arm_name(row: &str) -> String {
    format!("paper-{row}")
}

/// The tables; stability is made only where it is named.
pub(crate) static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let section = |name: &str, rows: Vec<(&str, &str)>, pairs: &[(&str, &str)], seeds| Section {
        name: name.to_owned(),
        title: name.to_owned(),
        rows: rows
            .into_iter()
            .map(|(arm, label)| RowName { arm: arm_name(arm), label: label.to_owned() })
            .collect(),
        pairs: pairs.iter().map(|(row, over)| (arm_name(row), arm_name(over))).collect(),
        seeds,
    };
    let printed = |rows: &[Printed]| rows.iter().map(|it| (it.arm, it.label)).collect::<Vec<_>>();
    let of_hosts = HOSTS.iter().flat_map(|(host, _, gamma0, annealed)| {
        gamma0.iter().chain([annealed]).map(|arm| (*arm, *host))
    });
    let over_hosts = HOSTS.map(|(_, host, gamma0, _)| (gamma0[0], host));
    let steps = [
        ("hindsight", "trapo"),
        ("gated-m0", "hindsight"),
        ("hapo-method", "gated-m0"),
        ("hapo-table1", "hindsight"),
        ("annealed-03", "hapo-table1"),
    ];
    let stability = STABILITY.iter().map(|(arm, label, ..)| (*arm, *label)).collect();
    vec![
        section("table-1", printed(TABLE_1), &over_hosts, 5),
        section("table-2", printed(TABLE_2), &steps, 5),
        section("gamma0", of_hosts.collect(), &[], 5),
        section(STABILITY_TABLE, stability, &[], 6),
    ]
});

/// Writes the file of the stability study: problems with a right trace, and as many five- and six-digit sums whose trace
/// and answer are the next one's, so that no completion that adds right is paid.
pub(crate) fn write_stability_file(folder: &Path) -> Result<()> {
    let set = |levels: &[(&str, u32)]| {
        make_set(&TaskSet {
            seed: 0,
            levels: levels.iter().map(|it| (it.0.to_owned(), it.1)).collect(),
            split: Split::Train,
            count: SOLVABLE,
            teacher_coverage: 1.0,
            teacher_steps: TeacherSteps::Exact,
        })
    };
    let (mut rows, sums) = (Vec::new(), set(&[("add", 6)])?.examples);
    let others = sums.iter().cycle().skip(1);
    let unsolvable = sums.iter().zip(others).map(|(sum, other)| {
        let mut row = other.clone();
        (row.id, row.problem) = (sum.id.clone(), sum.problem.clone());
        row
    });
    for row in set(STABILITY_LEVELS)?.examples.into_iter().chain(unsolvable) {
        write_row(&mut rows, &row)?;
    }
    hapo_run::create_folder(folder)?;
    Ok(hapo_run::write_atomically(&folder.join(STABILITY_FILE), &rows)?)
}

/// A key's value with the study's folder in its place.
pub(crate) fn in_folder(set: &str, folder: &Path) -> Result<String> {
    Ok(set.replace(STUDY_FOLDER, model_name(folder)?.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each problem is another one's answer, and every trace ends in the row's own.
    #[test]
    fn half_of_the_stability_studys_problems_cannot_be_solved() {
        let folder = tempfile::tempdir().unwrap();
        write_stability_file(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join(STABILITY_FILE)).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        let right = |row: &serde_json::Value| {
            let sum = row["problem"].as_str().unwrap().trim_end_matches("=?");
            let terms = sum.split('+').map(|it| it.parse::<u64>().ok());
            let sum = terms.sum::<Option<u64>>()?;
            Some(row["answer"].as_str() == Some(&sum.to_string()))
        };
        assert_eq!(rows.iter().filter_map(right).collect::<Vec<_>>(), [false; SOLVABLE]);
        assert_eq!(rows.len(), 2 * SOLVABLE);
        for row in rows {
            assert!(
                row.to_string().contains(&format!("boxed{{{}}}", row["answer"].as_str().unwrap()))
            );
        }
    }
}
