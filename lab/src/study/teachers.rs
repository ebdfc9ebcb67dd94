//! Teachers that are not perfect: the same methods in regimes in which a teacher that stays could do harm.

use hapo_data::task::TeacherSteps;

use crate::study::arm::{Arm, Base, RATES, Search, Section, StudyName, recipe};

/// A regime.
pub(crate) struct Regime {
    /// Its name.
    name: &'static str,
    /// Its table's heading.
    title: &'static str,
    /// Differences from the exact teacher.
    sets: &'static [&'static str],
    teacher: TeacherSteps,
    /// The regime whose GRPO runs are this one's too, since no trace enters them; its own where prompts, limit or
    /// verdicts differ.
    grpo_of: &'static str,
    levels: &'static [(&'static str, u32)],
}

/// The teacher of regimes that change something else.
pub(crate) const TEACHER: TeacherSteps = TeacherSteps::Exact;

const TRAINED: &[(&str, u32)] = &[("multiply", 6), ("add", 5), ("linear", 4)];
/// Levels that the base partly masters stand beside those that it cannot learn: losses show there.
const UNFOLLOWABLE: &[(&str, u32)] =
    &[("multiply", 5), ("add", 4), ("linear", 3), ("multiply", 8), ("add", 7), ("linear", 6)];

/// The regimes in the order in which they are made: those that are dropped first when time is short come last.
pub(crate) const REGIMES: &[Regime] = &[
    Regime {
        name: "exact",
        title: "Exact traces for a quarter of the prompts",
        sets: &[],
        teacher: TEACHER,
        grpo_of: "exact",
        levels: TRAINED,
    },
    Regime {
        name: "ceiling",
        title: "A style that finishes 58 % of the problems",
        sets: &["data.teacher_steps=repeated"],
        teacher: TeacherSteps::Repeated,
        grpo_of: "exact",
        levels: TRAINED,
    },
    Regime {
        name: "coverage-10",
        title: "Exact traces for a tenth of the prompts",
        sets: &["data.teacher_coverage=0.1"],
        teacher: TEACHER,
        grpo_of: "exact",
        levels: TRAINED,
    },
    Regime {
        name: "coverage-50",
        title: "Exact traces for half of the prompts",
        sets: &["data.teacher_coverage=0.5"],
        teacher: TEACHER,
        grpo_of: "exact",
        levels: TRAINED,
    },
    Regime {
        name: "coverage-100",
        title: "Exact traces for all prompts",
        sets: &["data.teacher_coverage=1.0"],
        teacher: TEACHER,
        grpo_of: "exact",
        levels: TRAINED,
    },
    Regime {
        name: "unfollowable",
        title: "Traces for all prompts whose steps the model cannot follow at their length",
        sets: &[
            "data.levels=[\"multiply:8\", \"add:7\", \"linear:6\"]",
            "data.teacher_coverage=1.0",
            "data.max_prompt_tokens=40",
        ],
        teacher: TEACHER,
        grpo_of: "unfollowable",
        levels: UNFOLLOWABLE,
    },
    Regime {
        name: "flawed",
        title: "A wrong step in 30 % of the traces, all answers right",
        sets: &["data.teacher_steps=flawed"],
        teacher: TeacherSteps::Flawed,
        grpo_of: "exact",
        levels: TRAINED,
    },
    Regime {
        name: "limit",
        title: "Traces as long as the limit, 64 tokens",
        sets: &["sampling.max_new_tokens=64"],
        teacher: TEACHER,
        grpo_of: "limit",
        levels: TRAINED,
    },
    Regime {
        name: "flips-5",
        title: "5 % of the verdicts flipped",
        sets: &["data.verdict_noise=0.05"],
        teacher: TEACHER,
        grpo_of: "flips-5",
        levels: TRAINED,
    },
    Regime {
        name: "flips-15",
        title: "15 % of the verdicts flipped",
        sets: &["data.verdict_noise=0.15"],
        teacher: TEACHER,
        grpo_of: "flips-15",
        levels: TRAINED,
    },
];

