//! The numbers that a key takes, as its line says: refused where it has another, and told by the reference page and the
//! schema.

use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::{self, RangeBounds, RangeFrom, RangeInclusive};
use std::{borrow::Cow, fmt};

use serde_json::{Map, json};

/// The numbers that a key takes.
#[derive(Clone, Debug)]
pub struct Range {
    words: Cow<'static, str>,
    least: Bound<f64>,
    most: Bound<f64>,
    takes_inf: bool,
}

const fn above(least: f64, most: Bound<f64>, takes_inf: bool, words: &'static str) -> Range {
    Range { words: Cow::Borrowed(words), least: Excluded(least), most, takes_inf }
}

pub(super) const ABOVE_0: Range = above(0.0, Unbounded, false, "a number above 0");
pub(super) const ABOVE_0_OR_INF: Range = above(0.0, Unbounded, true, "a number above 0");
pub(super) const ABOVE_1: Range = above(1.0, Unbounded, false, "a number above 1");
pub(super) const CLIP_HIGH: Range =
    above(0.0, Unbounded, true, "a number above 0, or inf for no clip");
pub(super) const CLIP_LOW: Range =
    above(0.0, Excluded(1.0), true, "a number in (0, 1), or inf for no clip");
pub(super) const SECONDS: Range =
    above(0.0, Included(86_400.0), false, "seconds above 0, at most a day");

impl Range {
    fn of(words: String, bounds: impl RangeBounds<f64>) -> Self {
        let (least, most) = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
        Self { words: words.into(), least, most, takes_inf: false }
    }

    pub(super) fn takes(&self, number: f64) -> bool {
        let is_inside = number.is_finite() && (self.least, self.most).contains(&number);
        is_inside || self.takes_inf && number == f64::INFINITY
    }

    pub(super) fn add_to(&self, schema: &mut Map<String, serde_json::Value>) {
        let named = |bound, included: &'static str, excluded: &'static str| match bound {
            Included(number) => Some((included, number)),
            Excluded(number) => Some((excluded, number)),
            Unbounded => None,
        };
        let least = named(self.least, "minimum", "exclusiveMinimum");
        let most = named(self.most, "maximum", "exclusiveMaximum").filter(|_| !self.takes_inf);
        let bounds = least.into_iter().chain(most);
        schema.extend(bounds.map(|(name, number)| (name.to_owned(), json!(number))));
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<RangeInclusive<u64>> for Range {
    fn from(range: RangeInclusive<u64>) -> Self {
        let (least, most) = (*range.start(), *range.end());
        Self::of(format!("a whole number from {least} to {most}"), least as f64..=most as f64)
    }
}

impl From<RangeInclusive<f64>> for Range {
    fn from(range: RangeInclusive<f64>) -> Self {
        Self::of(format!("a number from {} to {}", range.start(), range.end()), range)
    }
}

impl From<ops::Range<f64>> for Range {
    fn from(range: ops::Range<f64>) -> Self {
        Self::of(format!("a number in [{}, {})", range.start, range.end), range)
    }
}

impl From<RangeFrom<f64>> for Range {
    fn from(range: RangeFrom<f64>) -> Self {
        Self::of(format!("a number from {}", range.start), range)
    }
}
