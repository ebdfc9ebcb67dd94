//! Gradient and moments: three flat buffers beside the weights.

use hapo_kernels::{AdamW, Buffer, Cpu, CpuBuf, Device};
use hapo_model::Decoder;

use crate::error::Result;

/// State of the optimiser.
#[derive(Debug)]
pub struct Optimizer {
    /// Gradient of the mini-batch at hand.
    pub(crate) gradient: CpuBuf,
    /// First moments.
    pub(crate) first: CpuBuf,
    /// Second moments.
    pub(crate) second: CpuBuf,
    /// Updates made.
    pub(crate) steps: u64,
}

impl Optimizer {
    /// Zero moments for a decoder's parameters.
    pub fn new(decoder: &Decoder<Cpu>) -> Result<Self> {
        let n = decoder.params().len();
        let zeros = || decoder.device().alloc(n).map_err(hapo_model::Error::from);
        Ok(Self { gradient: zeros()?, first: zeros()?, second: zeros()?, steps: 0 })
    }

    /// Sets the gradient to zero.
    pub fn clear_gradient(&mut self, decoder: &Decoder<Cpu>) {
        let n = self.gradient.len();
        decoder.device().fill(self.gradient.first_mut(n), 0.0);
    }

    /// Global norm of the gradient.
    pub fn gradient_norm(&self, decoder: &Decoder<Cpu>) -> f64 {
        decoder.device().squared_norm(self.gradient.first(self.gradient.len())).sqrt()
    }

    /// One step of `AdamW` on every parameter.
    pub fn apply(&mut self, decoder: &mut Decoder<Cpu>, settings: AdamW) {
        let n = self.gradient.len();
        let (device, params) = decoder.device_and_params_mut();
        device.adamw(settings, self.gradient.first(n), params.first_mut(n), self.first.first_mut(n), self.second.first_mut(n));
    }
}
