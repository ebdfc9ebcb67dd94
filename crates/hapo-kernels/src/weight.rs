//! Weight matrices as operations are given them: how they are to be held, where their numbers go.

use std::{fmt::Debug, ops::Range};

use hapo_core::Refusal;

use crate::shapes::{Accumulate, MatShape};
use crate::span::{Span, SpanMut};
use crate::{error::Result, number_format::NumberFormat};

/// The use of a matrix, from which the device chooses a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// To be multiplied by and updated: exactly f32, in one part or in several.
    #[default]
    Trained,
    /// Plain f32, whatever products round to: an embedding that is looked up only.
    Plain,
    /// The pair of an adapter: plain f32 on the CPU, as [`Held::Trained`] on a GPU.
    Pair,
    /// It never changes: rounded to a format where the device multiplies by numbers of it.
    Frozen(NumberFormat),
}

/// A matrix in the form of a device `D`.
pub trait Matrix<D>: Send + Sync + Debug + Sized {
    /// A matrix `[inputs, outputs]` of zeros.
    fn zeros(device: &D, shape: [usize; 2], held: Held) -> Result<Self>;
    /// Some that multiply the same numbers. A GPU puts one below the other, so that they are one product.
    fn zeros_beside(device: &D, shapes: &[[usize; 2]], held: Held) -> Result<Vec<Self>> {
        shapes.iter().map(|shape| Self::zeros(device, *shape, held)).collect()
    }
    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize;
    /// A copy of the part that products read, to restore later.
    fn copy_of(&self, device: &D) -> Result<Self>;
    /// Exchanges the part that products read with a copy of it.
    fn swap(&mut self, _device: &D, copy: &mut Self) {
        std::mem::swap(self, copy);
    }
    /// A `[inputs, rank]` and B `[rank, outputs]` of zeros for those of [`Matrix::zeros_beside`] that have a pair.
    fn pairs(device: &D, rank: usize, of: Vec<Beside<'_, Self>>) -> Result<Vec<[Self; 2]>> {
        let zeros = |shape| Self::zeros(device, shape, Held::Pair);
        let shapes = of.into_iter().filter(|it| it.has_pair).map(|it| it.shape);
        let pair =
            |[inputs, outputs]: [usize; 2]| Ok([zeros([inputs, rank])?, zeros([rank, outputs])?]);
        shapes.map(pair).collect()
    }
    /// Host to device: elements from `first` on, in the order that the device holds matrices in: `[inputs, outputs]`, or as
    /// they are published, where [`DeviceCaps::holds_published`](crate::DeviceCaps::holds_published) says so.
    fn write(&mut self, device: &D, first: usize, from: &[f32]);
    /// Device to host: the same.
    fn read(&self, device: &D, first: usize, to: &mut [f32]);
    /// Host to device: the whole matrix, of whose published form `read` hands over some rows. A CPU asks for a few at a
    /// time, on all threads, so that nobody holds a copy of the matrix.
    ///
    /// # Errors
    /// That of the first rows which `read` refuses.
    fn write_published(
        &mut self,
        device: &D,
        published: Published,
        read: ReadRows<'_>,
    ) -> Result<(), Refusal> {
        read(0..published.rows, &mut |values| {
            published.each_band(values, |first, from| self.write(device, first, from));
        })
    }
    /// Prepares it for decoding, without a change of any result; whether it will be faster. Writes undo it.
    fn pack_for_decode(&mut self, _device: &D) -> Result<bool> {
        Ok(false)
    }
}

/// Hands the numbers of some published rows to its second argument.
pub type ReadRows<'a> =
    &'a (dyn Fn(Range<usize>, &mut dyn FnMut(&[f32])) -> Result<(), Refusal> + Sync);

/// A matrix as model folders have it.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Its rows.
    pub rows: usize,
    /// Numbers of a row.
    pub columns: usize,
    /// A row is a column of the matrix.
    pub is_transposed: bool,
    /// Rows that are read together.
    pub together: usize,
}

impl Published {
    /// Hands over the numbers in the order of the device, piece by piece, each with its first element.
    fn each_band(self, published: &[f32], mut write: impl FnMut(usize, &[f32])) {
        const BAND: usize = 32;
        // Results are written by whole cache lines: columns of a large matrix are far apart, and share the cache's sets.
        const ACROSS: usize = 16;
        let Self { rows: outputs, columns: inputs, .. } = self;
        if !self.is_transposed {
            return write(0, published);
        }
        let mut piece = vec![0.0; BAND.min(inputs) * outputs];
        for first in (0..inputs).step_by(BAND) {
            let n = BAND.min(inputs - first);
            for (block, rows) in published.chunks(ACROSS * inputs).enumerate() {
                let mut tile = [[0.0; BAND]; ACROSS];
                for (to, row) in tile.iter_mut().zip(rows.chunks_exact(inputs)) {
                    to[..n].copy_from_slice(&row[first..first + n]);
                }
                for i in 0..n {
                    let to = &mut piece[i * outputs + block * ACROSS..][..rows.len() / inputs];
                    to.iter_mut().zip(&tile).for_each(|(to, row)| *to = row[i]);
                }
            }
            write(first * outputs, &piece[..n * outputs]);
        }
    }
}

/// A matrix of a product, and where the result goes.
#[derive(Debug)]
pub struct Output<'a, B, W> {
    /// Of the product.
    pub shape: MatShape,
    /// The matrix.
    pub weight: &'a W,
    /// The pair beside it.
    pub pair: Option<Pair<'a, W>>,
    /// The initial value of the product.
    pub onto: Accumulate<'a, B>,
    /// `[rows, outputs]`.
    pub y: SpanMut<'a, B>,
}

/// The pair of an adapter beside a matrix, which adds s·(x·A)·B.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a, W> {
    /// A `[inputs, rank]`.
    pub a: &'a W,
    /// B `[rank, outputs]`.
    pub b: &'a W,
    /// Columns of A and rows of B.
    pub rank: usize,
    /// s.
    pub scale: f32,
}

/// One of some matrices that multiply the same numbers.
#[derive(Debug)]
pub struct Beside<'a, W> {
    /// The matrix.
    pub weight: &'a mut W,
    /// Inputs and outputs.
    pub shape: [usize; 2],
    /// It is to have a pair.
    pub has_pair: bool,
}

/// Numbers of one tensor.
#[derive(Debug)]
pub enum Numbers<'a, B, W> {
    /// A range of a buffer in f32.
    Span(Span<'a, B>),
    /// A matrix.
    Weight(&'a W),
}

/// Numbers of one tensor, to write.
#[derive(Debug)]
pub enum NumbersMut<'a, B, W> {
    /// A range of a buffer in f32.
    Span(SpanMut<'a, B>),
    /// A matrix.
    Weight(&'a mut W),
}

/// A parameter and its place among the gradients and the moments.
#[derive(Debug)]
pub struct Placed<'a, B, W> {
    /// Its first element there; even.
    pub at: usize,
    /// Its elements.
    pub len: usize,
    /// The parameter.
    pub numbers: NumbersMut<'a, B, W>,
}

/// Heads that are turned, `[positions, heads · head_dim]`.
#[derive(Debug)]
pub enum Heads<'a, B> {
    /// Queries and keys, in place.
    Forward([SpanMut<'a, B>; 2]),
    /// Their gradients, in place: the rotation back.
    Backward([SpanMut<'a, B>; 2]),
    /// Queries, keys and values in f32, into the format of attention; values are not turned.
    Stored {
        /// In f32.
        from: [Span<'a, B>; 3],
        /// In attention's format.
        to: [SpanMut<'a, B>; 3],
    },
}
