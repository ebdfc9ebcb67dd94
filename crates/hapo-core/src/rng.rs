//! Random draws that are pure functions of their key: seed, stream, step, prompt, rollout, position. The generator is
//! Philox4x64-10 of "Parallel random numbers: as easy as 1, 2, 3" by Salmon et al., SC 2011
//! (<https://doi.org/10.1145/2063384.2063405>). There is no state to save, draws may be made in any order and on any
//! number of threads, and a resumed run draws what the unbroken one would have drawn. The price is ten rounds of two
//! wide multiplications for every four words, which is nothing beside one token of a model.

use serde::{Deserialize, Serialize};

/// What a draw is for: one stream of the generator each. Draws of different streams are independent. Their codes are
/// part of the recorded runs and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RngStream {
    /// The next token of a rollout in the first part of a group.
    Sample,
    /// The order of the prompts in an epoch.
    Shuffle,
    /// The rollout that gives way to the teacher (D7).
    Slot,
    /// Initial weights.
    Init,
    /// Problems of the built-in task.
    Task,
    /// The next token of a response in evaluation.
    Evaluate,
    /// Resampling for confidence intervals.
    Bootstrap,
    /// The next token of a response that is asked for outside a run.
    Generate,
    /// The next token of a rollout in a later part of a group, by the part's index ([`RngStream::of_part`]).
    LaterPart(u32),
    /// Whether an unreliable grader's verdict is flipped.
    Flip,
    /// The next token of a response in an evaluation of a run while it trains.
    Validate,
    /// The initial A of an adapter.
    Adapter,
    /// Rounding of the optimiser's moments; a counter has the draws of eight elements.
    Moments,
    /// Draws of a method while a group grows, such as the length of a prefix.
    Growth,
    /// Draws of a gate: a success rate, or which groups are open.
    Gate,
    /// Which of a prompt's trajectories may enter.
    Pick,
}

impl RngStream {
    /// The stream of the rollouts in a part of a group, which number from 0 in each part (D35).
    pub fn of_part(part: usize) -> Self {
        match part {
            0 => Self::Sample,
            later => Self::LaterPart(later as u32),
        }
    }

    /// Its code: the low half of the key's second word. The first three later parts have those of the micro-groups of
    /// the first recorded runs.
    #[inline]
    pub fn code(self) -> u32 {
        match self {
            Self::Sample => 1,
            Self::Shuffle => 2,
            Self::Slot => 3,
            Self::Init => 4,
            Self::Task => 5,
            Self::Evaluate => 6,
            Self::Bootstrap => 7,
            Self::Generate => 8,
            Self::LaterPart(part @ 1..=3) => 8 + part,
            Self::LaterPart(part) => 64 + part,
            Self::Flip => 12,
            Self::Validate => 13,
            Self::Adapter => 14,
            Self::Moments => 15,
            Self::Growth => 16,
            Self::Gate => 17,
            Self::Pick => 18,
        }
    }
}

/// Where a draw is made; fields that do not apply are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RngCounter {
    /// Training step, or epoch where the draw belongs to one.
    pub step: u64,
    /// Prompt id.
    pub prompt: u64,
    /// Index of the rollout in its group.
    pub rollout: u64,
    /// Position of the token in the response.
    pub position: u64,
}

/// One uniform number in [0, 1), a multiple of 2⁻⁵³: the first that [`CounterRng`] gives at this counter.
pub fn uniform(seed: u64, stream: RngStream, counter: RngCounter) -> f64 {
    unit_interval(block(seed, stream, counter, 0)[0])
}

/// The first four words that [`CounterRng`] gives at this counter.
#[inline]
pub fn random_words(seed: u64, stream: RngStream, counter: RngCounter) -> [u64; 4] {
    block(seed, stream, counter, 0)
}

/// The sequence of draws at one counter, as long as needed.
#[derive(Debug, Clone)]
pub struct CounterRng {
    seed: u64,
    stream: RngStream,
    counter: RngCounter,
    words: [u64; 4],
    used: usize,
    next_block: u64,
    spare_normal: Option<f64>,
}

