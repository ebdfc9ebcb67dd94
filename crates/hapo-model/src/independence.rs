//! Whether a row of a product depends on the rows beside it, measured on a model's own matrices.

use hapo_kernels::{Accumulate, Buffer, Device, MatShape, NumberFormat, Output};

use crate::{model::Model, param_layout::Projection};
use hapo_core::Refusal;

/// Rows of the product that others are compared with, and of those.
const MOST: usize = 256;
const FEW: [usize; 3] = [1, 8, 64];

impl<D: Device> Model<D> {
    /// True if some rows times the matrices of the first layer and the head have the same bits alone and among many, on
    /// which rests that sampled log-probabilities are the trainer's. `None` on a CPU, where tests say so.
    pub fn rows_are_independent(&self) -> Result<Option<bool>, Refusal> {
        if self.device.caps().is_cpu() {
            return Ok(None);
        }
        let factors = self.device.caps().factors();
        let all = self.layers[0].linears().into_iter().zip(Projection::ALL);
        let of_layer = all.map(|(linear, which)| match which {
            Projection::Gate | Projection::Up => (linear, factors, false),
            Projection::O | Projection::Down => (linear, NumberFormat::F32, true),
            _ => (linear, NumberFormat::F32, false),
        });
        for (linear, format, adds) in of_layer.chain([(&self.head, NumberFormat::F32, false)]) {
            let multiplied = |rows| {
                let [inputs, outputs] = linear.shape;
                let mut x = self.device.alloc(rows * inputs, factors)?;
                let mut y = self.device.alloc(rows * outputs, format)?;
                self.device.upload(&numbers(rows * inputs), x.first_mut(rows * inputs));
                let onto = if adds { Accumulate::Existing } else { Accumulate::Nothing };
                let shape = MatShape { rows, inputs, outputs };
                let output =
                    Output { weight: &linear.weight, onto, y: y.first_mut(rows * outputs) };
                self.device.product(shape, x.first(rows * inputs), [output]);
                let compared = rows.min(FEW[FEW.len() - 1]) * outputs;
                let mut values = vec![0.0; compared];
                self.device.download(y.first(compared), &mut values);
                self.device.check()?;
                Ok::<_, Refusal>(values)
            };
            let among = multiplied(MOST)?;
            for rows in FEW {
                let alone = multiplied(rows)?;
                if alone.iter().zip(&among).any(|(a, b)| a.to_bits() != b.to_bits()) {
                    return Ok(Some(false));
                }
            }
        }
        Ok(Some(true))
    }
}

/// Numbers in (−1, 1) that bf16 has.
fn numbers(n: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        f32::from_bits(number.to_bits() & 0xffff_0000)
    };
    (0..n).map(|_| next()).collect()
}
