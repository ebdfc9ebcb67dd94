//! `AdamW`: the moments, and one step over all trained parameters.

use hapo_core::Refusal;
use hapo_kernels::{AdamW, Buffer, Device, MomentsMut, NumberFormat};

use crate::{gradients::Gradients, model::Model};

/// First and second moments, laid out as the trained parameters.
#[derive(Debug)]
pub struct Moments<D: Device> {
    /// The means of the gradient and of its square.
    buffers: [D::Buf; 2],
    format: NumberFormat,
    seed: u64,
}

impl<D: Device> Moments<D> {
    /// Zeros in f32.
    pub fn new(model: &Model<D>) -> Result<Self, Refusal> {
        Self::held_in(NumberFormat::F32, model, 0)
    }

    /// Zeros in a format; `seed` is for the draws that round bf16.
    pub fn held_in(format: NumberFormat, model: &Model<D>, seed: u64) -> Result<Self, Refusal> {
        let words = format.words(model.trained_layout().len());
        let buffer = || model.device.alloc(words, NumberFormat::F32);
        Ok(Self { buffers: [buffer()?, buffer()?], format, seed })
    }

    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|it| (it.len() * size_of::<f32>()) as u64).sum()
    }

    /// One step over all trained parameters; cleared gradients change nothing.
    pub fn adamw(&mut self, model: &mut Model<D>, step: AdamW, gradients: &Gradients<D>) {
        if gradients.is_cleared() {
            return;
        }
        let device = model.device.clone();
        let buffers = self.buffers.each_mut();
        let moments = match self.format {
            NumberFormat::F32 => MomentsMut::F32(buffers),
            NumberFormat::Bf16 => MomentsMut::Bf16 { buffers, seed: self.seed },
        };
        let parameters = model.placed();
        device.enter(|| device.adamw(step, gradients.buf(), moments, parameters));
    }

    /// Copies the first moments (0) or the second (1) of the elements from `first` on to the host; `first` is even.
    pub fn read(&self, device: &D, moment: usize, first: usize, to: &mut [f32]) {
        let buffer = &self.buffers[moment];
        match self.format {
            NumberFormat::F32 => device.download(buffer.at(first, to.len()), to),
            NumberFormat::Bf16 => {
                let mut words = vec![0.0; to.len().div_ceil(2)];
                device.download(buffer.at(first / 2, words.len()), &mut words);
                for (to, word) in to.chunks_mut(2).zip(words) {
                    let halves = [word.to_bits() << 16, word.to_bits() & 0xffff_0000];
                    for (to, half) in to.iter_mut().zip(halves) {
                        *to = f32::from_bits(half);
                    }
                }
            }
        }
    }

    /// [`Moments::read`] the other way; a number that bf16 has not becomes the nearest.
    pub fn set(&mut self, device: &D, moment: usize, first: usize, from: &[f32]) {
        let buffer = &mut self.buffers[moment];
        match self.format {
            NumberFormat::F32 => device.upload(from, buffer.at_mut(first, from.len())),
            NumberFormat::Bf16 => {
                let bits = |it: f32| u32::from(half::bf16::from_f32(it).to_bits());
                let word = |pair: &[f32]| {
                    f32::from_bits(bits(pair[0]) | pair.get(1).map_or(0, |it| bits(*it)) << 16)
                };
                let words: Vec<f32> = from.chunks(2).map(word).collect();
                device.upload(&words, buffer.at_mut(first / 2, words.len()));
            }
        }
    }
}
