//! All arms, tables and searches of the studies; the miniature's are in this file.

use std::sync::LazyLock;

use hapo_data::task::TeacherSteps;

use crate::study::arm::{Arm, Base, MINI6_LEVELS, RATES, Search, Section, StudyName, recipe};
use crate::study::{ladder, real, teachers};

const IMITATION_RATES: &[f64] = &[1e-4, 2e-4, 4e-4];

/// Arms of the miniature that are searched for themselves and for those that are given their rate.
const SEARCHED: &[&str] = &[
    "grpo",
    "sft",
    "sft-grpo",
    "luffy",
    "luffy-hapo",
    "srft",
    "srft-hapo",
    "trapo",
    "trapo-hapo",
    "sft-half",
    "trapo-half",
    "hapo-half",
    "sft-tenth",
    "sft-grpo-tenth",
    "trapo-tenth",
    "hapo-tenth",
];

/// Every search.
pub(crate) static SEARCHES: LazyLock<Vec<Search>> = LazyLock::new(|| {
    let own = SEARCHED.iter().map(|name| Search {
        name: (*name).to_owned(),
        arms: vec![(*name).to_owned()],
        // Imitation has steeper gradients of fewer tokens; its rates lie a factor 2 higher.
        rates: if name.starts_with("sft") && !name.starts_with("sft-grpo") {
            IMITATION_RATES
        } else {
            RATES
        },
    });
    let studies = ladder::searches().chain(teachers::searches()).chain(real::searches());
    own.chain(studies).collect()
});

/// Seed of the search.
pub(crate) const SEARCH_SEED: u64 = 1000;

macro_rules! arms {
    ($($name:literal, $label:literal, $recipe:literal, [$($set:literal),*], $search:literal;)*) => {
        vec![$(Arm {
            name: $name.to_owned(),
            label: $label.to_owned(),
            recipe: Some(recipe!($recipe)),
            sets: vec![$($set.to_owned()),*],
            unset: Vec::new(),
            search: $search.to_owned(),
            base: Base::Shipped,
            levels: MINI6_LEVELS,
            teacher: TeacherSteps::Exact,
        }),*]
    };
}

macro_rules! sections {
    ($($name:literal, $title:literal, $seeds:expr; [$($arm:literal),*], [$($row:literal over $base:literal),*];)*) => {
        vec![$(Section {
            name: $name.to_owned(),
            title: $title.to_owned(),
            study: StudyName::Mini,
            arms: vec![$($arm.to_owned()),*],
            pairs: vec![$(($row.to_owned(), $base.to_owned())),*],
            seeds: $seeds,
        }),*]
    };
}

/// Every arm of every study; a table is a choice of them, so that no run is made twice.
pub(crate) static ARMS: LazyLock<Vec<Arm>> = LazyLock::new(|| {
    let base = Arm::base("base".to_owned(), "base".to_owned(), Base::Shipped);
    let mini = std::iter::once(base).chain(mini_arms());
    mini.chain(ladder::arms()).chain(teachers::arms()).chain(real::arms()).collect()
});

/// The tables of every study, in the order in which they are made.
pub(crate) static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let studies = ladder::sections().chain(teachers::sections()).chain(real::sections());
    mini_sections().into_iter().chain(studies).collect()
});

