//! The parts of the family: arms, their tables, and the searches that choose a value for them.

use hapo_data::task::TeacherSteps;

/// The levels that a run is scored on.
pub(crate) const LEVELS: &[(&str, u32)] =
    &[("multiply", 5), ("multiply", 6), ("add", 4), ("add", 5), ("linear", 3), ("linear", 4)];

/// One method in one cell, trained with several seeds.
#[derive(Debug)]
pub(crate) struct Arm {
    /// Name of its folder.
    pub(crate) name: String,
    /// Its recipe; `None` for a base model, which is only scored.
    pub(crate) recipe: Option<&'static str>,
    /// Keys set on top of the recipe.
    pub(crate) sets: Vec<String>,
    /// Keys removed from the recipe.
    pub(crate) unset: Vec<String>,
    /// The search whose value it is given.
    pub(crate) search: String,
    /// The key that the searched value is for; otherwise it is the learning rate.
    pub(crate) tuned: Option<&'static str>,
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
    /// The pretrained model of [`crate::family::real::Real`].
    Pretrained,
}

/// A table: rows that are read together.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// Its heading.
    pub(crate) title: String,
    /// Its rows.
    pub(crate) rows: Vec<RowName>,
    /// Pairs (row, baseline) of arms whose difference is shown.
    pub(crate) pairs: Vec<(String, String)>,
    /// Seeds of each row.
    pub(crate) seeds: u64,
}

/// An arm and the label of its row.
#[derive(Clone, Debug)]
pub(crate) struct RowName {
    pub(crate) arm: String,
    pub(crate) label: String,
}

/// A choice among three values, on the development split with one seed that no table uses.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) name: String,
    /// The arm that is trained with every value; the best success wins.
    pub(crate) arm: String,
    pub(crate) values: &'static [f64],
}

macro_rules! recipe {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/mini/", $name, ".toml"))
    };
}
pub(crate) use recipe;
