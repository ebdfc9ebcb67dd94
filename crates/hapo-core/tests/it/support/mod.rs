//! Builders of groups for the tests.
#![allow(missing_docs, unreachable_pub, reason = "a module of a test program")]

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

/// The loss of a member, and its derivative.
pub fn loss_of(
    of: (&Loss, Divisors),
    spans: &[Span],
    log_probs: &[f32],
    old: &[f32],
) -> (f64, Vec<f32>) {
    let entropies = &vec![0.0; log_probs.len()];
    let tokens = SpanTokens { log_probs, old_log_probs: old, reference: &[], entropies };
    let Priced { loss, by_log_prob, .. } = price(of, spans, tokens);
    (loss, by_log_prob)
}

/// The loss of a member, and its derivatives.
pub struct Priced {
    pub loss: f64,
    pub by_log_prob: Vec<f32>,
    pub by_entropy: Vec<f32>,
}

/// The loss of the spans of a response, whose tokens are told whole.
pub fn price(
    (loss, divisors): (&Loss, Divisors),
    spans: &[Span],
    tokens: SpanTokens<'_>,
) -> Priced {
    let n = tokens.log_probs.len();
    let mut priced = Priced { loss: 0.0, by_log_prob: vec![0.0; n], by_entropy: vec![0.0; n] };
    for span in spans {
        let at = span.tokens.clone();
        let of = SpanTokens {
            log_probs: &tokens.log_probs[at.clone()],
            old_log_probs: if span.is_teacher() { &[] } else { &tokens.old_log_probs[at.clone()] },
            reference: tokens.reference.get(at.clone()).unwrap_or_default(),
            entropies: &tokens.entropies[at.clone()],
        };
        let divisor = loss.divisor_of(span, loss.counted(n, spans), divisors);
        let slopes = &mut priced.by_log_prob[at.clone()];
        priced.loss -= loss.span(span, of, divisor, slopes, &mut priced.by_entropy[at]).objective;
    }
    priced
}

/// Finite differences of a loss are `expected`, but at the corners of the clip: where two neighbouring slopes differ by
/// more than `corner`. The slopes may differ by `tolerance`.
pub fn assert_slopes(
    name: &str,
    value_at: impl Fn(&[f32]) -> f64,
    log_probs: &[f32],
    expected: &[f64],
    (corner, tolerance): (f64, f64),
) {
    for (at, expected) in expected.iter().enumerate() {
        let moved = |by: f32| {
            let mut log_probs = log_probs.to_vec();
            log_probs[at] += by;
            (f64::from(log_probs[at]), value_at(&log_probs))
        };
        let ((high, above), (low, below)) = (moved(1e-3), moved(-1e-3));
        let slope = (above - below) / (high - low);
        let is_smooth = (moved(2e-3).1 - above - (below - moved(-2e-3).1)).abs() < corner;
        assert!(!is_smooth || (slope - expected).abs() < tolerance, "{name}: {slope} {expected}");
    }
}
