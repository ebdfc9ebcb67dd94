//! A low-rank adapter (`LoRA`, Hu et al., <https://arxiv.org/abs/2106.09685>) beside weights that do not change:
//! y = x·W + s·(x·A)·B with s = α/r, or α/√r with rank-stabilised scaling (<https://arxiv.org/abs/2312.03732>).
//!
//! Names, shapes and initial values are those of PEFT. The adapter is one flat buffer laid out like the parameters of
//! a model, so that gradients, moments and checkpoints do not tell them apart.

use hapo_kernels::{Buffer, Device, Span};

use crate::compute_error::ComputeError;
use crate::config::{Config, TensorSpec};
use crate::model::{Model, mat};
use crate::params::{ParamLayout, Projection, Range};

/// What an adapter is, apart from its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraShape {
    /// r: columns of A, rows of B; at least 1.
    pub rank: usize,
    /// α of the scaling.
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

    /// Every tensor by PEFT's name and shape, in the order of the flat buffer: A `[rank, inputs]` and B `[outputs,
    /// rank]` of each target of each layer.
    pub fn tensors(&self, config: &Config) -> Vec<TensorSpec> {
        let of_layer = |layer: usize| {
            self.targets.iter().flat_map(move |&which| {
                let (inputs, outputs) = which.shape(config);
                let of = |pair: &str, shape: [usize; 2]| TensorSpec {
                    name: tensor_name(layer, which, pair),
                    shape: shape.to_vec(),
                };
                [of("A", [self.rank, inputs]), of("B", [outputs, self.rank])]
            })
        };
        (0..config.layers).flat_map(of_layer).collect()
    }

    /// Bytes of one copy of the adapter in f32: that of its weights, of their gradient, and of each of the moments.
    pub fn bytes(&self, config: &Config) -> u64 {
        (ParamLayout::of_tensors(self.tensors(config), |_| true).len() * size_of::<f32>()) as u64
    }
}

fn tensor_name(layer: usize, which: Projection, pair: &str) -> String {
    format!("base_model.model.model.layers.{layer}.{}.lora_{pair}.weight", which.module())
}

/// Ranges of A `[inputs, rank]` and B `[rank, outputs]` in the adapter's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) a: Range,
    pub(crate) b: Range,
}

/// An adapter on a device.
#[derive(Debug)]
pub(crate) struct Adapter<D: Device> {
    pub(crate) shape: LoraShape,
    pub(crate) layout: ParamLayout,
    pub(crate) params: D::Buf,
    /// The pair of each matrix of each layer.
    pub(crate) pairs: Vec<[Option<Pair>; 7]>,
}

impl<D: Device> Adapter<D> {
    fn new(device: &D, config: &Config, shape: LoraShape) -> Result<Self, ComputeError> {
        let layout = ParamLayout::of_tensors(shape.tensors(config), |_| true);
        let range = |layer, which, pair| {
            layout.get(&tensor_name(layer, which, pair)).map(|it| (it.offset, it.len))
        };
        let mut pairs = vec![[None; 7]; config.layers];
        for (layer, pairs) in pairs.iter_mut().enumerate() {
            for &which in &shape.targets {
                let (a, b) = (range(layer, which, "A")?, range(layer, which, "B")?);
                pairs[which as usize] = Some(Pair { a, b });
            }
        }
        Ok(Self { params: device.alloc(layout.len())?, pairs, layout, shape })
    }

    pub(crate) fn at(&self, range: Range) -> Span<'_, D::Buf> {
        self.params.at(range.0, range.1)
    }

    pub(crate) fn rank(&self) -> usize {
        self.shape.rank
    }

    pub(crate) fn scale(&self) -> f32 {
        self.shape.scale() as f32
    }
}

impl<D: Device> Model<D> {
    /// Puts an adapter of zeros beside the weights, in the place of the one before; the weights no longer change. Fill
    /// it with [`Model::set_tensor`].
    ///
    /// # Errors
    /// No memory.
    pub fn add_adapter(&mut self, shape: LoraShape) -> Result<(), ComputeError> {
        self.adapter = Some(Adapter::new(&self.device, &self.config, shape)?);
        Ok(())
    }

    /// The shape of the adapter, where there is one.
    pub fn adapter(&self) -> Option<&LoraShape> {
        self.adapter.as_ref().map(|it| &it.shape)
    }

    /// Whether updates leave the weights as they are.
    pub(crate) fn base_is_frozen(&self) -> bool {
        self.adapter.is_some()
    }

    /// Its rank; 0 without an adapter.
    pub(crate) fn rank(&self) -> usize {
        self.adapter.as_ref().map_or(0, Adapter::rank)
    }

    /// Adds the adapter to the weights, W + s·A·B, and drops it.
    ///
    /// # Errors
    /// No memory, or weights that are held in bf16 alone and cannot take the sum.
    pub fn merge_adapter(&mut self) -> Result<(), ComputeError> {
        if self.packed_alone().is_some() && self.split().is_none() {
            return Err(ComputeError::Frozen);
        }
        let Some(adapter) = self.adapter.take() else {
            return Ok(());
        };
        if self.split().is_some() {
            return self.merge_into_split(&adapter);
        }
        let rank = adapter.rank();
        let widest = Projection::ALL.into_iter().map(|it| it.shape(&self.config).0).max();
        let mut scaled = self.device.alloc(widest.unwrap_or(0) * rank)?;
        let Self { device, config, roles, params, .. } = self;
        device.enter(|| {
            for (layer, pairs) in roles.layers.iter().zip(&adapter.pairs) {
                for which in Projection::ALL {
                    let Some(pair) = pairs[which as usize] else { continue };
                    let (inputs, outputs) = which.shape(config);
                    device.copy(adapter.at(pair.a), scaled.first_mut(pair.a.1));
                    device.scale(scaled.first_mut(pair.a.1), adapter.scale());
                    let (at, len) = layer.matrices[which as usize];
                    device.matmul(
                        mat(inputs, rank, outputs),
                        scaled.first(pair.a.1),
                        adapter.at(pair.b),
                        hapo_kernels::Accumulate::Existing,
                        params.at_mut(at, len),
                    );
                }
            }
        });
        self.invalidate_packed();
        Ok(self.device.check()?)
    }

    /// Adds an adapter to weights that are split: each matrix is put together, and split again.
    fn merge_into_split(&mut self, adapter: &Adapter<D>) -> Result<(), ComputeError> {
        for layer in 0..self.config.layers {
            for which in Projection::ALL {
                let Some(pair) = adapter.pairs[layer][which as usize] else { continue };
                let (inputs, outputs) = which.shape(&self.config);
                let (at, len) = self.roles.layers[layer].matrices[which as usize];
                let mut numbers = vec![0.0; len];
                self.read_params(at, &mut numbers);
                let device = &self.device;
                let (mut scaled, mut w) = (device.alloc(pair.a.1)?, device.alloc(len)?);
                device.upload(&numbers, w.first_mut(len));
                device.copy(adapter.at(pair.a), scaled.first_mut(pair.a.1));
                device.scale(scaled.first_mut(pair.a.1), adapter.scale());
                device.matmul(
                    mat(inputs, adapter.rank(), outputs),
                    scaled.first(pair.a.1),
                    adapter.at(pair.b),
                    hapo_kernels::Accumulate::Existing,
                    w.first_mut(len),
                );
                device.download(w.first(len), &mut numbers);
                self.write_split(at, &numbers);
            }
        }
        Ok(self.device.check()?)
    }
}
