//! The algorithm on slices and integers: groups of rollouts, the confidence gate and its schedule, injection,
//! advantages, methods, the loss and its derivative by each log-probability, and the counter-based generator.
//!
//! A prompt's group passes through three types, and each step consumes the one before it, so the steps
//! cannot be taken in another order: [`SampledGroup`] → [`ScoredGroup`] → [`MixedGroup`]. A policy
//! [`Rollout`] and a [`TeacherTrajectory`] are different types that meet only inside a [`MixedGroup`].
//!
//! ```
//! use hapo_core::*;
//!
//! // Algorithm 1 for one prompt: eight rollouts, all wrong, and the default gate.
//! let gate = Gate::Confidence {
//!     threshold: Threshold::Derived { success_limit: 0 },
//!     annealing: Annealing::Sigmoid { turn_off_epoch: "1.5".parse()?, steepness: 10.into() },
//! };
//! let schedule = Schedule::new(&gate, 8, 62)?;
//! let rollout = Rollout {
//!     tokens: vec![5, 2],
//!     log_probs: vec![-0.5, -0.1],
//!     ended: true,
//!     ..Rollout::default()
//! };
//! let sampled = SampledGroup::new(PromptId(412), 8, vec![rollout; 8]);
//! let scored = sampled.score(vec![Verdict::Wrong; 8]);
//! assert_eq!(scored.confidence(), 0.1);
//!
//! let teacher = admit_teacher(vec![7, 7, 7], &[2], &Verdict::Correct, 80)?;
//! let step = Step(1);
//! let slot = Slot { rule: SlotRule::LowestReward, seed: 0, step };
//! let mixed = apply_gate(scored, Some(&teacher), schedule.success_limit(step), slot);
//! assert!(mixed.injected());
//! let advantages = advantages(&mixed, AdvantageRule::default());
//! assert_eq!(advantages, [0.875, -0.125, -0.125, -0.125, -0.125, -0.125, -0.125, -0.125]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The price of purity: nothing here reads a clock, a file or hidden randomness, so every caller passes
//! the step, the seed and the prompt; in return nothing here fails once its settings are accepted.

#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod advantage;
mod by_name;
mod credit;
mod decimal;
mod fence;
mod gate;
mod group;
mod growth;
mod help;
mod json;
mod loss;
mod memory;
mod methods;
mod operators;
mod refusal;
mod rng;
mod rollout;
mod scores;
mod statistics;
mod teacher_weight;
mod words;

pub use advantage::{AdvantageGroup, AdvantageRule, advantages, advantages_among, deviation, mean};
pub use credit::{
    Advantage, Credit, Kl, KlEstimator, PolicyAndTeacher, Ratio, Span, StepContext, Term,
    behind_prefix, has_terms, unmasked,
};
pub use decimal::Decimal;
pub use fence::fenced;
pub use gate::{
    Annealing, AnnealingMode, GATES, Gate, GateMemory, GateRule, GateSettings, GroupStats,
    RangeRow, Round, RungRow, Schedule, ScheduleTable, SlotRule, StepRow, SuccessLimit, Threshold,
    check_slot_rule, gate_rule, refused_as_table,
};
pub use group::{
    Intervention, Member, MixedGroup, PolicyMember, SampledGroup, ScoredGroup, drop_short_groups,
};
pub use growth::{GroupSoFar, Growth, Needs, Part, Prefix, Scored};
pub use help::{
    Candidate, Grow, Help, INJECTIONS, Injection, Mix, Remember, Slot, TeacherPick, Terms,
    TrainPrompt, apply_gate, injection, rollouts_to_sample,
};
pub use json::{UniqueFields, without_lone_surrogates};
pub use loss::{
    Bound, Clip, Correction, CorrectionKind, Divisor, Divisors, EntropyOver, ImportanceRatioLevel,
    Loss, Mismatch, Normaliser, NormaliserKind, SpanTerms, SpanTokens, sequence_surrogate,
    token_surrogate,
};
pub use memory::Memory;
pub use methods::{
    Foreign, Gated, HapoGate, METHODS, Method, MethodEntry, MethodSettings, Plan, TeacherRule,
    Variant, demonstration, method,
};
pub use operators::{OPERATORS, Operator, operator};
pub use refusal::{Fault, Refusal, expected, found_at, if_there};
pub use rng::{CounterRng, RngCounter, RngStream, philox4x64, random_words, uniform};
pub use rollout::{
    Context, PromptId, Rollout, Step, StoredTrace, TeacherTrajectory, TokenId, Truncated, Verdict,
    admit_graded_teacher, admit_teacher,
};
pub use scores::{Scores, TokenScores};
pub use statistics::BatchStatistics;
pub use teacher_weight::{TeacherWeight, teacher_weight};
pub use words::{counted, excerpt, hex, is_among, panic_message, printable};
