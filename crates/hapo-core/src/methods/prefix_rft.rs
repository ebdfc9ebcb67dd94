use super::prelude::*;

/// arXiv 2507.01679: GRPO's loss on N − 1 rollouts and one behind a prefix of the teacher's trajectory, whose most
/// uncertain tokens are trained with the group's advantage too.
///
/// Prefix-RFT: the prefix is a share of the trajectory, drawn uniformly between `low(t)` and `high`; `low` falls from
/// `high` to `low` along half a cosine over `steps` steps. Of the prefix's tokens the share `masked` with the lowest
/// entropies has A = 0; the ratio of the others is taken to the weights at the start of the step
/// (`ZeroYuHuang/prefix_rft`). Unverified: the run's configuration is not public; `low`, `high` and `masked` are a
/// review's.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "prefix-rft",
    summary: "GRPO; one rollout of each group continues a prefix of the trace, whose uncertain tokens are trained too",
    make: |settings| {
        let (rule, own) = (settings.advantage, settings.prefix_rft);
        let Own { low, high, masked, .. } = own;
        let fits = 0.0 <= low && low <= high && high <= 1.0 && (0.0..=1.0).contains(&masked);
        let got = format!("{low}, {high} and {masked}");
        check("prefix-rft", fits, "0 ≤ low ≤ high ≤ 1 and masked from 0 to 1", got)?;
        let needs = Needs { parts: 2, prefixes: true, scores_members: true, ..Needs::ROLLOUTS };
        Ok(Method {
            help: Help::needing(needs).growing(move |group| own.grow(group)),
            scored_behind: |group, member| {
                let rollout = &group.members()[member].sampled()?.rollout;
                (rollout.prefix > 0).then_some(Context::Plain)
            },
            // A ratio of a sequence has no token to be masked.
            unread_keys: &[
                "teacher.d",
                "teacher.weight",
                "advantage.group",
                "guard.beta_rise",
                "loss.importance_ratio_level",
            ],
            ..Method::new(move |group, _, scores| own.credit(group, rule, scores))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[prefix-rft]`.
    Own {
        /// The least share of a trajectory at the end of the schedule.
        low: f64 = 0.05,
        /// The largest share, and the least before the first step.
        high: f64 = 0.95,
        /// Steps of the schedule.
        steps: u64 = 300,
        /// Share of a prefix's tokens without an advantage.
        masked: f64 = 0.8,
        /// Whose mean is subtracted.
        baseline: Baseline = Baseline::Group,
    }
}

/// The reference of the advantages, two of the three forms of the authors' code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Baseline {
    /// All of the group, as in Dr. GRPO.
    Group,
    /// The rollouts without a prefix; what follows the prefix has its reward.
    Plain,
}

impl Own {
    /// The least share after a number of steps.
    fn least(self, steps: u64) -> f64 {
        let at = steps.min(self.steps) as f64 / self.steps.max(1) as f64;
        half_cosine(self.high, self.low, PI * at)
    }

    fn grow(self, group: &GroupSoFar<'_>) -> Growth {
        match (group.part, group.teacher()) {
            (0, Some(_)) => Growth::behind(group.size - 1, Prefix::None),
            (1, Some(teacher)) => {
                let least = self.least(group.at.step.0.saturating_sub(1));
                let share = least + (self.high - least) * group.rng().uniform();
                Growth::behind(1, Prefix::Teacher(shown(teacher.tokens().len(), share)))
            }
            _ => Growth::once(group),
        }
    }

    /// The advantages of a prefix's tokens: 0 for the least uncertain of them, the first among equals.
    fn uncertain(self, advantage: f64, entropies: &[f32]) -> Advantage {
        let mut order: Vec<usize> = (0..entropies.len()).collect();
        order.sort_by(|a, b| entropies[*a].total_cmp(&entropies[*b]));
        let mut tokens = vec![advantage as f32; entropies.len()];
        let masked = (self.masked * entropies.len() as f64) as usize;
        order.into_iter().take(masked).for_each(|it| tokens[it] = 0.0);
        Advantage::Tokens(tokens.into())
    }

    /// The advantages of each member's prefix and of what follows it.
    fn advantages(self, group: &MixedGroup, rule: AdvantageRule) -> Vec<(f64, f64)> {
        let prefix = |it: &Member| it.sampled().map_or(0, |it| it.rollout.prefix);
        let plain = group.members().iter().filter(|it| prefix(it) == 0);
        let plain: Vec<f64> = plain.map(Member::reward).collect();
        let of_member = |(member, advantage): (&Member, f64)| match self.baseline {
            Baseline::Group => (advantage, advantage),
            Baseline::Plain if prefix(member) > 0 => {
                (member.reward() - mean(&plain), member.reward())
            }
            Baseline::Plain => (0.0, member.reward() - mean(&plain)),
        };
        group.members().iter().zip(advantages(group, rule)).map(of_member).collect()
    }

    fn credit(self, group: &MixedGroup, rule: AdvantageRule, scores: &Scores) -> Credit {
        let members = group.members().iter().zip(&scores.own).zip(self.advantages(group, rule));
        members
            .map(|((member, scores), (prefix, own))| {
                let Member::Policy(it) = member else { return Vec::new() };
                let shown = scores.entropies.get(..it.rollout.prefix).unwrap_or_default();
                let advantage = self.uncertain(prefix, shown);
                let prefix = Term::Policy { advantage, ratio: Ratio::Rescored };
                behind_prefix(&it.rollout, prefix, Term::policy(own))
            })
            .collect()
    }
}

/// Tokens of a prefix, at least one: the group's mean counts on a rollout behind one.
fn shown(tokens: usize, share: f64) -> usize {
    ((share * tokens as f64) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the formula of the code: 0.95, halfway 0.5, at the end 0.05.
    #[test]
    fn the_least_share_falls_along_half_a_cosine() {
        let own = Own::default();
        for (steps, expected) in [(0, 0.95), (150, 0.5), (300, 0.05), (999, 0.05)] {
            assert!((own.least(steps) - expected).abs() < 1e-12, "after {steps} steps");
        }
    }

    /// A share of 0.05 of twelve tokens is less than one.
    #[test]
    fn the_shortest_prefix_has_a_token() {
        assert_eq!([2, 12, 19, 20, 60].map(|it| shown(it, 0.05)), [1, 1, 1, 1, 3]);
    }

    /// By hand: 8 of 10 tokens are masked; tokens 1 and 3 are the uncertain ones.
    #[test]
    fn the_least_uncertain_tokens_of_a_prefix_have_no_advantage() {
        let entropies = [0.1, 0.9, 0.2, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let Advantage::Tokens(tokens) = Own::default().uncertain(0.5, &entropies) else {
            panic!("a vector");
        };
        assert_eq!(*tokens, [0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
