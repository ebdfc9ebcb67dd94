//! Attention, over packed segments and against the cache; here a thread's scratch buffer and a row's softmax.

pub(super) mod cache;
pub(super) mod prompt;

use std::cell::RefCell;

use crate::cpu::buffer::{CpuBuf, LINE};
use crate::row::{LANES, exp_of, max, reduce};
use crate::{lanes::kernel, span::Buffer};

kernel! {
    /// Scores become exponentials relative to the largest; returns it and their sum.
    pub(super) fn softmax_row<V>(scores: &mut [f32]) -> (f32, f32) {
        let max = max(scores);
        let mut lanes = [0.0_f32; LANES];
        let (chunks, rest) = scores.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for i in 0..LANES {
                let e = exp_of::<V>(chunk[i] - max);
                chunk[i] = e;
                lanes[i] += e;
            }
        }
        for (i, s) in rest.iter_mut().enumerate() {
            let e = exp_of::<V>(*s - max);
            *s = e;
            lanes[i] += e;
        }
        (max, reduce(lanes))
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<CpuBuf>> = const { RefCell::new(None) };
}

/// A buffer of this thread, kept between tasks; its contents are left over.
pub(super) fn with_scratch<R>(work: impl FnOnce(&mut CpuBuf) -> R) -> R {
    SCRATCH.with_borrow_mut(|slot| {
        let empty = || CpuBuf::zeros(0).expect("an empty buffer needs no memory");
        work(slot.get_or_insert_with(empty))
    })
}

/// Disjoint parts of a scratch buffer, each on its own cache line.
pub(super) fn parts<const N: usize>(scratch: &mut CpuBuf, lens: [usize; N]) -> [&mut [f32]; N] {
    let total: usize = lens.iter().map(|len| len.next_multiple_of(LINE)).sum();
    if scratch.len() < total {
        *scratch = CpuBuf::zeros(total).expect("scratch of one block of queries fits in memory");
    }
    let mut rest = scratch.as_mut_slice();
    lens.map(|len| {
        let (part, tail) = std::mem::take(&mut rest).split_at_mut(len.next_multiple_of(LINE));
        rest = tail;
        &mut part[..len]
    })
}
