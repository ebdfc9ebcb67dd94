//! A weight matrix on the CPU, in one of four forms.
//!
//! Purpose: the form of a matrix is chosen once, by its use and by the rounding of products; every operation on it is
//! one `match` here. A further number format is one more form. Price: decoding reads every weight once per step, so
//! memory traffic sets its time. f32 weights that happen to be bf16 numbers may have a copy in panels, which products
//! read: 2 bytes more per weight.

use std::ops::Range;

use hapo_core::Refusal;

use super::convert::{is_bf16, join, nearest, upper};
use super::norm::{squared_norm, squared_norm_split};
use super::pool::{Cpu, Shared};
use super::product::kernel::{PANEL, Right};
use super::product::{Form, bf16, f32};
use super::{buffer::CpuBuf, embedding, fill::Filling, update::Parameter};
use crate::shapes::{Accumulate, EmbeddingLayout, MatShape};
use crate::weight::{Held, Matrix, Published, ReadRows};
use crate::{device::Device, error::Result, span::Buffer};

/// A matrix `[inputs, outputs]`.
#[derive(Debug)]
pub struct CpuWeight {
    shape: [usize; 2],
    form: Form,
    /// Numbers in f32, or words of two bf16 numbers.
    numbers: CpuBuf,
    /// Of [`Form::Split`]: the tails, laid out like the numbers.
    tails: Option<CpuBuf>,
    /// Of [`Form::F32`]: the same numbers in panels, where all of them are bf16 numbers and decoding is prepared.
    quick: Option<CpuBuf>,
}

impl Matrix<Cpu> for CpuWeight {
    fn bytes(&self) -> usize {
        let beside = [&self.tails, &self.quick].into_iter().flatten();
        self.numbers.bytes() + beside.map(Buffer::bytes).sum::<usize>()
    }

    fn zeros(cpu: &Cpu, shape: [usize; 2], held: Held) -> Result<Self> {
        let form = Form::of(&cpu.caps(), held);
        let mut buffers = form.words(shape).into_iter().map(|it| CpuBuf::counted(it, cpu.tally()));
        let numbers = buffers.next().expect("a form has a buffer")?;
        let tails = buffers.next().transpose()?;
        Ok(Self { shape, form, numbers, tails, quick: None })
    }

    fn copy_of(&self, cpu: &Cpu) -> Result<Self> {
        let (form, numbers) = (self.form.copied(), self.numbers.copied(cpu.tally())?);
        Ok(Self { shape: self.shape, form, numbers, tails: None, quick: None })
    }

    fn write(&mut self, cpu: &Cpu, first: usize, from: &[f32]) {
        assert!(first + from.len() <= self.shape[0] * self.shape[1], "elements of the matrix");
        self.quick = None;
        let numbers = self.numbers.as_mut_slice();
        if self.form == Form::F32 {
            return numbers[first..first + from.len()].copy_from_slice(from);
        }
        let packed = Packed { order: self.form, shape: self.shape };
        match &mut self.tails {
            None => packed.write(cpu, first, from, numbers, nearest),
            Some(tails) => {
                packed.write(cpu, first, from, numbers, upper);
                packed.write(cpu, first, from, tails.as_mut_slice(), |it| it.to_bits() & 0xffff);
            }
        }
    }

    fn write_published(&mut self, cpu: &Cpu, of: Published, read: ReadRows) -> Result<(), Refusal> {
        self.quick = None;
        let to = Filling {
            form: self.form,
            shape: self.shape,
            numbers: Shared::new(self.numbers.as_mut_slice()),
            tails: self.tails.as_mut().map(|it| Shared::new(it.as_mut_slice())),
        };
        to.fill(cpu, of, read)
    }

    fn read(&self, cpu: &Cpu, first: usize, to: &mut [f32]) {
        assert!(first + to.len() <= self.shape[0] * self.shape[1], "elements of the matrix");
        let numbers = self.numbers.as_slice();
        if self.form == Form::F32 {
            return to.copy_from_slice(&numbers[first..first + to.len()]);
        }
        let packed = Packed { order: self.form, shape: self.shape };
        let tails = self.tails.as_ref().map(CpuBuf::as_slice);
        packed.read(cpu, first, to, |at, upper| {
            let tail = tails.map_or(0, |it| it[at].to_bits());
            join(numbers[at].to_bits(), tail)[usize::from(upper)]
        });
    }

