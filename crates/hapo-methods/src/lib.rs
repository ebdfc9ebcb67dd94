//! Methods: from log-probabilities to a loss and its derivative by each log-probability.
//!
//! A host method says which rollouts are sampled, when the teacher enters a group and which
//! operator shapes its tokens; [`Gated`] wraps any host that has a teacher and decides *when* in
//! its place (HAPO). Nothing here knows a tensor or a model: slices in, numbers out. The price is
//! that the trainer carries log-probabilities to the host's memory and derivatives back, a few
//! bytes per token.
//!
//! A host is one file in `hosts/` and one line in [`METHODS`]; an operator is one file in
//! `operators/` and one line in [`OPERATORS`].

mod gated;
mod hosts;
mod mixing;
mod objective;
mod operators;
mod sequence_surrogate;
mod surrogate;

pub use gated::Gated;
pub use hosts::{Host, METHODS, MethodKind, MethodSpec, method};
pub use mixing::Mu;
pub use objective::{
    Normaliser, Objective, OnInjection, PolicyTokens, Ratio, SequenceTerms, TeacherTokens, Weights,
};
pub use operators::{OPERATORS, Operator, operator};
pub use sequence_surrogate::sequence_surrogate;
pub use surrogate::{Clip, Surrogate, clipped_surrogate};

use hapo_core::{SlotRule, Step, SuccessLimit};

/// What a training step asks of a method.
pub trait Method: Send + Sync {
    /// Name in tables: the host's, with `-hapo` when it is gated.
    fn name(&self) -> String;

    /// The largest success count at which the teacher enters a group in this step (D1).
    fn success_limit(&self, step: Step) -> SuccessLimit;

    /// The threshold `γ_t`, for logs and plots only (D1).
    fn threshold(&self, step: Step) -> f64;

    /// γ0, for the teacher weight that is relative to it (D15).
    fn initial_threshold(&self) -> f64;

    /// Which member makes room for the teacher (D7, D8).
    fn slot(&self) -> SlotRule;

    /// What the tokens are worth.
    fn objective(&self) -> &Objective;
}
