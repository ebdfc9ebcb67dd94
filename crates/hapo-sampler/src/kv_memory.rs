//! How much memory keys and values may take.

use std::{fmt, str::FromStr};

use hapo_core::Refusal;
use hapo_kernels::{Device, NumberFormat, PAGE};
use hapo_model::{Config, KvCache, Model, PREFILL_TOKENS, kv_bytes_per_token};

use crate::{Engine, EngineLimits};

/// Memory of keys and values. It decides how many sequences run at once and how often one is read again, never which
/// tokens are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KvMemory {
    /// As much as the sequences need, at most nine tenths of the memory left beside the other buffers.
    #[default]
    Auto,
    /// As much as the sequences need, at most this many bytes.
    Bytes(u64),
}

/// The longest sequence that a cache must hold, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    pub prompt: usize,
    pub completion: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kv_memory: one sequence of {} + {} tokens needs {:.3} MB of keys and values, there are {:.3} MB",
    longest.prompt, longest.completion, *needed as f64 / 1e6, *bytes as f64 / 1e6
)]
pub struct TooLittleKvMemory {
    pub needed: u64,
    pub longest: Longest,
    pub bytes: u64,
}

const AUTO: &str = "auto";

const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl KvMemory {
    /// Bytes that it allows beside buffers of `others` bytes, of `free` bytes; `None` for no limit.
    pub fn limit(self, free: Option<u64>, others: u64) -> Option<u64> {
        match self {
            Self::Auto => Some(free?.saturating_sub(others) / 10 * 9),
            Self::Bytes(it) => Some(it),
        }
    }

    /// Tokens of a cache of at most `most` within `bytes`, which hold at least one sequence.
    pub fn fit<D: Device>(
        config: &Config,
        format: NumberFormat,
        most: usize,
        bytes: u64,
        longest: Longest,
    ) -> Result<usize, Refusal> {
        let of_page = PAGE as u64 * kv_bytes_per_token(config, format);
        let pages = usize::try_from(bytes / of_page).unwrap_or(usize::MAX);
        let tokens = most.min(pages.saturating_mul(PAGE));
        let Longest { prompt, completion } = longest;
        let one = KvCache::<D>::cost(prompt) + KvCache::<D>::cost(completion);
        if tokens < one {
            let needed = KvCache::<D>::bytes(config, format, one) as u64;
            let error = TooLittleKvMemory { needed, longest, bytes };
            let hint = "give keys and values more memory, or ask for shorter completions";
            return Err(Refusal::because(error).hint(hint));
        }
        Ok(tokens)
    }

    /// Tokens of the cache of an engine with these limits, at most theirs; it holds at least one sequence.
    pub fn tokens<D: Device>(
        self,
        model: &Model<D>,
        limits: EngineLimits,
        longest: Longest,
    ) -> Result<usize, Refusal> {
        let most = limits.cache_tokens;
        let prefill = limits.prefill_tokens.min(longest.prompt.max(PREFILL_TOKENS));
        let beside = EngineLimits { cache_tokens: 0, prefill_tokens: prefill, ..limits };
        match self.limit(model.device().free_bytes(), Engine::memory_bytes(model, beside) as u64) {
            Some(bytes) => Self::fit::<D>(model.config(), model.kv_format(), most, bytes, longest),
            None => Ok(most),
        }
    }
}

impl FromStr for KvMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        let bytes = UNITS.iter().find_map(|(unit, size)| {
            let number = text.strip_suffix(unit)?.trim();
            let is_decimal = number.bytes().all(|it| it.is_ascii_digit() || it == b'.');
            let number = number.parse::<f64>().ok().filter(|it| is_decimal && *it > 0.0)?;
            Some((number * *size as f64) as u64)
        });
        bytes.map(Self::Bytes).ok_or_else(|| {
            format!("expected `{AUTO}` or a size such as `6GB` or `512MiB`, got `{text}`")
        })
    }
}

impl TryFrom<String> for KvMemory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KvMemory> for String {
    fn from(it: KvMemory) -> Self {
        it.to_string()
    }
}

impl fmt::Display for KvMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Auto => f.write_str(AUTO),
            Self::Bytes(it) => {
                let whole = |(_, size): &&(&str, u64)| it >= *size && it.is_multiple_of(*size);
                let largest = UNITS.iter().filter(whole).max_by_key(|it| it.1);
                let (unit, size) = largest.unwrap_or(&("B", 1));
                write!(f, "{}{unit}", it / size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, expected) in [
            ("auto", KvMemory::Auto),
            ("6GB", KvMemory::Bytes(6_000_000_000)),
            ("512MiB", KvMemory::Bytes(512 << 20)),
            ("1000B", KvMemory::Bytes(1000)),
        ] {
            let read: KvMemory = text.parse().unwrap();
            assert_eq!(read, expected);
            assert_eq!(read.to_string().parse::<KvMemory>().unwrap(), expected);
        }
        assert_eq!("0.5 GB".parse(), Ok(KvMemory::Bytes(500_000_000)));
        for wrong in ["", "6", "GB", "-1GB", "0GB", "nanGB", "1e3GB", "6gb", "all"] {
            let error = wrong.parse::<KvMemory>().unwrap_err();
            assert!(error.contains("`6GB`") && error.ends_with(&format!("got `{wrong}`")));
        }
    }

    #[test]
    fn auto_leaves_a_tenth_of_what_is_free_beside_the_rest() {
        assert_eq!(KvMemory::Auto.limit(Some(1100), 100), Some(900));
        assert_eq!(KvMemory::Auto.limit(Some(50), 100), Some(0));
        assert_eq!(KvMemory::Auto.limit(None, 100), None);
        assert_eq!(KvMemory::Bytes(7).limit(None, 100), Some(7));
    }
}