    /// Makes the copy that few rows are multiplied by, where it gives the same bits.
    fn pack_for_decode(&mut self, cpu: &Cpu) -> Result<bool> {
        if self.form != Form::F32 || self.quick.is_some() {
            return Ok(true);
        }
        let numbers = self.numbers.as_slice();
        if !is_bf16(cpu, numbers) {
            return Ok(false);
        }
        let mut quick = CpuBuf::counted(Form::Panels.words(self.shape)[0], cpu.tally())?;
        let packed = Packed { order: Form::Panels, shape: self.shape };
        packed.write(cpu, 0, numbers, quick.as_mut_slice(), nearest);
        self.quick = Some(quick);
        Ok(true)
    }
}

impl CpuWeight {
    /// `y = onto + x · w`.
    pub(super) fn product(
        &self,
        cpu: &Cpu,
        shape: MatShape,
        x: &[f32],
        onto: &Accumulate<CpuBuf>,
        y: &mut [f32],
    ) {
        self.check(shape);
        let numbers = self.numbers.as_slice();
        let (steps, words) = (shape.inputs, bytemuck::cast_slice::<f32, u32>);
        let right = match (self.form, &self.quick) {
            (Form::F32, None) => {
                Right::Numbers { data: numbers, step_stride: shape.outputs, column_stride: 1 }
            }
            (Form::F32, Some(quick)) => Right::Panels { words: words(quick.as_slice()), steps },
            (Form::Panels, _) => Right::Panels { words: words(numbers), steps },
            (Form::Pairs | Form::Split, _) => {
                return bf16::forward(cpu, shape, x, numbers, onto, y);
            }
        };
        f32::forward(cpu, shape, x, right, onto, y);
    }

    /// `dx = onto + dy · wᵀ`.
    pub(super) fn input_grad(
        &self,
        cpu: &Cpu,
        shape: MatShape,
        dy: &[f32],
        onto: &Accumulate<CpuBuf>,
        dx: &mut [f32],
    ) {
        self.check(shape);
        let (numbers, MatShape { rows, inputs, outputs }) = (self.numbers.as_slice(), shape);
        let right = match self.form {
            Form::F32 => Right::Numbers { data: numbers, step_stride: 1, column_stride: outputs },
            Form::Panels => Right::Turned { words: bytemuck::cast_slice(numbers), columns: inputs },
            Form::Pairs | Form::Split => {
                return bf16::input_grad(cpu, shape, dy, numbers, onto, dx);
            }
        };
        // A product of the transposed matrix.
        let shape = MatShape { rows, inputs: outputs, outputs: inputs };
        f32::forward(cpu, shape, dy, right, onto, dx);
    }

    pub(super) fn gather(&self, cpu: &Cpu, layout: EmbeddingLayout, tokens: &[u32], x: &mut [f32]) {
        let numbers = self.numbers.as_slice();
        match self.form {
            Form::F32 => embedding::gather(cpu, layout, tokens, numbers, x),
            form => Packed { order: form, shape: self.shape }.gather(cpu, tokens, numbers, x),
        }
    }

    /// Σ x² in f64, in an order fixed by the shape.
    pub(super) fn squared_norm(&self, cpu: &Cpu) -> f64 {
        match (self.form, &self.tails) {
            (Form::F32, _) => squared_norm(cpu, self.numbers.as_slice()),
            (_, Some(tails)) => squared_norm_split(cpu, self.numbers.as_slice(), tails.as_slice()),
            _ => {
                let mut all = vec![0.0; self.shape[0] * self.shape[1]];
                self.read(cpu, 0, &mut all);
                squared_norm(cpu, &all)
            }
        }
    }

