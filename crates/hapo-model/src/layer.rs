//! One decoder layer: the forward pass of each block with its gradient next to it.
//!
//! Purpose: the order of a layer's operations is written once, for training, for the prompt and for
//! decoding. Names are those of the published weights (`q_proj`, `down_proj`) and of what is between
//! the blocks: `resid_mid` is the input plus the attention block's output.
//!
//! Price: gradients are written by hand, and they overwrite saved activations that nothing reads
//! again (`gate`, `up`, and `q`, `k` where their heads are normalised).

use hapo_kernels::{Accumulate, Buffer, Device, SegmentRow, Span, SpanMut};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::gradients::Gradients;
use crate::model::{Model, mat};
use crate::packed::PackedWeights;
use crate::params::{LayerParams, Matrices, Range};

/// A layer and the rows it runs on.
pub(crate) struct Layer<'a, D: Device> {
    pub(crate) model: &'a Model<D>,
    /// The part of the device that runs it.
    pub(crate) device: &'a D,
    /// The bf16 copy of its matrices, where that is what is read.
    pub(crate) packed: Option<&'a PackedWeights<D>>,
    pub(crate) index: usize,
    pub(crate) rows: usize,
    pub(crate) positions: &'a D::Table<u32>,
}

/// What the attention of one layer reads and writes.
pub(crate) struct AttentionArgs<'a, D: Device> {
    pub(crate) q: Span<'a, D::Buf>,
    pub(crate) k: Span<'a, D::Buf>,
    pub(crate) v: Span<'a, D::Buf>,
    pub(crate) out: &'a mut D::Buf,
    pub(crate) log_sums: &'a mut D::Buf,
}