/// Columns: name, row of the table, recipe, changed keys, the search for its learning rate.
fn mini_arms() -> Vec<Arm> {
    arms! {
        "grpo", "GRPO", "grpo", [], "grpo";
        "sft", "SFT", "sft", [], "sft";
        "sft-grpo", "SFT-GRPO", "sft-grpo", [], "sft-grpo";
        "luffy", "LUFFY", "luffy", [], "luffy";
        "luffy-hapo", "LUFFY-HAPO", "luffy-hapo", [], "luffy-hapo";
        "srft", "SRFT", "srft", [], "srft";
        "srft-hapo", "SRFT-HAPO", "srft-hapo", [], "srft-hapo";
        "trapo", "TRAPO", "trapo", [], "trapo";
        "trapo-hapo", "TRAPO-HAPO, γ0 = 0.3, not annealed", "hapo-table1", [], "trapo-hapo";
        "hapo-method", "TRAPO-HAPO, m = 0, annealed", "hapo-method", [], "trapo-hapo";
        "hindsight", "TRAPO + hindsight (worst rollout, always)", "hindsight", [], "trapo";
        "luffy-0.5", "LUFFY-HAPO, γ0 = 0.5", "luffy-gamma0-0.5", [], "luffy-hapo";
        "luffy-0.7", "LUFFY-HAPO, γ0 = 0.7", "luffy-gamma0-0.7", [], "luffy-hapo";
        "srft-0.5", "SRFT-HAPO, γ0 = 0.5", "srft-gamma0-0.5", [], "srft-hapo";
        "srft-0.7", "SRFT-HAPO, γ0 = 0.7", "srft-gamma0-0.7", [], "srft-hapo";
        "trapo-0.5", "TRAPO-HAPO, γ0 = 0.5", "trapo-gamma0-0.5", [], "trapo-hapo";
        "trapo-0.7", "TRAPO-HAPO, γ0 = 0.7", "trapo-gamma0-0.7", [], "trapo-hapo";
        "stability-open", "γ0 = 0.3, not annealed, 240 steps", "stability-open", [], "trapo-hapo";
        "stability-annealed", "γ0 = 0.3, annealed, 240 steps", "stability-annealed", [], "trapo-hapo";
        "stability-always", "TRAPO, 240 steps", "trapo", ["steps=240", "metrics.kl_every=10"], "trapo";
        "e-off-0.5", "e_off = 0.5", "hapo-method", ["hapo.turn_off_epoch=0.5"], "trapo-hapo";
        "e-off-2.5", "e_off = 2.5", "hapo-method", ["hapo.turn_off_epoch=2.5"], "trapo-hapo";
        "m-1", "m = 1, k = 10", "hapo-method", ["hapo.success_limit=1"], "trapo-hapo";
        "m-1-k-2", "m = 1, k = 2", "hapo-method", ["hapo.success_limit=1", "hapo.steepness=2"], "trapo-hapo";
        "grpo-4", "GRPO, groups of 4", "grpo", ["sampling.group_size=4"], "grpo";
        "hapo-4", "TRAPO-HAPO, groups of 4", "hapo-method", ["sampling.group_size=4"], "trapo-hapo";
        "grpo-16", "GRPO, groups of 16", "grpo", ["sampling.group_size=16"], "grpo";
        "hapo-16", "TRAPO-HAPO, groups of 16", "hapo-method", ["sampling.group_size=16"], "trapo-hapo";
        "grpo-token-mean", "GRPO, token mean", "grpo", ["loss.normaliser=token-mean"], "grpo";
        "hapo-token-mean", "TRAPO-HAPO, token mean", "hapo-method", ["loss.normaliser=token-mean"], "trapo-hapo";
        "grpo-flip", "GRPO, 5 % of verdicts flipped", "grpo", ["data.verdict_noise=0.05"], "grpo";
        "trapo-flip", "TRAPO, 5 % of verdicts flipped", "trapo", ["data.verdict_noise=0.05"], "trapo";
        "hapo-flip-0", "TRAPO-HAPO, m = 0, 5 % flipped", "hapo-method", ["data.verdict_noise=0.05"], "trapo-hapo";
        "hapo-flip-1", "TRAPO-HAPO, m = 1, 5 % flipped", "hapo-method", ["data.verdict_noise=0.05", "hapo.success_limit=1"], "trapo-hapo";
        "sft-half", "SFT, a trace for half of the prompts", "sft", ["data.teacher_coverage=0.5"], "sft-half";
        "trapo-half", "TRAPO, a trace for half of the prompts", "trapo", ["data.teacher_coverage=0.5"], "trapo-half";
        "hapo-half", "TRAPO-HAPO, a trace for half of the prompts", "hapo-method", ["data.teacher_coverage=0.5"], "hapo-half";
        "sft-tenth", "SFT, a trace for a tenth of the prompts", "sft", ["data.teacher_coverage=0.1"], "sft-tenth";
        "sft-grpo-tenth", "SFT-GRPO, a trace for a tenth of the prompts", "sft-grpo", ["data.teacher_coverage=0.1"], "sft-grpo-tenth";
        "trapo-tenth", "TRAPO, a trace for a tenth of the prompts", "trapo", ["data.teacher_coverage=0.1"], "trapo-tenth";
        "hapo-tenth", "TRAPO-HAPO, a trace for a tenth of the prompts", "hapo-method", ["data.teacher_coverage=0.1"], "hapo-tenth";
        "trapo-original", "TRAPO with its own prefixes", "trapo-original", [], "trapo";
    }
}