    /// Its numbers, to update.
    ///
    /// # Panics
    /// For a matrix that never changes.
    pub(super) fn parameter(&mut self) -> Parameter<'_> {
        self.quick = None;
        let numbers = Shared::new(self.numbers.as_mut_slice());
        match (self.form, &mut self.tails) {
            (Form::F32, _) => Parameter::Flat(numbers),
            (Form::Split, Some(tails)) => {
                let tails = Shared::new(tails.as_mut_slice());
                Parameter::Split { shape: self.shape, words: numbers, tails }
            }
            (form, _) => panic!("a matrix in {form:?} never changes"),
        }
    }

    fn check(&self, shape: MatShape) {
        assert_eq!([shape.inputs, shape.outputs], self.shape, "w is [inputs, outputs]");
    }
}

/// Where the elements of a matrix are in words of two bf16 numbers.
#[derive(Clone, Copy)]
struct Packed {
    order: Form,
    shape: [usize; 2],
}

impl Packed {
    fn panel_words(self) -> usize {
        self.order.words([self.shape[0], 1])[0]
    }

    /// The word of an element within its panel, and whether it is the upper half.
    #[inline(always)]
    fn place(self, row: usize, column: usize) -> (usize, bool) {
        match self.order {
            Form::Panels => (row * PANEL / 2 + column % (PANEL / 2), column >= PANEL / 2),
            _ => (row / 2 * PANEL + column, row % 2 == 1),
        }
    }

    /// The parts of the rows of a panel that lie in a range of elements: row, first column in the panel, elements.
    fn rows(
        self,
        panel: usize,
        elements: Range<usize>,
    ) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
        let outputs = self.shape[1];
        let (left, right) = (panel * PANEL, outputs.min((panel + 1) * PANEL));
        (elements.start / outputs..elements.end.div_ceil(outputs)).filter_map(move |row| {
            let first = (row * outputs + left).max(elements.start);
            let end = (row * outputs + right).min(elements.end);
            (first < end).then(|| (row, first - row * outputs - left, first..end))
        })
    }

    /// Writes the half word that `bits` gives for every element from `first` on.
    fn write(
        self,
        cpu: &Cpu,
        first: usize,
        from: &[f32],
        to: &mut [f32],
        bits: impl Fn(f32) -> u32 + Sync + Send,
    ) {
        let (len, to) = (self.panel_words(), Shared::new(to));
        let elements = first..first + from.len();
        cpu.for_tasks(self.shape[1].div_ceil(PANEL), |panel| {
            // SAFETY: panels are disjoint.
            let to: &mut [u32] = bytemuck::cast_slice_mut(unsafe { to.part(panel * len, len) });
            for (row, column, elements) in self.rows(panel, elements.clone()) {
                let from = &from[elements.start - first..elements.end - first];
                for (column, x) in (column..).zip(from) {
                    let (at, upper) = self.place(row, column);
                    to[at] = if upper {
                        to[at] & 0xffff | bits(*x) << 16
                    } else {
                        to[at] & 0xffff_0000 | bits(*x)
                    };
                }
            }
        });
    }

    /// `x [tokens, inputs]` = the tokens' columns.
    fn gather(self, cpu: &Cpu, tokens: &[u32], words: &[f32], x: &mut [f32]) {
        let (len, width) = (self.panel_words(), self.shape[0]);
        assert_eq!(x.len(), tokens.len() * width, "x is [tokens, width]");
        cpu.for_blocks(x, width, |first, x| {
            let token = tokens[first / width] as usize;
            let (panel, column) = (token / PANEL, token % PANEL);
            for (i, x) in x.iter_mut().enumerate() {
                let (at, upper) = self.place(i, column);
                *x = join(words[panel * len + at].to_bits(), 0)[usize::from(upper)];
            }
        });
    }

    /// The number that `number` gives for the word and the half of every element from `first` on.
    fn read(
        self,
        cpu: &Cpu,
        first: usize,
        to: &mut [f32],
        number: impl Fn(usize, bool) -> f32 + Sync + Send,
    ) {
        let len = self.panel_words();
        let (elements, to) = (first..first + to.len(), Shared::new(to));
        cpu.for_tasks(self.shape[1].div_ceil(PANEL), |panel| {
            for (row, column, elements) in self.rows(panel, elements.clone()) {
                // SAFETY: panels are disjoint.
                let to = unsafe { to.part(elements.start - first, elements.len()) };
                for (column, to) in (column..).zip(to) {
                    let (at, upper) = self.place(row, column);
                    *to = number(panel * len + at, upper);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
