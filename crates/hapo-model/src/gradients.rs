//! The sum of gradients by the parameters.

use hapo_kernels::{Accumulate, Buffer, Device, MatShape, Span, SpanMut};

use crate::compute_error::ComputeError;
use crate::model::Model;
use crate::params::Range;

/// The sum of gradients of the batches since [`Gradients::clear`], laid out as the trained parameters.
#[derive(Debug)]
pub struct Gradients<D: Device> {
    buf: D::Buf,
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
        Ok(Self { buf: device.alloc(model.trained_layout().len())?, unread, cleared: true })
    }

    /// Forgets the sum: the next backward pass overwrites it, which saves a pass over memory.
    pub fn clear(&mut self) {
        self.cleared = true;
    }

    /// Writes the zeros that a cleared sum stands for: a batch in which no group has a signal still
    /// makes an optimiser step.
    pub fn materialize(&mut self, model: &Model<D>) {
        if self.cleared {
            let len = self.buf.len();
            model.device.fill(self.buf.first_mut(len), 0.0);
            self.cleared = false;
        }
    }

    /// Whether no backward pass was added since [`Gradients::clear`]; the buffer is meaningless then.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// The flat buffer.
    pub fn buf(&self) -> &D::Buf {
        &self.buf
    }

    /// Squared norm of every tensor, in the order of the layout; zeros when cleared.
    pub fn squared_norms(&self, model: &Model<D>) -> Vec<f64> {
        let device = &model.device;
        let params = model.trained_layout().params();
        if self.cleared {
            return vec![0.0; params.len()];
        }
        device.enter(|| {
            params.iter().map(|p| device.squared_norm(self.buf.at(p.offset, p.len))).collect()
        })
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
        self.buf.at_mut(range.0, range.1)
    }

    /// Says that a backward pass was added.
    pub(crate) fn mark_added(&mut self) {
        self.cleared = false;
    }
}
