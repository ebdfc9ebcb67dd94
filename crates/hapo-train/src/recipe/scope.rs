//! Which recipes read a key.

/// Which recipes read a key; what the others lack is said in `unused_keys.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Every,
    Rollouts,
    Samples,
    Teacher,
    MixedGroups,
    Trace,
    Operator,
    Hints,
    Slot,
    Memory,
    Annealed,
    Task,
    Files,
    Corpus,
    Rendered,
    Answers,
    Verdicts,
    CustomReward,
    Reference,
    Entropy,
    Kl,
    Served,
    Corrected,
    AllWeights,
}
