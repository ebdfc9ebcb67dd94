//! The traces and prompts that a method keeps between steps (D39, D43). The memory after a step is a function of the
//! memory before it and of the groups that the step's record holds, so that a replay advances it as the run did. The
//! price is that nothing else of a step can be remembered.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::advantage::mean;
use crate::{Context, GateMemory, MixedGroup, PolicyMember, PromptId, Step, StoredTrace, TokenId};

/// Stored entries, sorted by prompt: equal contents have equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The latest first.
    traces: BTreeMap<PromptId, Vec<StoredTrace>>,
    /// Prompts that wait for their demonstrations to be imitated, the next first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queue: Vec<PromptId>,
    /// Those of them that were due after the latest step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub due: Vec<PromptId>,
    /// Most hints that are shown with a prompt, where not all are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    frontier: BTreeMap<PromptId, usize>,
    /// The gate's counts.
    #[serde(default, skip_serializing_if = "GateMemory::is_empty")]
    pub gate: GateMemory,
    /// The memory of a method of another language, as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Most tokens of all traces. It is the recipe's and is not stored.
    #[serde(skip)]
    limit: usize,
}

impl Memory {
    /// Bytes of a token: its number and its log-probability.
    pub const TOKEN_BYTES: usize = size_of::<TokenId>() + size_of::<f32>();

    /// The same with at most `tokens` tokens: the oldest traces leave first.
    pub fn limited_to(mut self, tokens: usize) -> Self {
        self.limit = tokens;
        self.forget();
        self
    }

    /// The traces of a prompt, the latest first.
    pub fn traces(&self, prompt: PromptId) -> &[StoredTrace] {
        self.traces.get(&prompt).map_or(&[], Vec::as_slice)
    }

    /// Tokens of all traces.
    pub fn tokens(&self) -> usize {
        self.traces.values().flatten().map(|it| it.tokens.len()).sum()
    }

    /// With the unaided successes of a step that ended, at most `per_prompt` for each prompt.
    pub fn with_successes(self, groups: &[MixedGroup], at: Step, per_prompt: usize) -> Self {
        self.with_traces(groups, at, per_prompt, |it| it.is_success && it.rollout.ended)
    }

    /// With the unaided rollouts of a step that are wanted, at most `per_prompt` for each prompt.
    pub fn with_traces<'a>(
        mut self,
        groups: impl IntoIterator<Item = &'a MixedGroup>,
        at: Step,
        per_prompt: usize,
        is_wanted: impl Fn(&PolicyMember) -> bool,
    ) -> Self {
        for group in groups {
            let wanted = group.sampled().filter(|it| is_wanted(it) && it.rollout.is_unaided());
            let traces: Vec<_> = wanted
                .map(|it| StoredTrace {
                    tokens: it.rollout.tokens.clone(),
                    log_probs: it.rollout.log_probs.clone(),
                    reward: it.reward,
                    successes: group.successes(),
                    step: at,
                })
                .collect();
            if !traces.is_empty() {
                let kept = self.traces.entry(group.prompt()).or_default();
                kept.splice(0..0, traces);
                kept.truncate(per_prompt);
            }
        }
        self.forget();
        self
    }

    /// Without the traces of these prompts.
    pub fn without(mut self, prompts: impl IntoIterator<Item = PromptId>) -> Self {
        for prompt in prompts {
            self.traces.remove(&prompt);
        }
        self
    }

    /// With the latest alone of traces that say the same.
    pub fn without_copies(mut self) -> Self {
        for kept in self.traces.values_mut() {
            let mut seen = HashSet::new();
            kept.retain(|it| seen.insert(it.tokens.clone()));
        }
        self
    }

    /// With prompts in front of the queue. The first `batch` of it are due once it holds as many (D43).
    pub fn with_queued(mut self, new: impl Iterator<Item = PromptId>, batch: usize) -> Self {
        self.queue.splice(0..0, new);
        let due = if self.queue.len() < batch { 0 } else { batch };
        self.due = self.queue.drain(..due).collect();
        self
    }

    /// Number of prompts that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Most hints that are shown with a prompt; `None` while all may be.
    pub fn frontier(&self, prompt: PromptId) -> Option<usize> {
        self.frontier.get(&prompt).copied()
    }

    /// With the hints of each group of a step whose mean reward is at least `success` as the most of its prompt.
    pub fn with_frontiers(mut self, groups: &[MixedGroup], success: f64) -> Self {
        for group in groups.iter().filter(|it| mean(&it.rewards()) >= success) {
            let Some(member) = group.sampled().next() else { continue };
            let shown = match member.rollout.context {
                Context::Hint(level) => level + 1,
                _ => 0,
            };
            let most = self.frontier.entry(group.prompt()).or_insert(shown);
            *most = shown.min(*most);
        }
        self
    }

    fn forget(&mut self) {
        let mut tokens = self.tokens();
        let all = self.traces.iter();
        let mut oldest: Vec<(Step, PromptId)> =
            all.flat_map(|(prompt, kept)| kept.iter().map(|it| (it.step, *prompt))).collect();
        oldest.sort_unstable();
        for (_, prompt) in oldest {
            if tokens <= self.limit {
                break;
            }
            // The last of a prompt's traces is its oldest.
            let gone = self.traces.get_mut(&prompt).and_then(Vec::pop);
            tokens -= gone.map_or(0, |it| it.tokens.len());
        }
        self.traces.retain(|_, kept| !kept.is_empty());
    }
}
