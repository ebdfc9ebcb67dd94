//! The options of the graders `math` and `oat`.

use crate::extract::Targets;
use crate::policy::Policy;

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

/// The options of `math` and `oat`. The defaults are Math-Verify 0.9.0's.
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
