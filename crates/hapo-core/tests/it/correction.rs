//! D41: weights of another engine's rollouts in the loss: values by hand, finite differences, bits, and a bandit.

use crate::support::assert_slopes;
use hapo_core::*;

const OLD: [f32; 4] = [-0.5, -2.0, -1.0, -0.7];
const SAMPLER: [f32; 4] = [-1.0, -1.0, -1.2, -0.7];
const ENTROPIES: [f32; 4] = [0.5, 1.5, 0.25, 1.0];
const REFERENCE: [f32; 4] = [-0.4, -1.8, -1.3, -0.2];

fn correction(kind: CorrectionKind) -> Correction {
    Correction { kind, cap: 2.0 }
}

fn rollout(sampler: &[f32]) -> Rollout {
    Rollout {
        tokens: vec![9; 4],
        log_probs: OLD.to_vec(),
        sampler_log_probs: sampler.to_vec(),
        ..Rollout::default()
    }
}

/// One policy span over the rollout, with the weights of its tokens.
fn spans(advantage: f64, rollout: &Rollout, kind: CorrectionKind) -> Vec<Span> {
    let mut spans = vec![Span {
        reference: Some(REFERENCE.into()),
        ..Span::new(0..4, Term::policy(advantage))
    }];
    correction(kind).attach(&mut spans, rollout);
    spans
}

fn loss() -> Loss {
    let kl = Some(Kl { coef: 0.3, estimator: KlEstimator::K3 });
    let clip = Clip { low: 0.2, high: 0.28 };
    Loss { clip, kl, entropy_coef: 0.01, ..Loss::new(Normaliser::TOKEN_MEAN) }
}

/// The loss of a span, and its derivatives by log-probabilities and entropies.
fn run(loss: &Loss, span: &Span, log_probs: &[f32]) -> (f64, Vec<f32>, Vec<f32>) {
    let (mut slopes, mut by_entropy) = (vec![7.0; 4], vec![7.0; 4]);
    let tokens =
        SpanTokens { log_probs, old_log_probs: &OLD, reference: &REFERENCE, entropies: &ENTROPIES };
    let terms = loss.span(span, tokens, 3.0.into(), &mut slopes, &mut by_entropy);
    (-terms.objective, slopes, by_entropy)
}

const KINDS: [CorrectionKind; 4] = [
    CorrectionKind::TokenTruncate,
    CorrectionKind::TokenMask,
    CorrectionKind::SequenceTruncate,
    CorrectionKind::SequenceMask,
];

/// w·min(r·A, clip(r)·A) + c·H − coef·k3 of each token that is not masked, by hand.
#[test]
fn d41_the_weight_is_a_factor_of_the_surrogate_alone() {
    let log_probs = [-0.6, -2.2, -0.5, -0.7];
    for kind in KINDS {
        for advantage in [0.5, -0.5] {
            let span = &spans(advantage, &rollout(&SAMPLER), kind)[0];
            let weights = correction(kind).weights(&OLD, &SAMPLER);
            let (value, slopes, by_entropy) = run(&loss(), span, &log_probs);
            let mut expected = 0.0;
            for at in 0..4 {
                let ratio = f64::from(log_probs[at] - OLD[at]).exp();
                let surrogate = (ratio * advantage).min(ratio.clamp(0.8, 1.28) * advantage);
                let q = f64::from(REFERENCE[at] - log_probs[at]);
                let rest = 0.01 * f64::from(ENTROPIES[at]) - 0.3 * (q.exp() - 1.0 - q);
                let is_masked = weights[at] == 0.0;
                let term = f64::from(weights[at]) * surrogate + if is_masked { 0.0 } else { rest };
                expected -= term / 3.0;
                assert_eq!(is_masked, by_entropy[at] == 0.0, "{kind:?} {at}");
                assert!(!is_masked || slopes[at] == 0.0, "{kind:?} {at}");
            }
            assert!((value - expected).abs() < 1e-6, "{kind:?}: {value} {expected}");
        }
    }
}

#[test]
fn d41_slopes_are_finite_differences() {
    for kind in KINDS {
        let span = &spans(-0.5, &rollout(&SAMPLER), kind)[0];
        let log_probs = [-0.6, -2.2, -0.9, -0.75];
        let slopes = run(&loss(), span, &log_probs).1;
        let slopes: Vec<f64> = slopes.into_iter().map(f64::from).collect();
        let value_at = |log_probs: &[f32]| run(&loss(), span, log_probs).0;
        assert_slopes(&format!("{kind:?}"), value_at, &log_probs, &slopes, (1e-5, 1e-4));
    }
}

/// With the sampler's numbers equal to the trainer's every weight is 1, and the loss has the bits of one without.
#[test]
fn d41_no_mismatch_keeps_the_bits() {
    let log_probs = [-0.6, -2.2, -0.5, -0.7];
    for kind in KINDS.into_iter().chain([CorrectionKind::None]) {
        let corrected = &spans(0.375, &rollout(&OLD), kind)[0];
        let plain = &spans(0.375, &rollout(&[]), kind)[0];
        assert!(plain.weights.is_none());
        assert_eq!(
            run(&loss(), corrected, &log_probs),
            run(&loss(), plain, &log_probs),
            "{kind:?}"
        );
        let by_sequence = Loss { importance_ratio_level: ImportanceRatioLevel::Sequence, ..loss() };
        if !kind.is_by_token() {
            let bits = |span| run(&by_sequence, span, &log_probs);
            assert_eq!(bits(corrected), bits(plain), "{kind:?}");
        }
    }
}

