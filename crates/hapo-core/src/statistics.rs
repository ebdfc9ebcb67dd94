//! A step's statistics of its groups.

use serde::Serialize;

use crate::{Credit, Intervention, MixedGroup, Verdict, has_terms};

/// Counts and means over the groups of one step. Groups are classified by the unaided rollouts of their first part,
/// before injection (D35); a group without any is in no class.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct BatchStatistics {
    /// Groups that are trained on.
    pub groups: usize,
    /// Groups without a successful rollout (D20).
    pub all_fail: usize,
    /// Groups in which every rollout is successful (D20).
    pub all_solved: usize,
    /// Groups in which some rollouts are successful and some are not.
    pub partially_solved: usize,
    /// Groups dropped because fewer than two of their rollouts came back (D6).
    pub dropped: usize,
    /// Groups that cannot move the weights: their credit has no factor other than 0 (D20).
    pub without_signal: usize,
    /// Groups that something entered.
    pub injected: usize,
    /// Groups at an open gate that nothing could enter (D9).
    pub open_no_teacher: usize,
    /// Groups at an open gate in which no rollout with help succeeded.
    pub help_failed: usize,
    /// Rollouts that were sampled with help: behind a prefix or a hint.
    pub helped: usize,
    /// Rollouts that were thrown away (D35).
    pub discarded: usize,
    /// Members with a teacher's term of weight 0: by the teacher's advantage, those no better than their group (D34).
    pub weightless: usize,
    /// Tokens of those that were thrown away (D35).
    pub discarded_tokens: usize,
    /// `β_t`: `injected` over `groups`, 0 for an empty step.
    pub beta: f64,
    /// Trajectories that are not the policy's own over all trajectories trained on, 0 for an empty step.
    pub teacher_trajectories: f64,
    /// Mean reward of the trajectories trained on, the teacher's included (D11), 0 for an empty step.
    pub reward_mean: f64,
    /// Mean reward of the unaided rollouts, the replaced ones included (D35); 0 for an empty step, and none where every
    /// rollout had help.
    pub reward_policy_only: Option<f64>,
    /// Sampled rollouts that are correct.
    pub correct: usize,
    /// Sampled rollouts that are wrong.
    pub wrong: usize,
    /// Sampled rollouts without a readable answer.
    pub unparsable: usize,
}

impl BatchStatistics {
    /// The statistics of one step: its groups with their credit, and the number of groups dropped on the way (D6).
    pub fn of<'a>(
        groups: impl IntoIterator<Item = (&'a MixedGroup, &'a Credit)>,
        dropped: usize,
    ) -> Self {
        let mut it = Self { dropped, ..Self::default() };
        let (mut trajectories, mut foreign, mut rewards) = (0_usize, 0_usize, 0.0);
        let (mut unaided, mut unaided_reward) = (0, 0.0);
        for (group, credit) in groups {
            it.groups += 1;
            match (group.successes(), group.n_eff()) {
                (_, 0) => {}
                (0, _) => it.all_fail += 1,
                (successes, n_eff) if successes == n_eff => it.all_solved += 1,
                _ => it.partially_solved += 1,
            }
            match group.intervention() {
                Intervention::Injected => it.injected += 1,
                Intervention::OpenWithoutTeacher => it.open_no_teacher += 1,
                Intervention::HelpFailed => it.help_failed += 1,
                Intervention::GateClosed => {}
            }
            it.without_signal += usize::from(!has_terms(credit.iter().flatten()));
            let taught = credit.iter().flatten().filter(|it| it.is_teacher());
            it.weightless += taught.filter(|it| it.term.is_zero()).count();
            it.discarded += group.discarded().len();
            let discarded = group.discarded().iter();
            it.discarded_tokens += discarded.map(|it| it.rollout.tokens.len()).sum::<usize>();
            for member in group.all_sampled() {
                if member.rollout.is_unaided() {
                    unaided += 1;
                    unaided_reward += member.reward;
                } else {
                    it.helped += 1;
                }
                match member.verdict {
                    Verdict::Correct => it.correct += 1,
                    Verdict::Wrong => it.wrong += 1,
                    Verdict::Unparsable(_) => it.unparsable += 1,
                }
            }
            trajectories += group.members().len();
            foreign += group.foreign().count();
            rewards += group.rewards().iter().sum::<f64>();
        }
        it.beta = ratio(it.injected as f64, it.groups);
        it.teacher_trajectories = ratio(foreign as f64, trajectories);
        it.reward_mean = ratio(rewards, trajectories);
        it.reward_policy_only =
            (unaided > 0 || it.helped == 0).then(|| ratio(unaided_reward, unaided));
        it
    }

    /// The numbers by their names in logs, in their order there. Those of help are there where a rollout had any.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let of_help = [
            ("growth/helped", self.helped as f64),
            ("growth/discarded", self.discarded as f64),
            ("growth/discarded_tokens", self.discarded_tokens as f64),
            ("gate/help_failed", self.help_failed as f64),
        ];
        let with_help = self.helped + self.discarded > 0;
        [("reward/mean", self.reward_mean)]
            .into_iter()
            .chain(self.reward_policy_only.map(|it| ("reward/policy_only", it)))
            .chain([
                ("groups/all_fail", self.all_fail as f64),
                ("groups/all_solved", self.all_solved as f64),
                ("groups/partially_solved", self.partially_solved as f64),
                ("groups/without_signal", self.without_signal as f64),
                ("groups/dropped", self.dropped as f64),
                ("gate/beta", self.beta),
                ("gate/beta_trajectories", self.teacher_trajectories),
                ("gate/open_no_teacher", self.open_no_teacher as f64),
                ("verify/correct", self.correct as f64),
                ("verify/wrong", self.wrong as f64),
                ("verify/unparsable", self.unparsable as f64),
            ])
            .chain((self.weightless > 0).then_some(("teacher/weightless", self.weightless as f64)))
            .chain(of_help.into_iter().filter(move |_| with_help))
    }
}

fn ratio(part: f64, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}
