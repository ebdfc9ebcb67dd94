//! Exact decimal settings. γ0 = 0.3 with N = 8 lies exactly on a rung, and 0.3 in binary does not (D3). Settings of the
//! gate are therefore decimal fractions, of at most 15 digits, which a double-precision number holds and gives back.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::refusal::{Refusal, expected};

/// A non-negative decimal fraction of at most 15 significant digits, 12 of them after the point.
/// Equal values are equal: trailing zeros are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// The value is `numerator / 10^places`.
    pub(crate) numerator: u64,
    places: u32,
}

const MAX_PLACES: u32 = 12;
const NUMERATOR_LIMIT: u64 = 1_000_000_000_000_000;

impl Decimal {
    /// The decimal that a double-precision number prints as, the shortest that reads back to it.
    pub fn from_f64(value: f64) -> Result<Self, Refusal> {
        value.to_string().parse()
    }

    /// The nearest double-precision number.
    pub fn to_f64(self) -> f64 {
        // Both are exact in f64, so the quotient is the correctly rounded one.
        self.numerator as f64 / self.power() as f64
    }

    /// 10^places.
    pub(crate) fn power(self) -> u64 {
        10_u64.pow(self.places)
    }
}

impl From<u32> for Decimal {
    fn from(value: u32) -> Self {
        Self { numerator: u64::from(value), places: 0 }
    }
}

impl FromStr for Decimal {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let error = || {
            let text: String = text.chars().take(40).collect();
            expected("digits such as 0.3 with at most 12 places and 15 digits")
                .got(format!("{text:?}"))
                .about("decimal number")
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits_only = |it: &str| it.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) || text.ends_with('.')
        {
            return Err(error());
        }
        let fraction = fraction.trim_end_matches('0');
        let places =
            u32::try_from(fraction.len()).ok().filter(|it| *it <= MAX_PLACES).ok_or_else(error)?;
        let mut numerator = 0_u64;
        for digit in whole.bytes().chain(fraction.bytes()) {
            numerator = numerator * 10 + u64::from(digit - b'0');
            if numerator >= NUMERATOR_LIMIT {
                return Err(error());
            }
        }
        Ok(Self { numerator, places })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.numerator / self.power(), self.numerator % self.power());
        if self.places == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{fraction:0width$}", width = self.places as usize)
        }
    }
}

/// As a number; no digit is lost.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.to_f64())
    }
}

/// From a number or from text such as `"0.3"`.
impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Number(value) => Self::from_f64(value),
            NumberOrText::Text(text) => text.parse(),
        };
        read.map_err(de::Error::custom)
    }
}

/// A number as a recipe or a command line writes it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number or a word")]
pub(crate) enum NumberOrText {
    Number(f64),
    Text(String),
}
