//! The terms of the loss on a batch of padded rows, and their derivatives by each log-probability.

use hapo_core::{
    Bound as TrustRegion, Clip, ImportanceRatioLevel, Loss, Normaliser, NormaliserKind, OPERATORS,
    Span, SpanTerms, SpanTokens, Term, sequence_surrogate, token_surrogate,
};
use numpy::ndarray::{Ix1, Ix2};
use numpy::{PyReadonlyArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arguments::{array, output, same, unknown, value_error, within, word};
use crate::schedule::count;

/// Sums of the policy's terms: loss, clipped tokens, sum of ratios, largest ratio, tokens.
type PolicyTerms = (f64, usize, f64, f64, usize);

/// The clipped surrogate on the masked tokens of each row. Writes the derivative of the loss by each log-probability into
/// `d_log_probs`, 0 outside the mask.
#[pyfunction]
#[pyo3(signature = (log_probs, old_log_probs, mask, advantages, divisor, d_log_probs, *, clip_low, clip_high,
                    importance_ratio_level, normaliser))]
#[expect(clippy::too_many_arguments, reason = "arrays of one batch")]
pub(crate) fn policy_terms(
    py: Python<'_>,
    log_probs: &Bound<'_, PyAny>,
    old_log_probs: &Bound<'_, PyAny>,
    mask: &Bound<'_, PyAny>,
    advantages: &Bound<'_, PyAny>,
    divisor: f64,
    d_log_probs: &Bound<'_, PyAny>,
    clip_low: f64,
    clip_high: f64,
    importance_ratio_level: &str,
    normaliser: &str,
) -> PyResult<PolicyTerms> {
    let surrogate = match word("importance_ratio_level", importance_ratio_level)? {
        ImportanceRatioLevel::Token => token_surrogate,
        ImportanceRatioLevel::Sequence => sequence_surrogate,
    };
    for (name, it) in [("clip_low", clip_low), ("clip_high", clip_high)] {
        if it.is_nan() || it < 0.0 {
            return Err(value_error(name, format!("expected a number from 0, got {it}")));
        }
    }
    let clip = Clip { low: clip_low, high: clip_high };
    let log_probs: PyReadonlyArray<'_, f32, Ix2> = array("log_probs", log_probs)?;
    let mask: PyReadonlyArray<'_, bool, Ix2> = array("mask", mask)?;
    let rows = Rows::new(&log_probs, &mask, divisor, normaliser)?;
    let old: PyReadonlyArray<'_, f32, Ix2> = array("old_log_probs", old_log_probs)?;
    same("old_log_probs", &old.shape(), "log_probs", &log_probs.shape())?;
    let advantages: PyReadonlyArray<'_, f64, Ix1> = array("advantages", advantages)?;
    same("advantages", &advantages.len(), "rows of log_probs", &log_probs.shape()[0])?;
    let mut slopes = output::<f32, Ix2>("d_log_probs", d_log_probs)?;
    same("d_log_probs", &slopes.shape(), "log_probs", &log_probs.shape())?;
    let (old, advantages, slopes) =
        (old.as_slice()?, advantages.as_slice()?, slopes.as_slice_mut()?);
    py.detach(|| {
        let (mut total, mut loss, mut tokens) = (SpanTerms::default(), 0.0, 0);
        let mut gathered_old = Vec::new();
        rows.each(slopes, |row, log_probs, divisor, slopes| {
            gathered_old.clear();
            gathered_old.extend(rows.masked(row, old));
            let bound = TrustRegion { advantage: advantages[row], clip, divisor };
            let it = surrogate(log_probs, &gathered_old, bound, slopes);
            loss -= it.objective / divisor;
            total.clipped += it.clipped;
            total.ratio_sum += it.ratio_sum;
            total.ratio_max = total.ratio_max.max(it.ratio_max);
            tokens += log_probs.len();
        });
        Ok((loss, total.clipped, total.ratio_sum, total.ratio_max, tokens))
    })
}

