//! A method's loss and its derivative, from log-probabilities alone: what a trainer in another language would ask for.
//!
//! `cargo run --release --example objective`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::core::{Span, SpanTokens, Term, operator};
use hapo::train::{Overrides, Recipe};

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
    let recipe = Recipe::parse(recipe, "this example", &Overrides::default())?;
    let loss = recipe.loss();

    // A group of one rollout of three tokens and the teacher's two: the divisor is that of the whole optimiser step.
    let divisor = loss.normaliser.divisor([3, 2]).into();
    let (mut by_log_prob, mut by_entropy) = ([0.0; 3], [0.0; 3]);
    let rollout = loss.span(
        &Span::new(0..3, Term::policy(-0.125)),
        SpanTokens {
            log_probs: &[-0.2, -1.1, -0.4],
            old_log_probs: &[-0.2, -1.6, -0.4],
            reference: &[],
            entropies: &[0.5, 1.2, 0.8],
        },
        divisor,
        &mut by_log_prob,
        &mut by_entropy,
    );
    println!("rollout: objective {:+.5}, clipped {} of 3", rollout.objective, rollout.clipped);
    println!("  d loss / d log π = {by_log_prob:?}");

    let luffy = operator("luffy").ok_or("an operator of the table")?;
    let term = Term::Teacher { weight: 0.875, operator: luffy, d: 0.1 };
    let (mut by_teacher, mut by_entropy) = ([0.0; 2], [0.0; 2]);
    let teacher = loss.span(
        &Span::new(0..2, term),
        SpanTokens {
            log_probs: &[-3.0, -0.1],
            old_log_probs: &[],
            reference: &[],
            entropies: &[1.0, 0.3],
        },
        divisor,
        &mut by_teacher,
        &mut by_entropy,
    );
    println!("teacher: objective {:+.5} by `{}`", teacher.objective, luffy.name);
    println!("  d loss / d log π = {by_teacher:?}");
    Ok(())
}
