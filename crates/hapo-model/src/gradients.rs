//! The sum of gradients by the parameters.

use hapo_core::Refusal;
use hapo_kernels::{Accumulate, Buffer, Device, MatShape, NumberFormat, Span, SpanMut};

use crate::param_layout::Range;

/// The sum of gradients of the batches since [`Gradients::clear`], laid out as the trained parameters.
#[derive(Debug)]
pub struct Gradients<D: Device> {
    /// Is `None` while its memory is given back.
    buf: Option<D::Buf>,
    len: usize,
    /// Beside an adapter takes the gradients of norms, which are not trained then but given in any case.
    unread: Option<D::Buf>,
    /// No backward pass was added since the last clear; the buffer's numbers are then meaningless.
    pub(crate) cleared: bool,
}

impl<D: Device> Gradients<D> {
    /// Zero gradients of `len` parameters; `unread` elements are of the longest norm that is not trained.
    pub(crate) fn zeros(device: &D, len: usize, unread: usize) -> Result<Self, Refusal> {
        let unread = match unread {
            0 => None,
            _ => Some(device.alloc(unread, NumberFormat::F32)?),
        };
        let buf = Some(device.alloc(len, NumberFormat::F32)?);
        Ok(Self { buf, len, unread, cleared: true })
    }

    /// Gives the memory back and forgets the sum; the next backward pass takes it again.
    pub fn release(&mut self) {
        self.buf = None;
        self.cleared = true;
    }

    pub(crate) fn reserve(&mut self, device: &D) -> Result<(), Refusal> {
        if self.buf.is_none() {
            self.buf = Some(device.alloc(self.len, NumberFormat::F32)?);
        }
        Ok(())
    }

    /// Forgets the sum: the next backward pass overwrites it, which saves a pass over memory.
    pub fn clear(&mut self) {
        self.cleared = true;
    }

    /// Writes the zeros of a cleared sum: a batch in which no group has a signal still makes an optimiser step.
    pub fn materialize(&mut self, device: &D) -> Result<(), Refusal> {
        if self.cleared {
            self.reserve(device)?;
            device.fill(self.at_mut((0, self.len)), 0.0);
            self.cleared = false;
        }
        Ok(())
    }

    /// True if no backward pass was added since [`Gradients::clear`]; the buffer is then meaningless.
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
        device.product_weight_grad(shape, x, dy, onto, self.at_mut(matrix));
    }

    /// The initial value for the first addition of a backward pass.
    pub(crate) fn accumulate<'a>(&self) -> Accumulate<'a, D::Buf> {
        if self.cleared { Accumulate::Nothing } else { Accumulate::Existing }
    }

    /// True unless an adapter's alone are summed.
    pub(crate) fn are_of_weights(&self) -> bool {
        self.unread.is_none()
    }

    pub(crate) fn add_bias(&mut self, device: &D, place: Range, dy: Span<D::Buf>) {
        if self.are_of_weights() {
            device.add_column_sums(place.1, dy, self.cleared(device, place));
        }
    }

    /// The range of a norm, for an operation that only adds: zeroed first in a cleared sum, unread beside an adapter.
    pub(crate) fn of_norm(&mut self, device: &D, place: Range) -> SpanMut<'_, D::Buf> {
        if self.unread.is_none() {
            return self.cleared(device, place);
        }
        self.unread.as_mut().expect("an adapter's have it").first_mut(place.1)
    }

    /// A range for an operation that can only add to it: zeroed first in a cleared sum.
    pub(crate) fn cleared(&mut self, device: &D, range: Range) -> SpanMut<'_, D::Buf> {
        if self.cleared {
            device.fill(self.at_mut(range), 0.0);
        }
        self.at_mut(range)
    }

    pub(crate) fn at_mut(&mut self, range: Range) -> SpanMut<'_, D::Buf> {
        let buf = self.buf.as_mut().expect("gradients have memory");
        buf.at_mut(range.0, range.1)
    }
}
