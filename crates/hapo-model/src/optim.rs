//! `AdamW` over the flat buffer.

use hapo_kernels::{AdamW, Buffer, Device};

use crate::compute_error::ComputeError;
use crate::gradients::Gradients;
use crate::model::Model;
use crate::weights::Location;

/// First and second moments, laid out as the trained parameters.
#[derive(Debug)]
pub struct Moments<D: Device> {
    /// Mean of the gradient.
    pub first: D::Buf,
    /// Mean of its square.
    pub second: D::Buf,
}

impl<D: Device> Moments<D> {
    /// Zeros.
    ///
    /// # Errors
    /// No memory.
    pub fn new(model: &Model<D>) -> Result<Self, ComputeError> {
        let len = model.trained_layout().len();
        Ok(Self { first: model.device.alloc(len)?, second: model.device.alloc(len)? })
    }
}

impl<D: Device> Model<D> {
    /// One step over all trained parameters; cleared gradients count as zeros only through the decay, so they
    /// leave everything as it is.
    pub fn adamw(&mut self, step: AdamW, gradients: &Gradients<D>, moments: &mut Moments<D>) {
        if gradients.is_cleared() {
            return;
        }
        if self.adapter.is_none() {
            self.invalidate_packed();
        }
        if self.adapter.is_none() && self.split().is_some() {
            return self.adamw_split(step, gradients, moments);
        }
        let Self { device, params, adapter, .. } = self;
        let params = adapter.as_mut().map_or(params, |it| &mut it.params);
        let len = params.len();
        device.enter(|| {
            device.adamw(
                step,
                gradients.buf().first(len),
                params.first_mut(len),
                moments.first.first_mut(len),
                moments.second.first_mut(len),
            );
        });
    }

    /// [`Model::adamw`] tensor by tensor, the matrices where they are.
    fn adamw_split(&mut self, step: AdamW, gradients: &Gradients<D>, moments: &mut Moments<D>) {
        let Self { device, layout, locations, params, packed, .. } = self;
        let split = packed.as_mut().expect("the weights are split");
        let (g, m, v) = (gradients.buf(), &mut moments.first, &mut moments.second);
        device.enter(|| {
            for (param, location) in layout.params().iter().zip(locations.all()) {
                let (at, len) = (param.offset, param.len);
                let (g, m, v) = (g.at(at, len), m.at_mut(at, len), v.at_mut(at, len));
                match *location {
                    Location::Flat(at) => device.adamw(step, g, params.at_mut(at, len), m, v),
                    Location::Split(index) => {
                        let it = split.matrix_mut(index);
                        device.adamw_split(step, it.shape, g, it.packed, it.tails, m, v);
                    }
                }
            }
        });
    }
}
