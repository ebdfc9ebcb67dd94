//! The three states of a prompt's group: sampled, scored, mixed.
//!
//! Each state is made from the one before it by value, so rewards exist before the gate looks, and the
//! gate has looked before an advantage is computed. What is out of order does not compile.
//!
//! A group cannot be mixed before it is scored:
//! ```compile_fail,E0308
//! # use hapo_core::*;
//! # fn f(sampled: SampledGroup, open: SuccessLimit, slot: Slot) {
//! let mixed = apply_gate(sampled, None, open, slot);
//! # }
//! ```
//! Advantages need a mixed group:
//! ```compile_fail,E0308
//! # use hapo_core::*;
//! # fn f(scored: ScoredGroup) {
//! let a = advantages(&scored, AdvantageRule::default());
//! # }
//! ```
//! A sampled group is scored once; scoring consumes it:
//! ```compile_fail,E0382
//! # use hapo_core::*;
//! # fn f(sampled: SampledGroup) {
//! let first = sampled.score(vec![]);
//! let second = sampled.score(vec![]);
//! # }
//! ```
//! A teacher trajectory is not a rollout:
//! ```compile_fail,E0308
//! # use hapo_core::*;
//! # fn f(teacher: TeacherTrajectory) {
//! let sampled = SampledGroup::new(PromptId(0), 1, vec![teacher]);
//! # }
//! ```
//! A mixed group is made by [`apply_gate`](crate::apply_gate) only:
//! ```compile_fail
//! # use hapo_core::*;
//! let mixed = MixedGroup { members: vec![] };
//! ```

use crate::{
    Context, PromptId, Rollout, StoredTrace, TeacherTrajectory, TokenId, Truncated, Verdict,
};

/// The rollouts of one prompt, as the sampler returns them.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledGroup {
    /// The prompt.
    pub prompt: PromptId,
    /// N: how many were asked for.
    pub requested: usize,
    /// In the order in which they were sampled.
    pub rollouts: Vec<Rollout>,
}

impl SampledGroup {
    /// A group for which `requested` rollouts (N) were asked. Fewer may have come back (D6).
    pub fn new(prompt: PromptId, requested: usize, rollouts: Vec<Rollout>) -> Self {
        Self { prompt, requested, rollouts }
    }

    /// Attaches one verdict to each rollout, in order. Panics where there are fewer or more.
    pub fn score(self, verdicts: Vec<Verdict>) -> ScoredGroup {
        let graded = verdicts.into_iter().map(|it| (it.reward(), it)).collect();
        self.score_with_rewards(graded, 1.0)
    }

    /// Attaches a reward and a verdict to each rollout, in order. A reward of at least `success_at` is a success
    /// (D28). Panics without exactly one reward per rollout, and at NaN.
    pub fn score_with_rewards(self, graded: Vec<(f64, Verdict)>, success_at: f64) -> ScoredGroup {
        let prompt = self.prompt.0;
        let (n, are_numbers) = (self.rollouts.len(), graded.iter().all(|it| !it.0.is_nan()));
        assert_eq!(graded.len(), n, "prompt {prompt} needs one verdict per rollout");
        assert!(are_numbers, "prompt {prompt} needs rewards that are numbers");
        let rollouts = self.rollouts.into_iter().zip(graded).enumerate();
        let members = rollouts.map(|(index, (rollout, (reward, verdict)))| {
            let is_success = reward >= success_at;
            PolicyMember { rollout, verdict, reward, is_success, index }
        });
        let (requested, members) = (self.requested, members.collect());
        ScoredGroup { prompt: self.prompt, requested, asked: requested, members }
    }
}

/// A rollout of the policy with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyMember {
    /// The response.
    pub rollout: Rollout,
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// `R(τ_j)`: 1 or 0 by the verdict, unless the grader gives graded rewards (D28).
    pub reward: f64,
    /// Whether the reward counts as a success (D28).
    pub is_success: bool,
    /// Its number among the rollouts of the group that came back, from 0.
    pub index: usize,
}

/// A sampled group with its rewards: what the gate looks at. It may have grown in several parts, of which S and
/// `N_eff` count the unaided rollouts of the first alone (D35).
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredGroup {
    pub(crate) prompt: PromptId,
    /// Rollouts of the first part that were asked for.
    pub(crate) requested: usize,
    /// Rollouts of all parts that were asked for.
    asked: usize,
    pub(crate) members: Vec<PolicyMember>,
}

