//! A method's loss and its derivative, from log-probabilities alone: what a trainer in another language would ask for.
//!
//! `cargo run --release --example objective`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::core::{PolicyTokens, TeacherTokens};
use hapo::train::Recipe;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recipe = "
        method = 'luffy'
        steps = 1
        [model]
        path = 'builtin:base'
        [data]
        train = 'builtin'
        [sampling]
        max_new_tokens = 8
        [hapo]
        turn_off_epoch = 1.5
    ";
    let stages = Recipe::parse_stages(recipe, "this example", "objective", &[])?;
    let objective = stages[0].objective.at(1);

    // A group of one rollout of three tokens and the teacher's two: the divisor is that of the whole optimiser step.
    let divisor = objective.normaliser.divisor([3, 2]);
    let (mut by_log_prob, mut by_entropy) = ([0.0; 3], [0.0; 3]);
    let policy = objective.policy_terms(
        PolicyTokens {
            log_probs: &[-0.2, -1.1, -0.4],
            old_log_probs: &[-0.2, -1.6, -0.4],
            entropies: &[0.5, 1.2, 0.8],
            advantage: -0.125,
            correct: false,
        },
        divisor,
        &mut by_log_prob,
        &mut by_entropy,
    );
    println!(
        "rollout: objective {:+.5}, clipped {} of 3",
        policy.objective, policy.clipped
    );
    println!("  d loss / d log π = {by_log_prob:?}");

    let mut by_teacher = [0.0; 2];
    let teacher = objective.teacher_terms(
        TeacherTokens {
            log_probs: &[-3.0, -0.1],
            entropies: &[1.0, 0.3],
            weight: 0.875,
        },
        divisor,
        &mut by_teacher,
    );
    println!(
        "teacher: objective {teacher:+.5} by `{}`",
        objective.operator.name
    );
    println!("  d loss / d log π = {by_teacher:?}");
    Ok(())
}
