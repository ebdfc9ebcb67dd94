//! The answers of the conformance cases in closed form, without autograd and without the numpy reference.
//!
//! Purpose: a second author of every number in `cases/`. Value and slope of a token are one function of scalars, and
//! the tests compare both with the recorded answers to 1e-13 and with central differences. The price is that each
//! formula stands twice in this repository.

mod advantage;
mod case;
mod loss;

pub use advantage::{advantages, mixing_schedule, shaped_rewards};
pub use case::{Case, Row, cases};
pub use loss::{Answer, loss};
