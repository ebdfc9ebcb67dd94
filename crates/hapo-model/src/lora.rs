//! A low-rank adapter (`LoRA`, Hu et al., <https://arxiv.org/abs/2106.09685>) beside weights that do not change:
//! y = x·W + s·(x·A)·B with s = α/r, or α/√r with rank-stabilised scaling (<https://arxiv.org/abs/2312.03732>).
//!
//! Names, shapes and initial values are those of PEFT. The adapter has places like a model's parameters, so gradients,
//! moments and checkpoints treat both alike.

use crate::config::{Config, TensorSpec};
use crate::param_layout::{ParamLayout, Projection};

#[derive(Clone, Debug, PartialEq)]
pub struct LoraShape {
    /// r: columns of A, rows of B; at least 1.
    pub rank: usize,
    pub alpha: f64,
    /// Scale by α/√r and not by α/r.
    pub rslora: bool,
    /// The matrices that have a pair, at least one, in the order of [`Projection::ALL`].
    pub targets: Vec<Projection>,
}

impl LoraShape {
    /// s of y = x·W + s·(x·A)·B.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    /// Every tensor as PEFT has it, in the buffer's order: of each layer's targets A `[rank, inputs]`, B `[outputs, rank]`.
    pub fn tensors(&self, config: &Config) -> Vec<TensorSpec> {
        let of_layer = |layer: usize| {
            self.targets.iter().flat_map(move |&which| {
                let (inputs, outputs) = which.shape(config);
                let place = format!("base_model.model.model.layers.{layer}.{}", which.module());
                let of = |pair: &str, shape: [usize; 2]| TensorSpec {
                    name: format!("{place}.lora_{pair}.weight"),
                    shape: shape.to_vec(),
                };
                [of("A", [self.rank, inputs]), of("B", [outputs, self.rank])]
            })
        };
        (0..config.layers).flat_map(of_layer).collect()
    }

    pub fn layout(&self, config: &Config) -> ParamLayout {
        ParamLayout::of_tensors(self.tensors(config), |_| true)
    }
}
