//! Factors of a product copied into the order in which its tiles read them.

use std::ops::Range;

use super::kernel::{BLOCK, Left, PANEL, Right};
use super::tile::Rows;
use crate::cpu::convert::join;
use crate::lanes::{Lanes, Level, WIDTH};

/// Steps from a request of memory to its use.
const AHEAD: usize = 32;

impl Left<'_> {
    /// A block of the factor: where it lies, or copied where steps are apart and rows together.
    #[inline(always)]
    pub(super) fn block<V: Lanes>(
        self,
        rows: Range<usize>,
        steps: Range<usize>,
        room: &mut [f32],
    ) -> Rows {
        if self.is_by_rows() {
            return self.rows().from(rows.start, steps.start);
        }
        let Self { data, step_stride, .. } = self;
        for (step, to) in steps.zip(room.chunks_exact_mut(BLOCK)) {
            let from = &data[step * step_stride..][rows.clone()];
            copy_row::<V>(from, step_stride, to);
        }
        Rows { first: room.as_ptr(), row_stride: 1, step_stride: BLOCK }
    }
}

impl Right<'_> {
    /// Copies columns into panels `[steps, panel]` with zeros beyond the last one.
    #[inline(always)]
    pub(super) fn pack<V: Lanes>(
        self,
        steps: Range<usize>,
        columns: Range<usize>,
        panel: usize,
        room: &mut [f32],
    ) {
        if let Self::Numbers { data, step_stride, column_stride: 1 } = self {
            // Whole rows: memory is read in long pieces.
            let len = steps.len();
            for (at, step) in steps.enumerate() {
                let from = &data[step * step_stride..][columns.clone()];
                for (from, to) in from.chunks(panel).zip(room.chunks_exact_mut(panel * len)) {
                    copy_row::<V>(from, step_stride, &mut to[at * panel..][..panel]);
                }
            }
            return;
        }
        for (first, to) in
            columns.clone().step_by(panel).zip(room.chunks_exact_mut(panel * steps.len().max(1)))
        {
            let end = columns.end.min(first + panel);
            match self {
                Self::Panels { .. } => unreachable!("panels are read where they lie"),
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
                        words.map(|it| join(it, 0)[step / WIDTH % 2])
                    });
                }
            }
        }
    }
}

/// Copies a row in whole vectors, zeros beyond its end, and asks for the one [`AHEAD`] rows on.
#[inline(always)]
fn copy_row<V: Lanes>(from: &[f32], apart: usize, to: &mut [f32]) {
    let ((whole, rest), to) = (from.as_chunks(), to.as_chunks_mut().0);
    for (from, to) in whole.iter().zip(&mut *to) {
        V::prefetch(from.as_ptr().wrapping_add(AHEAD * apart), Level::Second);
        V::load(from).store(to);
    }
    if let Some(to) = to.get_mut(whole.len()) {
        V::load_part(rest).store(to);
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

fn padded(from: &[f32]) -> [f32; WIDTH] {
    let mut all = [0.0; WIDTH];
    all[..from.len()].copy_from_slice(from);
    all
}
