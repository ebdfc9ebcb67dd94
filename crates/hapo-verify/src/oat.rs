//! The grader `oat`: OAT's `boxed_reward_fn(completion, gold, fast = False)`.

use crate::math::{self, MathOptions};
use crate::verdict::{GoldError, Judgement};

#[derive(Clone, Debug)]
pub(crate) struct Gold {
    math: math::Gold,
}

pub(crate) fn prepare(gold: &str, options: &MathOptions) -> Result<Gold, GoldError> {
    Ok(Gold { math: math::prepare(gold, options)? })
}

pub(crate) fn judge(gold: &Gold, completion: &str) -> Judgement {
    math::judge(&gold.math, completion)
}
