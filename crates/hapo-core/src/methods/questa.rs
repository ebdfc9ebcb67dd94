use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, check};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Moment};
use crate::group::MixedGroup;
use crate::growth::{Growing, Growth, Needs};
use crate::rollout::Context;
use crate::scores::Scores;

/// GRPO's loss on groups that are sampled and trained on behind the prompt with a part of its solution.
///
/// `QuestA`: a curriculum of two runs, the first with half of the solution in the question, the second with a quarter, from
/// the first's checkpoint ("`QuestA`: expanding reasoning capacity in LLMs via question augmentation",
/// <https://arxiv.org/abs/2507.13266>; foreverlasting1202/QuestA). Every prompt that has the hint shows it, in every step;
/// evaluate without.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "questa",
    summary: "GRPO behind prompts that show one of their hints, in every step",
    own_keys: &["hint"],
    variants: &[],
    build: |settings| {
        let (advantage, hint) = (settings.advantage, settings.questa.hint);
        let range = 1..=Context::MOST_HINTS;
        let wanted = format!("1 to {}", Context::MOST_HINTS);
        check("questa.hint", range.contains(&hint), wanted, hint)?;
        Ok(Arc::new(QuestA { advantage, hint }))
    },
};

/// `[questa]`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Which of a prompt's hints is shown, from 1: with `data.hints = "solution"` 1, 2 and 3 are 25, 50 and 75 %.
    hint: usize,
}

impl Default for Own {
    fn default() -> Self {
        Self { hint: 2 }
    }
}

#[derive(Debug)]
struct QuestA {
    advantage: AdvantageRule,
    hint: usize,
}

impl Method for QuestA {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { hints: true, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher", "advantage.group", "guard.beta_rise"]
    }

    fn grow(&self, group: &Growing<'_>) -> Growth {
        match group.part {
            0 if self.hint <= group.hints => {
                Growth::under(group.size, Context::Hint(self.hint - 1))
            }
            _ => Growth::once(group),
        }
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        on_policy(group, advantages(group, self.advantage))
    }
}
