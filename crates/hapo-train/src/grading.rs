//! From completions to verdicts.

use hapo_core::Verdict;
use hapo_verify::Gold;

/// The verdict on one completion against a gold that was read before.
pub fn verdict_of(gold: &Gold, completion: &str) -> Verdict {
    into_core(gold.judge(completion).verdict)
}

/// The grader's verdict in the words of the algorithm.
pub fn into_core(verdict: hapo_verify::Verdict) -> Verdict {
    match verdict {
        hapo_verify::Verdict::Correct => Verdict::Correct,
        hapo_verify::Verdict::Wrong => Verdict::Wrong,
        hapo_verify::Verdict::Unparsable(reason) => Verdict::Unparsable(reason.to_string()),
    }
}
