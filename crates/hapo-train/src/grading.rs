//! From completions to verdicts.

use hapo_core::Verdict;
use hapo_verify::Gold;

/// The verdict on one completion against a gold that was read before.
pub fn verdict_of(gold: &Gold, completion: &str) -> Verdict {
    Verdict::of(gold.judge(completion).verdict.compared())
}
