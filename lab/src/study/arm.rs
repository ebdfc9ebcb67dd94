//! The parts of a study: arms, their tables, and the searches that choose their learning rates.

use hapo_data::task::TeacherSteps;

/// One method under one setting, trained with several seeds.
#[derive(Debug)]
pub(crate) struct Arm {
    /// Name of its folder.
    pub(crate) name: String,
    /// Its row in the tables.
    pub(crate) label: String,
    /// Its recipe; `None` for a base model, which is only scored.
    pub(crate) recipe: Option<&'static str>,
    /// Keys set on top of the recipe.
    pub(crate) sets: Vec<String>,
    /// Keys removed from the recipe.
    pub(crate) unset: Vec<String>,
    /// The search whose learning rate it is given.
    pub(crate) search: String,
    /// Its starting point.
    pub(crate) base: Base,
    /// The levels that it is scored on.
    pub(crate) levels: &'static [(&'static str, u32)],
    /// How the teacher of its prompts writes.
    pub(crate) teacher: TeacherSteps,
}

/// The starting point of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The model shipped with the program.
    Shipped,
    /// A rung of the ladder.
    Rung(usize),
    /// The pretrained model of [`crate::study::real::Real`].
    Pretrained,
}

/// A table: rows that are read together.
#[derive(Debug)]
pub(crate) struct Section {
    /// Its name.
    pub(crate) name: String,
    /// Its heading.
    pub(crate) title: String,
    /// The study that it belongs to.
    pub(crate) study: StudyName,
    /// Its rows.
    pub(crate) arms: Vec<String>,
    /// Pairs (row, baseline) whose difference is shown.
    pub(crate) pairs: Vec<(String, String)>,
    /// Most seeds of each row.
    pub(crate) seeds: u64,
}

/// A study: a set of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StudyName {
    /// The paper's tables.
    Mini,
    /// Bases that use the teacher's style more and more often.
    Ladder,
    /// Teachers that are not perfect.
    Teachers,
    /// A pretrained model.
    Real,
}

/// A choice of a learning rate, on the development split with one seed that no table uses.
#[derive(Debug)]
pub(crate) struct Search {
    /// Its name.
    pub(crate) name: String,
    /// The arms that are trained with every rate; the best mean over them wins.
    pub(crate) arms: Vec<String>,
    /// The rates.
    pub(crate) rates: &'static [f64],
}

/// The rates of every search: as many for each arm, a factor 2 apart.
pub(crate) const RATES: &[f64] = &[5e-5, 1e-4, 2e-4];

/// The levels of `mini6`.
pub(crate) const MINI6_LEVELS: &[(&str, u32)] =
    &[("multiply", 5), ("multiply", 6), ("add", 4), ("add", 5), ("linear", 3), ("linear", 4)];

macro_rules! recipe {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/mini/", $name, ".toml"))
    };
}
pub(crate) use recipe;

impl Arm {
    /// A base model without training.
    pub(crate) fn base(name: String, label: String, base: Base) -> Self {
        Self {
            name,
            label,
            recipe: None,
            sets: Vec::new(),
            unset: Vec::new(),
            search: String::new(),
            base,
            levels: MINI6_LEVELS,
            teacher: TeacherSteps::Exact,
        }
    }
}
