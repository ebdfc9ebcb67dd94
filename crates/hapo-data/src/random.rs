//! Random draws that are pure functions of a seed and of what they are for.
//!
//! Purpose: a document, a problem or a set is named by `(seed, purpose, numbers…)` and comes out
//! the same on every machine, in any order, on any number of threads. The key is the SHA-256 of the
//! name; the stream from it is `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom
//! number generators", 2014).
//!
//! Price: one SHA-256 (about 0.2 µs) per stream. The bytes of the built-in task hang on this file: a change here
//! changes every problem, and with them what a published base model has seen.

use sha2::{Digest, Sha256};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The stream named by a seed, a purpose in words, and numbers such as an index.
    pub fn new(seed: u64, purpose: &str, numbers: &[u64]) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update((purpose.len() as u64).to_le_bytes());
        hash.update(purpose.as_bytes());
        for number in numbers {
            hash.update(number.to_le_bytes());
        }
        Draws { state: first_word(&hash.finalize()) }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform integer in `0..bound`, without bias (Lemire, "Fast random integer generation in an
    /// interval", 2019). `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an interval of integers is never empty");
        let unfair = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if wide as u64 >= unfair {
                return (wide >> 64) as u64;
            }
        }
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A uniform integer with exactly `digits` decimal digits, so without a leading zero; 1 to 9
    /// for one digit. `digits` is 1 to 18.
    pub fn number_of_digits(&mut self, digits: u32) -> u64 {
        assert!((1..=18).contains(&digits), "a number has 1 to 18 digits, got {digits}");
        let smallest = 10_u64.pow(digits - 1);
        smallest + self.below(9 * smallest)
    }
}

/// The first eight bytes of a digest as a little-endian number.
pub(crate) fn first_word(digest: &[u8]) -> u64 {
    u64::from_le_bytes(digest[..8].try_into().expect("a SHA-256 digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference: the C program `splitmix64.c` by Sebastiano Vigna, state 1234567.
    #[test]
    fn stream_is_splitmix64() {
        let mut draws = Draws { state: 1_234_567 };
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| draws.next_u64()), expected);
    }

    #[test]
    fn names_of_streams_do_not_run_together() {
        let first = |seed, purpose, numbers: &[u64]| Draws::new(seed, purpose, numbers).next_u64();
        let base = first(1, "ab", &[2]);
        assert_eq!(base, first(1, "ab", &[2]));
        for other in [first(2, "ab", &[2]), first(1, "a", &[2]), first(1, "ab", &[3]), first(1, "ab", &[2, 0])] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn integers_are_uniform_and_inside() {
        let mut draws = Draws::new(7, "test", &[]);
        let mut counts = [0_u32; 9];
        for _ in 0..90_000 {
            counts[draws.below(9) as usize] += 1;
        }
        // 10,000 expected, s.d. 94; five of them.
        assert!(counts.iter().all(|n| n.abs_diff(10_000) < 470), "{counts:?}");
        for _ in 0..1000 {
            assert!((100_000..1_000_000).contains(&draws.number_of_digits(6)));
            assert!((0.0..1.0).contains(&draws.unit()));
        }
    }
}
