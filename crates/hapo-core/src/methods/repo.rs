use super::prelude::*;

/// arXiv 2506.09340: GRPO's loss on the sampled rollouts, and `weight` times that on `replayed` earlier ones of the
/// prompt, each with its recorded ratio and with advantages among its own.
///
/// `RePO`: the latest `remembered` rollouts of a prompt are kept, right or wrong, and once `begin` are there, some are
/// replayed at each visit (SihengLi99/RePO, whose mean over all rows divides both terms, as here).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "repo",
    summary: "GRPO, and its surrogate on the prompt's own earlier rollouts, right or wrong",
    make: |settings| {
        let (rule, own) = (settings.advantage, settings.repo);
        let range = format!("1 to repo.remembered = {}", own.remembered);
        check("repo.begin", (1..=own.remembered).contains(&own.begin), range, own.begin)?;
        let fits = own.weight.is_finite() && own.weight >= 0.0;
        check("repo.weight", fits, "a number of at least 0", own.weight)?;
        let help = Help::needing(Needs { memory: true, traces: 0, ..Needs::ROLLOUTS })
            .remembering(move |before, step, at| {
                before.with_traces(step, at, own.remembered, |_| true)
            })
            .mixing(move |group, offer, _| {
                let chosen = own.chosen(offer, group.prompt);
                let chosen = chosen.into_iter().map(|trace| (trace.clone(), None));
                replaying(group.unchanged(Intervention::GateClosed), chosen)
            });
        Ok(Method { help, ..Method::new(move |group, _, _| own.credit(group, rule)) })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[repo]`; what is not written is as in the authors' script.
    Own {
        /// Rollouts of a prompt from which on some are replayed.
        begin: usize = 16,
        /// Most rollouts of a prompt that are kept.
        remembered: usize = 16,
        /// Rollouts that are replayed in a group.
        replayed: usize = 8,
        choice: Choice = Choice::Highest,
        /// Whose rewards a replayed rollout is compared with.
        advantage: Among = Among::Split,
        /// c.
        weight: f64 = 1.0,
    }
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

impl Own {
    fn chosen<'a>(self, offer: &Candidate<'a>, prompt: PromptId) -> Vec<&'a StoredTrace> {
        let mut chosen = Vec::new();
        if offer.stored.len() >= self.begin {
            chosen = offer.stored.iter().collect();
            if self.choice == Choice::Random {
                offer.rng(prompt).shuffle(&mut chosen);
            }
            choose(&mut chosen, self.choice, self.replayed);
        }
        chosen
    }

    fn credit(self, group: &MixedGroup, rule: AdvantageRule) -> Credit {
        let among = |wanted: bool| match self.advantage {
            Among::Split => advantages_among(group, rule.std, |member| member.is_own() == wanted),
            Among::Mixed => advantages(group, rule),
        };
        let members = group.members().iter().zip(among(true).into_iter().zip(among(false)));
        let advantage = |(member, (own, replayed)): (&Member, (f64, f64))| {
            if member.is_own() { own } else { self.weight * replayed }
        };
        on_policy(group, members.map(advantage).collect())
    }
}

/// Leaves `count` rollouts of those that come the latest first. Of equal rewards the oldest stay, as in the authors' code.
fn choose(from: &mut Vec<&StoredTrace>, choice: Choice, count: usize) {
    let count = count.min(from.len());
    match choice {
        Choice::Recent | Choice::Random => {}
        Choice::Highest => {
            from.reverse();
            from.sort_by(|a, b| b.reward.total_cmp(&a.reward));
        }
        Choice::Variance => {
            from.reverse();
            *from = most_varied(from, count).into_iter().map(|it| from[it]).collect();
        }
    }
    from.truncate(count);
}

/// The subset of the largest variance, which has the highest and the lowest rewards; of equals the first by its indices.
fn most_varied(from: &[&StoredTrace], count: usize) -> Vec<usize> {
    let mut falling: Vec<usize> = (0..from.len()).collect();
    let mut rising = falling.clone();
    falling.sort_by(|a, b| from[*b].reward.total_cmp(&from[*a].reward));
    rising.sort_by(|a, b| from[*a].reward.total_cmp(&from[*b].reward));
    let with_lowest = |low: usize| {
        let high = &falling[..count - low];
        let lowest = rising.iter().filter(|it| !high.contains(it)).take(low);
        let mut chosen: Vec<usize> = high.iter().chain(lowest).copied().collect();
        chosen.sort_unstable();
        chosen
    };
    let variance = |chosen: &[usize]| {
        let rewards = chosen.iter().map(|it| from[*it].reward);
        let mean = rewards.clone().sum::<f64>() / count as f64;
        rewards.map(|it| (it - mean) * (it - mean)).sum::<f64>()
    };
    let best = (0..=count).map(with_lowest);
    best.max_by(|a, b| variance(a).total_cmp(&variance(b)).then_with(|| b.cmp(a)))
        .unwrap_or_default()
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
        assert_eq!(chosen(Choice::Variance, 3), [1.0, 1.0, 0.0]);
        assert_eq!(chosen(Choice::Highest, 9).len(), 6);
        assert_eq!(chosen(Choice::Variance, 0), [0.0; 0]);
    }

    /// By brute force, as the authors' code has it: a stable sort of the oldest first, and the first combination of the
    /// largest variance.
    #[test]
    fn of_equal_rewards_the_oldest_are_replayed() {
        for rewards in 0_u32..256 {
            let stored: Vec<_> = (0..8)
                .rev()
                .map(|age| StoredTrace {
                    reward: f64::from(rewards >> age & 1),
                    step: Step(age),
                    ..StoredTrace::default()
                })
                .collect();
            let ages = |choice| {
                let mut from: Vec<_> = stored.iter().collect();
                choose(&mut from, choice, 4);
                from.into_iter().map(|it| it.step.0).collect::<Vec<_>>()
            };
            let reward = |age: u64| u64::from(rewards >> age & 1);
            let mut highest: Vec<u64> = (0..8).collect();
            highest.sort_by_key(|age| 1 - reward(*age));
            assert_eq!(ages(Choice::Highest), highest[..4], "{rewards:08b}");
            // The indices of four of eight in lexicographic order are the sets by their reversed bits, falling.
            let sets = (0_u8..=255).rev().filter(|it| it.count_ones() == 4);
            let sets = sets.map(|it| (0..8).filter(|at| it >> (7 - at) & 1 == 1).collect());
            let spread = |set: &Vec<u64>| {
                let right: u64 = set.iter().map(|age| reward(*age)).sum();
                right * (4 - right)
            };
            let first = sets.reduce(|best, it| if spread(&it) > spread(&best) { it } else { best });
            assert_eq!(Some(ages(Choice::Variance)), first, "{rewards:08b}");
        }
    }
}
