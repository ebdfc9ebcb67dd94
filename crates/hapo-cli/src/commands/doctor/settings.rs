//! What the settings say: the loss in words, and where sampler and trainer part.

use super::Diagnosis;
use super::record::{Record, rows};

pub(super) const SETTINGS: &str = include_str!("settings.tsv");
/// Mean gaps between sampler and trainer that rounding to bf16 does not make.
const GAPS: [(&str, f64); 2] =
    [("sampler/prob_gap_mean", 0.02), ("sampler/logprob_gap_mean", 0.05)];

pub(super) fn examine(record: &Record, found: &mut Diagnosis) {
    gap(record, found);
    if record.settings.is_empty() {
        return;
    }
    let known = rows(SETTINGS).filter(|row| row[0] == record.framework.name());
    for row in known.filter(|row| is_met(record, row[2])) {
        let parts = row[3].split('{').map(|it| it.split_once('}').unwrap_or(("", it)));
        let fill = |(key, rest): (&str, &str)| value(record, key).unwrap_or_default() + rest;
        let text: String = parts.map(fill).collect();
        if row[1].is_empty() {
            found.held.push(text);
        } else {
            found.add(row[1], text);
        }
    }
}

/// A setting, or the largest of a logged number.
fn value(record: &Record, key: &str) -> Option<String> {
    let logged = || Some(record.columns.finite(key).into_iter().reduce(f64::max)?.to_string());
    record.setting(key).map(str::to_owned).or_else(logged)
}

/// Conditions, all of which must hold.
pub(super) fn is_met(record: &Record, conditions: &str) -> bool {
    conditions.split(" & ").all(|it| holds(record, it))
}

/// A condition such as `loss_type = bnpo`, `top_p < 1`, `a != @b` of two settings, or `a absent`.
fn holds(record: &Record, condition: &str) -> bool {
    let mut words = condition.split(' ');
    let [key, relation, wanted] = std::array::from_fn(|_| words.next().unwrap_or_default());
    let other = wanted.strip_prefix('@').map(|it| value(record, it));
    let wanted = other.unwrap_or_else(|| Some(wanted.to_owned()));
    let (Some(value), Some(wanted)) = (value(record, key), wanted) else {
        return relation == "absent" || key.is_empty();
    };
    match (relation, value.parse::<f64>(), wanted.parse::<f64>()) {
        ("<", Ok(value), Ok(wanted)) => value < wanted,
        (">", Ok(value), Ok(wanted)) => value > wanted,
        ("=" | "!=", Ok(value), Ok(wanted)) => {
            value.total_cmp(&wanted).is_eq() == (relation == "=")
        }
        ("=" | "!=", ..) => (value == wanted) == (relation == "="),
        _ => false,
    }
}

/// Recorded probabilities of the sampler against the trainer's.
fn gap(record: &Record, found: &mut Diagnosis) {
    let logged = GAPS.iter().find_map(|(name, most)| Some((record.columns.get(name)?, *most)));
    let Some((values, most)) = logged else {
        return found.skip("sampler against trainer: the log has no log-probabilities of both");
    };
    let finite = values.iter().copied().filter(|it| it.is_finite());
    let (worst, steps) = (finite.clone().fold(0.0, f64::max), finite.count());
    let above = values.iter().filter(|it| **it > most).count();
    if let Some(at) = values.iter().position(|it| *it > most).filter(|_| 2 * above > steps) {
        let since = record.columns.steps()[at];
        found.add("sampler-gap", format!("Sampler and trainer give the same tokens probabilities up to {worst:.3} apart on average, since step {since:.0}."));
    } else {
        found.held.push(format!(
            "sampler and trainer agree: {worst:.1e} apart on average in the worst step"
        ));
    }
}
