//! Rotary embeddings in the dialects of transformers 4 (`rope_theta`, `rope_scaling`) and 5 (`rope_parameters`).

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Fields, shown, size_between};
use crate::config::decoder::{Llama3Scaling, LongScaling, Rope, Scaling, YarnScaling};
use crate::error::Error;

/// What a file says beside the object of the scaling.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// `rope_theta`.
    pub(crate) theta: Option<f64>,
    /// The base of a file that names none.
    pub(crate) absent: Option<f64>,
    /// `max_position_embeddings`.
    pub(crate) longest: Option<usize>,
    /// `original_max_position_embeddings`.
    pub(crate) original: Option<usize>,
    /// `partial_rotary_factor`, in families that have it.
    pub(crate) share: Option<f64>,
}

/// The object of the scaling, under one of its two names.
pub(crate) fn object<'a>(fields: &mut Fields<'a>) -> Result<Option<Fields<'a>>, Error> {
    let (scaling, parameters) = (fields.take("rope_scaling"), fields.take("rope_parameters"));
    match (scaling, parameters) {
        (Some(one), Some(two)) if one != two => {
            let expected = "the same as rope_parameters, or null";
            Err(fields.refuse("rope_scaling", expected, shown(&one), None))
        }
        (_, Some(value)) => fields.inner("rope_parameters", value).map(Some),
        (Some(value), None) => fields.inner("rope_scaling", value).map(Some),
        (None, None) => Ok(None),
    }
}

/// The embedding of a file, whose object is there or not.
pub(crate) fn read(
    fields: &Fields<'_>,
    inner: Option<Fields<'_>>,
    beside: Beside,
) -> Result<Rope, Error> {
    let empty = || Fields { file: fields.file, prefix: String::new(), rest: Map::new() };
    let mut inner = inner.unwrap_or_else(empty);
    let theta = match (beside.theta, inner.number("rope_theta")?) {
        (Some(outside), Some(inside)) if outside != inside => {
            let expected = format!("{outside}, as outside");
            return Err(inner.refuse("rope_theta", expected, inside.to_string(), None));
        }
        (one, other) => one.or(other).or(beside.absent),
    };
    let theta = theta.ok_or_else(|| fields.missing("rope_theta", "a number"))?;
    let share = inner.number("partial_rotary_factor")?.or(beside.share).unwrap_or(1.0);
    if beside.share.is_none_or(|it| it != 1.0 && it != share) && share != 1.0 {
        let expected = beside.share.unwrap_or(1.0);
        let expected = format!("{expected:?}");
        return Err(inner.refuse("partial_rotary_factor", expected, share.to_string(), None));
    }
    let scaling = scaling(&mut inner, beside)?;
    if let Some(it) = Error::of_fields(inner.rest().0) {
        return Err(it);
    }
    let rope = Rope { theta, scaling, share };
    check(inner.file, &rope, &inner.prefix)?;
    Ok(rope)
}

