//! The confidence gate: its settings, and its decisions over the steps of a run.
//!
//! Settings are decimals and integers; a [`Schedule`] is made of them once per run and answers with integers
//! only (D1). The price of exactness is the arithmetic of `logarithm.rs`.

mod logarithm;
mod schedule;
mod settings;

pub use schedule::{RangeRow, RungRow, Schedule, ScheduleTable, StepRow, SuccessLimit};
pub use settings::{Annealing, AnnealingMode, Gate, SlotRule, Threshold, check_slot_rule};
