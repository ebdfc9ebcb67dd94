//! HAPO: a gate around a host.

use crate::{Schedule, SlotRule, Step, SuccessLimit};

use super::Method;
use crate::Objective;

/// Hindsight-Anchored Policy Optimization as a wrapper (Algorithm 1): the gate decides *when* the
/// teacher enters and whose place it takes, the host decides what its tokens are worth.
///
/// After the gate's extinction every step is the host's on-policy objective, bit for bit.
#[derive(Clone, Debug)]
pub struct Gated<M> {
    /// The method that is wrapped.
    pub host: M,
    /// The gate over the run's steps.
    pub schedule: Schedule,
    /// Which rollout makes room (D7).
    pub slot: SlotRule,
}

impl<M: Method> Method for Gated<M> {
    fn name(&self) -> String {
        format!("{}-hapo", self.host.name())
    }

    fn success_limit(&self, step: Step) -> SuccessLimit {
        self.schedule.success_limit(step)
    }

    fn threshold(&self, step: Step) -> f64 {
        self.schedule.threshold(step)
    }

    fn initial_threshold(&self) -> f64 {
        self.schedule.initial_threshold()
    }

    fn slot(&self) -> SlotRule {
        self.slot
    }

    fn objective(&self) -> &Objective {
        self.host.objective()
    }
}
