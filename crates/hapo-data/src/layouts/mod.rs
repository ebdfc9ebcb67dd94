//! Ways in which problems are laid out in rows: one file and one line of [`DATASET_LAYOUTS`] each.

mod columns;
mod fields;
mod gsm8k;
mod luffy;
mod luffy_sft;
mod oat;
mod openrlhf;
mod own;
mod plain;
mod sharegpt;
mod simplerl_v0;
mod simplerl_zoo;
mod trapo;
mod trl_grpo;
mod trl_sft;
mod verl;

use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object};

#[cfg(test)]
pub(crate) use fields::last_boxed;

pub(crate) use columns::LAYOUT as COLUMNS;
pub use columns::{Columns, NamedColumns};
pub(crate) use own::LAYOUT as OWN;
pub(crate) use plain::LAYOUT as PLAIN;

/// A way in which problems are laid out in a file.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Its name in `hapo list layouts` and in statistics.
    pub name: &'static str,
    /// Its keys, in one line.
    pub summary: &'static str,
    /// Keys of a row that are read, or known and rightly left alone; others are counted as ignored.
    pub keys: &'static [&'static [&'static str]],
    /// How well a row fits: 0 is not at all. The layout with the largest sum over the first rows of a
    /// file reads it; of equal ones the first in the table.
    pub(crate) fit: fn(&Object, Container) -> u32,
    /// Reads a row.
    pub(crate) read: fn(&Object) -> Result<Example, Fault>,
}

/// The layouts.
pub const DATASET_LAYOUTS: &[Layout] = &[
    own::LAYOUT,
    verl::LAYOUT,
    luffy::LAYOUT,
    trapo::LAYOUT,
    simplerl_zoo::LAYOUT,
    simplerl_v0::LAYOUT,
    oat::LAYOUT,
    gsm8k::LAYOUT,
    trl_grpo::LAYOUT,
    trl_sft::LAYOUT,
    openrlhf::LAYOUT,
    luffy_sft::LAYOUT,
    sharegpt::LAYOUT,
    plain::LAYOUT,
];
