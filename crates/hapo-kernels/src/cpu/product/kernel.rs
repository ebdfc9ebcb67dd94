//! Products of f32 factors on one thread, in the one order of sums.
//!
//! Every element of the result is a chain of fused multiply-adds from zero over the inner dimension, ascending and cut
//! every [`CHAIN`] steps; the chains are added to the start in order. A micro-kernel computes a tile of such chains in
//! registers. Which tiles, how factors are packed and how many rows there are changes no bits. Price: a result is read
//! back and added to once per 512 steps.

use std::cell::RefCell;

use super::tile::{Columns, Copied, Halves, Numbers, Rows, Tile, ahead, largest};
use crate::cpu::buffer::CpuBuf;
use crate::lanes::{Lanes, Level, WIDTH, kernel};

/// Steps of one chain of multiply-adds.
pub(in crate::cpu) const CHAIN: usize = 512;
/// Columns of a task and of a room: whole panels of every kernel.
pub(in crate::cpu) const GROUP: usize = 192;
/// Rows of a left factor that are packed together: whole tiles of every kernel.
pub(in crate::cpu) const BLOCK: usize = 48;
/// Columns of a panel of bf16 numbers.
pub(in crate::cpu) const PANEL: usize = 2 * WIDTH;
/// Numbers of a page.
const PAGE: usize = 1024;

/// The left factor `[m, k]`.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Left<'a> {
    pub(in crate::cpu) data: &'a [f32],
    pub(in crate::cpu) row_stride: usize,
    pub(in crate::cpu) step_stride: usize,
}

/// The right factor `[k, n]`.
#[derive(Clone, Copy)]
pub(in crate::cpu) enum Right<'a> {
    Numbers {
        data: &'a [f32],
        step_stride: usize,
        column_stride: usize,
    },
    /// Weights `[steps, columns]` in panels of bf16 numbers: 32 columns, each row of them 16 words that hold column `i` in
    /// the low half and column `16 + i` in the high one. Decoding reads every weight once per step, so its time is their
    /// memory traffic: a panel is one contiguous stream, and its halves become `f32` by a shift and a mask.
    Panels {
        words: &'a [u32],
        steps: usize,
    },
    /// The same, transposed: weights `[columns, steps]`.
    Turned {
        words: &'a [u32],
        columns: usize,
    },
}

/// One product on the calling thread: the columns `column..column + n` of a right factor.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Product<'a> {
    pub(in crate::cpu) m: usize,
    pub(in crate::cpu) n: usize,
    pub(in crate::cpu) k: usize,
    pub(in crate::cpu) left: Left<'a>,
    pub(in crate::cpu) right: Right<'a>,
    pub(in crate::cpu) column: usize,
    pub(in crate::cpu) add: bool,
}

/// Words of weights `[inputs, outputs]` in panels of bf16 numbers.
pub(in crate::cpu) fn panel_words(inputs: usize, outputs: usize) -> usize {
    outputs.div_ceil(PANEL) * inputs * WIDTH
}

thread_local! {
    /// Packed columns of a right factor, then packed rows of a left one.
    static ROOM: RefCell<Option<CpuBuf>> = const { RefCell::new(None) };
}

/// Writes `[m, n]` rows `stride` apart from `dst` on; `dst` comes from
/// [`Shared::tile`](crate::cpu::pool::Shared::tile) or a slice of that extent.
pub(in crate::cpu) fn product(p: Product, dst: *mut f32, stride: usize) {
    if p.m == 0 || p.n == 0 || p.k == 0 && p.add {
        return;
    }
    if p.k > 0 {
        let left_end = (p.m - 1) * p.left.row_stride + (p.k - 1) * p.left.step_stride;
        assert!(left_end < p.left.data.len(), "left factor inside its slice");
        p.right.check(p.k, p.column + p.n);
    }
    ROOM.with_borrow_mut(|room| {
        let new = || CpuBuf::zeros(CHAIN * (GROUP + BLOCK)).expect("memory for packed factors");
        in_room(p, dst, stride, room.get_or_insert_with(new).as_mut_slice());
    });
}

kernel! {
    /// A product in tiles, of a right factor that lies where it is or is packed.
    fn in_room<V>(p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
        match p.right {
            Right::Numbers { data, step_stride: far, column_stride: 1 }
                if p.k > 0 && reads_in_place::<V>(p, far) =>
            {
                let whole = Product { n: p.n / WIDTH * WIDTH, ..p };
                let w = (data.as_ptr().wrapping_add(p.column), far);
                if is_swept::<V>(p, far) {
                    in_sweeps::<V, _, 1>(whole, Numbers, w, (dst, stride), room);
                } else {
                    down_chains::<V>(whole, w, (dst, stride), room);
                }
                let rest = Product { n: p.n - whole.n, column: p.column + whole.n, ..p };
                packed::<V>(rest, dst.wrapping_add(whole.n), stride, room);
            }
            Right::Panels { words, steps } => {
                for column in (0..p.n).step_by(PANEL) {
                    let w = words[(p.column + column) / PANEL * steps * WIDTH..].as_ptr().cast();
                    let panel = Product { n: PANEL.min(p.n - column), ..p };
                    let to = (dst.wrapping_add(column), stride);
                    in_sweeps::<V, _, 2>(panel, Halves, (w, WIDTH), to, room);
                }
            }
            _ => packed::<V>(p, dst, stride, room),
        }
    }
}

