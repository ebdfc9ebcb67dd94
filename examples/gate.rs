//! HAPO's decisions inside a trainer of your own: who is helped, in whose place the teacher comes, and what everyone's
//! advantage is.
//!
//! `cargo run --release --example gate`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::core::{
    AdvantageRule, Annealing, Gate, PromptId, Rollout, SampledGroup, Schedule, Slot, SlotRule,
    Step, Threshold, Verdict, admit_teacher, advantages, apply_gate,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Groups of 4, 10 steps in an epoch, and a gate for groups that fail entirely, closed after an epoch and a half.
    let gate = Gate::Confidence {
        threshold: Threshold::Derived { success_limit: 0 },
        annealing: Annealing::Sigmoid { turn_off_epoch: "1.5".parse()?, steepness: 10.into() },
    };
    let schedule = Schedule::new(&gate, 4, 10)?;
    println!("closed for good from step {:?}", schedule.extinct_at_step());

    let teacher = admit_teacher(vec![11, 12, 2], &[2], &Verdict::Correct, 32)?;
    for step in [1, 20] {
        for successes in [0, 1] {
            let rollout = |n: u32| Rollout {
                tokens: vec![n, 2],
                log_probs: vec![-0.7, -0.1],
                ended: true,
                ..Rollout::default()
            };
            let sampled = SampledGroup::new(PromptId(7), 4, (20..24).map(rollout).collect());
            let mut verdicts = vec![Verdict::Wrong; 4];
            verdicts[..successes].fill(Verdict::Correct);
            let scored = sampled.score(verdicts);
            let confidence = scored.confidence();
            let step = Step(step);
            let slot = Slot { rule: SlotRule::LowestReward, seed: 0, step };
            let mixed = apply_gate(scored, Some(&teacher), schedule.success_limit(step), slot);
            println!(
                "step {:>2}, {successes} of 4 right: γ = {:.3}, confidence {confidence:.3}, teacher {}, advantages {:?}",
                step.0,
                schedule.threshold(step),
                if mixed.injected() { "enters" } else { "stays out" },
                advantages(&mixed, AdvantageRule::default()),
            );
        }
    }
    Ok(())
}