fn scaling(inner: &mut Fields<'_>, beside: Beside) -> Result<Scaling, Error> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let (new, old) = (inner.take("rope_type"), inner.take("type"));
    let (key, kind) = match (new, old) {
        (Some(new), Some(old)) if new != old => {
            return Err(inner.refuse("type", shown(&new), shown(&old), None));
        }
        (None, Some(kind)) => ("type", kind),
        (kind, _) => ("rope_type", kind.unwrap_or_else(|| json!("default"))),
    };
    // By a factor of 1 nothing is stretched.
    let is_one = |it: &Value| it.as_f64() == Some(1.0);
    Ok(match kind.as_str() {
        Some("default" | "linear") if inner.rest.get("factor").is_some_and(is_one) => {
            inner.take("factor");
            Scaling::None
        }
        Some("default") => Scaling::None,
        Some("linear") => Scaling::Linear(inner.required_number("factor")?),
        Some("llama3") => Scaling::Llama3(Llama3Scaling {
            factor: inner.required_number("factor")?,
            low_freq_factor: inner.required_number("low_freq_factor")?,
            high_freq_factor: inner.required_number("high_freq_factor")?,
            original_max_positions: inner.required_size(ORIGINAL, 1 << 31)?,
        }),
        Some("yarn") => {
            let original = inner.size(ORIGINAL, 1 << 31)?.or(beside.original).or(beside.longest);
            Scaling::Yarn(YarnScaling {
                factor: inner.required_number("factor")?,
                beta_fast: inner.number("beta_fast")?.unwrap_or(32.0),
                beta_slow: inner.number("beta_slow")?.unwrap_or(1.0),
                attention_factor: inner.number("attention_factor")?,
                original_max_positions: original.unwrap_or(1),
            })
        }
        Some("longrope") => {
            let [short, long] =
                ["short_factor", "long_factor"].map(|name| inner.required_numbers(name));
            let original = inner.size(ORIGINAL, 1 << 31)?.or(beside.original);
            let original = original.ok_or_else(|| inner.missing(ORIGINAL, "a positive integer"))?;
            let stretch = beside.longest.map(|it| it as f64 / original as f64);
            match inner.number("factor")? {
                Some(factor) if Some(factor) != stretch => {
                    let expected = format!("max_position_embeddings / {ORIGINAL}, or none");
                    return Err(inner.refuse("factor", expected, factor.to_string(), None));
                }
                _ => {}
            }
            Scaling::Long(LongScaling {
                short: short?,
                long: long?,
                original_max_positions: original,
            })
        }
        _ => {
            let expected = "\"default\", \"linear\", \"llama3\", \"yarn\" or \"longrope\"";
            let hint = Some("without rope_scaling the model keeps its original context");
            return Err(inner.refuse(key, expected, shown(&kind), hint));
        }
    })
}

/// Checks that the numbers agree; `prefix` is of the object that holds them.
pub(crate) fn check(file: &Path, rope: &Rope, prefix: &str) -> Result<(), Error> {
    let refuse = |field: &str, expected: String, got: String| {
        Err(Error::refused(file, format!("{prefix}{field}"), expected, got))
    };
    let at_least_1 = |it: f64| it.is_finite() && it >= 1.0;
    if !at_least_1(rope.theta) {
        let outside = prefix == "rope_scaling.";
        let field = if outside { "rope_theta" } else { &format!("{prefix}rope_theta") };
        let expected = "a finite number of at least 1".to_owned();
        return Err(Error::refused(file, field, expected, rope.theta.to_string()));
    }
    if !(rope.share > 0.0 && rope.share <= 1.0) {
        let expected = "a number above 0, at most 1".to_owned();
        return refuse("partial_rotary_factor", expected, rope.share.to_string());
    }
    let (factor, original, [slow, fast], names) = match &rope.scaling {
        Scaling::None => return Ok(()),
        Scaling::Linear(factor) => (*factor, 1, [1.0, 2.0], ["", ""]),
        Scaling::Llama3(it) => {
            let names = ["low_freq_factor", "high_freq_factor"];
            let both = [it.low_freq_factor, it.high_freq_factor];
            (it.factor, it.original_max_positions, both, names)
        }
        Scaling::Yarn(it) => {
            let names = ["beta_slow", "beta_fast"];
            (it.factor, it.original_max_positions, [it.beta_slow, it.beta_fast], names)
        }
        Scaling::Long(it) => {
            for (name, all) in [("short_factor", &it.short), ("long_factor", &it.long)] {
                if let Some(it) = all.iter().find(|it| !(it.is_finite() && **it > 0.0)) {
                    return refuse(name, "positive numbers".to_owned(), it.to_string());
                }
            }
            // The logarithm of the original context divides.
            (1.0, it.original_max_positions.saturating_sub(1), [1.0, 2.0], ["", ""])
        }
    };
    if !at_least_1(factor) {
        return refuse("factor", "a finite number of at least 1".to_owned(), factor.to_string());
    }
    if !(slow > 0.0 && fast > slow && fast.is_finite()) {
        let expected = format!("a finite number above {} ({slow}), both positive", names[0]);
        return refuse(names[1], expected, fast.to_string());
    }
    if !(1..=1 << 31).contains(&original) {
        let field = "original_max_position_embeddings";
        return refuse(field, size_between(1 << 31), original.to_string());
    }
    match rope.scaling {
        Scaling::Yarn(YarnScaling { attention_factor: Some(it), .. }) if it <= 0.0 => {
            refuse("attention_factor", "a positive number".to_owned(), it.to_string())
        }
        _ => Ok(()),
    }
}