/// Regimes on which rates are searched; every other regime is given the rates of the two.
const SEARCHED: [&str; 2] = ["exact", "ceiling"];

struct Method {
    name: &'static str,
    label: &'static str,
    recipe: &'static str,
    sets: &'static [&'static str],
    unset: &'static [&'static str],
}

const METHODS: &[Method] = &[
    Method {
        name: "grpo",
        label: "GRPO",
        recipe: recipe!("grpo"),
        sets: &["steps=240"],
        unset: &[],
    },
    Method {
        name: "sft-grpo",
        label: "SFT-GRPO",
        recipe: recipe!("sft-grpo"),
        sets: &["stage.sft.steps=80", "stage.grpo.steps=160"],
        unset: &[],
    },
    Method {
        name: "trapo",
        label: "TRAPO, always on",
        recipe: recipe!("trapo"),
        sets: &["steps=240"],
        unset: &[],
    },
    Method {
        name: "hapo",
        label: "HAPO, annealed",
        recipe: recipe!("hapo-method"),
        sets: &["steps=240"],
        unset: &[],
    },
    Method {
        name: "hapo-open",
        label: "HAPO, not annealed",
        recipe: recipe!("hapo-method"),
        sets: &["steps=240", "hapo.annealing=off"],
        unset: &["hapo.turn_off_epoch", "hapo.steepness"],
    },
];

/// The paper's claims about HAPO, and the rows that they compare it with.
pub(crate) const CLAIMS: &[(&str, &str, &str)] = &[
    ("better than GRPO", "hapo", "grpo"),
    ("better than imitation with GRPO after it", "hapo", "sft-grpo"),
    ("better than a teacher that never leaves", "hapo", "trapo"),
    ("annealing is better than a gate that never closes", "hapo", "hapo-open"),
];

/// The headings of every regime's table.
pub(crate) fn titles() -> impl Iterator<Item = &'static str> {
    REGIMES.iter().map(|it| it.title)
}

fn arm_name(regime: &Regime, method: &str) -> String {
    let regime = if method == "grpo" { regime.grpo_of } else { regime.name };
    format!("{regime}-{method}")
}

pub(crate) fn arms() -> impl Iterator<Item = Arm> {
    REGIMES.iter().flat_map(|regime| {
        let own = METHODS.iter().filter(|it| it.name != "grpo" || regime.grpo_of == regime.name);
        own.map(|method| Arm {
            name: arm_name(regime, method.name),
            label: method.label.to_owned(),
            recipe: Some(method.recipe),
            sets: [&["metrics.kl_every=10"], method.sets, regime.sets]
                .concat()
                .iter()
                .map(|it| (*it).to_owned())
                .collect(),
            unset: method.unset.iter().map(|it| (*it).to_owned()).collect(),
            search: format!("teachers-{}", method.name),
            base: Base::Shipped,
            levels: regime.levels,
            teacher: regime.teacher,
        })
    })
}

pub(crate) fn searches() -> impl Iterator<Item = Search> {
    METHODS.iter().map(|method| {
        let on = REGIMES.iter().filter(|it| SEARCHED.contains(&it.name));
        let mut arms: Vec<String> = on.map(|it| arm_name(it, method.name)).collect();
        arms.dedup();
        Search { name: format!("teachers-{}", method.name), arms, rates: RATES }
    })
}

pub(crate) fn sections() -> impl Iterator<Item = Section> {
    REGIMES.iter().map(|regime| {
        let of = |method: &str| arm_name(regime, method);
        Section {
            name: regime.name.to_owned(),
            title: regime.title.to_owned(),
            study: StudyName::Teachers,
            arms: METHODS.iter().map(|it| of(it.name)).collect(),
            pairs: CLAIMS.iter().map(|(_, row, baseline)| (of(row), of(baseline))).collect(),
            seeds: u64::MAX,
        }
    })
}
