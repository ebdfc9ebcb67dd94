//! A matrix filled from its published rows by all threads, each of which holds a few of them.

use hapo_core::Refusal;

use super::convert::{nearest, upper};
use super::pool::{Cpu, Shared};
use super::{product::Form, product::kernel::PANEL};
use crate::lanes::{WIDTH, kernel};
use crate::weight::{Published, ReadRows};

/// Numbers that a thread takes at a time.
const AT_ONCE: usize = 1 << 17;

/// The numbers of a matrix `[inputs, outputs]` while threads write them.
#[derive(Clone, Copy)]
pub(super) struct Filling<'a> {
    pub(super) form: Form,
    pub(super) shape: [usize; 2],
    pub(super) numbers: Shared<'a>,
    pub(super) tails: Option<Shared<'a>>,
}

impl Filling<'_> {
    pub(super) fn fill(self, cpu: &Cpu, of: Published, read: ReadRows) -> Result<(), Refusal> {
        let Published { rows, columns, is_transposed, together } = of;
        let held = if is_transposed { [columns, rows] } else { [rows, columns] };
        assert_eq!(held, self.shape, "the matrix as it is published");
        // Whole panels, so that no two threads write one.
        let unit = (1..=together).map(|n| n * PANEL).find(|it| it.is_multiple_of(together));
        let at_once = (AT_ONCE / columns).max(1).next_multiple_of(unit.unwrap_or(PANEL));
        let of_task = |task: usize| {
            let first = task * at_once;
            read(first..rows.min(first + at_once), &mut |values| {
                if is_transposed {
                    self.write_columns(first, values);
                } else {
                    assert_eq!(self.form, Form::F32, "a matrix that is looked up only");
                    // SAFETY: tasks have rows of their own.
                    unsafe { self.numbers.part(first * columns, values.len()) }
                        .copy_from_slice(values);
                }
            })
        };
        cpu.map_tasks(rows.div_ceil(at_once), of_task).into_iter().collect()
    }

    /// Writes columns from one on, given one after the other.
    fn write_columns(self, first: usize, columns: &[f32]) {
        let Self { form, shape: [inputs, outputs], numbers, tails } = self;
        if form == Form::F32 {
            return turn(columns, inputs, first, outputs, numbers);
        }
        let len = form.words([inputs, 1])[0];
        for (panel, columns) in (first / PANEL..).zip(columns.chunks(PANEL * inputs)) {
            // SAFETY: tasks have panels of their own.
            let to = bytemuck::cast_slice_mut(unsafe { numbers.part(panel * len, len) });
            match (form, tails) {
                (Form::Panels, _) => pack::<false, NEAREST>(columns, inputs, to),
                (_, None) => pack::<true, NEAREST>(columns, inputs, to),
                (_, Some(tails)) => {
                    pack::<true, UPPER>(columns, inputs, to);
                    // SAFETY: as above.
                    let to = bytemuck::cast_slice_mut(unsafe { tails.part(panel * len, len) });
                    pack::<true, TAIL>(columns, inputs, to);
                }
            }
        }
    }
}

/// The half word of a number: its nearest bf16, or one of the parts that [`split`](super::convert::split) makes.
const NEAREST: u8 = 0;
const UPPER: u8 = 1;
const TAIL: u8 = 2;

#[inline(always)]
fn half<const HALF: u8>(x: f32) -> u32 {
    match HALF {
        NEAREST => nearest(x),
        UPPER => upper(x),
        _ => x.to_bits() & 0xffff,
    }
}

/// Numbers of a column from one on, zeros beyond the last.
#[inline(always)]
fn piece<const N: usize>(columns: &[f32], inputs: usize, column: usize, first: usize) -> [f32; N] {
    let column = columns.get(column * inputs..(column + 1) * inputs).unwrap_or_default();
    let found = column.get(first..).unwrap_or_default();
    found.first_chunk().copied().unwrap_or_else(|| {
        let mut all = [0.0; N];
        all[..found.len()].copy_from_slice(found);
        all
    })
}

kernel! {
    /// Packs the columns of one panel: two columns a word, or two inputs if `PAIRS`.
    fn pack<V, const PAIRS: bool, const HALF: u8>(columns: &[f32], inputs: usize, to: &mut [u32]) {
        let across = if PAIRS { PANEL } else { WIDTH };
        for (block, to) in to.chunks_mut(across * WIDTH).enumerate() {
            let mut tile = [[0_u32; WIDTH]; PANEL];
            for (column, tile) in tile[..across].iter_mut().enumerate() {
                if PAIRS {
                    let x = piece::<PANEL>(columns, inputs, column, block * PANEL);
                    for i in 0..WIDTH {
                        tile[i] = half::<HALF>(x[2 * i]) | half::<HALF>(x[2 * i + 1]) << 16;
                    }
                } else {
                    let x = piece::<WIDTH>(columns, inputs, column, block * WIDTH);
                    let y = piece::<WIDTH>(columns, inputs, column + WIDTH, block * WIDTH);
                    for i in 0..WIDTH {
                        tile[i] = half::<HALF>(x[i]) | half::<HALF>(y[i]) << 16;
                    }
                }
            }
            for (i, to) in to.chunks_exact_mut(across).enumerate() {
                for column in 0..across {
                    to[column] = tile[column][i];
                }
            }
        }
    }
}