/// The tables. Columns: name, heading, most seeds of each row; rows; pairs whose difference is shown.
fn mini_sections() -> Vec<Section> {
    sections! {
        "table1", "Table 1: methods, with and without HAPO", u64::MAX;
            ["base", "grpo", "sft", "sft-grpo", "luffy", "luffy-hapo", "srft", "srft-hapo", "trapo", "trapo-hapo", "hapo-method"],
            ["luffy-hapo" over "luffy", "srft-hapo" over "srft", "trapo-hapo" over "trapo", "hapo-method" over "trapo",
             "hapo-method" over "grpo", "hapo-method" over "sft"];
        "ablation", "Table 2: what each part adds", u64::MAX;
            ["trapo", "hindsight", "trapo-hapo", "hapo-method"],
            ["hindsight" over "trapo", "trapo-hapo" over "hindsight", "hapo-method" over "trapo-hapo"];
        "sensitivity", "Sensitivity to the threshold", 3;
            ["luffy-hapo", "luffy-0.5", "luffy-0.7", "srft-hapo", "srft-0.5", "srft-0.7", "trapo-hapo",
             "trapo-0.5", "trapo-0.7", "hapo-method"],
            ["luffy-0.5" over "luffy-hapo", "luffy-0.7" over "luffy-hapo", "srft-0.5" over "srft-hapo",
             "srft-0.7" over "srft-hapo", "trapo-0.5" over "trapo-hapo", "trapo-0.7" over "trapo-hapo"];
        "stability", "Stability over a long run", 3;
            ["stability-open", "stability-annealed", "stability-always"],
            ["stability-annealed" over "stability-open", "stability-annealed" over "stability-always"];
        "coverage", "A trace for half, a quarter and a tenth of the prompts", u64::MAX;
            ["sft-half", "trapo-half", "hapo-half", "sft", "trapo", "hapo-method", "sft-tenth", "sft-grpo-tenth", "trapo-tenth", "hapo-tenth", "grpo"],
            ["hapo-half" over "trapo-half", "hapo-half" over "sft-half", "hapo-method" over "trapo", "hapo-method" over "sft",
             "hapo-tenth" over "trapo-tenth", "hapo-tenth" over "sft-tenth",
             "hapo-tenth" over "sft-grpo-tenth", "hapo-tenth" over "grpo"];
        "beyond", "Beyond the paper", 3;
            ["grpo", "sft", "trapo", "hapo-method", "e-off-0.5", "e-off-2.5", "m-1", "m-1-k-2", "grpo-4",
             "hapo-4", "grpo-16", "hapo-16", "grpo-token-mean", "hapo-token-mean", "grpo-flip", "trapo-flip", "hapo-flip-0", "hapo-flip-1", "trapo-original"],
            ["e-off-0.5" over "hapo-method", "e-off-2.5" over "hapo-method", "m-1" over "hapo-method", "hapo-4" over "grpo-4",
             "hapo-16" over "grpo-16", "hapo-token-mean" over "grpo-token-mean", "hapo-flip-0" over "grpo-flip",
             "hapo-flip-1" over "hapo-flip-0", "hapo-flip-0" over "trapo-flip", "trapo-original" over "trapo"];
    }
}

/// The arm of that name.
pub(crate) fn find(name: &str) -> &'static Arm {
    ARMS.iter().find(|it| it.name == name).expect("a table's rows are arms, which a test sees to")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hapo_train::{Overrides, Recipe};

    use super::*;

    #[test]
    fn every_row_is_an_arm_and_every_arm_a_recipe() {
        let names: Vec<&str> = ARMS.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for section in &*SECTIONS {
            for name in
                section.arms.iter().chain(section.pairs.iter().flat_map(|it| [&it.0, &it.1]))
            {
                assert!(names.contains(&name.as_str()), "{name}");
            }
            assert!(
                section.pairs.iter().all(|it| section.arms.contains(&it.0)),
                "{}",
                section.name
            );
        }
        for it in &*ARMS {
            assert!(
                SECTIONS.iter().any(|s| s.arms.contains(&it.name)),
                "{} is in no table",
                it.name
            );
            let Some(text) = it.recipe else {
                continue;
            };
            assert!(SEARCHES.iter().any(|s| s.name == it.search), "{}", it.name);
            let unset = it.unset.clone();
            let mut sets = it.sets.clone();
            if it.base == Base::Pretrained {
                sets.push("data.train=train.jsonl".to_owned());
            }
            let sets = Overrides { unset, ..Overrides::set(sets) };
            Recipe::parse_one_of_many(text, &it.name, &it.name, &sets).unwrap();
        }
        for search in &*SEARCHES {
            assert_eq!(search.rates.len(), 3, "as many settings for every arm");
            assert!(search.arms.iter().all(|it| names.contains(&it.as_str())), "{}", search.name);
        }
    }
}
