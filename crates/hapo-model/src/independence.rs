//! Whether a row of a product depends on the rows beside it, measured on a model's own matrices.

use hapo_kernels::{Accumulate, Buffer, Device, MatShape, NumberFormat, Output};

use crate::linear::Linear;
use crate::model::{Layer, Model};
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
        let f32 = NumberFormat::F32;
        let Layer { q, k, v, o, gate, up, down, .. } = &self.layers[0];
        let all: [(&[&Linear<D>], NumberFormat, bool); 5] = [
            (&[q, k, v], f32, false),
            (&[o], f32, true),
            (&[gate, up], factors, false),
            (&[down], f32, true),
            (&[&self.head], f32, false),
        ];
        for (linears, format, adds) in all {
            let inputs = linears[0].shape[0];
            let widths: Vec<usize> = linears.iter().map(|it| it.shape[1]).collect();
            let multiplied = |rows| {
                let mut x = self.device.alloc(rows * inputs, factors)?;
                let mut ys = self.device.alloc_beside(rows, &widths, format)?;
                self.device.upload(&numbers(rows * inputs), x.first_mut(rows * inputs));
                let outputs = linears.iter().zip(&mut ys).map(|(linear, y)| {
                    let outputs = linear.shape[1];
                    let onto = if adds { Accumulate::Existing } else { Accumulate::Nothing };
                    let (shape, y) =
                        (MatShape { rows, inputs, outputs }, y.first_mut(rows * outputs));
                    Output { shape, weight: &linear.weight, pair: None, onto, y }
                });
                let outputs = outputs.collect();
                self.device.product(x.first(rows * inputs), None, outputs);
                let mut values = Vec::new();
                for (y, width) in ys.iter().zip(&widths) {
                    let mut compared = vec![0.0; rows.min(FEW[FEW.len() - 1]) * width];
                    self.device.download(y.first(compared.len()), &mut compared);
                    values.push(compared);
                }
                self.device.check()?;
                Ok::<_, Refusal>(values)
            };
            let among = multiplied(MOST)?;
            for rows in FEW {
                let alone = multiplied(rows)?;
                let both = || alone.iter().zip(&among).flat_map(|(a, b)| a.iter().zip(b));
                if both().any(|(a, b)| a.to_bits() != b.to_bits()) {
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
