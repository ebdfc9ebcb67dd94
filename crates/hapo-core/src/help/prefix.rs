use super::{Help, help_succeeded, let_help_in};
use crate::growth::{GroupSoFar, Growth, Needs, Prefix};

/// Shares of the teacher's trajectory that are shown, in percent.
const PERCENT: [usize; 3] = [25, 50, 75];

/// A rollout behind the shortest prefix of the teacher's trajectory with which it succeeds: one rollout is sampled
/// behind each until one succeeds. The prefix has the method's term for the teacher, what follows that for the policy.
pub(super) fn prefix() -> Help {
    let needs = Needs { parts: 1 + PERCENT.len(), prefixes: true, ..Needs::ROLLOUTS };
    let grow = |group: &GroupSoFar<'_>| {
        let Some(level) = group.part.checked_sub(1) else { return Growth::once(group) };
        match (PERCENT.get(level), group.teacher()) {
            (Some(percent), Some(teacher)) if group.is_open && !help_succeeded(group) => {
                Growth::behind(1, Prefix::Teacher(teacher.tokens().len() * percent / 100))
            }
            _ => Growth::Complete,
        }
    };
    Help::needing(needs).growing(grow).entering(let_help_in)
}
