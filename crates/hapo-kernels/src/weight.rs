//! Weight matrices as operations are given them: how they are to be held, where their numbers go.

use std::fmt::Debug;

use crate::number_format::NumberFormat;
use crate::shapes::{Accumulate, MatShape};
use crate::span::{Span, SpanMut};

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

/// A matrix in a device's form.
pub trait Matrix: Send + Sync + Debug {
    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize;
}

/// A matrix of a product, and where the result goes.
#[derive(Debug)]
pub struct Output<'a, B, W> {
    /// The matrix.
    pub weight: &'a W,
    /// The initial value of the product.
    pub onto: Accumulate<'a, B>,
    /// `[rows, outputs]`.
    pub y: SpanMut<'a, B>,
}

/// The pair of an adapter beside a matrix of a product: adds s·(x·A)·B.
#[derive(Debug)]
pub struct LowRank<'a, W> {
    /// A `[inputs, rank]`.
    pub a: &'a W,
    /// B `[rank, outputs]`, made by [`Device::pair_weight`](crate::Device::pair_weight) for the matrix.
    pub b: &'a W,
    /// Columns of A and rows of B.
    pub rank: usize,
    /// s.
    pub scale: f32,
}

impl<W> LowRank<'_, W> {
    /// The shape of x·A.
    pub fn low_shape(&self, MatShape { rows, inputs, .. }: MatShape) -> MatShape {
        MatShape { rows, inputs, outputs: self.rank }
    }
}

/// A matrix of a product with its pair.
#[derive(Debug)]
pub struct Paired<'a, B, W> {
    /// The matrix, and where the sum of both products goes.
    pub output: Output<'a, B, W>,
    /// The pair.
    pub pair: LowRank<'a, W>,
}

/// The place of a pair among those whose matrices one product covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPlace {
    /// Its number.
    pub index: usize,
    /// How many there are: 1 or 2.
    pub of: usize,
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
