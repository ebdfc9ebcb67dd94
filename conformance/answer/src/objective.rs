//! A case's loss in this trainer's terms: spans of tokens, and the divisor of the whole optimiser step.

use std::ops::Range;

use hapo_core::{
    Clip, Divisors, ImportanceRatioLevel, Kl, KlEstimator, Loss, Normaliser, NormaliserKind, Span,
    SpanTokens, Term, operator,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Batch, NoAnswer, Steps, missing, refused};

/// The settings of a loss that this trainer has; another one makes the case "n/a".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hyper {
    surrogate: Surrogate,
    aggregate: Option<String>,
    teacher: Option<Teacher>,
    clip_low: Option<Value>,
    clip_high: Option<Value>,
    length: Option<usize>,
    kl: Option<KlEstimator>,
    beta: Option<f64>,
    entropy_coef: Option<f64>,
    d: Option<f64>,
    mu: Option<f64>,
    switch: Option<bool>,
    success_at: Option<f64>,
    kl_on: Option<KlOn>,
}

/// The rollouts that a divergence pulls at.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KlOn {
    Failures,
    FailedGroups,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Surrogate {
    Ppo,
    Gspo,
    Nll,
    None,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Teacher {
    Luffy,
    Srft,
    Hpt,
    ChordMu,
    ChordPhi,
    Trapo,
}

/// A case's loss.
pub(super) struct Objective {
    loss: Loss,
    surrogate: Surrogate,
    teacher: Option<Teacher>,
    d: f64,
    mu: Option<f64>,
    switch: bool,
    success_at: f64,
    kl_on: Option<KlOn>,
}

impl Objective {
    pub(super) fn new(hyper: &Hyper) -> Result<Self, NoAnswer> {
        let mut loss = Loss::new(normaliser(hyper)?);
        // A clip that is absent or "inf" bounds nothing.
        let clip = |bound: &Option<Value>| bound.as_ref().and_then(Value::as_f64);
        let [low, high] =
            [&hyper.clip_low, &hyper.clip_high].map(|bound| clip(bound).unwrap_or(f64::INFINITY));
        loss.clip = Clip { low, high };
        if hyper.surrogate == Surrogate::Gspo {
            loss.importance_ratio_level = ImportanceRatioLevel::Sequence;
        }
        loss.entropy_coef = hyper.entropy_coef.unwrap_or(0.0);
        loss.teacher_apart =
            matches!(hyper.teacher, Some(Teacher::Hpt | Teacher::ChordMu | Teacher::ChordPhi));
        loss.kl = hyper.kl.map(|estimator| Kl { coef: hyper.beta.unwrap_or(1.0), estimator });
        Ok(Self {
            loss,
            surrogate: hyper.surrogate,
            teacher: hyper.teacher,
            d: hyper.d.unwrap_or(0.1),
            mu: hyper.mu,
            switch: hyper.switch == Some(true),
            success_at: hyper.success_at.unwrap_or(1.0),
            kl_on: hyper.kl_on,
        })
    }

    /// The loss and its derivatives over all optimiser steps; each divides by its own counts.
    pub(super) fn answer(&self, batch: &Batch, steps: &Steps) -> Result<Value, NoAnswer> {
        self.check(batch, steps)?;
        let zeros: Vec<Vec<f32>> = batch.logp.iter().map(|row| vec![0.0; row.len()]).collect();
        let mut slopes = Slopes { by_log_prob: zeros.clone(), by_entropy: zeros };
        let mut loss = 0.0;
        for step in steps {
            let sequences: Vec<Sequence> = step
                .iter()
                .flatten()
                .flatten()
                .map(|row| Sequence {
                    row: *row,
                    kept: batch.kept(*row),
                    spans: self.spans(batch, *row),
                })
                .collect();
            let counts =
                sequences.iter().map(|sequence| (sequence.kept.len(), &sequence.spans[..]));
            let divisors = self.loss.divisors(counts);
            for sequence in &sequences {
                loss += self.add(batch, sequence, divisors, &mut slopes);
            }
        }
        let Slopes { by_log_prob, by_entropy } = slopes;
        Ok(json!({ "loss": loss, "grad": by_log_prob, "grad_entropy": by_entropy }))
    }

    /// Refuses a batch without one entry for each sequence, one number for each token, or a field that the loss reads.
    fn check(&self, batch: &Batch, steps: &Steps) -> Result<(), NoAnswer> {
        let lengths: Vec<usize> = batch.logp.iter().map(Vec::len).collect();
        let has_ratio = matches!(self.surrogate, Surrogate::Ppo | Surrogate::Gspo);
        let is_srft = self.teacher == Some(Teacher::Srft);
        let of = |rows: &[Vec<f32>]| rows.iter().map(Vec::len).collect::<Vec<_>>();
        for (name, found, is_read) in [
            ("old_logp", of(&batch.old_logp), self.surrogate != Surrogate::Nll),
            ("ref_logp", of(&batch.ref_logp), self.loss.kl.is_some()),
            ("entropy", of(&batch.entropy), self.loss.entropy_coef != 0.0 || is_srft),
            ("mask", batch.mask.iter().map(Vec::len).collect(), false),
        ] {
            if found != lengths && (is_read || !found.is_empty()) {
                return refused(format!("{name}: expected one number for each token of logp"));
            }
        }
        for (name, found, is_read) in [
            ("advantage", batch.advantage.len(), has_ratio),
            ("reward", batch.reward.len(), self.switch || is_srft || self.kl_on.is_some()),
            ("group", batch.group.len(), self.switch || self.kl_on == Some(KlOn::FailedGroups)),
            ("source", batch.source.len(), self.teacher.is_some()),
            ("prefix", batch.prefix.len(), false),
        ] {
            if found != lengths.len() && (is_read || found > 0) {
                return refused(format!("{name}: expected one entry for each sequence of logp"));
            }
        }
        match steps.iter().flatten().flatten().flatten().find(|row| **row >= lengths.len()) {
            Some(row) => refused(format!("cuts: there is no sequence {row}")),
            None => Ok(()),
        }
    }

    /// Writes the slopes of a sequence and gives its part of the loss.
    fn add(
        &self,
        batch: &Batch,
        sequence: &Sequence,
        divisors: Divisors,
        slopes: &mut Slopes,
    ) -> f64 {
        let mut loss = 0.0;
        for span in &sequence.spans {
            let kept = &sequence.kept[span.tokens.clone()];
            let of = |rows: &[Vec<f32>]| -> Vec<f32> {
                let row = rows.get(sequence.row);
                row.map_or_else(Vec::new, |row| kept.iter().map(|token| row[*token]).collect())
            };
            let log_probs = of(&batch.logp);
            let (old_log_probs, reference) = (of(&batch.old_logp), of(&batch.ref_logp));
            let mut entropies = of(&batch.entropy);
            entropies.resize(kept.len(), 0.0);
            let tokens = SpanTokens {
                log_probs: &log_probs,
                old_log_probs: &old_log_probs,
                reference: &reference,
                entropies: &entropies,
            };
            let mut by_log_prob = vec![0.0; kept.len()];
            let mut by_entropy = by_log_prob.clone();
            let divisor = self.loss.divisor_of(span, sequence.kept.len(), divisors);
            let terms = self.loss.span(span, tokens, divisor, &mut by_log_prob, &mut by_entropy);
            loss -= terms.objective;
            for (at, token) in kept.iter().enumerate() {
                slopes.by_log_prob[sequence.row][*token] += by_log_prob[at];
                slopes.by_entropy[sequence.row][*token] += by_entropy[at];
            }
        }
        loss
    }

    fn spans(&self, batch: &Batch, row: usize) -> Vec<Span> {
        let kept = batch.kept(row);
        let n = kept.len();
        let is_taught = self.teacher.is_some() && batch.is_teacher(row);
        // HPT imitates where no rollout succeeds, and reinforces elsewhere.
        if n == 0 || self.switch && self.is_solved(batch, row) == is_taught {
            return Vec::new();
        }
        if is_taught && self.teacher != Some(Teacher::Trapo) || self.surrogate == Surrogate::Nll {
            return vec![self.imitated(batch, row, 0..n)];
        }
        let advantage = match (self.surrogate, self.teacher) {
            (Surrogate::None, _) => 0.0,
            (_, Some(Teacher::Srft)) if self.succeeds(batch, row) => 0.1,
            (_, Some(Teacher::Srft)) => -1.0,
            _ => self.mu.map_or(1.0, |mu| 1.0 - mu) * batch.advantage[row],
        };
        let is_trapo = self.teacher == Some(Teacher::Trapo);
        let whole = if is_taught { n } else { 0 };
        let prefix = match batch.prefix.get(row) {
            Some(prefix) if is_trapo => whole.max(kept.partition_point(|token| token < prefix)),
            _ => whole,
        };
        let mut own = Span::new(prefix..n, Term::policy(advantage));
        if self.teacher == Some(Teacher::Srft) && advantage > 0.0 {
            own.entropy_exponent = 1.0;
        }
        let is_spared = match self.kl_on {
            Some(KlOn::Failures) => self.succeeds(batch, row),
            Some(KlOn::FailedGroups) => self.is_solved(batch, row),
            None => false,
        };
        if is_spared {
            own.kl = Some(Kl { coef: 0.0, estimator: KlEstimator::K2 });
        }
        let mut spans = vec![self.imitated(batch, row, 0..prefix), own];
        spans.retain(|span| !span.tokens.is_empty());
        spans
    }

    fn succeeds(&self, batch: &Batch, row: usize) -> bool {
        let reward = batch.reward.get(row).and_then(Value::as_f64);
        reward.is_some_and(|reward| reward >= self.success_at)
    }

    /// True if a rollout of the sequence's prompt succeeded.
    fn is_solved(&self, batch: &Batch, row: usize) -> bool {
        let is_of_prompt = |other: &usize| batch.group[*other] == batch.group[row];
        let mut rows = (0..batch.group.len()).filter(is_of_prompt);
        rows.any(|other| !batch.is_teacher(other) && self.succeeds(batch, other))
    }

    /// The teacher's term on some tokens of a sequence.
    fn imitated(&self, batch: &Batch, row: usize, tokens: Range<usize>) -> Span {
        let (name, weight) = match self.teacher {
            Some(Teacher::Luffy) => ("luffy", batch.advantage[row]),
            Some(Teacher::Srft) => ("srft", 0.5),
            Some(Teacher::Trapo) => ("trapo", 1.0),
            Some(Teacher::ChordPhi) => ("chord", self.mu.unwrap_or(1.0)),
            Some(Teacher::Hpt | Teacher::ChordMu) | None => ("srft", self.mu.unwrap_or(1.0)),
        };
        let operator = operator(name).expect("an operator of the list");
        let mut span = Span::new(tokens, Term::Teacher { weight, operator, d: self.d });
        if self.teacher == Some(Teacher::Srft) {
            span.entropy_exponent = -1.0;
        }
        span
    }
}

fn normaliser(hyper: &Hyper) -> Result<Normaliser, NoAnswer> {
    let max_response = hyper.length.unwrap_or(12);
    Ok(match (hyper.teacher, hyper.aggregate.as_deref()) {
        (Some(Teacher::ChordMu | Teacher::ChordPhi), _) | (_, Some("token-mean")) => {
            Normaliser::TOKEN_MEAN
        }
        (Some(Teacher::Hpt), _) => NormaliserKind::Length.of(max_response),
        (_, Some("seq-mean-token-mean")) => NormaliserKind::SequenceMean.of(0),
        (_, Some("seq-mean-token-sum-norm")) => NormaliserKind::Constant.of(max_response),
        (_, Some("seq-mean-token-sum")) => NormaliserKind::Constant.of(1),
        (_, other) => return missing(format!("no {}", other.unwrap_or("aggregate"))),
    })
}

/// A sequence of an optimiser step.
struct Sequence {
    row: usize,
    /// Its tokens in the loss.
    kept: Vec<usize>,
    spans: Vec<Span>,
}

/// Derivatives of the loss, one for each token.
struct Slopes {
    by_log_prob: Vec<Vec<f32>>,
    by_entropy: Vec<Vec<f32>>,
}

impl Batch {
    /// The tokens of a sequence that are in the loss.
    fn kept(&self, row: usize) -> Vec<usize> {
        let is_kept = |token: &usize| self.mask.get(row).is_none_or(|mask| mask[*token] == 1);
        (0..self.logp[row].len()).filter(is_kept).collect()
    }
}
