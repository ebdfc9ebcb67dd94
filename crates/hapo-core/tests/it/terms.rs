//! Advantages by token, ratios and KL terms: values by hand and derivatives by finite differences.

use std::sync::Arc;

use hapo_core::*;

struct Case {
    advantage: String,
    advantages: Vec<f32>,
    ratio: String,
    kl: Option<KlEstimator>,
    coef: f64,
    log_probs: Vec<f32>,
    old_log_probs: Vec<f32>,
    reference: Vec<f32>,
}

impl Case {
    fn span(&self) -> Span {
        let advantage = match self.advantage.as_str() {
            "tokens" => Advantage::Tokens(self.advantages.clone().into()),
            _ => Advantage::Sequence(self.advantages[0].into()),
        };
        let ratio = if self.ratio == "one" { Ratio::One } else { Ratio::Recorded };
        let kl = self.kl.map(|estimator| Kl { coef: self.coef, estimator });
        Span { kl, ..Span::new(0..self.log_probs.len(), Term::Policy { advantage, ratio }) }
    }
}

fn loss(clip: [f64; 2]) -> Loss {
    let clip = Clip { low: clip[0], high: clip[1] };
    Loss { clip, ..Loss::new(Normaliser::TOKEN_MEAN) }
}

/// The loss of a span and its derivatives by log-probabilities.
fn run(loss: &Loss, span: &Span, case: &Case, divisor: f64) -> (f64, Vec<f32>) {
    let n = case.log_probs.len();
    let (mut slopes, mut by_entropy) = (vec![0.0; n], vec![0.0; n]);
    let tokens = SpanTokens {
        log_probs: &case.log_probs,
        old_log_probs: &case.old_log_probs,
        reference: &case.reference,
        entropies: &vec![0.0; n],
    };
    let terms = loss.span(span, tokens, divisor.into(), &mut slopes, &mut by_entropy);
    (-terms.objective, slopes)
}

/// `−Σ min(r·A_t, clip(r)·A_t) + coef·Σ k` in f64, as a function of one token's log-probability.
fn by_hand(case: &Case, at: usize, shift: f64) -> f64 {
    let a = f64::from(case.advantages[at]);
    let log_prob = f64::from(case.log_probs[at]) + shift;
    let ratio = (log_prob - f64::from(case.old_log_probs[at])).exp();
    let surrogate = (ratio * a).min(ratio.clamp(0.8, 1.28) * a);
    let q = f64::from(case.reference[at]) - log_prob;
    let kl = case.kl.map_or(0.0, |it| case.coef * it.at(q).0);
    (kl - surrogate) / 11.0
}

#[test]
fn slopes_are_finite_differences_of_the_loss() {
    let mut rng = CounterRng::new(3, RngStream::Generate, RngCounter::default());
    for kl in [None, Some(KlEstimator::K1), Some(KlEstimator::K2), Some(KlEstimator::K3)] {
        let mut draw = || -> Vec<f32> { (0..9).map(|_| (-3.0 * rng.uniform()) as f32).collect() };
        let (log_probs, old_log_probs, reference) = (draw(), draw(), draw());
        let advantages: Vec<f32> = draw().iter().map(|it| it + 1.5).collect();
        let case = Case {
            advantage: "tokens".to_owned(),
            advantages,
            ratio: "recorded".to_owned(),
            kl,
            coef: 0.3,
            log_probs,
            old_log_probs,
            reference,
        };
        let (value, slopes) = run(&loss([0.2, 0.28]), &case.span(), &case, 11.0);
        let expected: f64 = (0..9).map(|at| by_hand(&case, at, 0.0)).sum();
        assert!((value - expected).abs() < 1e-12, "{kl:?}: {value} {expected}");
        for (at, slope) in slopes.iter().enumerate() {
            let difference = (by_hand(&case, at, 1e-6) - by_hand(&case, at, -1e-6)) / 2e-6;
            assert!((f64::from(*slope) - difference).abs() < 1e-7, "{kl:?}: {slope} {difference}");
        }
    }
}

/// A vector of one number is that number, bit for bit, and a KL term of weight 0 is none, also where the reference is
/// not a number.
#[test]
fn equal_advantages_and_no_kl_keep_their_bits() {
    let case = Case {
        advantage: String::new(),
        advantages: vec![0.375; 3],
        ratio: String::new(),
        kl: None,
        coef: 0.0,
        log_probs: vec![-0.3, -1.7, -0.02],
        old_log_probs: vec![-0.9, -1.6, -0.02],
        reference: vec![f32::NAN; 3],
    };
    let loss = loss([0.2, 0.28]);
    let sequence = run(&loss, &Span::new(0..3, Term::policy(0.375)), &case, 7.0);
    let advantage = Advantage::Tokens(Arc::new([0.375; 3]));
    let tokens = Span::new(0..3, Term::Policy { advantage, ratio: Ratio::Recorded });
    assert_eq!(run(&loss, &tokens, &case, 7.0), sequence);
    let zero = Some(Kl { coef: 0.0, estimator: KlEstimator::K2 });
    let span = Span { kl: zero, ..tokens };
    assert_eq!(run(&loss, &span, &case, 7.0), sequence);
}

/// A span's own KL term takes the place of the loss's, and a mask is a term of weight 0 (KDRL).
#[test]
fn a_spans_kl_takes_the_place_of_the_losses() {
    let of_loss = Kl { coef: 0.1, estimator: KlEstimator::K3 };
    let own = Kl { coef: 0.005, estimator: KlEstimator::K2 };
    let loss = Loss { kl: Some(of_loss), ..loss([0.2, 0.2]) };
    let plain = Span::new(0..1, Term::policy(0.0));
    assert_eq!(loss.kl_of(&plain), Some(of_loss));
    assert_eq!(loss.kl_of(&Span { kl: Some(own), ..plain.clone() }), Some(own));
    let masked = Span { kl: Some(Kl { coef: 0.0, ..own }), ..plain };
    assert_eq!(loss.kl_of(&masked), None);
    let teacher = Term::Teacher { weight: 1.0, operator: operator("srft").unwrap(), d: 0.1 };
    assert_eq!(loss.kl_of(&Span::new(0..1, teacher)), None);
}
