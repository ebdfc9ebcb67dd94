//! Products of f32 factors on one thread, in the one order of sums.
//!
//! Every element of the result is a chain of fused multiply-adds from zero over the inner dimension, ascending and cut
//! every [`CHAIN`] steps; the chains are added to the start in order. A micro-kernel computes a tile of such chains in
//! registers. Which tiles, how factors are packed and how many rows there are changes no bits.
//!
//! Price: a result is read back and added to once per 512 steps.

use std::cell::RefCell;
use std::ops::Range;

use crate::cpu::buffer::CpuBuf;
use crate::cpu::convert::halves;
use crate::isa::Isa;
use crate::lanes::{Lanes, WIDTH};

/// Steps of one chain of multiply-adds.
pub(in crate::cpu) const CHAIN: usize = 512;
/// Columns of a task and of a room: whole panels of every kernel.
pub(in crate::cpu) const GROUP: usize = 192;
/// Rows of a left factor that are packed together: whole tiles of every kernel.
pub(in crate::cpu) const BLOCK: usize = 48;
/// Columns of a panel of bf16 numbers.
pub(in crate::cpu) const PANEL: usize = 2 * WIDTH;
/// Steps from a request of memory to its use.
const AHEAD: usize = 16;
/// Up to this number of rows, a right factor is read where it lies.
const FEW_ROWS: usize = 16;

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
    /// In f32.
    Numbers { data: &'a [f32], step_stride: usize, column_stride: usize },
    /// Weights `[steps, columns]` in panels of bf16 numbers ([`super::panels`]).
    Panels { words: &'a [u32], steps: usize },
    /// The same, transposed: weights `[columns, steps]`.
    Turned { words: &'a [u32], columns: usize },
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
/// [`Shared::tile`](crate::cpu::share::Shared::tile) or a slice of that extent.
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
        in_room(Isa::current(), p, dst, stride, room.get_or_insert_with(new).as_mut_slice());
    });
}

#[cfg(target_arch = "x86_64")]
fn in_room(isa: Isa, p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
    use crate::lanes::{Avx2, Avx512, Plain};

    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    fn avx512(p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
        tiles::<Avx512>(p, dst, stride, room);
    }

    #[target_feature(enable = "avx2,fma")]
    fn avx2(p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
        tiles::<Avx2>(p, dst, stride, room);
    }

    match isa {
        // SAFETY: an `Isa` names only sets whose features were detected.
        Isa::Avx512 => unsafe { avx512(p, dst, stride, room) },
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2(p, dst, stride, room) },
        Isa::Portable => tiles::<Plain>(p, dst, stride, room),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn in_room(_: Isa, p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
    tiles::<crate::lanes::Plain>(p, dst, stride, room);
}

/// Rows of a tile and the vectors of its columns, for a product of `m` rows: as many sums as there are registers, and long
/// pieces of a right factor's rows where there are few.
const fn largest<V: Lanes>(m: usize) -> (usize, usize) {
    match (V::REGISTERS, m) {
        (1, ..=3) => (3, 9),
        (1, _) => (8, 3),
        (_, ..=2) => (2, 2),
        _ => (6, 1),
    }
}

/// A product in tiles.
#[inline(always)]
fn tiles<V: Lanes>(p: Product, dst: *mut f32, stride: usize, room: &mut [f32]) {
    let (columns_room, rows_room) = room.split_at_mut(CHAIN * GROUP);
    let (most_rows, most_vectors) = largest::<V>(p.m);
    let panel = most_vectors.min(3) * WIDTH;
    for first in (0..p.k.max(1)).step_by(CHAIN) {
        let steps = CHAIN.min(p.k - first);
        let add = p.add || first > 0;
        for column in (0..p.n).step_by(GROUP) {
            let group = GROUP.min(p.n - column);
            let in_place = if p.m > FEW_ROWS { 0 } else { p.right.in_place(group) };
            let columns = p.column + column + in_place..p.column + column + group;
            p.right.pack::<V>(first..first + steps, columns, panel, columns_room);
            for block in (0..p.m).step_by(BLOCK) {
                let end = p.m.min(block + BLOCK);
                let left = p.left.block::<V>(block..end, first..first + steps, rows_room);
                for row in (block..end).step_by(most_rows) {
                    let height = most_rows.min(end - row);
                    let mut at = 0;
                    while at < group {
                        let (w, step, vectors) = if at < in_place {
                            let (w, step) = p.right.place(first, p.column + column + at);
                            let whole = (in_place - at) / WIDTH;
                            let is_widest = whole >= most_vectors;
                            (w, step, if is_widest { most_vectors } else { whole.min(3) })
                        } else {
                            let packed = columns_room[(at - in_place) * steps..].as_ptr();
                            (packed, panel, (group - at).div_ceil(WIDTH).min(panel / WIDTH))
                        };
                        let tile = Tile {
                            steps,
                            left: left.row(row - block),
                            right: (w, step),
                            to: dst.wrapping_add(row * stride + column + at),
                            stride,
                            width: (vectors * WIDTH).min(group - at),
                            add,
                        };
                        // SAFETY: both factors were checked to hold these rows, steps and columns, packed ones are whole
                        // vectors; the destination is the contract of `product`.
                        unsafe { tile.of_size::<V>(height, vectors) }
                        at += vectors * WIDTH;
                    }
                }
            }
        }
    }
}

/// Rows and steps of a left factor.
#[derive(Clone, Copy)]
struct Rows {
    first: *const f32,
    row_stride: usize,
    step_stride: usize,
}

impl Rows {
    fn row(self, row: usize) -> Self {
        Self { first: self.first.wrapping_add(row * self.row_stride), ..self }
    }
}

impl Left<'_> {
    /// A block of the factor: where it lies, or copied where steps are apart and rows together, since a cache holds few
    /// lines that are far from one another.
    #[inline(always)]
    fn block<V: Lanes>(self, rows: Range<usize>, steps: Range<usize>, room: &mut [f32]) -> Rows {
        let Self { data, row_stride, step_stride } = self;
        if row_stride != 1 || step_stride == 1 {
            let first =
                data.as_ptr().wrapping_add(rows.start * row_stride + steps.start * step_stride);
            return Rows { first, row_stride, step_stride };
        }
        for (step, to) in steps.zip(room.chunks_exact_mut(BLOCK)) {
            let from = &data[step * step_stride..][rows.clone()];
            for (n, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
                V::prefetch(from.as_ptr().wrapping_add(AHEAD * step_stride + n * WIDTH));
                V::load_part(from.get(n * WIDTH..).unwrap_or_default()).store(to);
            }
        }
        Rows { first: room.as_ptr(), row_stride: 1, step_stride: BLOCK }
    }
}

