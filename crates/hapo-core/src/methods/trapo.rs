use std::sync::Arc;

use serde::Deserialize;

use super::{Method, MethodEntry, Plan, check};
use crate::advantage::advantages;
use crate::credit::{Credit, Moment, PolicyAndTeacher, Term, behind_prefix};
use crate::gate::{Annealing, Gate, SlotRule, Threshold};
use crate::group::{Member, MixedGroup, ScoredGroup};
use crate::growth::{Growing, Growth, Needs, Prefix};
use crate::injection::Offer;
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
        let fits = prefixes == Prefixes::Off || settings.group_size == GROUP_SIZE;
        let size = format!("sampling.group_size = {GROUP_SIZE}");
        let got = format!("{}; groups are sampled in parts of 4 + 2 + 1 + 1", settings.group_size);
        check("trapo.prefixes", fits, size, got)?;
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
            // The method decides by itself when the teacher helps. The gate is for the logs: its S counts the first part.
            Prefixes::MicroGroups => Plan {
                gate: Gate::Confidence {
                    threshold: Threshold::Derived { success_limit: WHOLE_TEACHER_BELOW - 1 },
                    annealing: Annealing::Off,
                },
                slot: SlotRule::Fixed,
                can_be_gated: false,
                teacher_apart: false,
            },
        }
    }

    fn needs(&self) -> Needs {
        match self.prefixes {
            Prefixes::Off => Needs::ROLLOUTS,
            Prefixes::MicroGroups => {
                Needs { parts: MICRO_GROUPS.len() + 1, prefixes: true, ..Needs::ROLLOUTS }
            }
        }
    }

    fn grow(&self, group: &Growing<'_>) -> Growth {
        if self.prefixes == Prefixes::Off {
            return Growth::once(group);
        }
        let needs_teacher = group.succeeded() < WHOLE_TEACHER_BELOW;
        match (MICRO_GROUPS.get(group.part), group.teacher()) {
            (Some(part), Some(teacher)) => {
                let prefix = part.prefix(group.succeeded(), teacher, group.ends_paragraph);
                Growth::behind(part.rollouts, Prefix::Teacher(prefix.len()))
            }
            (Some(part), None) => Growth::plain(part.rollouts),
            (None, teacher) if group.part == MICRO_GROUPS.len() => match teacher {
                Some(_) if needs_teacher => Growth::Complete,
                _ => Growth::plain(1),
            },
            (None, _) => Growth::Complete,
        }
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, is_open: bool) -> MixedGroup {
        let is_open = match self.prefixes {
            Prefixes::Off => is_open,
            Prefixes::MicroGroups => group.all_successes() < WHOLE_TEACHER_BELOW,
        };
        offer.mix(group, is_open)
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
                *spans = behind_prefix(&it.rollout, teacher, Term::policy(advantage));
                // Two rollouts continue the first prefix, and it is imitated once.
                if it.index == MICRO_GROUPS[0].rollouts {
                    spans.remove(0);
                }
            }
        }
        credit
    }
}

/// Rollouts of a group that are sampled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MicroGroup {
    rollouts: usize,
    /// Share of the teacher's tokens that they continue, in percent.
    prefix_percent: usize,
    /// They get the prefix only if fewer than this many earlier rollouts succeeded.
    below: usize,
}

/// Members of a group with prefixes.
const GROUP_SIZE: usize = 8;

/// The parts that are sampled; the eighth member is the teacher or one more rollout without a prefix.
const MICRO_GROUPS: [MicroGroup; 3] = [
    MicroGroup { rollouts: 4, prefix_percent: 0, below: 0 },
    MicroGroup { rollouts: 2, prefix_percent: 25, below: 2 },
    MicroGroup { rollouts: 1, prefix_percent: 50, below: 4 },
];

/// The whole trajectory enters if fewer than this many of the seven sampled rollouts succeeded.
const WHOLE_TEACHER_BELOW: usize = 7;

impl MicroGroup {
    /// The prefix after `successes` of the rollouts before: the first tokens of the trajectory, rounded down, and the
    /// rest of the paragraph that they end in, unless that is 30 % of the trajectory or more. Never all of it.
    fn prefix(
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
        assert_eq!(sampled + 1, GROUP_SIZE);
    }
}
