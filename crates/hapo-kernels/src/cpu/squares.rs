//! Sums of squares in f64, in an order fixed by the length.

use super::pool::Cpu;
use super::split::join;
use crate::lanes::{fma, kernel};
use crate::row::{LANES, reduce};

const BLOCK: usize = 64 * 1024;

/// Σ x²: lanes of 16 in blocks of 256, blocks in order.
pub(super) fn squared_norm(cpu: &Cpu, x: &[f32]) -> f64 {
    cpu.map_tasks(x.len().div_ceil(BLOCK), |task| {
        sum_of_squares(&x[task * BLOCK..((task + 1) * BLOCK).min(x.len())])
    })
    .into_iter()
    .sum()
}

kernel! {
    fn sum_of_squares<V>(x: &[f32]) -> f64 {
        let mut total = 0.0_f64;
        for block in x.chunks(256) {
            let mut lanes = [0.0_f32; LANES];
            let (chunks, rest) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for i in 0..LANES {
                    lanes[i] = fma::<V>(chunk[i], chunk[i], lanes[i]);
                }
            }
            for (i, &v) in rest.iter().enumerate() {
                lanes[i] = fma::<V>(v, v, lanes[i]);
            }
            total += f64::from(reduce(lanes));
        }
        total
    }
}

/// Σ x² of a matrix that is split.
pub(super) fn squared_norm_split(cpu: &Cpu, words: &[f32], tails: &[f32]) -> f64 {
    assert_eq!(tails.len(), words.len(), "as many tails");
    cpu.map_tasks(words.len().div_ceil(BLOCK), |task| {
        let block = task * BLOCK..words.len().min((task + 1) * BLOCK);
        let (words, tails) = (&words[block.clone()], &tails[block]);
        sum_of_split_squares(bytemuck::cast_slice(words), bytemuck::cast_slice(tails))
    })
    .into_iter()
    .sum()
}

kernel! {
    fn sum_of_split_squares<V>(packed: &[u32], tails: &[u32]) -> f64 {
        const LANES: usize = 8;
        let mut sums = [0.0_f64; LANES];
        for (words, tails) in packed.chunks(LANES).zip(tails.chunks(LANES)) {
            for (sum, (word, tails)) in sums.iter_mut().zip(words.iter().zip(tails)) {
                let [even, odd] = join(*word, *tails).map(f64::from);
                *sum += even * even + odd * odd;
            }
        }
        sums.iter().sum()
    }
}