/// A tile of the result, and where its factors are.
#[derive(Clone, Copy)]
struct Tile {
    steps: usize,
    left: Rows,
    /// The first element and the distance of steps.
    right: (*const f32, usize),
    to: *mut f32,
    stride: usize,
    width: usize,
    add: bool,
}

impl Tile {
    /// # Safety
    /// The left factor holds `height` rows of `steps` steps, the right one steps of `vectors` vectors; `to` are `height`
    /// rows of `width` elements that nobody else writes.
    #[inline(always)]
    unsafe fn of_size<V: Lanes>(self, height: usize, vectors: usize) {
        // SAFETY: the caller's.
        unsafe {
            match (V::REGISTERS, vectors) {
                (_, 1) => self.of_height::<V, 1>(height),
                (_, 2) => self.of_height::<V, 2>(height),
                (1, 3) => self.of_height::<V, 3>(height),
                (1, 9) if height == 1 => self.sums::<V, 1, 9>(),
                (1, 9) if height == 2 => self.sums::<V, 2, 9>(),
                (1, 9) => self.sums::<V, 3, 9>(),
                _ => unreachable!("a tile of `largest`"),
            }
        }
    }

    /// # Safety
    /// That of [`Tile::of_size`] for `N` vectors.
    #[inline(always)]
    unsafe fn of_height<V: Lanes, const N: usize>(self, height: usize) {
        // SAFETY: the caller's.
        unsafe {
            match height {
                1 => self.sums::<V, 1, N>(),
                2 => self.sums::<V, 2, N>(),
                3 => self.sums::<V, 3, N>(),
                4 => self.sums::<V, 4, N>(),
                5 => self.sums::<V, 5, N>(),
                6 => self.sums::<V, 6, N>(),
                7 => self.sums::<V, 7, N>(),
                _ => self.sums::<V, 8, N>(),
            }
        }
    }

