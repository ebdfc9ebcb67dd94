//! The number formats of GGUF: plain ones, and blocks of small integers with factors.
//!
//! The operations and their order are those of the Python package `gguf`, in f32, so that the numbers have its bits.

use std::fmt;

use half::f16;

use crate::config::dtype::{self, Dtype};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain(Dtype),
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

/// `ggml_type`, by number; an empty name is one that was removed.
const NAMES: [&str; 42] = [
    "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K",
    "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S",
    "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0", "TQ2_0", "",
    "", "", "MXFP4", "NVFP4", "Q1_0",
];

/// A format with its number in `ggml_type`, and the numbers and bytes of a block.
const FORMATS: [(Encoding, u32, (u64, u64)); 11] = [
    (Encoding::Plain(Dtype::F32), 0, (1, 4)),
    (Encoding::Plain(Dtype::F16), 1, (1, 2)),
    (Encoding::Plain(Dtype::Bf16), 30, (1, 2)),
    (Encoding::Q4_0, 2, (32, 18)),
    (Encoding::Q4_1, 3, (32, 20)),
    (Encoding::Q5_0, 6, (32, 22)),
    (Encoding::Q5_1, 7, (32, 24)),
    (Encoding::Q8_0, 8, (32, 34)),
    (Encoding::Q4K, 12, (256, 144)),
    (Encoding::Q5K, 13, (256, 176)),
    (Encoding::Q6K, 14, (256, 210)),
];

impl Encoding {
    pub(super) const KNOWN: &str =
        "F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q5_1, Q5_0, Q4_1 or Q4_0";

    /// The format of a number of `ggml_type`, or the name of one that is not read.
    pub(super) fn of(number: u32) -> Result<Self, String> {
        let found = FORMATS.iter().find(|it| it.1 == number).map(|it| it.0);
        found.ok_or_else(|| match NAMES.get(number as usize) {
            None | Some(&"") => format!("type {number}"),
            Some(name) => (*name).to_owned(),
        })
    }

    fn row(self) -> &'static (Self, u32, (u64, u64)) {
        FORMATS.iter().find(|it| it.0 == self).expect("every format has a row")
    }

    pub(super) fn number(self) -> u32 {
        self.row().1
    }

    pub(crate) fn plain(self) -> Option<Dtype> {
        match self {
            Self::Plain(dtype) => Some(dtype),
            _ => None,
        }
    }

    pub(crate) fn block(self) -> (u64, u64) {
        self.row().2
    }

    /// Appends the numbers of whole blocks.
    pub(crate) fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        let decode: fn(&[u8], &mut [f32]) = match self {
            Self::Plain(dtype) => return dtype::decode(dtype, bytes, values),
            Self::Q4_0 => |b, to| {
                let d = half(b);
                nibbles(&b[2..], to, |q| d * (q - 8.0));
            },
            Self::Q4_1 => |b, to| {
                let (d, m) = (half(b), half(&b[2..]));
                nibbles(&b[4..], to, |q| d * q + m);
            },
            Self::Q5_0 => |b, to| {
                let d = half(b);
                with_high_bits(&b[2..], to, |q| d * (q - 16.0));
            },
            Self::Q5_1 => |b, to| {
                let (d, m) = (half(b), half(&b[2..]));
                with_high_bits(&b[4..], to, |q| d * q + m);
            },
            Self::Q8_0 => |b, to| {
                let d = half(b);
                let integers = b[2..].iter().map(|q| f32::from(q.cast_signed()));
                to.iter_mut().zip(integers).for_each(|(to, q)| *to = d * q);
            },
            Self::Q4K => |b, to| groups_of_32(b, &b[16..144], None, to),
            Self::Q5K => |b, to| groups_of_32(b, &b[48..176], b[16..48].first_chunk(), to),
            Self::Q6K => q6_k,
        };
        let (numbers, size) = self.block();
        let first = values.len();
        values.resize(first + bytes.len() / size as usize * numbers as usize, 0.0);
        let blocks = bytes.chunks_exact(size as usize);
        let to = values[first..].chunks_exact_mut(numbers as usize);
        blocks.zip(to).for_each(|(block, to)| decode(block, to));
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES[self.number() as usize])
    }
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// The lower halves of 16 bytes, then the upper ones.
fn nibbles(bytes: &[u8], to: &mut [f32], number: impl Fn(f32) -> f32) {
    let (low, high) = to.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = number(f32::from(byte & 15));
        *high = number(f32::from(byte >> 4));
    }
}

/// 32 integers of 5 bits, whose highest come first.
fn with_high_bits(bytes: &[u8], to: &mut [f32], number: impl Fn(f32) -> f32) {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let fifth = |at: usize| ((high >> at & 1) << 4) as f32;
    nibbles(&bytes[4..20], to, |q| q);
    to.iter_mut().enumerate().for_each(|(at, it)| *it = number(*it + fifth(at)));
}

/// `Q4_K` and `Q5_K`: groups of 32, each with a factor and an offset of 6 bits; bit `i` of `high` is group `i`'s fifth.
fn groups_of_32(block: &[u8], low: &[u8], high: Option<&[u8; 32]>, to: &mut [f32]) {
    let (d, dmin, packed) = (half(block), half(&block[2..]), &block[4..16]);
    for (group, to) in to.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, offset) = if group < 4 {
            (packed[group] & 0x3f, packed[group + 4] & 0x3f)
        } else {
            let (both, top) = (packed[group + 4], |at: usize| (packed[at] >> 2) & 0x30);
            ((both & 0x0f) | top(group - 4), (both >> 4) | top(group))
        };
        let (scale, offset) = (d * f32::from(scale), dmin * f32::from(offset));
        let pair: &[u8; 32] = low[group / 2 * 32..].first_chunk().expect("32 bytes of two groups");
        let shift = group % 2 * 4;
        let mut fifth = [0; 32];
        if let Some(high) = high {
            fifth = high.map(|bits| (bits >> group & 1) << 4);
        }
        for at in 0..32 {
            to[at] = scale * f32::from((pair[at] >> shift & 15) | fifth[at]) - offset;
        }
    }
}

/// 16 groups of 16 integers of 6 bits: the lower four in 128 bytes, the upper two in 64, then factors.
fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, high, scales, d) =
        (&block[..128], &block[128..192], &block[192..208], half(&block[208..]));
    for (group, to) in to.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (half, quarter, within) = (group / 8, group / 2 % 4, group % 2 * 16);
        let low = &low[half * 64 + quarter % 2 * 32 + within..][..16];
        let high = &high[half * 32 + within..][..16];
        let (shift, scale) = (quarter / 2 * 4, d * f32::from(scales[group].cast_signed()));
        for at in 0..16 {
            let q = (low[at] >> shift & 15) | (high[at] >> (2 * quarter) & 3) << 4;
            to[at] = scale * (f32::from(q) - 32.0);
        }
    }
}
