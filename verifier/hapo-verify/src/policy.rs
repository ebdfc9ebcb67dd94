//! Policies: the answers that a verdict may be paid for.

/// Which judgement of a mathematical answer is wanted. `docs/verifier.md` has the table of what each pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Math-Verify 0.9.0's, right or wrong: rewards are compared with published runs.
    MathVerify,
    /// The writer's meaning, wherever the answer stands: for the accuracy of a model.
    Benchmark,
    /// The writer's meaning, of one boxed or announced answer that has the shape of the gold answer: for rewards.
    Training,
}

impl Policy {
    /// True if notation is read as its writer means it, rather than as Math-Verify reads it.
    pub(crate) fn reads_meaning(self) -> bool {
        self != Policy::MathVerify
    }

    /// True if a number that double arithmetic or nine digits of quadrature alone support is paid for.
    pub(crate) fn pays_for_doubles(self) -> bool {
        self != Policy::Training
    }
}