impl CounterRng {
    /// The sequence of a seed, a stream and a counter.
    pub fn new(seed: u64, stream: RngStream, counter: RngCounter) -> Self {
        Self { seed, stream, counter, words: [0; 4], used: 4, next_block: 0, spare_normal: None }
    }

    /// The sequence of a step and a prompt.
    pub(crate) fn of_prompt(seed: u64, stream: RngStream, step: u64, prompt: u64) -> Self {
        Self::new(seed, stream, RngCounter { step, prompt, ..RngCounter::default() })
    }

    /// The next 64 random bits.
    pub fn word(&mut self) -> u64 {
        if self.used == self.words.len() {
            self.words = block(self.seed, self.stream, self.counter, self.next_block);
            self.next_block += 1;
            self.used = 0;
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }

    /// Uniform in [0, 1), a multiple of 2⁻⁵³.
    pub fn uniform(&mut self) -> f64 {
        unit_interval(self.word())
    }

    /// Uniform in 0..n without bias, by the multiplication and rejection of Lemire
    /// (<https://doi.org/10.1145/3230636>). Panics where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a draw below 0 has no value");
        loop {
            let product = u128::from(self.word()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Standard normal, by Marsaglia's polar method, of correctly rounded operations only: the same bits everywhere.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        loop {
            let (u, v) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                let scale = (-2.0 * portable_ln(s) / s).sqrt();
                self.spare_normal = Some(v * scale);
                return u * scale;
            }
        }
    }

    /// Puts a slice into a uniformly random order (Fisher–Yates, from the end).
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        for last in (1..slice.len()).rev() {
            slice.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Philox4x64 with ten rounds: four words from a counter and a key.
#[inline]
pub fn philox4x64(mut counter: [u64; 4], mut key: [u64; 2]) -> [u64; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
    const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let a = u128::from(MULTIPLIERS[0]) * u128::from(counter[0]);
        let b = u128::from(MULTIPLIERS[1]) * u128::from(counter[2]);
        counter = [
            (b >> 64) as u64 ^ counter[1] ^ key[0],
            b as u64,
            (a >> 64) as u64 ^ counter[3] ^ key[1],
            a as u64,
        ];
    }
    counter
}

/// The counter is full, so further blocks of a counter go into the upper half of the key's second word.
#[inline]
fn block(seed: u64, stream: RngStream, counter: RngCounter, index: u64) -> [u64; 4] {
    assert!(u32::try_from(index).is_ok(), "a counter gives at most 2^34 words");
    let RngCounter { step, prompt, rollout, position } = counter;
    philox4x64([step, prompt, rollout, position], [seed, u64::from(stream.code()) | (index << 32)])
}

fn unit_interval(word: u64) -> f64 {
    const TWO_TO_MINUS_53: f64 = 1.0 / (1_u64 << 53) as f64;
    (word >> 11) as f64 * TWO_TO_MINUS_53
}

/// Natural logarithm of a normal positive number. The standard library's depends on the platform.
fn portable_ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m − 1) / (m + 1)); the argument is below 0.172, so 12 terms reach 2^-61.
    let y = (mantissa - 1.0) / (mantissa + 1.0);
    let square = y * y;
    let series = (0..12).rev().fold(0.0, |sum, it| sum * square + 1.0 / f64::from(2 * it + 1));
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * y * series
}

#[cfg(test)]
mod tests {
    use super::portable_ln;

    #[test]
    fn portable_logarithm_agrees_with_the_platform_to_four_epsilons() {
        for it in 1..200_000_u32 {
            for x in [f64::from(it) / 200_000.0, f64::from(it) * 2_f64.powi(-104)] {
                let (got, expected) = (portable_ln(x), x.ln());
                assert!(
                    (got - expected).abs() <= 4.0 * f64::EPSILON * expected.abs().max(1e-300),
                    "ln {x}: {got} {expected}"
                );
            }
        }
    }
}
