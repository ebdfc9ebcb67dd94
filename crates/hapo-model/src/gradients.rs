//! The sum of gradients by the parameters.

use hapo_kernels::{Accumulate, Buffer, Device, MatShape, Span, SpanMut};

use crate::compute_error::ComputeError;
use crate::model::Model;
use crate::params::Range;

/// The sum of gradients of the batches since [`Gradients::clear`], laid out as the trained parameters.
#[derive(Debug)]
pub struct Gradients<D: Device> {
    /// Is `None` while its memory is given back.
    buf: Option<D::Buf>,
    /// Takes the gradients of norms that are not trained, which the operation gives in any case.
    unread: Option<D::Buf>,
    /// Whether no backward pass was added since the last clear; the buffer's numbers mean nothing then.
    cleared: bool,
}

impl<D: Device> Gradients<D> {
    /// Zero gradients.
    ///
    /// # Errors
    /// No memory.
    pub fn new(model: &Model<D>) -> Result<Self, ComputeError> {
        let device = &model.device;
        let unread = match model.adapter {
            Some(_) => Some(device.alloc(model.config.hidden.max(model.config.head_dim))?),
            None => None,
        };
        let buf = Some(device.alloc(model.trained_layout().len())?);
        Ok(Self { buf, unread, cleared: true })
    }

    /// Gives the memory back and forgets the sum; the next backward pass takes it again.
    pub fn release(&mut self) {
        self.buf = None;
        self.cleared = true;
    }

    /// Takes memory where it was given back.
    pub(crate) fn reserve(&mut self, model: &Model<D>) -> Result<(), ComputeError> {
        if self.buf.is_none() {
            self.buf = Some(model.device.alloc(model.trained_layout().len())?);
        }
        Ok(())
    }

    /// Forgets the sum: the next backward pass overwrites it, which saves a pass over memory.
    pub fn clear(&mut self) {
        self.cleared = true;
    }

    /// Writes the zeros that a cleared sum stands for: a batch in which no group has a signal still
    /// makes an optimiser step.
    ///
    /// # Errors
    /// No memory, where it was given back.
    pub fn materialize(&mut self, model: &Model<D>) -> Result<(), ComputeError> {
        if self.cleared {
            self.reserve(model)?;
            let len = self.buf().len();
            model.device.fill(self.at_mut((0, len)), 0.0);
            self.cleared = false;
        }
        Ok(())
    }

    /// Whether no backward pass was added since [`Gradients::clear`]; the buffer is meaningless then.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// The flat buffer.
    ///
    /// # Panics
    /// When its memory is given back.
    pub fn buf(&self) -> &D::Buf {
        self.buf.as_ref().expect("gradients have memory")
    }

    /// Squared norm of every tensor, in the order of the layout; zeros when cleared.
    pub fn squared_norms(&self, model: &Model<D>) -> Vec<f64> {
        if self.cleared {
            return vec![0.0; model.trained_layout().params().len()];
        }
        model.squared_norms(self.buf())
    }

    /// Adds the gradient `xᵀ · dy` of a matrix, once per backward pass.
    pub(crate) fn add_product(
        &mut self,
        device: &D,
        matrix: Range,
        shape: MatShape,
        x: Span<D::Buf>,
        dy: Span<D::Buf>,
    ) {
        let onto = self.accumulate();
        device.matmul_weight_grad(shape, x, dy, onto, self.at_mut(matrix));
    }

    /// What the first addition of a backward pass is added to.
    pub(crate) fn accumulate<'a>(&self) -> Accumulate<'a, D::Buf> {
        if self.cleared { Accumulate::Nothing } else { Accumulate::Existing }
    }

    /// Whether the gradients are those of an adapter.
    pub(crate) fn base_is_frozen(&self) -> bool {
        self.unread.is_some()
    }

    /// Adds the gradient of a bias of the model.
    pub(crate) fn add_bias(&mut self, device: &D, bias: Range, dy: Span<D::Buf>) {
        if !self.base_is_frozen() {
            device.add_column_sums(bias.1, dy, self.cleared(device, bias));
        }
    }

    /// A range of the model's norms for an operation that can only add to it: zeroed first in a cleared sum.
    pub(crate) fn cleared(&mut self, device: &D, range: Range) -> SpanMut<'_, D::Buf> {
        if self.base_is_frozen() {
            let unread = self.unread.as_mut().expect("a frozen base has one");
            return unread.first_mut(range.1);
        }
        if self.cleared {
            device.fill(self.at_mut(range), 0.0);
        }
        self.at_mut(range)
    }

    pub(crate) fn at_mut(&mut self, range: Range) -> SpanMut<'_, D::Buf> {
        let buf = self.buf.as_mut().expect("gradients have memory");
        buf.at_mut(range.0, range.1)
    }

    /// Says that a backward pass was added.
    pub(crate) fn mark_added(&mut self) {
        self.cleared = false;
    }
}
