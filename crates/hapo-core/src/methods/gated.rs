use std::sync::Arc;

use super::{GroupPlan, Method};
use crate::credit::{Credit, Moment};
use crate::gate::{Gate, GateError, Schedule, SlotRule, SuccessLimit, check_slot_rule};
use crate::group::MixedGroup;
use crate::rollout::Step;
use crate::scores::Scores;

/// A method and the gate that decides when the teacher enters its groups (Algorithm 1). The gate is the method's
/// own, or that of Hindsight-Anchored Policy Optimization, which wraps any method with a teacher's term: the gate
/// decides *when* the teacher enters and in which slot, the method what its tokens are worth.
///
/// After the extinction of HAPO's gate every step is the method's on-policy objective, bit for bit.
#[derive(Clone, Debug)]
pub struct Gated {
    method: Arc<dyn Method>,
    schedule: Schedule,
    slot: SlotRule,
    is_hapo: bool,
}

impl Gated {
    /// A method with its own gate, for groups of `group_size` members.
    pub fn bare(method: Arc<dyn Method>, group_size: usize) -> Result<Self, GateError> {
        let slot = match method.plan().sampling {
            GroupPlan::TeacherSlot | GroupPlan::Prefixes(_) => SlotRule::Fixed,
            GroupPlan::Full | GroupPlan::Demonstrations => SlotRule::LowestReward,
        };
        Ok(Self {
            schedule: Schedule::new(&method.plan().gate, group_size, 1)?,
            method,
            slot,
            is_hapo: false,
        })
    }

    /// HAPO around a method.
    pub fn hapo(
        method: Arc<dyn Method>,
        (gate, slot): (&Gate, SlotRule),
        group_size: usize,
        steps_per_epoch: u64,
    ) -> Result<Self, GateError> {
        if !method.plan().can_be_gated {
            let method = method.name();
            return Err(GateError::NotGated { method });
        }
        check_slot_rule(gate, slot)?;
        Ok(Self {
            schedule: Schedule::new(gate, group_size, steps_per_epoch)?,
            method,
            slot,
            is_hapo: true,
        })
    }

    /// Name in tables: the method's, with `-hapo` when HAPO wraps it.
    pub fn name(&self) -> String {
        let suffix = if self.is_hapo { "-hapo" } else { "" };
        format!("{}{suffix}", self.method.name())
    }

    /// The schedule of HAPO's gate. Is `None` for a bare method.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.is_hapo.then_some(&self.schedule)
    }

    /// How groups are sampled. Under HAPO the gate looks at full groups.
    pub fn sampling(&self) -> GroupPlan {
        match self.slot {
            _ if !self.is_hapo => self.method.plan().sampling,
            SlotRule::Fixed => GroupPlan::TeacherSlot,
            _ => GroupPlan::Full,
        }
    }

    /// The largest success count at which the teacher enters a group in this step (D1).
    pub fn success_limit(&self, step: Step) -> SuccessLimit {
        self.schedule.success_limit(step)
    }

    /// The threshold `γ_t`, for logs and plots only (D1).
    pub fn threshold(&self, step: Step) -> f64 {
        self.schedule.threshold(step)
    }

    /// Whether the teacher's term is a mean over its own tokens.
    pub fn teacher_apart(&self) -> bool {
        self.method.plan().teacher_apart
    }

    /// Which member's slot the teacher takes (D7, D8).
    pub fn slot(&self) -> SlotRule {
        self.slot
    }

    /// What each span of tokens of each member is worth in this step (Eq. 2, Eq. 11).
    pub fn credit(&self, group: &MixedGroup, step: Step, scores: &Scores) -> Credit {
        let initial_threshold = self.schedule.initial_threshold();
        let at = Moment { step, initial_threshold };
        self.method.credit(group, at, scores)
    }
}