    /// # Safety
    /// That of [`Tile::of_size`] for `R` rows and `N` vectors.
    #[inline(always)]
    unsafe fn sums<V: Lanes, const R: usize, const N: usize>(self) {
        let (Rows { first: x, row_stride, step_stride }, (w, stride)) = (self.left, self.right);
        let mut sums = [[V::splat(0.0); N]; R];
        for step in 0..self.steps {
            let w = w.wrapping_add(step * stride);
            for n in 0..N {
                V::prefetch(w.wrapping_add(AHEAD * stride + n * WIDTH));
            }
            // SAFETY: the caller's.
            let w: [V; N] = std::array::from_fn(|n| V::load(unsafe { &*w.add(n * WIDTH).cast() }));
            for r in 0..R {
                let x = x.wrapping_add(r * row_stride + step * step_stride);
                // SAFETY: the caller's.
                let factor = V::splat(unsafe { *x });
                for n in 0..N {
                    sums[r][n] = sums[r][n].add_product(factor, w[n]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            // SAFETY: the caller's.
            let to =
                unsafe { std::slice::from_raw_parts_mut(self.to.add(r * self.stride), self.width) };
            for (to, sum) in to.chunks_mut(WIDTH).zip(sums) {
                let sum = if self.add { V::load_part(to).add(sum) } else { sum };
                sum.store_part(to);
            }
        }
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

    /// The first of `columns` columns that fill vectors and can be read where they lie.
    #[inline(always)]
    fn in_place(self, columns: usize) -> usize {
        match self {
            Self::Numbers { column_stride: 1, .. } => columns / WIDTH * WIDTH,
            _ => 0,
        }
    }

    /// A column of numbers from a step on, and the distance of steps.
    #[inline(always)]
    fn place(self, step: usize, column: usize) -> (*const f32, usize) {
        match self {
            Self::Numbers { data, step_stride, .. } => {
                (data.as_ptr().wrapping_add(step * step_stride + column), step_stride)
            }
            _ => unreachable!("words are packed"),
        }
    }

    /// Copies columns into panels `[steps, panel]` with zeros beyond the last one.
    #[inline(always)]
    fn pack<V: Lanes>(
        self,
        steps: Range<usize>,
        columns: Range<usize>,
        panel: usize,
        room: &mut [f32],
    ) {
        for (first, to) in
            columns.clone().step_by(panel).zip(room.chunks_exact_mut(panel * steps.len().max(1)))
        {
            let end = columns.end.min(first + panel);
            match self {
                Self::Numbers { data, step_stride, column_stride: 1 } => {
                    for (step, to) in steps.clone().zip(to.chunks_exact_mut(panel)) {
                        let from = &data[step * step_stride + first..step * step_stride + end];
                        for n in (0..panel).step_by(WIDTH) {
                            V::prefetch(from.as_ptr().wrapping_add(AHEAD * step_stride + n));
                        }
                        for (n, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
                            V::load_part(from.get(n * WIDTH..).unwrap_or_default()).store(to);
                        }
                    }
                }
                Self::Panels { words, steps: all } => {
                    for (step, to) in steps.clone().zip(to.chunks_exact_mut(panel)) {
                        for (n, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
                            let vector = first / WIDTH + n;
                            let words = words.get((vector / 2 * all + step) * WIDTH..);
                            let words = words.and_then(<[u32]>::first_chunk);
                            let of_vector = words.map_or([V::splat(0.0); 2], V::load_halves);
                            of_vector[vector % 2].store(to);
                        }
                    }
                }
                Self::Numbers { data, step_stride, column_stride } => {
                    turn(steps.clone(), first..end, panel, to, |column, step| {
                        let from = &data[step * step_stride + column * column_stride..];
                        from.first_chunk().copied().unwrap_or_else(|| padded(from))
                    });
                }
                Self::Turned { words, columns: all } => {
                    turn(steps.clone(), first..end, panel, to, |column, step| {
                        let at = (step / PANEL * all + column) * WIDTH;
                        let words: &[u32; WIDTH] =
                            words[at..].first_chunk().expect("a row of a panel");
                        words.map(|it| halves(it)[step / WIDTH % 2])
                    });
                }
            }
        }
    }
}

/// Packs columns of which `row` gives sixteen steps at a time.
#[inline(always)]
fn turn(
    steps: Range<usize>,
    columns: Range<usize>,
    panel: usize,
    to: &mut [f32],
    row: impl Fn(usize, usize) -> [f32; WIDTH],
) {
    let first = columns.start;
    for column in (first..first + panel).step_by(WIDTH) {
        for step in steps.clone().step_by(WIDTH) {
            let mut square = [[0.0_f32; WIDTH]; WIDTH];
            for c in 0..WIDTH.min(columns.end.saturating_sub(column)) {
                let row = row(column + c, step);
                for s in 0..WIDTH {
                    square[s][c] = row[s];
                }
            }
            let to = &mut to[(step - steps.start) * panel + column - first..];
            for (square, to) in square.iter().zip(to.chunks_mut(panel)).take(steps.end - step) {
                to[..WIDTH].copy_from_slice(square);
            }
        }
    }
}

/// The numbers, then zeros.
fn padded(from: &[f32]) -> [f32; WIDTH] {
    let mut all = [0.0; WIDTH];
    all[..from.len()].copy_from_slice(from);
    all
}

#[cfg(test)]
mod tests;
