use std::sync::Arc;

use serde::Deserialize;

use super::{GroupPlan, Method, MethodEntry, MethodError, Plan};
use crate::advantage::advantages;
use crate::credit::{Credit, Moment, PolicyAndTeacher, Span, Term};
use crate::gate::{Annealing, Gate, Threshold};
use crate::group::{Member, MixedGroup};
use crate::operators;
use crate::rollout::{TeacherTrajectory, TokenId};
use crate::scores::Scores;

/// `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −λ·F` for each of the teacher's,
/// with F = π/d below d and 1 + ln(π/d) above.
///
/// TRAPO in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its tokens shaped by
/// the trust region min(1, π/d) (D8, D14).
///
/// `trapo.prefixes = "micro-groups"` samples a group of eight in four parts, as TRAPO's own paper does (D22). The
/// first has no prefix; each later one continues a longer part of the trajectory if too few of the rollouts before
/// it succeeded, and the last prefix is the whole trajectory: the teacher itself, in the fixed slot. A prefix's
/// tokens have the teacher's term, what follows the policy's.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "trapo",
    summary: "GRPO with the teacher in every group, shaped by a trust region at π = d",
    own_keys: &["prefixes"],
    variants: &[],
    build: |settings| {
        let prefixes = settings.trapo.prefixes;
        if prefixes == Prefixes::MicroGroups && settings.group_size != PREFIX_GROUP_SIZE {
            let problem = format!(
                "expected sampling.group_size = {PREFIX_GROUP_SIZE}, got {}; groups are sampled in parts of 4 + 2 + 1 + 1",
                settings.group_size
            );
            return Err(MethodError { key: "trapo.prefixes", problem });
        }
        let terms = settings.with(&operators::trapo::OPERATOR);
        Ok(Arc::new(Trapo { terms, prefixes }))
    },
};

/// `[trapo]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    prefixes: Prefixes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Prefixes {
    #[default]
    Off,
    MicroGroups,
}

#[derive(Debug)]
struct Trapo {
    terms: PolicyAndTeacher,
    prefixes: Prefixes,
}

impl Method for Trapo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        match self.prefixes {
            Prefixes::Off => Plan::TEACHER_SLOT,
            // The method decides by itself when the teacher helps.
            Prefixes::MicroGroups => Plan {
                sampling: GroupPlan::Prefixes(&MICRO_GROUPS),
                gate: Gate::Confidence {
                    threshold: Threshold::Derived { success_limit: WHOLE_TEACHER_BELOW - 1 },
                    annealing: Annealing::Off,
                },
                can_be_gated: false,
                teacher_apart: false,
            },
        }
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        let mut credit = self.terms.credit(group, at);
        let advantages = advantages(group, self.terms.advantage);
        let members = group.members().iter().zip(advantages);
        for (spans, (member, advantage)) in credit.iter_mut().zip(members) {
            if let Member::Policy(it) = member
                && it.rollout.prefix > 0
            {
                let teacher = self.terms.teacher_term(group, at, advantage);
                let taught = Span::new(0..it.rollout.prefix, teacher);
                let tokens = it.rollout.prefix..it.rollout.tokens.len();
                let sampled = Span::new(tokens, Term::policy(advantage));
                // Two rollouts continue the first prefix, and it is imitated once.
                let again = it.index == MICRO_GROUPS[0].rollouts;
                *spans = if again { vec![sampled] } else { vec![taught, sampled] };
            }
        }
        credit
    }
}

/// Rollouts of a group that are sampled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroGroup {
    /// How many.
    pub rollouts: usize,
    /// Share of the teacher's tokens that they continue, in percent.
    pub prefix_percent: usize,
    /// They continue it if fewer than so many rollouts before them succeeded.
    pub below: usize,
}

/// Members of a group with prefixes.
pub const PREFIX_GROUP_SIZE: usize = 8;

/// The parts that are sampled; the eighth member is the teacher or one more rollout without a prefix.
pub const MICRO_GROUPS: [MicroGroup; 3] = [
    MicroGroup { rollouts: 4, prefix_percent: 0, below: 0 },
    MicroGroup { rollouts: 2, prefix_percent: 25, below: 2 },
    MicroGroup { rollouts: 1, prefix_percent: 50, below: 4 },
];

/// The whole trajectory enters if fewer than so many of the seven sampled rollouts succeeded.
pub const WHOLE_TEACHER_BELOW: usize = 7;

impl MicroGroup {
    /// The prefix after `successes` of the rollouts before: the first tokens of the trajectory, rounded down, and the
    /// rest of the paragraph that they end in, unless that is 30 % of the trajectory or more. Never all of it.
    pub fn prefix(
        self,
        successes: usize,
        teacher: &TeacherTrajectory,
        ends_paragraph: impl Fn(TokenId) -> bool,
    ) -> &[TokenId] {
        let tokens = teacher.tokens();
        if successes >= self.below {
            return &[];
        }
        let cut = tokens.len() * self.prefix_percent / 100;
        let paragraph = (cut + 1..tokens.len()).find(|it| ends_paragraph(tokens[*it]));
        let near = paragraph.filter(|it| it * 100 < tokens.len() * (self.prefix_percent + 30));
        &tokens[..near.map_or(cut, |it| it + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::{Verdict, admit_teacher};

    #[test]
    fn d22_parts_and_thresholds() {
        let teacher = admit_teacher((0..9).collect(), &[9], &Verdict::Correct, 10).unwrap();
        let lengths =
            |successes| MICRO_GROUPS.map(|it| it.prefix(successes, &teacher, |_| false).len());
        assert_eq!(lengths(0), [0, 2, 5]);
        assert_eq!(lengths(1), [0, 2, 5]);
        assert_eq!(lengths(2), [0, 0, 5]);
        assert_eq!(lengths(3), [0, 0, 5]);
        assert_eq!(lengths(4), [0, 0, 0]);
        // The rest of the paragraph belongs to the prefix, unless it is 30 % of the trajectory or more.
        let ending_at = |last: TokenId| {
            MICRO_GROUPS.map(|it| it.prefix(0, &teacher, |token| token == last).len())
        };
        assert_eq!(ending_at(4), [0, 5, 5]);
        assert_eq!(ending_at(6), [0, 2, 7]);
        assert_eq!(ending_at(2), [0, 2, 5]);
        let sampled: usize = MICRO_GROUPS.iter().map(|it| it.rollouts).sum();
        assert_eq!(sampled, WHOLE_TEACHER_BELOW);
        assert_eq!(sampled + 1, PREFIX_GROUP_SIZE);
    }
}