impl ScoredGroup {
    /// A group of which nothing is sampled yet.
    pub fn empty(prompt: PromptId) -> Self {
        Self { prompt, requested: 0, asked: 0, members: Vec::new() }
    }

    /// Adds the next part.
    pub fn join(&mut self, part: Self) {
        if self.asked == 0 {
            self.requested = part.requested;
        }
        self.asked += part.asked;
        let first = self.members.len();
        let members = part.members.into_iter();
        self.members.extend(members.map(|it| PolicyMember { index: first + it.index, ..it }));
    }

    /// Pays every rollout that is not judged the lower of `wrong` and the lowest reward that was graded in the group:
    /// not to finish is never better than to be wrong, and no success (D31).
    pub fn paying_unjudged(mut self, truncated: Truncated, wrong: f64) -> Self {
        let is_judged = |it: &PolicyMember| truncated.is_judged(it.rollout.ended);
        let graded = self.members.iter().filter(|it| is_judged(it)).map(|it| it.reward);
        let paid = graded.fold(wrong, f64::min);
        for it in self.members.iter_mut().filter(|it| !is_judged(it)) {
            (it.reward, it.is_success) = (paid, false);
        }
        self
    }

    /// The prompt.
    pub fn prompt(&self) -> PromptId {
        self.prompt
    }

    /// The rollouts with their verdicts, in the order in which they were sampled.
    pub fn members(&self) -> &[PolicyMember] {
        &self.members
    }

    /// The rewards `R(τ_j)`, in order.
    pub fn rewards(&self) -> Vec<f64> {
        self.members.iter().map(|it| it.reward).collect()
    }

    /// S: how many unaided rollouts of the first part succeeded (Eq. 4, D28, D35).
    pub fn successes(&self) -> usize {
        self.counted().filter(|it| it.is_success).count()
    }

    /// Successes of all parts, those with help included.
    pub fn all_successes(&self) -> usize {
        self.members.iter().filter(|it| it.is_success).count()
    }

    /// N: how many rollouts of the first part were asked for.
    pub fn requested(&self) -> usize {
        self.requested
    }

    /// How many rollouts of all parts were asked for.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// `N_eff`: how many unaided rollouts of the first part came back (D6, D35).
    pub fn n_eff(&self) -> usize {
        self.counted().count()
    }

    /// c = (1 + S) / (2 + `N_eff`), the posterior mean of Beta(1 + S, 1 + `N_eff` − S) (Eq. 4, D6). It is
    /// for logs and weights: the gate decides on the integer S (D1).
    pub fn confidence(&self) -> f64 {
        confidence(self.successes(), self.n_eff())
    }

    /// No counted rollout succeeded.
    pub fn all_fail(&self) -> bool {
        self.successes() == 0
    }

    /// Whether rollouts of the first part were lost so that fewer than two are left (D6). A group of which one rollout
    /// was asked for (a fixed slot with N = 2, D8) has lost nothing.
    pub fn is_short(&self) -> bool {
        let returned = self.members.iter().filter(|it| it.rollout.part == 0).count();
        returned < 2 && returned < self.requested
    }

    /// Every rollout is a member.
    pub(crate) fn unchanged(self, intervention: Intervention) -> MixedGroup {
        let (successes, n_eff) = (self.successes(), self.n_eff());
        let Self { prompt, requested, members, .. } = self;
        let members = members.into_iter().map(Member::Policy).collect();
        let discarded = Vec::new();
        MixedGroup { prompt, requested, members, discarded, intervention, successes, n_eff }
    }

    /// True if all counted rollouts have one reward, the unjudged paid by D31.
    pub(crate) fn has_equal_rewards(&self, truncated: Truncated, wrong: f64) -> bool {
        let is_judged = |it: &&PolicyMember| truncated.is_judged(it.rollout.ended);
        let (judged, others): (Vec<_>, Vec<_>) = self.counted().partition(is_judged);
        judged.first().is_none_or(|first| {
            judged.iter().all(|it| it.reward == first.reward)
                && (others.is_empty() || first.reward <= wrong)
        })
    }

