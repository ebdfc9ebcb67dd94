//! The loss on the tokens of one span: Eq. 3 for the policy's, Eq. 11 for the teacher's. The loss is the negative
//! objective over a divisor that is global over the optimiser step (D16). Derivatives by log-probabilities and
//! entropies are written beside the values, so that a trainer multiplies them into its backward pass and needs no other
//! gradient. The price is that a term which is not a function of these numbers has no place here.

mod correction;
mod normaliser;
mod sequence_surrogate;
mod token_surrogate;

use serde::{Deserialize, Serialize};

use crate::credit::{Advantage, Kl, Ratio, Span, Term, unmasked};
use crate::operators::LUFFY;

pub use correction::{Correction, CorrectionKind, Mismatch};
pub use normaliser::{Normaliser, NormaliserKind};
pub use sequence_surrogate::sequence_surrogate;
pub use token_surrogate::{Bound, Clip, token_surrogate};

/// How terms become a loss, alike for all methods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Trust region of the policy's term (Eq. 3).
    pub clip: Clip,
    /// Whose importance ratio is clipped.
    pub importance_ratio_level: ImportanceRatioLevel,
    /// How the sum over tokens becomes a mean (D16).
    pub normaliser: Normaliser,
    /// Weight of the entropy bonus (D17).
    pub entropy_coef: f64,
    /// Whose entropies the bonus is of.
    pub entropy_over: EntropyOver,
    /// Whether the teacher's term is a mean over its own tokens, and the normaliser that of the rollouts alone.
    pub teacher_apart: bool,
    /// The KL term of the policy's spans that have none of their own (D18).
    pub kl: Option<Kl>,
}

/// Whose entropies the entropy bonus is of (D17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntropyOver {
    /// The policy's tokens: Σ H under the normaliser of the loss.
    #[default]
    Policy,
    /// All tokens of the responses that are trained on, the teacher's too: a mean over them (the code of LUFFY and HPT).
    Response,
}

/// What the terms of an optimiser step are divided by (D16).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divisors {
    policy: f64,
    /// Where the teacher's term has a mean of its own.
    teacher: Option<f64>,
    /// The tokens that have a term.
    tokens: f64,
}

/// What the terms of one span are divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divisor {
    /// That of its own terms.
    pub span: f64,
    /// The tokens of the optimiser step that have a term, which a bonus over all of them is divided by.
    pub tokens: f64,
}

impl From<f64> for Divisor {
    /// One divisor for all terms.
    fn from(it: f64) -> Self {
        Self { span: it, tokens: it }
    }
}

impl Loss {
    /// The paper's loss: ε = 0.2, the ratio of each token, no entropy bonus.
    pub fn new(normaliser: Normaliser) -> Self {
        Self {
            clip: Clip { low: 0.2, high: 0.2 },
            importance_ratio_level: ImportanceRatioLevel::Token,
            normaliser,
            entropy_coef: 0.0,
            entropy_over: EntropyOver::Policy,
            teacher_apart: false,
            kl: None,
        }
    }

    /// The divisors of an optimiser step over sequences of these lengths and spans, without masked tokens (D41).
    pub fn divisors<'a>(
        &self,
        sequences: impl Iterator<Item = (usize, &'a [Span])> + Clone,
    ) -> Divisors {
        let sequences =
            sequences.filter(|(tokens, spans)| unmasked(*tokens, spans) > 0 || *tokens == 0);
        // A sequence that a method dropped has no spans, and no entropy either.
        let trained = sequences.clone().flat_map(|it| it.1);
        let tokens = trained.map(|span| span.tokens.len() - span.masked());
        let tokens = Normaliser::TOKEN_MEAN.divisor(tokens);
        let policy = sequences.clone().map(|(tokens, spans)| self.counted(tokens, spans));
        if !self.teacher_apart {
            return Divisors { policy: self.normaliser.divisor(policy), teacher: None, tokens };
        }
        let taught = |spans: &[Span]| -> usize {
            spans.iter().filter(|it| it.is_teacher()).map(|it| it.tokens.len()).sum()
        };
        let teacher = sequences.map(|it| taught(it.1));
        let policy = self.normaliser.divisor(policy.filter(|it| *it > 0));
        let teacher = Some(Normaliser::TOKEN_MEAN.divisor(teacher));
        Divisors { policy, teacher, tokens }
    }