kernel! {
    /// Writes columns from `first` on as parts of rows of `outputs` numbers.
    fn turn<V>(columns: &[f32], inputs: usize, first: usize, outputs: usize, to: Shared<'_>) {
        for input in (0..inputs).step_by(WIDTH) {
            for (block, some) in columns.chunks(WIDTH * inputs).enumerate() {
                let n = some.len() / inputs;
                let mut tile = [[0.0_f32; WIDTH]; WIDTH];
                for (column, tile) in tile.iter_mut().enumerate() {
                    *tile = piece(some, inputs, column, input);
                }
                for i in 0..WIDTH.min(inputs - input) {
                    let at = (input + i) * outputs + first + block * WIDTH;
                    // SAFETY: tasks have columns of their own.
                    let to = unsafe { to.part(at, n) };
                    for (column, to) in to.iter_mut().enumerate() {
                        *to = tile[column][i];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuWeight;
    use crate::isa::multiplies_bf16;
    use crate::number_format::{Compute, NumberFormat};
    use crate::weight::{Held, Matrix};

    /// Every form, from more rows than a thread takes at once, with panels and pairs that are not whole.
    #[test]
    fn threads_write_what_one_write_does() {
        const FROZEN: Held = Held::Frozen(NumberFormat::Bf16);
        let bf16 = multiplies_bf16().then_some(Compute::Bf16);
        for (compute, held, together) in
            [Some(Compute::F32), bf16].into_iter().flatten().flat_map(|compute| {
                [(Held::Trained, 1), (Held::Trained, 48), (FROZEN, 1), (FROZEN, 20)]
                    .map(|(held, together)| (compute, held, together))
            })
        {
            let (inputs, outputs) = (67, 6019);
            let number = |output: usize, input: usize| {
                let it = (output * 71 + input * 13) % 509;
                if held == FROZEN { (it % 255) as f32 } else { it as f32 / 3.0 - 80.0 }
            };
            let mut whole = vec![0.0; inputs * outputs];
            for (at, to) in whole.iter_mut().enumerate() {
                *to = number(at % outputs, at / outputs);
            }
            let cpu = Cpu::computing(1, compute).unwrap();
            let mut one = CpuWeight::zeros(&cpu, [inputs, outputs], held).unwrap();
            one.write(&cpu, 0, &whole);
            for threads in [1, 3] {
                let cpu = Cpu::computing(threads, compute).unwrap();
                let mut other = CpuWeight::zeros(&cpu, [inputs, outputs], held).unwrap();
                let published =
                    Published { rows: outputs, columns: inputs, is_transposed: true, together };
                let read: ReadRows<'_> = &|rows, take| {
                    assert!(rows.start.is_multiple_of(together));
                    assert!(rows.len() < outputs, "a thread holds a few rows");
                    let values =
                        rows.flat_map(|output| (0..inputs).map(move |input| number(output, input)));
                    take(&values.collect::<Vec<_>>());
                    Ok(())
                };
                other.write_published(&cpu, published, read).unwrap();
                let read = |it: &CpuWeight| {
                    let mut all = vec![0.0; inputs * outputs];
                    it.read(&cpu, 0, &mut all);
                    all
                };
                assert!(read(&other) == read(&one), "{compute} {held:?} {threads}");
                assert!(read(&one) == whole, "{compute} {held:?}");
            }
        }
    }

    #[test]
    fn the_first_refused_rows_are_named() {
        let cpu = Cpu::new(3).unwrap();
        let mut plain = CpuWeight::zeros(&cpu, [5000, 100], Held::Plain).unwrap();
        let published = Published { rows: 5000, columns: 100, is_transposed: false, together: 1 };
        let copy: ReadRows<'_> = &|rows, take| {
            let values =
                rows.flat_map(|row| (0..100).map(move |column| (row * 100 + column) as f32));
            take(&values.collect::<Vec<_>>());
            Ok(())
        };
        plain.write_published(&cpu, published, copy).unwrap();
        let mut back = vec![0.0; 500_000];
        plain.read(&cpu, 0, &mut back);
        assert!(back.iter().enumerate().all(|(at, it)| *it == at as f32));
        let refuse: ReadRows<'_> = &|rows, _| match rows.start {
            0 => Ok(()),
            row => Err(Refusal::input(format!("row {row}"))),
        };
        let first = plain.write_published(&cpu, published, refuse).unwrap_err().to_string();
        assert_eq!(first, "row 1312");
    }
}