/// Whether [`in_sweeps`] is faster: the sums of so few rows stay in a cache, and the matrix is too large for the first
/// cache.
fn is_swept<V: Lanes>(p: Product, far: usize) -> bool {
    let (most, held) = if V::REGISTERS == 1 { (128, 1 << 14) } else { (32, 0) };
    p.left.step_stride == 1 && p.m <= most && p.k * far > held
}

/// Whether the columns are read in place. Where rows of the matrix are whole pages apart, they compete for the same few
/// lines of a cache, and many rows of the left factor read a packed copy.
fn reads_in_place<V: Lanes>(p: Product, far: usize) -> bool {
    is_swept::<V>(p, far) || V::REGISTERS == 1 && !far.is_multiple_of(PAGE) && p.left.is_by_rows()
}

/// A product in tiles of packed columns.
#[inline(always)]
fn packed<V: Lanes>(p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
    let (columns_room, rows_room) = room.split_at_mut(CHAIN * GROUP);
    let (most_rows, most_vectors) = largest::<V>();
    let panel = most_vectors * WIDTH;
    for first in (0..p.k.max(1)).step_by(CHAIN) {
        let steps = CHAIN.min(p.k - first);
        for column in (0..p.n).step_by(GROUP) {
            let group = GROUP.min(p.n - column);
            let columns = p.column + column..p.column + column + group;
            p.right.pack::<V>(first..first + steps, columns, panel, columns_room);
            for block in (0..p.m).step_by(BLOCK) {
                let end = p.m.min(block + BLOCK);
                let left = p.left.block::<V>(block..end, first..first + steps, rows_room);
                for row in (block..end).step_by(most_rows) {
                    for at in (0..group).step_by(panel) {
                        let width = panel.min(group - at);
                        let w = columns_room[at * steps..].as_ptr();
                        let tile = Tile {
                            steps,
                            left: left.from(row - block, 0),
                            right: (w, panel),
                            near: steps,
                            next: w,
                            to: dst.wrapping_add(row * stride + column + at),
                            stride,
                            width,
                            adds: p.adds(first),
                            held: Numbers,
                        };
                        // SAFETY: both factors were checked to hold these rows, steps and columns, packed ones are whole
                        // vectors; the destination is the contract of `product`.
                        unsafe {
                            tile.compute::<V>(most_rows.min(end - row), width.div_ceil(WIDTH));
                        }
                    }
                }
            }
        }
    }
}

/// Whole vectors of columns, read where they lie: the first tile runs down a chain and makes a copy for the others.
#[inline(always)]
fn down_chains<V: Lanes>(
    p: Product,
    (w, far): (*const f32, usize),
    (dst, stride): (*mut f32, usize),
    room: &mut [f32],
) {
    let (most_rows, most_vectors) = largest::<V>();
    let rows = equal_parts(p.m, most_rows);
    let copy = room[..CHAIN * most_vectors * WIDTH].as_mut_ptr();
    for first in (0..p.k).step_by(CHAIN) {
        let steps = CHAIN.min(p.k - first);
        let mut column = 0;
        while column < p.n {
            let vectors = most_vectors.min((p.n - column) / WIDTH);
            let w = w.wrapping_add(first * far + column);
            for row in (0..p.m).step_by(rows) {
                let height = rows.min(p.m - row);
                let tile = Tile {
                    steps,
                    left: p.left.rows().from(row, first),
                    right: (w, far),
                    near: steps.saturating_sub(ahead(vectors)),
                    next: w.wrapping_add(vectors * WIDTH),
                    to: dst.wrapping_add(row * stride + column),
                    stride,
                    width: vectors * WIDTH,
                    adds: p.adds(first),
                    held: Numbers,
                };
                // SAFETY: both factors were checked to hold these rows, steps and columns, and the room holds the steps
                // of a tile; the destination is the contract of `product`.
                unsafe {
                    if row == 0 {
                        tile.held_as(Copied { to: copy }).compute::<V>(height, vectors);
                    } else {
                        let right = (copy.cast_const(), vectors * WIDTH);
                        Tile { right, near: steps, next: right.0, ..tile }
                            .compute::<V>(height, vectors);
                    }
                }
            }
            column += vectors * WIDTH;
        }
    }
}