    fn counted(&self) -> impl Iterator<Item = &PolicyMember> {
        self.members.iter().filter(|it| it.rollout.part == 0 && it.rollout.is_unaided())
    }
}

/// Keeps the groups that can be used, in order, and counts those of which fewer than two rollouts came back (D6).
pub fn drop_short_groups(groups: Vec<ScoredGroup>) -> (Vec<ScoredGroup>, usize) {
    let (dropped, kept): (Vec<_>, Vec<_>) = groups.into_iter().partition(ScoredGroup::is_short);
    (kept, dropped.len())
}

pub(crate) fn confidence(successes: usize, n_eff: usize) -> f64 {
    (1 + successes) as f64 / (2 + n_eff) as f64
}

/// One trajectory of a mixed group, by its source. A group may have several that are not the policy's own (D37).
#[derive(Debug, Clone, PartialEq)]
pub enum Member {
    /// A rollout of the policy.
    Policy(PolicyMember),
    /// The teacher's trajectory. Its reward is what the verifier said of it (D11).
    Teacher {
        /// The trajectory τ*.
        trajectory: TeacherTrajectory,
        /// The rollout whose place it takes; none for a fixed slot (D8).
        replaced: Option<PolicyMember>,
    },
    /// A rollout that was sampled with help because others failed.
    Helped {
        /// The rollout.
        member: PolicyMember,
        /// The rollout whose place it takes, if any.
        replaced: Option<PolicyMember>,
    },
    /// A response of the policy in an earlier step, or run (D39).
    Replayed {
        /// The response.
        trace: StoredTrace,
        /// The rollout whose place it takes, if any.
        replaced: Option<PolicyMember>,
    },
}

impl Member {
    /// `R(τ_j)` (D11 for the teacher).
    pub fn reward(&self) -> f64 {
        match self {
            Self::Policy(member) | Self::Helped { member, .. } => member.reward,
            Self::Teacher { trajectory, .. } => trajectory.reward(),
            Self::Replayed { trace, .. } => trace.reward,
        }
    }

    /// Whether it is the policy's own, in its place from the start.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Policy(_))
    }

    /// The response.
    pub fn tokens(&self) -> &[TokenId] {
        match self {
            Self::Policy(member) | Self::Helped { member, .. } => &member.rollout.tokens,
            Self::Teacher { trajectory, .. } => trajectory.tokens(),
            Self::Replayed { trace, .. } => &trace.tokens,
        }
    }

    /// The recorded log-probabilities of the last tokens, those that the policy wrote (D19); none for the teacher's.
    pub fn log_probs(&self) -> &[f32] {
        match self {
            Self::Policy(member) | Self::Helped { member, .. } => &member.rollout.log_probs,
            Self::Teacher { .. } => &[],
            Self::Replayed { trace, .. } => &trace.log_probs,
        }
    }

    /// The rollout, if the policy sampled it in this step.
    pub fn sampled(&self) -> Option<&PolicyMember> {
        match self {
            Self::Policy(member) | Self::Helped { member, .. } => Some(member),
            Self::Teacher { .. } | Self::Replayed { .. } => None,
        }
    }

    /// Whether its rollout succeeded; what is let into a group, a teacher's or an earlier rollout, has.
    pub fn is_success(&self) -> bool {
        self.sampled().is_none_or(|it| it.is_success)
    }

    /// Whether it is in no numerator and no denominator of the loss (D32). Its reward stays in the group's mean.
    pub fn is_masked(&self, truncated: Truncated) -> bool {
        self.sampled().is_some_and(|it| truncated.is_masked(it.rollout.ended))
    }

    /// The rollout whose place it takes.
    pub fn replaced(&self) -> Option<&PolicyMember> {
        match self {
            Self::Policy(_) => None,
            Self::Teacher { replaced, .. }
            | Self::Helped { replaced, .. }
            | Self::Replayed { replaced, .. } => replaced.as_ref(),
        }
    }
}

/// The event of a group at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intervention {
    /// The gate was closed: S > `m_t`.
    GateClosed,
    /// The gate was open and nothing could enter: the prompt has no admissible teacher (D9), no hint or no success of
    /// an earlier step.
    OpenWithoutTeacher,
    /// The gate was open, and no rollout with help succeeded.
    HelpFailed,
    /// The teacher's trajectory, a rollout with help or an earlier success is in the group (Eq. 5), its rollouts are
    /// distilled, or its prompt is queued (D43).
    Injected,
}

