use super::{Method, MethodSettings, TeacherRule};
use crate::{
    Candidate, Credit, GATES, Gate, GateRule, GateSettings, GroupStats, Help, INJECTIONS,
    Injection, Member, Memory, MixedGroup, PolicyAndTeacher, Refusal, Round, Schedule, ScoredGroup,
    Scores, Slot, SlotRule, Step, StepContext, SuccessLimit, TrainPrompt, check_slot_rule,
    expected,
};

/// A method and the gate that decides when the teacher enters its groups (Algorithm 1). The gate is the method's
/// own, or that of Hindsight-Anchored Policy Optimization, which wraps any method with a teacher's term: the gate
/// decides *when* something enters and in which slot, the help *what*, the method what its tokens are worth.
///
/// After the extinction of HAPO's gate every step is the method's on-policy objective, bit for bit.
#[derive(Clone, Debug)]
pub struct Gated {
    /// The method.
    pub method: Method,
    /// The method's own, or that of HAPO. Its gate looks at full groups.
    pub help: Help,
    is_hapo: bool,
    schedule: Schedule,
    /// The gate; the first of [`GATES`] for a bare method.
    pub rule: &'static GateRule,
    settings: GateSettings,
    /// Which member's slot the teacher takes (D7, D8).
    pub slot: SlotRule,
    /// The teacher's term of a host that has none.
    terms: Option<PolicyAndTeacher>,
}

/// HAPO's gate: when something enters, where and what.
#[derive(Clone, Debug)]
pub struct HapoGate {
    /// When.
    pub rule: &'static GateRule,
    /// The table under it.
    pub gate: Gate,
    /// Its numbers.
    pub settings: GateSettings,
    /// In which slot.
    pub slot: SlotRule,
    /// What.
    pub injection: &'static Injection,
    /// The term of its tokens around a host that has none for a teacher.
    pub teacher: TeacherRule,
}

impl HapoGate {
    /// The paper's: the teacher's trajectory in the slot of the lowest reward.
    pub fn of(gate: Gate) -> Self {
        Self {
            rule: &GATES[0],
            gate,
            settings: GateSettings::default(),
            slot: SlotRule::LowestReward,
            injection: &INJECTIONS[0],
            teacher: TeacherRule::default(),
        }
    }
}

impl Gated {
    /// A method with its own gate, for groups of `group_size` members.
    pub fn bare(method: Method, group_size: usize) -> Result<Self, Refusal> {
        let (help, slot) = (method.help.clone(), method.plan.slot);
        let schedule = Schedule::new(&method.plan.gate, group_size, 1)?;
        let (rule, settings) = (&GATES[0], GateSettings::default());
        Ok(Self { method, help, is_hapo: false, schedule, rule, settings, slot, terms: None })
    }

    /// HAPO around a method.
    pub fn hapo(
        method: Method,
        hapo: HapoGate,
        group_size: usize,
        steps_per_epoch: u64,
    ) -> Result<Self, Refusal> {
        let HapoGate { rule, gate, settings, slot, injection, teacher } = hapo;
        let (help, can_be_gated) = ((injection.help)(), method.plan.can_be_gated);
        let with_teacher = MethodSettings { teacher, ..MethodSettings::default() };
        let terms = teacher.operator.map(|it| with_teacher.with(it));
        let terms = terms.filter(|_| method.is_plain_host() && help.takes_trace());
        let has_term = can_be_gated || terms.is_some() || !help.takes_trace();
        if !has_term || !(can_be_gated || method.is_plain_host()) {
            let what = format!("method `{}`", method.name);
            let wanted = "one with a teacher's term that leaves the decision to the gate";
            return Err(expected(wanted).about(what));
        }
        check_slot_rule(&gate, slot)?;
        let schedule = Schedule::new(&gate, group_size, steps_per_epoch)?;
        Ok(Self { method, help, is_hapo: true, schedule, rule, settings, slot, terms })
    }

    /// Why the method cannot learn from these rewards.
    pub fn refusal(&self, rewards: &[f64]) -> Option<String> {
        let negative = *rewards.iter().find(|it| **it < 0.0)?;
        let name = self.method.name;
        (!self.method.takes_negative_rewards)
            .then(|| format!("`{name}` cannot learn from rewards below 0, got {negative}"))
    }

    /// Name in tables: the method's, with `-hapo` when HAPO wraps it.
    pub fn name(&self) -> String {
        let suffix = if self.is_hapo { "-hapo" } else { "" };
        format!("{}{suffix}", self.method.name)
    }

    /// The schedule of HAPO's gate. Is `None` for a bare method, and for a gate that is no table.
    pub fn schedule(&self) -> Option<&Schedule> {
        (self.is_hapo && self.rule.is_table).then_some(&self.schedule)
    }

    /// True if it keeps something between steps (D39).
    pub fn remembers(&self) -> bool {
        self.help.needs.memory || self.rule.remembers
    }

    /// The gate's decision for each group of a round, in order.
    pub fn open(&self, groups: &[GroupStats], at: Slot, memory: &Memory) -> Vec<bool> {
        (self.rule.open)(&Round {
            groups,
            step: at.step,
            seed: at.seed,
            success_limit: self.success_limit(at.step),
            group_size: self.schedule.group_size(),
            settings: &self.settings,
            memory: &memory.gate,
        })
    }

    /// The group that is trained on, of everything that was sampled (Eq. 5).
    pub fn mix(&self, group: ScoredGroup, offer: &Candidate<'_>, is_open: bool) -> MixedGroup {
        (self.help.mix)(group, offer, is_open)
    }

    /// The largest success count at which the teacher enters a group in this step (D1).
    pub fn success_limit(&self, step: Step) -> SuccessLimit {
        self.schedule.success_limit(step)
    }

    /// The threshold `γ_t`, for logs and plots only (D1).
    pub fn threshold(&self, step: Step) -> f64 {
        self.schedule.threshold(step)
    }

    /// The step, as a method is told it.
    pub fn moment(&self, step: Step) -> StepContext {
        StepContext { step, initial_threshold: self.schedule.initial_threshold() }
    }

    /// What each span of tokens of each member is worth in this step (Eq. 2, Eq. 11).
    pub fn credit(&self, group: &MixedGroup, step: Step, scores: &Scores) -> Credit {
        let at = self.moment(step);
        let mut credit = self.help.credit(&*self.method.terms, group, at, scores);
        if let Some(terms) = &self.terms {
            terms.replace_policy(&mut credit, group, at);
        }
        credit
    }

    /// True if the credit of a group reads the second model's scores (D38).
    pub fn reads_scores(&self, group: &MixedGroup) -> bool {
        self.help.needs.reference && (self.help.terms.is_none() || group.injected())
    }

    /// The memory after a step, of the one before and of the groups that were trained on (D39).
    pub fn remember(&self, before: Memory, step: &[MixedGroup], at: Step) -> Memory {
        let mut memory = (self.help.remember)(before, step, at);
        if self.rule.remembers {
            memory.gate = memory.gate.after(step, self.settings.discount);
        }
        memory
    }

    /// The prompt behind which a member is trained on (D36).
    pub fn trained_behind(&self, member: &Member) -> TrainPrompt {
        match member.sampled() {
            Some(it) if !it.rollout.is_unaided() => self.help.trained_behind,
            _ => TrainPrompt::Sampled,
        }
    }
}
