use super::GateRule;

/// Open iff the mean of Beta(1 + s, 1 + n − s) is below (`m_t` + 3/2)/(2 + N), with s = ρ·s′ + S and n = ρ·n′ + N over the
/// visits of the prompt, s′ and n′ being those of its last visit and ρ `hapo.discount`.
///
/// With ρ = 0 a group counts alone, and the gate is that of the paper. A prompt that was solved before needs a failed
/// group, or several, before the gate opens again.
pub(super) const GATE: GateRule = GateRule {
    name: "posterior",
    summary: "prompts of low confidence over their visits, the earlier ones discounted",
    reads: &["success_limit", "gamma0", "annealing", "turn_off_epoch", "steepness", "discount"],
    remembers: true,
    open: |round| {
        let Some(threshold) = round.threshold() else {
            return vec![false; round.groups.len()];
        };
        round.groups.iter().map(|group| round.posterior_mean(group) < threshold).collect()
    },
    ..GateRule::NEW
};
