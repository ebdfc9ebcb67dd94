use super::{Injection, Offer, help_succeeded, let_help_in};
use crate::group::{MixedGroup, ScoredGroup};
use crate::growth::{Growing, Growth, Needs, Prefix};

/// Shares of the teacher's trajectory that are shown, in percent.
const PERCENT: [usize; 3] = [25, 50, 75];

/// A rollout behind the shortest prefix of the teacher's trajectory with which it succeeds: one rollout is sampled
/// behind each until one succeeds. The prefix has the method's term for the teacher, what follows that for the policy.
#[derive(Debug)]
pub(super) struct Prefixed;

impl Injection for Prefixed {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn summary(&self) -> &'static str {
        "a rollout that succeeds behind 25, 50 or 75 % of the teacher's trajectory"
    }

    fn needs(&self) -> Needs {
        Needs { parts: PERCENT.len(), prefixes: true, ..Needs::ROLLOUTS }
    }

    fn grow(&self, group: &Growing<'_>) -> Growth {
        match (PERCENT.get(group.part - 1), group.teacher()) {
            (Some(percent), Some(teacher)) if !help_succeeded(group) => {
                Growth::behind(1, Prefix::Teacher(teacher.tokens().len() * percent / 100))
            }
            _ => Growth::Complete,
        }
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>) -> MixedGroup {
        let_help_in(group, offer)
    }
}
