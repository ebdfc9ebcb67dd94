//! The names that a key gives to the recipes that read it; `idle.rs` has their meaning.

/// The recipes that read a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Every,
    /// Those that train on rollouts.
    Rollouts,
    /// Those that sample, if only for an evaluation.
    Samples,
    /// Those with a teacher in their groups.
    Teacher,
    /// Those that train on groups with a teacher among the rollouts.
    MixedGroups,
    /// Those with a teacher's trajectory, or a part of it, in their groups.
    Trace,
    /// Those in which a trajectory enters the groups of a method without a term for it.
    Operator,
    /// Those that show hints.
    Hints,
    /// Those in which a rollout gives way.
    Slot,
    /// Those that remember rollouts between steps.
    Memory,
    /// Those whose gate closes over the run.
    Annealed,
    /// Those that draw prompts from the built-in task.
    Task,
    /// Those that read data files.
    Files,
    /// Those that train on the built-in corpus.
    Corpus,
    /// Those that render problems and grade answers.
    Rendered,
    /// Those whose grader looks for an answer.
    Answers,
    /// Those whose rewards are verdicts on rollouts.
    Verdicts,
    /// Those with a custom reward.
    CustomReward,
    /// Those that score tokens with a second model.
    Reference,
    /// Those with an entropy bonus.
    Entropy,
    /// Those with a KL term.
    Kl,
    /// Those whose rollouts a server samples.
    Served,
    /// Those that correct for a sampler's mismatch (D41).
    Corrected,
    /// Those that train all weights.
    AllWeights,
}
