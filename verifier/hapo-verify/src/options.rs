//! The options of the grader `math`.

use crate::extract::Targets;

/// The treatment of an answer that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Its text is compared with the gold answer's text (Math-Verify's `first_match`).
    Text,
    /// It counts for nothing (`no_fallback`).
    Nothing,
}

/// How many candidates are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tries {
    /// Until one can be read (`any_match`).
    Any,
    /// Only the first (`first_match`).
    First,
}

/// Comparison of symbols by name or by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    /// `x` is not `y` (Math-Verify's `strict = True`).
    ByName,
    /// Symbols are matched by position (`strict = False`).
    ByPosition,
}

/// The options of `math`. The defaults are Math-Verify 0.9.0's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MathOptions {
    /// The policy of the verdicts. Default: Math-Verify's.
    pub policy: Policy,
    /// An interval as gold answer accepts an inequality. Default: no, as in 0.9.0.
    pub allow_set_relation: bool,
    /// Decimals to which a literal decimal is compared. Default: 6.
    pub float_rounding: u32,
    /// Symbols by name or by position. Default: by name.
    pub variables: Variables,
    /// The targets in a gold answer. Default: everything but literal strings.
    pub gold_targets: Targets,
    /// The targets in a completion. Default: everything but literal strings.
    pub targets: Targets,
    /// Unreadable answers. Default: compared as text.
    pub fallback: Fallback,
    /// Number of candidates. Default: any.
    pub tries: Tries,
}

impl MathOptions {
    /// Math-Verify 0.9.0's defaults.
    pub const DEFAULT: MathOptions = MathOptions::of(Policy::MathVerify);

    /// The defaults under a policy.
    pub const fn of(policy: Policy) -> MathOptions {
        MathOptions {
            policy,
            allow_set_relation: false,
            float_rounding: 6,
            variables: Variables::ByName,
            gold_targets: Targets::DEFAULT,
            targets: Targets::DEFAULT,
            fallback: Fallback::Text,
            tries: Tries::Any,
        }
    }
}

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