/// Columns read where they lie, `N` vectors and some steps at a time for all rows of a block, while chains wait in the room:
/// memory is read once, in streams as long as a row.
#[inline(always)]
fn in_sweeps<V: Lanes, C: Columns, const N: usize>(
    p: Product,
    held: C,
    (w, far): (*const f32, usize),
    (dst, stride): (*mut f32, usize),
    room: &mut [f32],
) {
    /// Rows whose chains stay in a cache.
    const ROWS: usize = 128;
    /// Numbers that the second cache holds.
    const HELD: usize = 1 << 18;
    // The first level can ask for too few lines at once to hide the memory's latency.
    let level = if p.k * far > HELD { Level::Second } else { Level::First };
    let starts = (0..p.m).step_by(ROWS);
    let starts = starts.flat_map(|block| (0..p.k.max(1)).step_by(CHAIN).map(move |at| (block, at)));
    for (block, first) in starts {
        let (rows, end) = (ROWS.min(p.m - block), p.k.min(first + CHAIN));
        let wide = room.len() / rows / PANEL * PANEL;
        for column in (0..p.n).step_by(wide) {
            let width = wide.min(p.n - column);
            let n = width.next_multiple_of(N * WIDTH);
            let sums = &mut room[..rows * n];
            sums.fill(0.0);
            let mut step = first;
            while step < end {
                let x = (p.left.rows().from(block, step).first, p.left.row_stride);
                let to = (sums.as_mut_ptr(), n);
                let w = (w.wrapping_add(step * far + column), far, level);
                // SAFETY: both factors were checked to hold these rows, steps and columns.
                step += unsafe {
                    match end - step {
                        8.. if p.left.step_stride == 1 => sweep::<V, C, N, 8>(rows, x, held, w, to),
                        _ => sweep::<V, C, N, 1>(rows, x, held, w, to),
                    }
                };
            }
            for (row, sums) in sums.chunks_exact(n).enumerate() {
                let to = dst.wrapping_add((block + row) * stride + column);
                // SAFETY: the contract of `product`.
                let to = unsafe { std::slice::from_raw_parts_mut(to, width) };
                for (to, sum) in to.chunks_mut(WIDTH).zip(sums.as_chunks().0) {
                    let sum = V::load(sum);
                    (if p.adds(first) { V::load_part(to).add(sum) } else { sum }).store_part(to);
                }
            }
        }
    }
}

/// Goes on with chains for `P` steps, and returns their number.
///
/// # Safety
/// The left factor holds `rows` rows of `P` steps beside each other, the right one `P` steps of `n` columns, which are
/// whole times `N` vectors; `sums` are `[rows, n]`.
#[inline(always)]
unsafe fn sweep<V: Lanes, C: Columns, const N: usize, const P: usize>(
    rows: usize,
    (x, apart): (*const f32, usize),
    held: C,
    (w, far, level): (*const f32, usize, Level),
    (sums, n): (*mut f32, usize),
) -> usize {
    for at in (0..n).step_by(N * WIDTH) {
        let w: [[V; N]; P] = std::array::from_fn(|p| {
            let w = w.wrapping_add(p * far + at);
            V::prefetch(w.wrapping_add(3 * P * far), level);
            // SAFETY: the caller's.
            unsafe { held.load(p, w) }
        });
        for r in 0..rows {
            let (x, to) = (x.wrapping_add(r * apart), sums.wrapping_add(r * n + at));
            // SAFETY: the caller's.
            let mut sums: [V; N] = unsafe { Numbers.load(r, to) };
            for (p, w) in w.iter().enumerate() {
                // SAFETY: the caller's.
                let factor = V::splat(unsafe { *x.add(p) });
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = sum.add_product(factor, *w);
                }
            }
            for (n, sum) in sums.into_iter().enumerate() {
                // SAFETY: the caller's.
                sum.store(unsafe { &mut *to.add(n * WIDTH).cast() });
            }
        }
    }
    P
}

/// The height of equal parts of `rows` rows, up to `most`.
fn equal_parts(rows: usize, most: usize) -> usize {
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

impl Product<'_> {
    /// Whether the sums from this step on are added to the output.
    fn adds(&self, first: usize) -> bool {
        self.add || first > 0
    }
}

impl Left<'_> {
    /// Tiles can read it where it lies: a cache holds few lines that are far from one another.
    pub(super) fn is_by_rows(self) -> bool {
        self.row_stride != 1 || self.step_stride == 1
    }

    pub(super) fn rows(self) -> Rows {
        let Self { data, row_stride, step_stride } = self;
        Rows { first: data.as_ptr(), row_stride, step_stride }
    }
}

impl Right<'_> {
    /// Panics if a step below `steps` or a column below `columns` is outside.
    fn check(self, steps: usize, columns: usize) {
        let inside = match self {
            Self::Numbers { data, step_stride, column_stride } => {
                (steps - 1) * step_stride + (columns - 1) * column_stride < data.len()
            }
            Self::Panels { words, steps: all } => {
                steps <= all && panel_words(all, columns) <= words.len()
            }
            Self::Turned { words, columns: all } => {
                columns <= all && panel_words(all, steps) <= words.len()
            }
        };
        assert!(inside, "right factor inside its slice");
    }
}

#[cfg(test)]
mod tests;
