//! The graders, one file each: reading a gold answer once, and judging completions against it.

pub(crate) mod choice;
pub(crate) mod exact;
pub(crate) mod format;
pub(crate) mod math;
mod meant;
pub(crate) mod oat;
mod spellings;

use crate::{GoldError, Grader};

/// Every grader of this crate. A new one is a file in this folder and an entry here.
pub static GRADERS: &[&dyn Grader] = &[
    &math::MATH,
    &math::BENCHMARK,
    &math::TRAINING,
    &oat::OAT,
    &exact::EXACT,
    &choice::CHOICE,
    &format::FORMAT,
];

/// The grader of recipes that name none, with the extraction that is [`crate::Extraction::default`] (D45).
pub const DEFAULT_GRADER: &str = "training";

/// The grader of that name, or [`GoldError::UnknownGrader`] with the names there are.
pub fn grader(name: &str) -> Result<&'static dyn Grader, GoldError> {
    let found = GRADERS.iter().find(|it| it.name() == name);
    found.copied().ok_or_else(|| GoldError::UnknownGrader {
        got: name.to_owned(),
        expected: GRADERS.iter().map(|it| it.name()).collect::<Vec<_>>().join(", "),
    })
}