    /// The tokens of a sequence that the normaliser counts: those that are not masked, and where the teacher's term has a
    /// divisor of its own the policy's.
    pub fn counted(&self, tokens: usize, spans: &[Span]) -> usize {
        // A prefix that is not imitated again is no token of the policy's; a sequence without spans counts whole.
        if !self.teacher_apart || spans.is_empty() {
            return unmasked(tokens, spans);
        }
        let own = spans.iter().filter(|span| !span.is_teacher());
        own.map(|span| span.tokens.len() - span.masked()).sum()
    }

    /// The divisor of one span of a sequence with `tokens` tokens that count ([`Loss::counted`]).
    pub fn divisor_of(&self, span: &Span, tokens: usize, divisors: Divisors) -> Divisor {
        let of_span = match divisors.teacher {
            Some(it) if span.is_teacher() => it,
            _ => self.normaliser.of_sequence(divisors.policy, tokens),
        };
        Divisor { span: of_span, tokens: divisors.tokens }
    }
}

/// Whose importance ratio the trust region bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportanceRatioLevel {
    /// Each token's (Eq. 3).
    #[default]
    Token,
    /// The whole span's (GSPO).
    Sequence,
}

/// The tokens of a span in the current policy's eyes, \[tokens\] each.
#[derive(Clone, Copy, Debug)]
pub struct SpanTokens<'a> {
    /// log π: at the sampling temperature for the policy's tokens, at 1 for the teacher's (D25).
    pub log_probs: &'a [f32],
    /// Those that the span's ratio is taken to (D19), unless it is [`Ratio::One`]; empty for the teacher's tokens.
    pub old_log_probs: &'a [f32],
    /// log `π_ref` at the sampling temperature; empty where no KL is taken.
    pub reference: &'a [f32],
    /// Entropy of each token's distribution at temperature 1.
    pub entropies: &'a [f32],
}

/// A part of the objective, to be maximised, and what the logs show of it (Eq. 3, inner sum).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanTerms {
    /// Its part of the objective: a surrogate's is Σ min(r·A, clip(r)·A), a span's is divided by the normaliser.
    pub objective: f64,
    /// The policy's tokens outside the trust region, whose gradient the clip removed.
    pub clipped: usize,
    /// Σ r over the policy's tokens.
    pub ratio_sum: f64,
    /// Largest r.
    pub ratio_max: f64,
}

impl SpanTerms {
    /// Adds the next tokens.
    fn add(&mut self, next: Self) {
        self.objective += next.objective;
        self.clipped += next.clipped;
        self.ratio_sum += next.ratio_sum;
        self.ratio_max = self.ratio_max.max(next.ratio_max);
    }
}

impl Loss {
    /// `L = −(Σ term + entropy_coef·Σ H − coef·Σ k) / divisor` on one span (Eq. 3, Eq. 11, D17, D18); with
    /// [`EntropyOver::Response`] the bonus has its own divisor. Writes the derivative of the loss by each
    /// log-probability and entropy. `divisor` is the span's: [`Loss::divisor_of`]. All slices have one length.
    pub fn span(
        &self,
        span: &Span,
        tokens: SpanTokens,
        divisor: Divisor,
        d_log_probs: &mut [f32],
        d_entropies: &mut [f32],
    ) -> SpanTerms {
        let n = tokens.log_probs.len();
        assert_eq!(n, d_log_probs.len(), "one derivative per token");
        assert_eq!(n, tokens.entropies.len(), "one entropy per token");
        assert_eq!(n, d_entropies.len(), "one derivative per entropy");
        let mut terms = self.term(span, tokens, divisor.span, d_log_probs);
        let weight = match (self.entropy_over, &span.term) {
            (EntropyOver::Response, _) => self.entropy_coef / divisor.tokens,
            (EntropyOver::Policy, Term::Policy { ratio, .. }) if *ratio != Ratio::Bounded => {
                self.entropy_coef / divisor.span
            }
            (EntropyOver::Policy, _) => return terms,
        };
        for (at, (entropy, slope)) in tokens.entropies.iter().zip(d_entropies).enumerate() {
            *slope = 0.0;
            if span.weight(at) != 0.0 {
                terms.objective += weight * f64::from(*entropy);
                *slope = -weight as f32;
            }
        }
        terms
    }

