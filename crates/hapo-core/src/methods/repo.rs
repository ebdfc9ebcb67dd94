use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, check};
use crate::advantage::{AdvantageRule, advantages, advantages_among};
use crate::credit::{Credit, Moment};
use crate::group::{Intervention, Member, MixedGroup, ScoredGroup};
use crate::growth::Needs;
use crate::injection::Offer;
use crate::memory::Memory;
use crate::rollout::{Step, StoredTrace};
use crate::scores::Scores;

/// GRPO's loss on the sampled rollouts, and `weight` times that on `replayed` earlier ones of the prompt, each with its
/// recorded ratio and with advantages among its own.
///
/// `RePO`: the latest `remembered` rollouts of a prompt are kept, right or wrong, and once `begin` are there, some are
/// replayed at each visit ("`RePO`: replay-enhanced policy optimization", <https://arxiv.org/abs/2506.09340>;
/// SihengLi99/RePO, whose mean over all rows divides both terms, as here).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "repo",
    summary: "GRPO, and its surrogate on the prompt's own earlier rollouts, right or wrong",
    own_keys: &["begin", "remembered", "replayed", "choice", "advantage", "weight"],
    variants: &[],
    build: |settings| {
        let own = settings.repo;
        let (begin, remembered) = (own.begin, own.remembered);
        let range = format!("1 to repo.remembered = {remembered}");
        check("repo.begin", (1..=remembered).contains(&begin), range, begin)?;
        let fits = own.weight.is_finite() && own.weight >= 0.0;
        check("repo.weight", fits, "a number of at least 0", own.weight)?;
        Ok(Arc::new(RePo { rule: settings.advantage, own }))
    },
};

/// `[repo]`; what is not written is as in the authors' script.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Rollouts of a prompt from which on some are replayed.
    begin: usize,
    /// Most rollouts of a prompt that are kept.
    remembered: usize,
    /// Rollouts that are replayed in a group.
    replayed: usize,
    choice: Choice,
    /// Whose rewards a replayed rollout is compared with.
    advantage: Among,
    /// c.
    weight: f64,
}

/// Which of the kept rollouts are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choice {
    Highest,
    Recent,
    Random,
    Variance,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Among {
    Split,
    Mixed,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            begin: 16,
            remembered: 16,
            replayed: 8,
            choice: Choice::Highest,
            advantage: Among::Split,
            weight: 1.0,
        }
    }
}

#[derive(Debug)]
struct RePo {
    rule: AdvantageRule,
    own: Own,
}

impl Method for RePo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { memory: true, traces: 0, ..Needs::ROLLOUTS }
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, _: bool) -> MixedGroup {
        let mut chosen = Vec::new();
        if offer.stored.len() >= self.own.begin {
            chosen = offer.stored.iter().collect();
            if self.own.choice == Choice::Random {
                offer.rng(group.prompt).shuffle(&mut chosen);
            }
            choose(&mut chosen, self.own.choice, self.own.replayed);
        }
        chosen.into_iter().fold(group.unchanged(Intervention::GateClosed), |mixed, it| {
            mixed.with(|replaced| Member::Replayed { trace: it.clone(), replaced }, None)
        })
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let among = |wanted: bool| match self.own.advantage {
            Among::Split => {
                advantages_among(group, self.rule.std, |member| member.is_own() == wanted)
            }
            Among::Mixed => advantages(group, self.rule),
        };
        let members = group.members().iter().zip(among(true).into_iter().zip(among(false)));
        let advantage = |(member, (own, replayed)): (&Member, (f64, f64))| {
            if member.is_own() { own } else { self.own.weight * replayed }
        };
        on_policy(group, members.map(advantage).collect())
    }

    fn remember(&self, before: Memory, step: &[MixedGroup], at: Step) -> Memory {
        before.with_traces(step, at, self.own.remembered, |_| true)
    }
}

/// Leaves `count` rollouts of those that come the latest first.
fn choose(from: &mut Vec<&StoredTrace>, choice: Choice, count: usize) {
    let n = from.len();
    let count = count.min(n);
    match choice {
        Choice::Recent | Choice::Random => {}
        Choice::Highest => from.sort_by(|a, b| b.reward.total_cmp(&a.reward)),
        // The subset of the largest variance has the highest and the lowest rewards; of equals that with the largest sum.
        Choice::Variance => {
            from.sort_by(|a, b| b.reward.total_cmp(&a.reward));
            let variance = |low: &usize| {
                let both = from[..count - low].iter().chain(&from[n - low..]).map(|it| it.reward);
                let mean = both.clone().sum::<f64>() / count as f64;
                both.map(|it| (it - mean) * (it - mean)).sum::<f64>()
            };
            let best = (0..=count).rev().max_by(|a, b| variance(a).total_cmp(&variance(b)));
            let low = best.unwrap_or(0);
            from.drain(count - low..n - low);
        }
    }
    from.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_leaves_its_rollouts() {
        let stored: Vec<_> = [0.0, 1.0, 0.5, 0.0, 1.0, 1.0]
            .into_iter()
            .map(|reward| StoredTrace { reward, ..StoredTrace::default() })
            .collect();
        let chosen = |choice, count| {
            let mut from: Vec<_> = stored.iter().collect();
            choose(&mut from, choice, count);
            from.into_iter().map(|it| it.reward).collect::<Vec<_>>()
        };
        assert_eq!(chosen(Choice::Recent, 3), [0.0, 1.0, 0.5]);
        assert_eq!(chosen(Choice::Highest, 4), [1.0, 1.0, 1.0, 0.5]);
        assert_eq!(chosen(Choice::Variance, 4), [1.0, 1.0, 0.0, 0.0]);
        // 1, 1, 0 and 1, 0, 0 vary alike; the first has the larger sum.
        assert_eq!(chosen(Choice::Variance, 3), [1.0, 1.0, 0.0]);
        assert_eq!(chosen(Choice::Highest, 9).len(), 6);
    }
}
