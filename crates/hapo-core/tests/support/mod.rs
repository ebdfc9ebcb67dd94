//! Builders of groups for the tests.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test binary uses its part"
)]

use hapo_core::*;

pub const END: TokenId = 2;

pub fn rollout(length: usize, ended: bool) -> Rollout {
    Rollout {
        tokens: vec![9; length],
        hint: 0,
        log_probs: vec![-0.25; length],
        ended,
    }
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
    admit_teacher(vec![7, 7, 7], END, &Verdict::Correct, 80).unwrap()
}

pub fn slot(rule: SlotRule) -> Slot {
    Slot {
        rule,
        seed: 0,
        step: Step(1),
    }
}

pub fn derived(failure_level: usize) -> Gate {
    Gate::Confidence {
        threshold: Threshold::Derived { failure_level },
        annealing: Annealing::Off,
    }
}

/// The gate that is open for at most so many successes.
pub fn open_up_to(successes: usize) -> OpenUpTo {
    Schedule::new(&derived(successes), 65_535, 1)
        .unwrap()
        .open_up_to(Step(1))
}

pub fn injected(verdicts: &str) -> MixedGroup {
    let mixed = intervene(
        scored(verdicts),
        Some(&teacher()),
        open_up_to(64),
        slot(SlotRule::LowestReward),
    );
    assert!(mixed.injected());
    mixed
}

pub fn kept(verdicts: &str) -> MixedGroup {
    intervene(
        scored(verdicts),
        Some(&teacher()),
        OpenUpTo::CLOSED,
        slot(SlotRule::LowestReward),
    )
}