/// Tokens that were given to a rollout weigh 1, and so do a teacher's.
#[test]
fn d41_given_tokens_and_the_teachers_weigh_1() {
    let mut spans = vec![
        Span::new(0..1, Term::Teacher { weight: 1.0, operator: operator("srft").unwrap(), d: 0.1 }),
        Span::new(1..4, Term::policy(1.0)),
    ];
    let rollout = rollout(&SAMPLER[2..]);
    correction(CorrectionKind::TokenTruncate).attach(&mut spans, &rollout);
    assert_eq!(spans[0].weights, None);
    let e = |x: f32| f64::from(x).exp() as f32;
    assert_eq!(spans[1].weights.as_deref(), Some(&[1.0, e(-1.0 + 1.2), 1.0][..]));
}

/// A masked token leaves the divisor; a response of which nothing is left leaves the count of sequences.
#[test]
fn d41_a_masked_token_leaves_the_denominator() {
    // Token mask: ratios e^0.5, e^-1, e^0.2 and 1, of which the second is outside [1/2, 2].
    let token = spans(1.0, &rollout(&SAMPLER), CorrectionKind::TokenMask);
    let sequence = spans(1.0, &rollout(&[-3.0; 4]), CorrectionKind::SequenceMask);
    assert_eq!((token[0].masked(), sequence[0].masked()), (1, 4));
    let plain = spans(1.0, &rollout(&[]), CorrectionKind::TokenMask);
    let of = |normaliser, groups: &[&[Span]]| {
        let loss = Loss::new(normaliser);
        let divisors = loss.divisors(groups.iter().map(|spans| (4, *spans)));
        let left = unmasked(4, groups[0]);
        loss.divisor_of(&groups[0][0], left, divisors).span
    };
    let constant = NormaliserKind::Constant.of(10);
    assert_eq!(of(Normaliser::TOKEN_MEAN, &[&token, &plain, &sequence]), 7.0);
    assert_eq!(of(NormaliserKind::SequenceMean.of(0), &[&token, &plain, &sequence]), 2.0 * 3.0);
    assert_eq!(of(constant, &[&token, &plain, &sequence]), 20.0);
    // No credit is no mask: it counts, as before.
    assert_eq!(of(Normaliser::TOKEN_MEAN, &[&plain, &[]]), 8.0);
}

/// A bandit of three arms: π is trained, μ samples. The expected gradient of the corrected loss under μ is that of the
/// plain one under π where no ratio reaches C; with an arm above, it is short by exactly that arm's surplus.
#[test]
fn d41_a_biased_sampler_is_corrected_within_the_cap() {
    let rewards = [1.0, 0.0, 0.25];
    let policy = [0.5_f64, 0.3, 0.2];
    let gradient = |sampler: [f64; 3], kind, cap: f64| -> f64 {
        // d/d log π of arm 0 of Σ over arms by the sampler's probability of w·A·r, at r = 1.
        let correction = Correction { kind, cap };
        let arm = |at: usize| {
            let (old, by) = (policy[at].ln() as f32, sampler[at].ln() as f32);
            let rollout = Rollout {
                tokens: vec![1],
                log_probs: vec![old],
                sampler_log_probs: vec![by],
                ..Rollout::default()
            };
            let mut spans = vec![Span::new(0..1, Term::policy(rewards[at]))];
            correction.attach(&mut spans, &rollout);
            let (mut slope, mut ignored) = ([0.0], [0.0]);
            let tokens = SpanTokens {
                log_probs: &[old],
                old_log_probs: &[old],
                reference: &[],
                entropies: &[0.0],
            };
            let loss = Loss::new(Normaliser::TOKEN_MEAN);
            loss.span(&spans[0], tokens, 1.0.into(), &mut slope, &mut ignored);
            -sampler[at] * f64::from(slope[0])
        };
        (0..3).map(arm).sum()
    };
    let on_policy = gradient(policy, CorrectionKind::TokenTruncate, 2.0);
    assert!((on_policy - (0.5 + 0.05)).abs() < 1e-6);
    let biased = [0.3, 0.5, 0.2];
    let truncated = gradient(biased, CorrectionKind::TokenTruncate, 2.0);
    assert!((truncated - on_policy).abs() < 1e-6, "{truncated}");
    let uncorrected = gradient(biased, CorrectionKind::None, 2.0);
    assert!((uncorrected - (0.3 + 0.05)).abs() < 1e-6, "{uncorrected}");
    // 0.5/0.2 = 2.5 is above 2: 0.2·2 in the place of 0.2·2.5.
    let far = [0.2, 0.6, 0.2];
    let truncated = gradient(far, CorrectionKind::TokenTruncate, 2.0);
    assert!((truncated - (0.4 + 0.05)).abs() < 1e-6, "{truncated}");
    assert!((gradient(far, CorrectionKind::TokenMask, 2.0) - 0.05).abs() < 1e-6);
}
