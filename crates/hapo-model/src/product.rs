//! A product with a layer's matrix, and with the low-rank pair beside it where there is one: y = x·W + s·(x·A)·B.
//!
//! Purpose: the one place where a layer meets a weight. The weight is f32 or packed, it is trained or the pair is, and
//! the layers above do not know which.
//!
//! Price: x·A is computed again in the backward pass, which costs a rank's share of the product itself.

use hapo_kernels::{Accumulate, Buffer, Device, NumberFormat, Span, SpanMut};

use crate::adapter::{Adapter, Pair};
use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::gradients::Gradients;
use crate::layer::Layer;
use crate::model::mat;
use crate::params::Projection;

/// Buffers that all layers use in turn.
#[derive(Debug)]
pub(crate) struct Scratch<D: Device> {
    pub(crate) mlp_hidden: D::Buf,
    /// s·x·A, `[rows, rank]`.
    pub(crate) low: D::Buf,
    /// Queries, keys and values in f32, where attention reads another format.
    pub(crate) heads: Option<[D::Buf; 3]>,
}

impl<D: Device> Scratch<D> {
    pub(crate) fn new(
        device: &D,
        config: &Config,
        rows: usize,
        rank: usize,
    ) -> Result<Self, ComputeError> {
        let mlp_hidden = device.alloc_as(rows * config.ffn, device.factor_format())?;
        let shape = config.attention_shape();
        let heads = match device.attention_format(shape) {
            NumberFormat::F32 => None,
            NumberFormat::Bf16 => Some([
                device.alloc(rows * shape.q_dim())?,
                device.alloc(rows * shape.kv_dim())?,
                device.alloc(rows * shape.kv_dim())?,
            ]),
        };
        Ok(Self { mlp_hidden, low: device.alloc(rows * rank)?, heads })
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        let heads = self.heads.iter().flatten().map(Buffer::bytes).sum::<usize>();
        (self.mlp_hidden.bytes() + self.low.bytes() + heads) as u64
    }
}

