//! Gates: when something may enter a group. A gate decides for all groups of a round together, by a few numbers of
//! each. One that is a table decides by S and the step alone (D1), so that other trainers can follow it. The others
//! look at earlier visits, at the other groups or at draws; they run here alone, and the price is that a round's groups
//! are all sampled before one is open. A gate is one row of [`GATES`]. The table under it is a [`Schedule`], made of
//! decimals and integers once per run, which answers with integers only; its price is the arithmetic of `logarithm.rs`.

mod logarithm;
mod rows;
mod schedule;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CounterRng, MixedGroup, PromptId, RngStream, ScoredGroup, Step, Truncated};

pub use rows::GATES;
pub use schedule::{RangeRow, RungRow, Schedule, ScheduleTable, StepRow, SuccessLimit};
pub use settings::{Annealing, AnnealingMode, Gate, SlotRule, Threshold, check_slot_rule};

/// A rule for when something enters.
#[derive(Clone, Copy, Debug)]
pub struct GateRule {
    /// Name in recipes.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// The keys of `[hapo]` that it reads, besides those of every gate.
    pub reads: &'static [&'static str],
    /// True if S and the step alone decide, so that a table says all of it (D1).
    pub is_table: bool,
    /// True if it counts visits and exposures between steps (D39).
    pub remembers: bool,
    /// True if it chooses among the groups of a step, which must then be sampled in one round.
    pub chooses: bool,
    /// The table under it: the success limits of the steps, unannealed where it does not read `annealing`.
    pub table: fn(Threshold, Annealing) -> Gate,
    /// The decision for each group of a round, in order; by default S ≤ `m_t` (D1).
    pub open: fn(&Round<'_>) -> Vec<bool>,
}

impl GateRule {
    const NEW: Self = Self {
        name: "",
        summary: "",
        reads: &[],
        is_table: false,
        remembers: false,
        chooses: false,
        table: |threshold, annealing| Gate::Confidence { threshold, annealing },
        open: |round| {
            let limit = round.success_limit;
            round.groups.iter().map(|group| limit.is_open(group.successes)).collect()
        },
    };
}

/// The gate of that name.
pub fn gate_rule(name: &str) -> Option<&'static GateRule> {
    GATES.iter().find(|rule| rule.name == name)
}

/// The sentence with which a gate that is no table is refused where a table is needed.
pub fn refused_as_table(rule: &GateRule) -> Option<String> {
    (!rule.is_table).then(|| {
        format!(
            "gate \"{}\" cannot be written as a table of steps and success counts: `hapo train` runs it",
            rule.name
        )
    })
}

/// The numbers that gates read of a recipe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateSettings {
    /// The weight of a prompt's earlier visits at each new one, from 0 to 1.
    pub discount: f64,
    /// Exposures of the whole run.
    pub exposures: u64,
    /// Steps of the run.
    pub steps: u64,
    /// Injections in each step of a recorded run.
    pub record: Arc<[u64]>,
}

/// A group as a gate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The prompt.
    pub prompt: PromptId,
    /// S.
    pub successes: usize,
    /// `N_eff`.
    pub n_eff: usize,
    /// True if all counted rewards are equal.
    pub is_constant: bool,
    /// True if something could enter, and the group is trained on.
    pub can_help: bool,
}

impl GroupStats {
    /// A glance at the first part of a group (D35). What later parts or D31 make of its rewards is not looked at, so that
    /// the gate says the same before and after the group has grown.
    pub fn of(group: &ScoredGroup, truncated: Truncated, wrong: f64, can_help: bool) -> Self {
        Self {
            prompt: group.prompt(),
            successes: group.successes(),
            n_eff: group.n_eff(),
            is_constant: group.has_equal_rewards(truncated, wrong),
            can_help: can_help && !group.is_short(),
        }
    }
}

/// The groups of a round, and everything else that a gate may look at.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The groups.
    pub groups: &'a [GroupStats],
    /// The step.
    pub step: Step,
    /// Seed of the run.
    pub seed: u64,
    /// `m_t` of the table under the gate.
    pub success_limit: SuccessLimit,
    /// N.
    pub group_size: usize,
    /// Settings.
    pub settings: &'a GateSettings,
    /// Earlier visits and exposures.
    pub memory: &'a GateMemory,
}

impl Round<'_> {
    /// Midway between the confidences of `m_t` and `m_t` + 1 successes in N (Eq. 8): the integer rule as a threshold. Is 0,
    /// below which nothing is, at a closed gate, which stays closed (Prop. 2).
    fn threshold(&self) -> f64 {
        let limit = f64::from(self.success_limit.get());
        if limit < 0.0 { 0.0 } else { (limit + 1.5) / (2 + self.group_size) as f64 }
    }

    /// The posterior's mean of a group's success rate: its counts and those of earlier visits, discounted, under Beta(1, 1).
    fn posterior_mean(&self, group: &GroupStats) -> f64 {
        let visit = (group.successes, group.n_eff);
        let (successes, rollouts) =
            self.memory.with_visit(self.settings.discount, group.prompt, visit);
        (1.0 + successes) / (2.0 + rollouts)
    }

    /// The draws for a group.
    fn rng(&self, group: &GroupStats) -> CounterRng {
        CounterRng::of_prompt(self.seed, RngStream::Gate, self.step.0, group.prompt.0)
    }

    /// Opens at most `most` of the groups that `may` be open: those of the lowest `key`, a draw deciding among equals.
    fn lowest(
        &self,
        most: u64,
        may: impl Fn(&GroupStats) -> bool,
        key: impl Fn(&GroupStats) -> f64,
    ) -> Vec<bool> {
        let candidates = self.groups.iter().enumerate().filter(|(_, group)| may(group));
        let mut ranked: Vec<_> = candidates
            .map(|(index, group)| (key(group), self.rng(group).uniform(), index))
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut open = vec![false; self.groups.len()];
        for (.., index) in ranked.into_iter().take(usize::try_from(most).unwrap_or(usize::MAX)) {
            open[index] = true;
        }
        open
    }
}

/// Counts of a gate between steps (D39): earlier visits and exposures. They are counted where a group is trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateMemory {
    /// Successes and rollouts of each prompt over its visits, discounted.
    visits: BTreeMap<PromptId, (f64, f64)>,
    /// Groups that something entered.
    pub exposures: u64,
}

impl GateMemory {
    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The memory after a step.
    pub fn after(mut self, step: &[MixedGroup], discount: f64) -> Self {
        for group in step {
            let visit = (group.successes(), group.n_eff());
            let counts = self.with_visit(discount, group.prompt(), visit);
            self.visits.insert(group.prompt(), counts);
            self.exposures += u64::from(group.injected());
        }
        self
    }

    /// Successes and rollouts of a prompt, those of this visit included.
    fn with_visit(&self, discount: f64, prompt: PromptId, visit: (usize, usize)) -> (f64, f64) {
        let before = self.visits.get(&prompt).copied().unwrap_or_default();
        (discount * before.0 + visit.0 as f64, discount * before.1 + visit.1 as f64)
    }
}
