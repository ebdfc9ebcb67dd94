//! What the miniature study compares.

/// One method under one setting, trained with several seeds.
pub(crate) struct Arm {
    /// Name of its folder.
    pub(crate) name: &'static str,
    /// Its row in the tables.
    pub(crate) label: &'static str,
    /// Its recipe.
    pub(crate) recipe: &'static str,
    /// What differs from the recipe.
    pub(crate) sets: &'static [&'static str],
    /// The arm whose searched learning rate it is given.
    pub(crate) rate_of: &'static str,
}

/// A table: rows that are read together.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Its rows; `base` is the model that all arms start from.
    pub(crate) arms: &'static [&'static str],
    /// Pairs (row, baseline) whose difference is shown.
    pub(crate) pairs: &'static [(&'static str, &'static str)],
    /// Most seeds of each row.
    pub(crate) seeds: u64,
}

/// Arms whose learning rate is searched, and the rates tried, on the development split with one seed that
/// no table uses.
pub(crate) const SEARCHED: &[(&str, &[f64])] = &[
    ("grpo", RATES),
    ("sft", &[1e-4, 2e-4, 4e-4]),
    ("luffy", RATES),
    ("luffy-hapo", RATES),
    ("srft", RATES),
    ("srft-hapo", RATES),
    ("trapo", RATES),
    ("trapo-hapo", RATES),
];
const RATES: &[f64] = &[5e-5, 1e-4, 2e-4];

/// Seed of the search.
pub(crate) const SEARCH_SEED: u64 = 1000;

macro_rules! recipe {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/mini/", $name, ".toml"))
    };
}

macro_rules! arms {
    ($($name:literal, $label:literal, $recipe:literal, [$($set:literal),*], $rate_of:literal;)*) => {
        &[$(Arm {
            name: $name,
            label: $label,
            recipe: recipe!($recipe),
            sets: &[$($set),*],
            rate_of: $rate_of,
        }),*]
    };
}

macro_rules! sections {
    ($($name:literal, $title:literal, $seeds:expr; [$($arm:literal),*], [$($row:literal over $base:literal),*];)*) => {
        &[$(Section {
            name: $name,
            title: $title,
            arms: &[$($arm),*],
            pairs: &[$(($row, $base)),*],
            seeds: $seeds,
        }),*]
    };
}

/// Every arm; a table is a choice of them, so that no run is made twice. Columns: name, row of the table, recipe, what
/// differs from it, the arm whose learning rate it is given.
pub(crate) const ARMS: &[Arm] = arms! {
    "grpo", "GRPO", "grpo", [], "grpo";
    "sft", "SFT", "sft", [], "sft";
    "sft-grpo", "SFT-GRPO", "sft-grpo", [], "grpo";
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
    "sft-half", "SFT, a trace for half of the prompts", "sft", ["data.teacher_coverage=0.5"], "sft";
    "trapo-half", "TRAPO, a trace for half of the prompts", "trapo", ["data.teacher_coverage=0.5"], "trapo";
    "hapo-half", "TRAPO-HAPO, a trace for half of the prompts", "hapo-method", ["data.teacher_coverage=0.5"], "trapo-hapo";
    "sft-tenth", "SFT, a trace for a tenth of the prompts", "sft", ["data.teacher_coverage=0.1"], "sft";
    "trapo-tenth", "TRAPO, a trace for a tenth of the prompts", "trapo", ["data.teacher_coverage=0.1"], "trapo";
    "hapo-tenth", "TRAPO-HAPO, a trace for a tenth of the prompts", "hapo-method", ["data.teacher_coverage=0.1"], "trapo-hapo";
    "trapo-original", "TRAPO with its own prefixes", "trapo-original", [], "trapo";
};

/// The tables. Columns: name, heading, most seeds of each row; rows; pairs whose difference is shown.
pub const SECTIONS: &[Section] = sections! {
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
        ["sft-half", "trapo-half", "hapo-half", "sft", "trapo", "hapo-method", "sft-tenth", "trapo-tenth", "hapo-tenth", "grpo"],
        ["hapo-half" over "trapo-half", "hapo-half" over "sft-half", "hapo-method" over "trapo", "hapo-method" over "sft",
         "hapo-tenth" over "trapo-tenth", "hapo-tenth" over "sft-tenth", "hapo-tenth" over "grpo"];
    "beyond", "Beyond the paper", 3;
        ["grpo", "sft", "trapo", "hapo-method", "e-off-0.5", "e-off-2.5", "m-1", "m-1-k-2", "grpo-4",
         "hapo-4", "grpo-16", "hapo-16", "grpo-token-mean", "hapo-token-mean", "grpo-flip", "trapo-flip", "hapo-flip-0", "hapo-flip-1", "trapo-original"],
        ["e-off-0.5" over "hapo-method", "e-off-2.5" over "hapo-method", "m-1" over "hapo-method", "hapo-4" over "grpo-4",
         "hapo-16" over "grpo-16", "hapo-token-mean" over "grpo-token-mean", "hapo-flip-0" over "grpo-flip",
         "hapo-flip-1" over "hapo-flip-0", "hapo-flip-0" over "trapo-flip", "trapo-original" over "trapo"];
};

/// The arm of that name; `None` for `base`.
pub(crate) fn find(name: &str) -> Option<&'static Arm> {
    ARMS.iter().find(|it| it.name == name)
}

#[cfg(test)]
mod tests {
    use hapo_train::{Overrides, Recipe};

    use super::*;

    #[test]
    fn every_row_is_an_arm_and_every_arm_a_recipe() {
        for section in SECTIONS {
            for name in section.arms {
                assert!(*name == "base" || find(name).is_some(), "{name}");
            }
            for (row, baseline) in section.pairs {
                assert!(find(row).is_some() && find(baseline).is_some(), "{row} {baseline}");
            }
        }
        for it in ARMS {
            assert!(SEARCHED.iter().any(|s| s.0 == it.rate_of), "{}", it.name);
            let used = SECTIONS.iter().any(|s| s.arms.contains(&it.name));
            assert!(used, "{} is in no table", it.name);
            let sets = Overrides::set(it.sets.iter().copied());
            Recipe::parse_stages(it.recipe, it.name, it.name, &sets).unwrap();
        }
    }
}
