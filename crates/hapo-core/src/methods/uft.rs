use super::prelude::*;

/// arXiv 2505.16984: `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token that the policy writes, plus
/// `−β·mean(log π)` over the teacher's tokens that were shown.
///
/// UFT: every rollout of a group continues the same first part of the teacher's trajectory. The trajectory is cut into
/// `segments` parts of as many whole steps, its paragraphs (of one paragraph: tokens); how many of them are shown is
/// drawn for each prompt and step from a binomial distribution, whose share falls from `high` to `low` along half a
/// cosine over the first `steps` steps. After those nothing is shown. The part that is shown has the cross-entropy,
/// once a group, as a mean over its own tokens (liumy2010/UFT).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "uft",
    summary: "GRPO behind a first part of the teacher's trajectory, which shrinks along a cosine and is imitated",
    variants: &[
        Variant {
            name: "r3",
            summary: "a prefix of uniform length for each prompt, without imitation",
            settings: &["uft.schedule=uniform", "uft.weight=0"],
        },
        Variant {
            name: "stage",
            summary: "the same prefix for all prompts, a segment shorter in each stage of the schedule",
            settings: &["uft.schedule=stage"],
        },
    ],
    make: |settings| {
        let (rule, own) = (settings.advantage, settings.uft);
        let Own { segments, low, high, weight, .. } = own;
        check("uft", segments > 0, "at least one segment", segments)?;
        let fits = 0.0 <= low && low <= high && high <= 1.0;
        check("uft", fits, "0 ≤ low ≤ high ≤ 1", format!("{low} and {high}"))?;
        check("uft", weight >= 0.0 && weight.is_finite(), "a weight from 0", weight)?;
        let help = Help::needing(Needs { prefixes: true, ..Needs::ROLLOUTS });
        Ok(Method {
            plan: Plan { teacher_apart: true, ..Plan::ON_POLICY },
            help: help.growing(move |group| own.grow(group)),
            unread_keys: &["teacher.d", "teacher.weight", "advantage.group", "guard.beta_rise"],
            ..Method::new(move |group, _, _| credit(group, rule, weight))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[uft]`; what is not written is as published.
    Own {
        /// Parts that a trajectory is cut into, at most as many as it has paragraphs.
        segments: usize = 5,
        /// How many of them are shown.
        schedule: Schedule = Schedule::Cosine,
        /// The share at the end of the schedule.
        low: f64 = 0.05,
        /// The share before the first step.
        high: f64 = 0.95,
        /// Steps in which something is shown.
        steps: u64 = 300,
        /// β.
        weight: f64 = 0.001,
    }
}

/// How many segments are shown. After the last step of the schedule none are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Schedule {
    /// A binomial draw, whose share falls along half a cosine.
    Cosine,
    /// A uniform draw from none to all, in every step.
    Uniform,
    /// All at first, one fewer in each of `segments + 1` stages of equal length.
    Stage,
}

impl Own {
    fn grow(self, group: &GroupSoFar<'_>) -> Growth {
        let Some(teacher) = group.teacher() else { return Growth::once(group) };
        let (_, tokens) = teacher.tokens().split_last().expect("an end token");
        let ends = step_ends(tokens, group.ends_paragraph);
        let most = self.segments.min(ends.len());
        match self.shown(group.at.step.0, most, &mut group.rng()) {
            Some(it) if group.part == 0 => {
                Growth::behind(group.size, Prefix::Teacher(self.bound(it, &ends)))
            }
            _ => Growth::once(group),
        }
    }

    /// Segments that are shown of `most`; none where nothing is.
    fn shown(self, step: u64, most: usize, rng: &mut CounterRng) -> Option<usize> {
        match self.schedule {
            Schedule::Cosine => {
                let share = self.share(step)?;
                Some((0..most).filter(|_| rng.uniform() < share).count())
            }
            Schedule::Uniform => Some(rng.below(most as u64 + 1) as usize),
            Schedule::Stage => {
                let stage = (self.steps / (most as u64 + 1)).max(1);
                most.checked_sub((step / stage) as usize)
            }
        }
    }

    /// p(t), the expected share of a trajectory that is shown; none after the last step of the schedule.
    fn share(self, step: u64) -> Option<f64> {
        let share = half_cosine(self.high, self.low, PI * step as f64 / self.steps as f64);
        (step <= self.steps && self.steps > 0).then_some(share)
    }

    /// Tokens before the end of segment `shown`, for steps that end after `ends` tokens; as Python rounds, half to even.
    fn bound(self, shown: usize, ends: &[usize]) -> usize {
        let segments = self.segments.min(ends.len()).max(1);
        let steps = (shown as f64 / segments as f64 * ends.len() as f64).round_ties_even();
        (steps as usize).checked_sub(1).map_or(0, |last| ends[last])
    }
}

/// Tokens up to the end of each step: of each paragraph, or of each token where there is one paragraph.
fn step_ends(tokens: &[TokenId], ends_paragraph: &dyn Fn(TokenId) -> bool) -> Vec<usize> {
    let inner = (1..tokens.len()).filter(|it| ends_paragraph(tokens[it - 1]));
    let ends: Vec<usize> = inner.chain([tokens.len()]).collect();
    if ends.len() > 1 { ends } else { (1..=tokens.len()).collect() }
}

fn credit(group: &MixedGroup, rule: AdvantageRule, weight: f64) -> Credit {
    let imitated = Term::Teacher { weight, operator: &operators::SRFT, d: 0.1 };
    let mut is_imitated = false;
    let spans = |(member, advantage): (&Member, f64)| {
        let Member::Policy(it) = member else { return Vec::new() };
        let mut spans = behind_prefix(&it.rollout, imitated.clone(), Term::policy(advantage));
        if is_imitated {
            spans.retain(|span| !span.is_teacher());
        }
        is_imitated |= it.rollout.prefix > 0;
        spans
    };
    group.members().iter().zip(advantages(group, rule)).map(spans).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RngCounter, RngStream};

    /// By the formula of the code: 0.95 before the first step, 0.5 halfway, 0.05 at the last.
    #[test]
    fn the_share_falls_along_half_a_cosine_and_ends() {
        let own = Own::default();
        for (step, expected) in [(0, 0.95), (150, 0.5), (300, 0.05)] {
            assert!((own.share(step).unwrap() - expected).abs() < 1e-12, "step {step}");
        }
        assert_eq!(own.share(301), None);
        assert_eq!(Own { steps: 0, ..own }.share(1), None);
    }

    /// 12 steps and 5 segments: a stage has two steps, and the sixth shows nothing.
    #[test]
    fn stages_show_a_segment_fewer_each() {
        let own = Own { schedule: Schedule::Stage, steps: 12, ..Own::default() };
        let counter = RngCounter { step: 0, prompt: 0, rollout: 0, position: 0 };
        let mut rng = CounterRng::new(0, RngStream::Growth, counter);
        let shown: Vec<_> = (1..=13).map(|it| own.shown(it, 5, &mut rng)).collect();
        let expected = [5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0];
        assert_eq!(shown[..11], expected.map(Some));
        assert_eq!(shown[11..], [None, None]);
        let uniform = Own { schedule: Schedule::Uniform, ..own };
        let mut seen = [0; 6];
        (0..6000).for_each(|_| seen[uniform.shown(99, 5, &mut rng).unwrap()] += 1);
        assert!(seen.iter().all(|it| (900..1100).contains(it)), "{seen:?}");
    }

    #[test]
    fn bounds_are_rounded_as_python_rounds() {
        let of = |segments, tokens| {
            let own = Own { segments, ..Own::default() };
            let ends: Vec<_> = (1..=tokens).collect();
            (0..=segments.min(tokens)).map(|it| own.bound(it, &ends)).collect::<Vec<_>>()
        };
        assert_eq!(of(5, 12), [0, 2, 5, 7, 10, 12]);
        assert_eq!(of(2, 5), [0, 2, 5]);
        assert_eq!(of(2, 7), [0, 4, 7]);
        assert_eq!(of(5, 3), [0, 1, 2, 3]);
        assert_eq!(of(5, 0), [0]);
    }

    /// By the authors' `rl_dataset.py`: steps of 3, 20, 2, 9, 6, 4 and 12 tokens, and of 10 and 50.
    #[test]
    fn bounds_are_those_of_whole_steps() {
        let of = |lengths: &[usize]| {
            let steps = lengths.iter().flat_map(|it| [vec![0; it - 1], vec![1]]);
            let ends = step_ends(&steps.flatten().collect::<Vec<_>>(), &|it| it == 1);
            let most = Own::default().segments.min(ends.len());
            (0..=most).map(|it| Own::default().bound(it, &ends)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[3, 20, 2, 9, 6, 4, 12]), [0, 3, 25, 34, 44, 56]);
        assert_eq!(of(&[10, 50]), [0, 10, 60]);
        // One paragraph is cut by tokens.
        assert_eq!(of(&[10]), [0, 2, 4, 6, 8, 10]);
    }

    #[test]
    fn the_variant_of_stages_imitates() {
        let stage = METHOD.variants.iter().find(|it| it.name == "stage").unwrap();
        assert_eq!(stage.settings, ["uft.schedule=stage"]);
    }
}
