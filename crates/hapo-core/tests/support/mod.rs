//! Builders of groups for the tests.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its part")]

use hapo_core::*;

pub const END: TokenId = 2;

pub fn rollout(length: usize, ended: bool) -> Rollout {
    Rollout { tokens: vec![9; length], log_probs: vec![-0.25; length], ended, ..Rollout::default() }
}

/// One rollout per character: `c` correct, `w` wrong, `u` unparsable; of lengths 1, 2, 3….
pub fn scored(verdicts: &str) -> ScoredGroup {
    let rollouts = (1..=verdicts.len()).map(|it| rollout(it, true)).collect();
    scored_with(rollouts, verdicts)
}

pub fn scored_with(rollouts: Vec<Rollout>, verdicts: &str) -> ScoredGroup {
    SampledGroup::new(PromptId(412), rollouts.len(), rollouts).score(verdicts_of(verdicts))
}

pub fn verdicts_of(text: &str) -> Vec<Verdict> {
    text.chars()
        .map(|it| match it {
            'c' => Verdict::Correct,
            'w' => Verdict::Wrong,
            _ => Verdict::Unparsable("no box".into()),
        })
        .collect()
}

pub fn teacher() -> TeacherTrajectory {
    admit_teacher(vec![7, 7, 7], &[END], &Verdict::Correct, 80).unwrap()
}

pub fn slot(rule: SlotRule) -> Slot {
    Slot { rule, seed: 0, step: Step(1) }
}

pub fn derived(success_limit: usize) -> Gate {
    Gate::Confidence { threshold: Threshold::Derived { success_limit }, annealing: Annealing::Off }
}

/// The gate that is open for at most so many successes.
pub fn success_limit(successes: usize) -> SuccessLimit {
    Schedule::new(&derived(successes), 65_535, 1).unwrap().success_limit(Step(1))
}

pub fn injected(verdicts: &str) -> MixedGroup {
    let mixed = apply_gate(
        scored(verdicts),
        Some(&teacher()),
        success_limit(64),
        slot(SlotRule::LowestReward),
    );
    assert!(mixed.injected());
    mixed
}

pub fn kept(verdicts: &str) -> MixedGroup {
    apply_gate(
        scored(verdicts),
        Some(&teacher()),
        SuccessLimit::CLOSED,
        slot(SlotRule::LowestReward),
    )
}
