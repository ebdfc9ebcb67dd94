use super::prelude::*;

/// arXiv 2512.17636: `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −λ·F` for each
/// of the teacher's, with F = π/d below d and 1 + ln(π/d) above.
///
/// TRAPO in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its tokens shaped by the
/// trust region min(1, π/d) (D8, D14).
///
/// `trapo.prefixes = "micro-groups"` samples a group of eight in four parts, as TRAPO's own paper does (D22). The first
/// has no prefix; each later one continues a longer part of the trajectory if too few of the rollouts before it
/// succeeded, and the last prefix is the whole trajectory: the teacher itself, in the fixed slot. A prefix's tokens
/// have the teacher's term, what follows the policy's.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "trapo",
    summary: "GRPO with the teacher in every group, shaped by a trust region at π = d",
    make: |settings| {
        let prefixes = settings.trapo.prefixes;
        let terms = settings.with(&operators::TRAPO);
        if prefixes == Prefixes::Off {
            return Ok(Method {
                plan: Plan::TEACHER_SLOT,
                ..Method::new(move |group, at, _| terms.credit(group, at))
            });
        }
        let size = settings.group_size;
        let got = format!("{size}; groups are sampled in parts of 4 + 2 + 1 + 1");
        let wanted = format!("sampling.group_size = {GROUP_SIZE}");
        check("trapo.prefixes", size == GROUP_SIZE, wanted, got)?;
        let needs = Needs { parts: MICRO_GROUPS.len() + 1, prefixes: true, ..Needs::ROLLOUTS };
        Ok(Method {
            // The method decides by itself when the teacher helps. The gate is for the logs: its S counts the first part.
            plan: Plan {
                gate: Gate::Confidence {
                    threshold: Threshold::Derived { success_limit: WHOLE_TEACHER_BELOW - 1 },
                    annealing: Annealing::Off,
                },
                can_be_gated: false,
                ..Plan::TEACHER_SLOT
            },
            help: Help::needing(needs).growing(grow).mixing(|group, offer, _| {
                let is_open = group.all_successes() < WHOLE_TEACHER_BELOW;
                offer.mix(group, is_open)
            }),
            ..Method::new(move |group, at, _| credit(&terms, group, at))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[trapo]`.
    Own {
        prefixes: Prefixes = Prefixes::Off,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Prefixes {
    Off,
    MicroGroups,
}

fn grow(group: &GroupSoFar<'_>) -> Growth {
    match (MICRO_GROUPS.get(group.part), group.teacher()) {
        (Some(part), Some(teacher)) => {
            let prefix = part.prefix(group.group.all_successes(), teacher, group.ends_paragraph);
            Growth::behind(part.rollouts, Prefix::Teacher(prefix.len()))
        }
        (Some(part), None) => Growth::behind(part.rollouts, Prefix::None),
        (None, Some(_)) if group.group.all_successes() < WHOLE_TEACHER_BELOW => Growth::Complete,
        (None, _) if group.part == MICRO_GROUPS.len() => Growth::behind(1, Prefix::None),
        (None, _) => Growth::Complete,
    }
}

fn credit(terms: &PolicyAndTeacher, group: &MixedGroup, at: StepContext) -> Credit {
    let mut credit = terms.credit(group, at);
    let members = group.members().iter().zip(advantages(group, terms.advantage));
    for (spans, (member, advantage)) in credit.iter_mut().zip(members) {
        if let Member::Policy(it) = member
            && it.rollout.prefix > 0
        {
            let teacher = terms.teacher_term(group, at, advantage);
            *spans = behind_prefix(&it.rollout, teacher, Term::policy(advantage));
            // Two rollouts continue the first prefix, and it is imitated once.
            if it.index == MICRO_GROUPS[0].rollouts {
                spans.remove(0);
            }
        }
    }
    credit
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