/// A group after the gate: G̃ of Algorithm 1.
#[derive(Debug, Clone, PartialEq)]
pub struct MixedGroup {
    prompt: PromptId,
    requested: usize,
    members: Vec<Member>,
    discarded: Vec<PolicyMember>,
    intervention: Intervention,
    successes: usize,
    n_eff: usize,
}

impl MixedGroup {
    /// Takes the rollouts that `keep` refuses out of the group: they are in no mean, no loss and no divisor (D32, D35).
    pub fn discarding(mut self, keep: impl Fn(&PolicyMember) -> bool) -> Self {
        for it in std::mem::take(&mut self.members) {
            match it {
                Member::Policy(member) if !keep(&member) => self.discarded.push(member),
                it => self.members.push(it),
            }
        }
        self
    }

    /// Lets a member in that is not the policy's own: in the place of member `slot`, which it is told, or in front.
    pub fn with(
        mut self,
        foreign: impl FnOnce(Option<PolicyMember>) -> Member,
        slot: Option<usize>,
    ) -> Self {
        self.intervention = Intervention::Injected;
        let Some(slot) = slot else {
            self.members.insert(0, foreign(None));
            return self;
        };
        let replaced = match self.members.remove(slot) {
            Member::Policy(member) => Some(member),
            foreign => foreign.replaced().cloned(),
        };
        self.members.insert(slot, foreign(replaced));
        self
    }

    /// The prompt.
    pub fn prompt(&self) -> PromptId {
        self.prompt
    }

    /// The trajectories that are trained on.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The event at the gate.
    pub fn intervention(&self) -> Intervention {
        self.intervention
    }

    /// Whether something entered the group: `I_i^t` of the paper's appendix.
    pub fn injected(&self) -> bool {
        self.intervention == Intervention::Injected
    }

    /// Where the teacher is among the members.
    pub fn teacher_index(&self) -> Option<usize> {
        self.members.iter().position(|it| matches!(it, Member::Teacher { .. }))
    }

    /// Whether the policy is shown the teacher's trajectory, or a part of it: as a member, or before a sampled rollout.
    pub fn shows_teacher(&self) -> bool {
        let behind = |it: &PolicyMember| {
            it.rollout.prefix > 0 || matches!(it.rollout.context, Context::Hint(_))
        };
        self.teacher_index().is_some() || self.all_sampled().any(behind)
    }

    /// The members that are not the policy's own (D37).
    pub fn foreign(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|it| !it.is_own())
    }

    /// Rollouts that were sampled and thrown away (D35).
    pub fn discarded(&self) -> &[PolicyMember] {
        &self.discarded
    }

    /// S, counted on the sampled rollouts, before injection (Eq. 4).
    pub fn successes(&self) -> usize {
        self.successes
    }

    /// N: how many rollouts were asked for.
    pub fn requested(&self) -> usize {
        self.requested
    }

    /// `N_eff`: how many rollouts were sampled (D6), the replaced one included.
    pub fn n_eff(&self) -> usize {
        self.n_eff
    }

    /// c of the sampled rollouts, before injection (Eq. 4, D6).
    pub fn confidence(&self) -> f64 {
        confidence(self.successes, self.n_eff)
    }

    /// The rewards of the members, in order (D11, D28).
    pub fn rewards(&self) -> Vec<f64> {
        self.members.iter().map(Member::reward).collect()
    }

    /// The policy's own rollouts: its members and those that were replaced, in the order of members.
    pub fn sampled(&self) -> impl Iterator<Item = &PolicyMember> {
        self.members.iter().filter_map(|it| match it {
            Member::Policy(member) => Some(member),
            other => other.replaced(),
        })
    }

    /// Every rollout that was sampled, those with help and those that were thrown away included.
    pub fn all_sampled(&self) -> impl Iterator<Item = &PolicyMember> {
        let helped = self.members.iter().filter(|it| !it.is_own()).filter_map(Member::sampled);
        self.sampled().chain(helped).chain(&self.discarded)
    }
}
