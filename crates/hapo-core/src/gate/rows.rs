use super::{Gate, GateRule, GroupStats};

/// The keys of the success limit and its annealing.
const ANNEALED: &[&str] = &["success_limit", "gamma0", "annealing", "turn_off_epoch", "steepness"];

/// Every gate; the first is the paper's.
pub const GATES: &[GateRule] = &[
    // Open iff S ≤ `m_t`: the paper's gate (Eq. 7, D1).
    GateRule {
        name: "confidence",
        summary: "groups of low confidence, until the gate has annealed: the paper's",
        reads: ANNEALED,
        is_table: true,
        ..GateRule::NEW
    },
    // Open for every group (D4).
    GateRule {
        name: "always",
        summary: "every group",
        is_table: true,
        table: |_, _| Gate::Always,
        ..GateRule::NEW
    },
    // Open for no group.
    GateRule {
        name: "never",
        summary: "no group",
        is_table: true,
        table: |_, _| Gate::Never,
        ..GateRule::NEW
    },
    // Open iff the mean of Beta(1 + s, 1 + n − s) is below (`m_t` + 3/2)/(2 + N), with s = ρ·s′ + S and n = ρ·n′ + N
    // over the visits of the prompt, s′ and n′ being those of its last visit and ρ `hapo.discount`. With ρ = 0 a group
    // counts alone, and the gate is that of the paper. A prompt that was solved before needs a failed group, or
    // several, before the gate opens again.
    GateRule {
        name: "posterior",
        summary: "prompts of low confidence over their visits, the earlier ones discounted",
        reads: &["success_limit", "gamma0", "annealing", "turn_off_epoch", "steepness", "discount"],
        remembers: true,
        open: |round| {
            let threshold = round.threshold();
            round.groups.iter().map(|group| round.posterior_mean(group) < threshold).collect()
        },
        ..GateRule::NEW
    },
    // Open iff θ < (`m_t` + 3/2)/(2 + N), with θ drawn from Beta(1 + S, 1 + N − S), whose mean is the confidence (Eq. 4).
    // The paper's title says Thompson sampling, and Algorithm 1 compares the mean: this gate draws. θ is the (S + 1)-th
    // smallest of N + 1 uniform numbers, so that no function but the comparison is evaluated.
    GateRule {
        name: "thompson",
        summary: "groups whose success rate, drawn from its posterior, is low",
        reads: ANNEALED,
        open: |round| {
            let threshold = round.threshold();
            let is_open = |group: &GroupStats| {
                let mut rng = round.rng(group);
                (0..=group.n_eff).filter(|_| rng.uniform() < threshold).count() > group.successes
            };
            round.groups.iter().map(is_open).collect()
        },
        ..GateRule::NEW
    },
    // Open iff all rewards are equal and none is a success: the group's own advantages are 0. With rewards of 0 and 1
    // that is S = 0; with graded rewards a failed group may rank its rollouts and is left alone.
    GateRule {
        name: "no-signal",
        summary: "groups whose rewards are all equal and no success",
        open: |round| {
            round.groups.iter().map(|group| group.is_constant && group.successes == 0).collect()
        },
        ..GateRule::NEW
    },
    // Open for the groups of the lowest posterior mean among those with S ≤ m, as many as are left of `hapo.exposures`.
    // The exposures are paced: after step t of T at most ⌊exposures·t/T⌋ are spent, and what a step leaves stays for
    // the next. The posterior is that of the gate `posterior`; a draw decides among equals.
    GateRule {
        name: "budget",
        summary: "a total of exposures, spent on the prompts of the lowest confidence",
        reads: &["success_limit", "discount", "exposures"],
        remembers: true,
        chooses: true,
        open: |round| {
            let settings = round.settings;
            let total = u128::from(settings.exposures);
            let due = total * u128::from(round.step.0) / u128::from(settings.steps.max(1));
            let left = (due.min(total) as u64).saturating_sub(round.memory.exposures);
            let limit = round.success_limit;
            let may = |group: &GroupStats| group.can_help && limit.is_open(group.successes);
            round.lowest(left, may, |group| round.posterior_mean(group))
        },
        ..GateRule::NEW
    },
    // Open for as many groups of each step as a recorded run injected into, drawn at random whatever their rewards. A
    // control: a run yoked to one with another gate has its exposures in the same steps, on other groups.
    GateRule {
        name: "yoked",
        summary: "random groups, as many in each step as in a recorded run: a control",
        reads: &["record"],
        chooses: true,
        open: |round| {
            let step = round.step.0.saturating_sub(1) as usize;
            let injections = round.settings.record.get(step).copied().unwrap_or(0);
            round.lowest(injections, |group| group.can_help, |_| 0.0)
        },
        ..GateRule::NEW
    },
];
