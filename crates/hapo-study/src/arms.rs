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
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../recipes/mini/",
            $name,
            ".toml"
        ))
    };
}

const fn arm(
    name: &'static str,
    label: &'static str,
    recipe: &'static str,
    sets: &'static [&'static str],
    rate_of: &'static str,
) -> Arm {
    Arm {
        name,
        label,
        recipe,
        sets,
        rate_of,
    }
}

/// Every arm; a table is a choice of them, so that no run is made twice.
pub(crate) const ARMS: &[Arm] = &[
    arm("grpo", "GRPO", recipe!("grpo"), &[], "grpo"),
    arm("sft", "SFT", recipe!("sft"), &[], "sft"),
    arm("sft-grpo", "SFT-GRPO", recipe!("sft-grpo"), &[], "grpo"),
    arm("luffy", "LUFFY", recipe!("luffy"), &[], "luffy"),
    arm(
        "luffy-hapo",
        "LUFFY-HAPO",
        recipe!("luffy-hapo"),
        &[],
        "luffy-hapo",
    ),
    arm("srft", "SRFT", recipe!("srft"), &[], "srft"),
    arm(
        "srft-hapo",
        "SRFT-HAPO",
        recipe!("srft-hapo"),
        &[],
        "srft-hapo",
    ),
    arm("trapo", "TRAPO", recipe!("trapo"), &[], "trapo"),
    arm(
        "trapo-hapo",
        "TRAPO-HAPO, γ0 = 0.3, not annealed",
        recipe!("hapo-table1"),
        &[],
        "trapo-hapo",
    ),
    arm(
        "hapo-method",
        "TRAPO-HAPO, m = 0, annealed",
        recipe!("hapo-method"),
        &[],
        "trapo-hapo",
    ),
    arm(
        "hindsight",
        "TRAPO + hindsight (worst rollout, always)",
        recipe!("hindsight"),
        &[],
        "trapo",
    ),
    arm(
        "luffy-0.5",
        "LUFFY-HAPO, γ0 = 0.5",
        recipe!("luffy-gamma0-0.5"),
        &[],
        "luffy-hapo",
    ),
    arm(
        "luffy-0.7",
        "LUFFY-HAPO, γ0 = 0.7",
        recipe!("luffy-gamma0-0.7"),
        &[],
        "luffy-hapo",
    ),
    arm(
        "srft-0.5",
        "SRFT-HAPO, γ0 = 0.5",
        recipe!("srft-gamma0-0.5"),
        &[],
        "srft-hapo",
    ),
    arm(
        "srft-0.7",
        "SRFT-HAPO, γ0 = 0.7",
        recipe!("srft-gamma0-0.7"),
        &[],
        "srft-hapo",
    ),
    arm(
        "trapo-0.5",
        "TRAPO-HAPO, γ0 = 0.5",
        recipe!("trapo-gamma0-0.5"),
        &[],
        "trapo-hapo",
    ),
    arm(
        "trapo-0.7",
        "TRAPO-HAPO, γ0 = 0.7",
        recipe!("trapo-gamma0-0.7"),
        &[],
        "trapo-hapo",
    ),
    arm(
        "stability-open",
        "γ0 = 0.3, not annealed, 240 steps",
        recipe!("stability-open"),
        &[],
        "trapo-hapo",
    ),
    arm(
        "stability-annealed",
        "γ0 = 0.3, annealed, 240 steps",
        recipe!("stability-annealed"),
        &[],
        "trapo-hapo",
    ),
    arm(
        "stability-always",
        "TRAPO, 240 steps",
        recipe!("trapo"),
        &["steps=240", "metrics.kl_every=10"],
        "trapo",
    ),
    arm(
        "e-off-0.5",
        "e_off = 0.5",
        recipe!("hapo-method"),
        &["hapo.turn_off_epoch=0.5"],
        "trapo-hapo",
    ),
    arm(
        "e-off-2.5",
        "e_off = 2.5",
        recipe!("hapo-method"),
        &["hapo.turn_off_epoch=2.5"],
        "trapo-hapo",
    ),
    arm(
        "m-1",
        "m = 1, k = 10",
        recipe!("hapo-method"),
        &["hapo.success_limit=1"],
        "trapo-hapo",
    ),
    arm(
        "m-1-k-2",
        "m = 1, k = 2",
        recipe!("hapo-method"),
        &["hapo.success_limit=1", "hapo.steepness=2"],
        "trapo-hapo",
    ),
    arm(
        "grpo-4",
        "GRPO, groups of 4",
        recipe!("grpo"),
        &["sampling.group_size=4"],
        "grpo",
    ),
    arm(
        "hapo-4",
        "TRAPO-HAPO, groups of 4",
        recipe!("hapo-method"),
        &["sampling.group_size=4"],
        "trapo-hapo",
    ),
    arm(
        "grpo-16",
        "GRPO, groups of 16",
        recipe!("grpo"),
        &["sampling.group_size=16"],
        "grpo",
    ),
    arm(
        "hapo-16",
        "TRAPO-HAPO, groups of 16",
        recipe!("hapo-method"),
        &["sampling.group_size=16"],
        "trapo-hapo",
    ),
    arm(
        "grpo-token-mean",
        "GRPO, token mean",
        recipe!("grpo"),
        &["loss.normaliser=token-mean"],
        "grpo",
    ),
    arm(
        "hapo-token-mean",
        "TRAPO-HAPO, token mean",
        recipe!("hapo-method"),
        &["loss.normaliser=token-mean"],
        "trapo-hapo",
    ),
    arm(
        "grpo-flip",
        "GRPO, 5 % of verdicts flipped",
        recipe!("grpo"),
        &["data.verdict_noise=0.05"],
        "grpo",
    ),
    arm(
        "trapo-flip",
        "TRAPO, 5 % of verdicts flipped",
        recipe!("trapo"),
        &["data.verdict_noise=0.05"],
        "trapo",
    ),
    arm(
        "hapo-flip-0",
        "TRAPO-HAPO, m = 0, 5 % flipped",
        recipe!("hapo-method"),
        &["data.verdict_noise=0.05"],
        "trapo-hapo",
    ),
    arm(
        "hapo-flip-1",
        "TRAPO-HAPO, m = 1, 5 % flipped",
        recipe!("hapo-method"),
        &["data.verdict_noise=0.05", "hapo.success_limit=1"],
        "trapo-hapo",
    ),
    arm(
        "sft-half",
        "SFT, a trace for half of the prompts",
        recipe!("sft"),
        &["data.teacher_coverage=0.5"],
        "sft",
    ),
    arm(
        "trapo-half",
        "TRAPO, a trace for half of the prompts",
        recipe!("trapo"),
        &["data.teacher_coverage=0.5"],
        "trapo",
    ),
    arm(
        "hapo-half",
        "TRAPO-HAPO, a trace for half of the prompts",
        recipe!("hapo-method"),
        &["data.teacher_coverage=0.5"],
        "trapo-hapo",
    ),
    arm(
        "sft-tenth",
        "SFT, a trace for a tenth of the prompts",
        recipe!("sft"),
        &["data.teacher_coverage=0.1"],
        "sft",
    ),
    arm(
        "trapo-tenth",
        "TRAPO, a trace for a tenth of the prompts",
        recipe!("trapo"),
        &["data.teacher_coverage=0.1"],
        "trapo",
    ),
    arm(
        "hapo-tenth",
        "TRAPO-HAPO, a trace for a tenth of the prompts",
        recipe!("hapo-method"),
        &["data.teacher_coverage=0.1"],
        "trapo-hapo",
    ),
    arm(
        "trapo-original",
        "TRAPO with its own hints",
        recipe!("trapo-original"),
        &[],
        "trapo",
    ),
];