impl<D: Device> Layer<'_, D> {
    /// `y = onto + x·W + s·(x·A)·B`; `low` is overwritten.
    pub(crate) fn project(
        &self,
        which: Projection,
        x: Span<D::Buf>,
        onto: Accumulate<D::Buf>,
        mut y: SpanMut<D::Buf>,
        low: &mut D::Buf,
    ) {
        let (inputs, outputs) = which.shape(&self.model.config);
        let (device, rows) = (self.device, self.rows);
        let shape = mat(rows, inputs, outputs);
        if let Some(packed) = self.packed {
            let copy = packed.at(packed.layers[self.index][which as usize]);
            device.matmul_packed(shape, x, copy, onto, y.again());
        } else {
            device.matmul(shape, x, self.matrix(which), onto, y.again());
        }
        self.add_low_rank(which, x, y, low);
    }

    /// [`Layer::project`] of one `x` by two matrices of one shape.
    pub(crate) fn project_pair(
        &self,
        which: [Projection; 2],
        x: Span<D::Buf>,
        onto: [Accumulate<D::Buf>; 2],
        mut y: [SpanMut<D::Buf>; 2],
        low: &mut D::Buf,
    ) {
        let (inputs, outputs) = which[0].shape(&self.model.config);
        let (device, shape) = (self.device, mat(self.rows, inputs, outputs));
        let to = y.each_mut().map(SpanMut::again);
        if let Some(packed) = self.packed {
            let copies = which.map(|it| packed.at(packed.layers[self.index][it as usize]));
            device.matmul_packed_pair(shape, x, copies, onto, to);
        } else {
            device.matmul_pair(shape, x, which.map(|it| self.matrix(it)), onto, to);
        }
        for (which, y) in which.into_iter().zip(y) {
            self.add_low_rank(which, x, y, low);
        }
    }

    /// `y += s·(x·A)·B`, where there is such a pair.
    fn add_low_rank(
        &self,
        which: Projection,
        x: Span<D::Buf>,
        y: SpanMut<D::Buf>,
        low: &mut D::Buf,
    ) {
        if let Some((adapter, pair)) = self.pair(which) {
            let (inputs, outputs) = which.shape(&self.model.config);
            let (rows, rank) = (self.rows, adapter.rank());
            self.low(adapter, pair, inputs, x, low);
            let (low, b) = (low.first(rows * rank), adapter.at(pair.b));
            let shape = mat(rows, rank, outputs);
            self.device.matmul(shape, low, b, Accumulate::Existing, y);
        }
    }

    /// `dx = onto + dy·Wᵀ + d_low·Aᵀ` with `d_low = s·dy·Bᵀ`, which [`Layer::weight_grad`] of the same matrix reads.
    pub(crate) fn input_grad(
        &self,
        which: Projection,
        dy: Span<D::Buf>,
        onto: Accumulate<D::Buf>,
        mut dx: SpanMut<D::Buf>,
        d_low: &mut D::Buf,
    ) {
        let (inputs, outputs) = which.shape(&self.model.config);
        let (device, rows) = (self.device, self.rows);
        let shape = mat(rows, inputs, outputs);
        if let Some(packed) = self.packed {
            let copy = packed.at(packed.layers[self.index][which as usize]);
            device.matmul_packed_input_grad(shape, dy, copy, onto, dx.again());
        } else {
            device.matmul_input_grad(shape, dy, self.matrix(which), onto, dx.again());
        }
        if let Some((adapter, pair)) = self.pair(which) {
            let (rank, len) = (adapter.rank(), rows * adapter.rank());
            let (b, to) = (adapter.at(pair.b), d_low.first_mut(len));
            device.matmul_input_grad(mat(rows, rank, outputs), dy, b, Accumulate::Nothing, to);
            device.scale(d_low.first_mut(len), adapter.scale());
            let (shape, a) = (mat(rows, inputs, rank), adapter.at(pair.a));
            device.matmul_input_grad(shape, d_low.first(len), a, Accumulate::Existing, dx);
        }
    }

    /// Adds the gradient of W, or of A and B: after [`Layer::input_grad`] of the same matrix. `low` is overwritten.
    pub(crate) fn weight_grad(
        &self,
        which: Projection,
        x: Span<D::Buf>,
        dy: Span<D::Buf>,
        d_low: &D::Buf,
        low: &mut D::Buf,
        gradients: &mut Gradients<D>,
    ) {
        let (inputs, outputs) = which.shape(&self.model.config);
        let (device, rows) = (self.device, self.rows);
        if !self.model.base_is_frozen() {
            let range = self.params().matrices[which as usize];
            gradients.add_product(device, range, mat(rows, inputs, outputs), x, dy);
        }
        if let Some((adapter, pair)) = self.pair(which) {
            let rank = adapter.rank();
            self.low(adapter, pair, inputs, x, low);
            let (low, d_low) = (low.first(rows * rank), d_low.first(rows * rank));
            gradients.add_product(device, pair.b, mat(rows, rank, outputs), low, dy);
            gradients.add_product(device, pair.a, mat(rows, inputs, rank), x, d_low);
        }
    }

    /// `low = s·x·A`.
    fn low(
        &self,
        adapter: &Adapter<D>,
        pair: Pair,
        inputs: usize,
        x: Span<D::Buf>,
        low: &mut D::Buf,
    ) {
        let len = self.rows * adapter.rank();
        let shape = mat(self.rows, inputs, adapter.rank());
        let a = adapter.at(pair.a);
        self.device.matmul(shape, x, a, Accumulate::Nothing, low.first_mut(len));
        self.device.scale(low.first_mut(len), adapter.scale());
    }

    fn matrix(&self, which: Projection) -> Span<'_, D::Buf> {
        self.model.param(self.params().matrices[which as usize])
    }

    fn pair(&self, which: Projection) -> Option<(&Adapter<D>, Pair)> {
        let adapter = self.model.adapter.as_ref()?;
        Some((adapter, adapter.pairs[self.index][which as usize]?))
    }
}