    fn term(
        &self,
        span: &Span,
        tokens: SpanTokens,
        divisor: f64,
        d_log_probs: &mut [f32],
    ) -> SpanTerms {
        let factor = entropy_factor(span, tokens.entropies);
        match &span.term {
            Term::Policy { advantage, ratio: Ratio::Bounded } => {
                let a = factor * advantage.mean();
                bounded_surrogate(a, tokens, divisor, d_log_probs)
            }
            Term::Policy { advantage, ratio } => {
                let old_log_probs = match ratio {
                    Ratio::Recorded | Ratio::Rescored => tokens.old_log_probs,
                    Ratio::One | Ratio::Bounded => tokens.log_probs,
                };
                let tokens = SpanTokens { old_log_probs, ..tokens };
                let advantage = advantage.scaled(factor);
                let mut terms = self.policy(span, &advantage, tokens, divisor, d_log_probs);
                if let Some(kl) = self.kl_of(span) {
                    terms.objective -= kl.add(tokens, span, divisor, d_log_probs);
                }
                terms
            }
            Term::Teacher { weight, operator, d } => {
                let scale = factor * weight / divisor;
                let mut objective = 0.0;
                for (log_prob, slope) in tokens.log_probs.iter().zip(d_log_probs) {
                    let log_pi = f64::from(*log_prob);
                    objective += (operator.value)(log_pi, *d);
                    *slope = (-scale * (operator.weight)(log_pi, *d)) as f32;
                }
                SpanTerms { objective: objective * scale, ..SpanTerms::default() }
            }
        }
    }

    /// The KL term of a span, if it has one (D18).
    pub fn kl_of(&self, span: &Span) -> Option<Kl> {
        let kl = if span.is_teacher() { None } else { span.kl.or(self.kl) };
        kl.filter(|it| it.coef != 0.0)
    }

    fn policy(
        &self,
        span: &Span,
        advantage: &Advantage,
        tokens: SpanTokens,
        divisor: f64,
        d_log_probs: &mut [f32],
    ) -> SpanTerms {
        let (log_probs, old_log_probs) = (tokens.log_probs, tokens.old_log_probs);
        let bound = |at| {
            // w·A (D41).
            let advantage = span.weight(at) * advantage.at(at);
            Bound { advantage, clip: self.clip, divisor }
        };
        // A ratio of a sequence takes one factor for all its tokens; a recipe that asks for one for each is refused.
        let is_whole = matches!(advantage, Advantage::Sequence(_));
        let it = if is_whole && self.importance_ratio_level == ImportanceRatioLevel::Sequence {
            let last = log_probs.len().saturating_sub(1);
            sequence_surrogate(log_probs, old_log_probs, bound(last), d_log_probs)
        } else {
            if let Advantage::Tokens(values) = advantage {
                assert_eq!(log_probs.len(), values.len(), "one advantage per token");
            }
            let mut total = SpanTerms::default();
            for at in 0..log_probs.len() {
                let (new, old) = (&log_probs[at..=at], &old_log_probs[at..=at]);
                total.add(token_surrogate(new, old, bound(at), &mut d_log_probs[at..=at]));
            }
            total
        };
        SpanTerms { objective: it.objective / divisor, ..it }
    }
}