impl<D: Device> Layer<'_, D> {
    /// From the layer's input to its output. `attend` is what differs between packed and decoded rows;
    /// `mlp_hidden` is overwritten.
    pub(crate) fn forward(
        &self,
        x: &D::Buf,
        x_next: &mut D::Buf,
        saved: &mut LayerActivations<D>,
        mlp_hidden: &mut D::Buf,
        attend: impl FnOnce(&D, AttentionArgs<'_, D>),
    ) {
        self.attention_block(x, saved, attend);
        self.mlp_block(saved, mlp_hidden, x_next);
    }

    /// From the gradient of the layer's output in `d.resid` to that of its input, in the same buffer.
    pub(crate) fn backward(
        &self,
        x: &D::Buf,
        segments: &D::Table<SegmentRow>,
        saved: &mut LayerActivations<D>,
        mlp_hidden: &mut D::Buf,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        self.mlp_block_grad(saved, mlp_hidden, d, gradients);
        self.attention_block_grad(x, segments, saved, d, gradients);
    }

    /// `resid_mid = x + o_proj(attention(q, k, v))` of `attn_norm(x)`.
    fn attention_block(
        &self,
        x: &D::Buf,
        saved: &mut LayerActivations<D>,
        attend: impl FnOnce(&D, AttentionArgs<'_, D>),
    ) {
        let (p, c, rows) = (self.params(), &self.model.config, self.rows);
        let (q_dim, kv_dim) = self.dims();
        let all = rows * c.hidden;
        self.device.rms_norm(
            c.rms_eps,
            x.first(all),
            self.model.param(p.attn_norm),
            saved.attn_norm.first_mut(all),
            saved.attn_norm_inverse.first_mut(rows),
            Some(saved.resid_mid.first_mut(all)),
        );
        self.qkv(saved);
        attend(
            self.device,
            AttentionArgs {
                q: saved.q.first(rows * q_dim),
                k: saved.k.first(rows * kv_dim),
                v: saved.v.first(rows * kv_dim),
                out: &mut saved.attn_out,
                log_sums: &mut saved.log_sums,
            },
        );
        self.project(
            |it| it.o_proj,
            (q_dim, c.hidden),
            saved.attn_out.first(rows * q_dim),
            Accumulate::Existing,
            saved.resid_mid.first_mut(all),
        );
    }

    /// Queries, keys and values of `attn_norm`: projections, norm of the heads where there is one,
    /// rotary embedding.
    fn qkv(&self, saved: &mut LayerActivations<D>) {
        type Pick = fn(&Matrices) -> Range;
        let (p, c, rows) = (self.params(), &self.model.config, self.rows);
        let (q_dim, kv_dim) = self.dims();
        let (q_to, k_to) = match &mut saved.raw_heads {
            Some(raw) => (&mut raw.q, &mut raw.k),
            None => (&mut saved.q, &mut saved.k),
        };
        let attn_norm = saved.attn_norm.first(rows * c.hidden);
        let projections: [(Pick, usize, &mut D::Buf); 3] = [
            (|it| it.q_proj, q_dim, q_to),
            (|it| it.k_proj, kv_dim, k_to),
            (|it| it.v_proj, kv_dim, &mut saved.v),
        ];
        for (i, (weight, dim, to)) in projections.into_iter().enumerate() {
            let onto = match &p.qkv_bias {
                Some(bias) => Accumulate::Bias(self.model.param(bias[i])),
                None => Accumulate::Nothing,
            };
            let y = to.first_mut(rows * dim);
            self.project(weight, (c.hidden, dim), attn_norm, onto, y);
        }
        if let (Some(raw), Some([q_norm, k_norm])) = (&mut saved.raw_heads, p.qk_norm) {
            for (norm, heads, from, to, inverse) in [
                (q_norm, c.heads, &raw.q, &mut saved.q, &mut raw.q_inverse),
                (k_norm, c.kv_heads, &raw.k, &mut saved.k, &mut raw.k_inverse),
            ] {
                let len = rows * heads * c.head_dim;
                self.device.rms_norm(
                    c.rms_eps,
                    from.first(len),
                    self.model.param(norm),
                    to.first_mut(len),
                    inverse.first_mut(rows * heads),
                    None,
                );
            }
        }
        for (x, dim) in [(&mut saved.q, q_dim), (&mut saved.k, kv_dim)] {
            self.rope(1.0, x, dim);
        }
    }

    /// Gradient of [`Layer::attention_block`]: `d.resid` goes from `resid_mid` to the layer's input.
    fn attention_block_grad(
        &self,
        x: &D::Buf,
        segments: &D::Table<SegmentRow>,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (device, model, rows) = (self.device, self.model, self.rows);
        let (p, c) = (self.params(), &model.config);
        let (q_dim, kv_dim) = self.dims();
        let all = rows * c.hidden;
        let o_proj = p.matrices.o_proj;
        let shape = mat(rows, q_dim, c.hidden);
        device.matmul_input_grad(
            shape,
            d.resid.first(all),
            model.param(o_proj),
            Accumulate::Nothing,
            d.attn_out.first_mut(rows * q_dim),
        );
        let attn_out = saved.attn_out.first(rows * q_dim);
        gradients.add_product(device, o_proj, shape, attn_out, d.resid.first(all));
        device.attention_grad(
            c.attention_shape(),
            segments,
            saved.q.first(rows * q_dim),
            saved.k.first(rows * kv_dim),
            saved.v.first(rows * kv_dim),
            saved.attn_out.first(rows * q_dim),
            saved.log_sums.first(rows * c.heads),
            d.attn_out.first(rows * q_dim),
            d.q.first_mut(rows * q_dim),
            d.k.first_mut(rows * kv_dim),
            d.v.first_mut(rows * kv_dim),
        );
        self.qkv_grad(saved, d, gradients);
        device.rms_norm_grad(
            x.first(all),
            model.param(p.attn_norm),
            saved.attn_norm_inverse.first(rows),
            d.norm.first(all),
            Accumulate::Existing,
            d.resid.first_mut(all),
            gradients.cleared(device, p.attn_norm),
        );
    }

    /// Gradient of [`Layer::qkv`]: from those of q, k and v to that of `attn_norm` in `d.norm`.
    fn qkv_grad(
        &self,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (device, model, rows) = (self.device, self.model, self.rows);
        let (p, c) = (self.params(), &model.config);
        let (q_dim, kv_dim) = self.dims();
        for (x, dim) in [(&mut d.q, q_dim), (&mut d.k, kv_dim)] {
            self.rope(-1.0, x, dim);
        }
        if let (Some(raw), Some([q_norm, k_norm])) = (&saved.raw_heads, p.qk_norm) {
            for (norm, heads, x, inverse, dy, to) in [
                (q_norm, c.heads, &raw.q, &raw.q_inverse, &d.q, &mut saved.q),
                (k_norm, c.kv_heads, &raw.k, &raw.k_inverse, &d.k, &mut saved.k),
            ] {
                let len = rows * heads * c.head_dim;
                device.rms_norm_grad(
                    x.first(len),
                    model.param(norm),
                    inverse.first(rows * heads),
                    dy.first(len),
                    Accumulate::Nothing,
                    to.first_mut(len),
                    gradients.cleared(device, norm),
                );
            }
            std::mem::swap(&mut saved.q, &mut d.q);
            std::mem::swap(&mut saved.k, &mut d.k);
        }
        let attn_norm = saved.attn_norm.first(rows * c.hidden);
        let weights = &p.matrices;
        for (i, (weight, dim, dy)) in [
            (weights.q_proj, q_dim, &d.q),
            (weights.k_proj, kv_dim, &d.k),
            (weights.v_proj, kv_dim, &d.v),
        ]
        .into_iter()
        .enumerate()
        {
            let shape = mat(rows, c.hidden, dim);
            let dy = dy.first(rows * dim);
            gradients.add_product(device, weight, shape, attn_norm, dy);
            if let Some(bias) = &p.qkv_bias {
                device.add_column_sums(dim, dy, gradients.cleared(device, bias[i]));
            }
            let dx = d.norm.first_mut(rows * c.hidden);
            device.matmul_input_grad(shape, dy, model.param(weight), onto_first(i), dx);
        }
    }

    /// `x_next = resid_mid + down_proj(silu(gate_proj(y)) · up_proj(y))` with `y = mlp_norm(resid_mid)`.
    fn mlp_block(
        &self,
        saved: &mut LayerActivations<D>,
        mlp_hidden: &mut D::Buf,
        x_next: &mut D::Buf,
    ) {
        type Pick = fn(&Matrices) -> Range;
        let (p, c, rows) = (self.params(), &self.model.config, self.rows);
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        self.device.rms_norm(
            c.rms_eps,
            saved.resid_mid.first(all),
            self.model.param(p.mlp_norm),
            saved.mlp_norm.first_mut(all),
            saved.mlp_norm_inverse.first_mut(rows),
            Some(x_next.first_mut(all)),
        );
        let mlp_norm = saved.mlp_norm.first(all);
        let projections: [(Pick, &mut D::Buf); 2] =
            [(|it| it.gate_proj, &mut saved.gate), (|it| it.up_proj, &mut saved.up)];
        for (weight, to) in projections {
            let y = to.first_mut(ffn);
            self.project(weight, (c.hidden, c.ffn), mlp_norm, Accumulate::Nothing, y);
        }
        self.device.swiglu(saved.gate.first(ffn), saved.up.first(ffn), mlp_hidden.first_mut(ffn));
        self.project(
            |it| it.down_proj,
            (c.ffn, c.hidden),
            mlp_hidden.first(ffn),
            Accumulate::Existing,
            x_next.first_mut(all),
        );
    }

    /// Gradient of [`Layer::mlp_block`]: `d.resid` goes from the layer's output to `resid_mid`.
    fn mlp_block_grad(
        &self,
        saved: &mut LayerActivations<D>,
        mlp_hidden: &mut D::Buf,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (device, model, rows) = (self.device, self.model, self.rows);
        let (p, c) = (self.params(), &model.config);
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        let Matrices { gate_proj, up_proj, down_proj, .. } = p.matrices;
        let shape = mat(rows, c.ffn, c.hidden);
        device.matmul_input_grad(
            shape,
            d.resid.first(all),
            model.param(down_proj),
            Accumulate::Nothing,
            mlp_hidden.first_mut(ffn),
        );
        device.swiglu_grad(
            saved.gate.first_mut(ffn),
            saved.up.first_mut(ffn),
            mlp_hidden.first_mut(ffn),
        );
        let hidden = mlp_hidden.first(ffn);
        gradients.add_product(device, down_proj, shape, hidden, d.resid.first(all));
        let shape = mat(rows, c.hidden, c.ffn);
        let mlp_norm = saved.mlp_norm.first(all);
        for (i, (weight, dy)) in
            [(gate_proj, &saved.gate), (up_proj, &saved.up)].into_iter().enumerate()
        {
            let (dy, dx) = (dy.first(ffn), d.norm.first_mut(all));
            device.matmul_input_grad(shape, dy, model.param(weight), onto_first(i), dx);
            gradients.add_product(device, weight, shape, mlp_norm, dy);
        }
        device.rms_norm_grad(
            saved.resid_mid.first(all),
            model.param(p.mlp_norm),
            saved.mlp_norm_inverse.first(rows),
            d.norm.first(all),
            Accumulate::Existing,
            d.resid.first_mut(all),
            gradients.cleared(device, p.mlp_norm),
        );
    }

    fn params(&self) -> &LayerParams {
        &self.model.roles.layers[self.index]
    }

    /// Numbers per row of q, and of k and v each.
    fn dims(&self) -> (usize, usize) {
        let shape = self.model.config.attention_shape();
        (shape.q_dim(), shape.kv_dim())
    }

    /// `y = x · W`, with W read from its bf16 copy where there is one.
    fn project(
        &self,
        weight: fn(&Matrices) -> Range,
        (inputs, outputs): (usize, usize),
        x: Span<D::Buf>,
        onto: Accumulate<D::Buf>,
        y: SpanMut<D::Buf>,
    ) {
        let shape = mat(self.rows, inputs, outputs);
        if let Some(packed) = self.packed {
            let copy = packed.at(weight(&packed.layers[self.index]));
            self.device.matmul_packed(shape, x, copy, onto, y);
        } else {
            let w = self.model.param(weight(&self.params().matrices));
            self.device.matmul(shape, x, w, onto, y);
        }
    }

    /// Turns the heads of `x` by their positions, backwards where `sign` is −1.
    fn rope(&self, sign: f32, x: &mut D::Buf, dim: usize) {
        self.device.rope(
            self.model.config.head_dim,
            sign,
            self.model.angles(),
            self.positions,
            x.first_mut(self.rows * dim),
        );
    }
}

/// The first of several products overwrites their sum.
fn onto_first<'a, B>(index: usize) -> Accumulate<'a, B> {
    if index == 0 { Accumulate::Nothing } else { Accumulate::Existing }
}

/// Activations of one layer that its gradient reads.
#[derive(Debug)]
pub(crate) struct LayerActivations<D: Device> {
    pub(crate) attn_norm: D::Buf,
    attn_norm_inverse: D::Buf,
    /// q and k before the norm of their heads, where there is one.
    raw_heads: Option<RawHeads<D>>,
    q: D::Buf,
    pub(crate) k: D::Buf,
    pub(crate) v: D::Buf,
    attn_out: D::Buf,
    log_sums: D::Buf,
    resid_mid: D::Buf,
    mlp_norm: D::Buf,
    mlp_norm_inverse: D::Buf,
    gate: D::Buf,
    up: D::Buf,
}

#[derive(Debug)]
struct RawHeads<D: Device> {
    q: D::Buf,
    k: D::Buf,
    q_inverse: D::Buf,
    k_inverse: D::Buf,
}

impl<D: Device> LayerActivations<D> {
    pub(crate) fn new(device: &D, config: &Config, rows: usize) -> Result<Self, ComputeError> {
        let shape = config.attention_shape();
        let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
        let buf = |width: usize| device.alloc(rows * width);
        Ok(Self {
            attn_norm: buf(config.hidden)?,
            attn_norm_inverse: buf(1)?,
            raw_heads: if config.qk_norm {
                Some(RawHeads {
                    q: buf(q_dim)?,
                    k: buf(kv_dim)?,
                    q_inverse: buf(config.heads)?,
                    k_inverse: buf(config.kv_heads)?,
                })
            } else {
                None
            },
            q: buf(q_dim)?,
            k: buf(kv_dim)?,
            v: buf(kv_dim)?,
            attn_out: buf(q_dim)?,
            log_sums: buf(config.heads)?,
            resid_mid: buf(config.hidden)?,
            mlp_norm: buf(config.hidden)?,
            mlp_norm_inverse: buf(1)?,
            gate: buf(config.ffn)?,
            up: buf(config.ffn)?,
        })
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        let raw =
            (self.raw_heads.iter()).flat_map(|it| [&it.q, &it.k, &it.q_inverse, &it.k_inverse]);
        let plain = [
            &self.attn_norm,
            &self.attn_norm_inverse,
            &self.q,
            &self.k,
            &self.v,
            &self.attn_out,
            &self.log_sums,
            &self.resid_mid,
            &self.mlp_norm,
            &self.mlp_norm_inverse,
            &self.gate,
            &self.up,
        ];
        let numbers: usize = plain.into_iter().chain(raw).map(Buffer::len).sum();
        (numbers * size_of::<f32>()) as u64
    }
}

/// Gradients of the activations of one layer, used by all layers in turn.
#[derive(Debug)]
pub(crate) struct LayerGradients<D: Device> {
    /// Of the residual stream: first of the layer's output, last of its input.
    pub(crate) resid: D::Buf,
    norm: D::Buf,
    attn_out: D::Buf,
    q: D::Buf,
    k: D::Buf,
    v: D::Buf,
}

impl<D: Device> LayerGradients<D> {
    pub(crate) fn new(device: &D, config: &Config, rows: usize) -> Result<Self, ComputeError> {
        let shape = config.attention_shape();
        let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
        let buf = |width: usize| device.alloc(rows * width);
        Ok(Self {
            resid: buf(config.hidden)?,
            norm: buf(config.hidden)?,
            attn_out: buf(q_dim)?,
            q: buf(q_dim)?,
            k: buf(kv_dim)?,
            v: buf(kv_dim)?,
        })
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        let all = [&self.resid, &self.norm, &self.attn_out, &self.q, &self.k, &self.v];
        let numbers: usize = all.into_iter().map(Buffer::len).sum();
        (numbers * size_of::<f32>()) as u64
    }
}