/// The teacher's term on the masked tokens of each row: loss and number of tokens. Writes the derivative of the loss by
/// each log-probability into `d_log_probs`, 0 outside the mask.
#[pyfunction]
#[pyo3(signature = (log_probs, mask, weights, divisor, d_log_probs, *, operator, d, normaliser))]
#[expect(clippy::too_many_arguments, reason = "arrays of one batch")]
pub(crate) fn teacher_terms(
    py: Python<'_>,
    log_probs: &Bound<'_, PyAny>,
    mask: &Bound<'_, PyAny>,
    weights: &Bound<'_, PyAny>,
    divisor: f64,
    d_log_probs: &Bound<'_, PyAny>,
    operator: &str,
    d: f64,
    normaliser: &str,
) -> PyResult<(f64, usize)> {
    let operator = hapo_core::operator(operator)
        .ok_or_else(|| unknown("operator", operator, OPERATORS.iter().map(|it| it.name)))?;
    if !(d > 0.0 && d.is_finite()) {
        return Err(value_error("d", format!("expected a number above 0, got {d}")));
    }
    let log_probs: PyReadonlyArray<'_, f32, Ix2> = array("log_probs", log_probs)?;
    let mask: PyReadonlyArray<'_, bool, Ix2> = array("mask", mask)?;
    let rows = Rows::new(&log_probs, &mask, divisor, normaliser)?;
    let weights: PyReadonlyArray<'_, f64, Ix1> = array("weights", weights)?;
    same("weights", &weights.len(), "rows of log_probs", &log_probs.shape()[0])?;
    let mut slopes = output::<f32, Ix2>("d_log_probs", d_log_probs)?;
    same("d_log_probs", &slopes.shape(), "log_probs", &log_probs.shape())?;
    let (weights, slopes) = (weights.as_slice()?, slopes.as_slice_mut()?);
    py.detach(|| {
        let whole = Loss::new(Normaliser::TOKEN_MEAN);
        let (mut loss, mut tokens) = (0.0, 0);
        let (mut entropies, mut by_entropy) = (Vec::new(), Vec::new());
        rows.each(slopes, |row, log_probs, divisor, slopes| {
            let n = log_probs.len();
            entropies.resize(n, 0.0);
            by_entropy.resize(n, 0.0);
            let span = Span::new(0..n, Term::Teacher { weight: weights[row], operator, d });
            let seen =
                SpanTokens { log_probs, old_log_probs: &[], reference: &[], entropies: &entropies };
            loss -= whole.span(&span, seen, divisor.into(), slopes, &mut by_entropy).objective;
            tokens += n;
        });
        Ok((loss, tokens))
    })
}

/// The divisor of the sum over tokens, for all responses of an optimiser step.
#[pyfunction]
#[pyo3(signature = (normaliser, lengths, max_response=None))]
pub(crate) fn divisor(
    normaliser: &str,
    lengths: Vec<usize>,
    max_response: Option<i64>,
) -> PyResult<f64> {
    let kind: NormaliserKind = word("normaliser", normaliser)?;
    let max_response = match (kind, max_response) {
        (NormaliserKind::Constant | NormaliserKind::Length, None) => {
            let problem =
                "expected the longest response allowed, which this normaliser needs, got none";
            return Err(value_error("max_response", problem));
        }
        (_, it) => count("max_response", it.unwrap_or_default())?,
    };
    within("max_response", max_response, 0..=1 << 40)?;
    for it in &lengths {
        within("lengths", *it, 0..=1 << 40)?;
    }
    Ok(kind.of(max_response).divisor(lengths))
}

/// The masked tokens of a batch of padded rows.
struct Rows<'a> {
    log_probs: &'a [f32],
    mask: &'a [bool],
    width: usize,
    divisor: f64,
    normaliser: Normaliser,
}

impl<'a> Rows<'a> {
    fn new(
        log_probs: &'a PyReadonlyArray<'_, f32, Ix2>,
        mask: &'a PyReadonlyArray<'_, bool, Ix2>,
        divisor: f64,
        normaliser: &str,
    ) -> PyResult<Self> {
        if !(divisor > 0.0 && divisor.is_finite()) {
            let problem = format!("expected a number above 0, got {divisor}");
            return Err(value_error("divisor", problem));
        }
        same("mask", &mask.shape(), "log_probs", &log_probs.shape())?;
        let normaliser = word::<NormaliserKind>("normaliser", normaliser)?.of(0);
        let (width, mask) = (log_probs.shape()[1], mask.as_slice()?);
        Ok(Self { log_probs: log_probs.as_slice()?, mask, width, divisor, normaliser })
    }

    fn masked(&self, row: usize, of: &'a [f32]) -> impl Iterator<Item = f32> {
        let at = row * self.width..(row + 1) * self.width;
        of[at.clone()].iter().zip(&self.mask[at]).filter(|it| *it.1).map(|it| *it.0)
    }

    /// Gathers each row's masked tokens and scatters the derivatives that `term` writes.
    fn each(&self, slopes: &mut [f32], mut term: impl FnMut(usize, &[f32], f64, &mut [f32])) {
        slopes.fill(0.0);
        let (mut gathered, mut written) = (Vec::new(), Vec::new());
        for (row, slopes) in slopes.chunks_mut(self.width.max(1)).enumerate() {
            gathered.clear();
            gathered.extend(self.masked(row, self.log_probs));
            if gathered.is_empty() {
                continue;
            }
            written.clear();
            written.resize(gathered.len(), 0.0);
            let divisor = self.normaliser.of_sequence(self.divisor, gathered.len());
            term(row, &gathered, divisor, &mut written);
            let mask = &self.mask[row * self.width..(row + 1) * self.width];
            let masked = slopes.iter_mut().zip(mask).filter(|it| *it.1).map(|it| it.0);
            masked.zip(&written).for_each(|(slope, it)| *slope = *it);
        }
    }
}