impl Kl {
    /// coef·Σ k / divisor over a span's tokens; adds its derivatives to the loss's.
    fn add(self, tokens: SpanTokens, span: &Span, divisor: f64, d_log_probs: &mut [f32]) -> f64 {
        assert_eq!(tokens.log_probs.len(), tokens.reference.len(), "one reference per token");
        let mut sum = 0.0;
        let pairs = tokens.log_probs.iter().zip(tokens.reference);
        let all = pairs.zip(d_log_probs).enumerate();
        for (_, ((log_prob, reference), slope)) in all.filter(|(at, _)| span.weight(*at) != 0.0) {
            let (value, derivative) =
                self.estimator.at(f64::from(*reference) - f64::from(*log_prob));
            sum += value;
            *slope = (f64::from(*slope) + self.coef * derivative / divisor) as f32;
        }
        self.coef * sum / divisor
    }
}

/// The d of a bounded ratio.
const BOUNDED: f64 = 0.1;

/// `L = −A·Σ w/(w + 0.1) / divisor` with w = exp(log π − log `π_old`), whatever the trust region.
fn bounded_surrogate(
    advantage: f64,
    tokens: SpanTokens,
    divisor: f64,
    d_log_probs: &mut [f32],
) -> SpanTerms {
    let (n, old) = (tokens.log_probs.len(), tokens.old_log_probs.len());
    assert_eq!(n, old, "one old log-probability per token");
    let mut terms = SpanTerms::default();
    let pairs = tokens.log_probs.iter().zip(tokens.old_log_probs);
    for ((new, old), slope) in pairs.zip(d_log_probs) {
        let log_ratio = f64::from(*new) - f64::from(*old);
        terms.objective += advantage * (LUFFY.value)(log_ratio, BOUNDED) / divisor;
        *slope = (-advantage * (LUFFY.weight)(log_ratio, BOUNDED) / divisor) as f32;
        terms.ratio_sum += libm::exp(log_ratio);
        terms.ratio_max = terms.ratio_max.max(libm::exp(log_ratio));
    }
    terms
}

/// exp(k·H̄) of a span, or 1 where it does not ask for it.
fn entropy_factor(span: &Span, entropies: &[f32]) -> f64 {
    if span.entropy_exponent == 0.0 {
        return 1.0;
    }
    let sum: f64 = entropies.iter().map(|it| f64::from(*it)).sum();
    libm::exp(span.entropy_exponent * (sum / entropies.len().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::operator;

    fn policy(loss: &Loss, advantage: f64, entropy_exponent: f64) -> (f64, [f32; 2]) {
        value(loss, Term::policy(advantage), entropy_exponent)
    }

    fn teacher(entropy_exponent: f64, weight: f64) -> (f64, [f32; 2]) {
        let term = Term::Teacher { weight, operator: operator("srft").unwrap(), d: 0.1 };
        value(&loss(), term, entropy_exponent)
    }

    fn loss() -> Loss {
        Loss::new(Normaliser::TOKEN_MEAN)
    }

    fn value(loss: &Loss, term: Term, entropy_exponent: f64) -> (f64, [f32; 2]) {
        let (mut d, mut e) = ([0.0; 2], [0.0; 2]);
        let span = Span { entropy_exponent, ..Span::new(0..2, term) };
        let tokens = SpanTokens {
            log_probs: &[-1.0, -2.0],
            old_log_probs: &[-1.0, -2.0],
            reference: &[],
            entropies: &[0.5, 1.5],
        };
        let it = loss.span(&span, tokens, 10.0.into(), &mut d, &mut e);
        (it.objective, d)
    }

    /// D21: with mean entropy 1, exp(k) times the term.
    #[test]
    fn d21_an_entropy_exponent_multiplies_the_term() {
        let e = std::f64::consts::E;
        assert!((policy(&loss(), 0.1, 1.0).0 - 2.0 * 0.1 * e / 10.0).abs() < 1e-12);
        assert!((policy(&loss(), -1.0, 0.0).0 + 2.0 / 10.0).abs() < 1e-12);
        assert!((teacher(-1.0, 0.5).0 - -3.0 * 0.5 / e / 10.0).abs() < 1e-12);
        assert_eq!(policy(&loss(), 0.5, 0.0).0, 2.0 * 0.5 / 10.0);
        assert_eq!(policy(&loss(), 0.5, 0.0).1, [-0.05, -0.05]);
        assert_eq!(teacher(0.0, 1.0), (-3.0 * (1.0 / 10.0), [-0.1, -0.1]));
    }
}