/// The tables.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "table1",
        title: "Table 1: methods, with and without HAPO",
        arms: &[
            "base",
            "grpo",
            "sft",
            "sft-grpo",
            "luffy",
            "luffy-hapo",
            "srft",
            "srft-hapo",
            "trapo",
            "trapo-hapo",
            "hapo-method",
        ],
        pairs: &[
            ("luffy-hapo", "luffy"),
            ("srft-hapo", "srft"),
            ("trapo-hapo", "trapo"),
            ("hapo-method", "trapo"),
            ("hapo-method", "grpo"),
            ("hapo-method", "sft"),
        ],
        seeds: u64::MAX,
    },
    Section {
        name: "ablation",
        title: "Table 2: what each part adds",
        arms: &["trapo", "hindsight", "trapo-hapo", "hapo-method"],
        pairs: &[
            ("hindsight", "trapo"),
            ("trapo-hapo", "hindsight"),
            ("hapo-method", "trapo-hapo"),
        ],
        seeds: u64::MAX,
    },
    Section {
        name: "sensitivity",
        title: "Sensitivity to the threshold",
        arms: &[
            "luffy-hapo",
            "luffy-0.5",
            "luffy-0.7",
            "srft-hapo",
            "srft-0.5",
            "srft-0.7",
            "trapo-hapo",
            "trapo-0.5",
            "trapo-0.7",
            "hapo-method",
        ],
        pairs: &[
            ("luffy-0.5", "luffy-hapo"),
            ("luffy-0.7", "luffy-hapo"),
            ("srft-0.5", "srft-hapo"),
            ("srft-0.7", "srft-hapo"),
            ("trapo-0.5", "trapo-hapo"),
            ("trapo-0.7", "trapo-hapo"),
        ],
        seeds: 3,
    },
    Section {
        name: "stability",
        title: "Stability over a long run",
        arms: &["stability-open", "stability-annealed", "stability-always"],
        pairs: &[
            ("stability-annealed", "stability-open"),
            ("stability-annealed", "stability-always"),
        ],
        seeds: 3,
    },
    Section {
        name: "coverage",
        title: "A trace for half, a quarter and a tenth of the prompts",
        arms: &[
            "sft-half",
            "trapo-half",
            "hapo-half",
            "sft",
            "trapo",
            "hapo-method",
            "sft-tenth",
            "trapo-tenth",
            "hapo-tenth",
            "grpo",
        ],
        pairs: &[
            ("hapo-half", "trapo-half"),
            ("hapo-half", "sft-half"),
            ("hapo-method", "trapo"),
            ("hapo-method", "sft"),
            ("hapo-tenth", "trapo-tenth"),
            ("hapo-tenth", "sft-tenth"),
            ("hapo-tenth", "grpo"),
        ],
        seeds: u64::MAX,
    },
    Section {
        name: "beyond",
        title: "Beyond the paper",
        arms: &[
            "grpo",
            "sft",
            "trapo",
            "hapo-method",
            "e-off-0.5",
            "e-off-2.5",
            "m-1",
            "m-1-k-2",
            "grpo-4",
            "hapo-4",
            "grpo-16",
            "hapo-16",
            "grpo-token-mean",
            "hapo-token-mean",
            "grpo-flip",
            "trapo-flip",
            "hapo-flip-0",
            "hapo-flip-1",
            "trapo-original",
        ],
        pairs: &[
            ("e-off-0.5", "hapo-method"),
            ("e-off-2.5", "hapo-method"),
            ("m-1", "hapo-method"),
            ("hapo-4", "grpo-4"),
            ("hapo-16", "grpo-16"),
            ("hapo-token-mean", "grpo-token-mean"),
            ("hapo-flip-0", "grpo-flip"),
            ("hapo-flip-1", "hapo-flip-0"),
            ("hapo-flip-0", "trapo-flip"),
            ("trapo-original", "trapo"),
        ],
        seeds: 3,
    },
];

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
                assert!(
                    find(row).is_some() && find(baseline).is_some(),
                    "{row} {baseline}"
                );
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
