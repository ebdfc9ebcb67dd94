//! One decoder layer: the forward pass of each block with its gradient next to it.
//!
//! Purpose: the order of a layer's operations is written once, for training, for the prompt and for
//! decoding. Names are those of the published weights (`q_proj`, `down_proj`) and of what is between
//! the blocks: `resid_mid` is the input plus the attention block's output.
//!
//! Price: gradients are written by hand, and they overwrite saved activations that nothing reads
//! again (`gate`, `up`, and `q`, `k` where their heads are normalised).

use hapo_kernels::{Accumulate, Buffer, Device, NumberFormat, SegmentRow, Span, SpanMut};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::gradients::Gradients;
use crate::memory::ActivationFormats;
use crate::model::Model;
use crate::packed::PackedWeights;
use crate::params::{LayerParams, Projection};
use crate::product::Scratch;

/// A layer and the rows it runs on.
pub(crate) struct Layer<'a, D: Device> {
    pub(crate) model: &'a Model<D>,
    /// The part of the device that runs it.
    pub(crate) device: &'a D,
    /// Its matrices in bf16, where that is what is read.
    pub(crate) packed: Option<&'a PackedWeights<D>>,
    pub(crate) index: usize,
    pub(crate) rows: usize,
    pub(crate) positions: &'a D::Table<u32>,
    /// What keys and values are rounded to before attention reads them, or what it rounds them to itself.
    pub(crate) kv_format: NumberFormat,
    /// Where the keys, and the values, of its rows begin in their buffers.
    pub(crate) kv_at: usize,
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
    /// `scratch` is overwritten.
    pub(crate) fn forward(
        &self,
        x: &D::Buf,
        x_next: &mut D::Buf,
        saved: &mut LayerActivations<D>,
        scratch: &mut Scratch<D>,
        attend: impl FnOnce(&D, AttentionArgs<'_, D>),
    ) {
        self.attention_block(x, saved, scratch, attend);
        self.mlp_block(saved, scratch, x_next);
    }

    /// From the gradient of the layer's output in `d.resid` to that of its input, in the same buffer.
    pub(crate) fn backward(
        &self,
        x: &D::Buf,
        segments: &D::Table<SegmentRow>,
        saved: &mut LayerActivations<D>,
        scratch: &mut Scratch<D>,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        self.mlp_block_grad(saved, scratch, d, gradients);
        self.attention_block_grad(x, segments, saved, &mut scratch.low, d, gradients);
    }

    /// `resid_mid = x + o_proj(attention(q, k, v))` of `attn_norm(x)`.
    fn attention_block(
        &self,
        x: &D::Buf,
        saved: &mut LayerActivations<D>,
        scratch: &mut Scratch<D>,
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
        self.qkv(saved, scratch);
        let (kv_at, kv_len) = (self.kv_at, rows * kv_dim);
        if self.kv_format != self.device.attention_format(c.attention_shape()) {
            self.device.round_to_bf16(saved.k.at_mut(kv_at, kv_len));
            self.device.round_to_bf16(saved.v.at_mut(kv_at, kv_len));
        }
        attend(
            self.device,
            AttentionArgs {
                q: saved.q.first(rows * q_dim),
                k: saved.k.at(kv_at, kv_len),
                v: saved.v.at(kv_at, kv_len),
                out: &mut saved.attn_out,
                log_sums: &mut saved.log_sums,
            },
        );
        self.project(
            Projection::O,
            saved.attn_out.first(rows * q_dim),
            Accumulate::Existing,
            saved.resid_mid.first_mut(all),
            &mut scratch.low,
        );
    }

    /// Queries, keys and values of `attn_norm`: projections, norm of the heads where there is one,
    /// rotary embedding.
    fn qkv(&self, saved: &mut LayerActivations<D>, scratch: &mut Scratch<D>) {
        let (p, c, rows) = (self.params(), &self.model.config, self.rows);
        let (q_dim, kv_dim) = self.dims();
        let (q_len, kv_at, kv_len) = (rows * q_dim, self.kv_at, rows * kv_dim);
        let Scratch { low, heads, .. } = scratch;
        let [mut q, mut k, v] = match heads {
            Some([q, k, v]) => [q.first_mut(q_len), k.first_mut(kv_len), v.first_mut(kv_len)],
            None => [
                saved.q.first_mut(q_len),
                saved.k.at_mut(kv_at, kv_len),
                saved.v.at_mut(kv_at, kv_len),
            ],
        };
        let (q_to, k_to) = match &mut saved.raw_heads {
            Some(raw) => (raw.q.first_mut(q_len), raw.k.first_mut(kv_len)),
            None => (q.again(), k.again()),
        };
        let attn_norm = saved.attn_norm.first(rows * c.hidden);
        let onto = |i: usize| match &p.qkv_bias {
            Some(bias) => Accumulate::Bias(self.model.param(bias[i])),
            None => Accumulate::Nothing,
        };
        self.project(Projection::Q, attn_norm, onto(0), q_to, low);
        let both = [Projection::K, Projection::V];
        self.project_pair(both, attn_norm, [onto(1), onto(2)], [k_to, v], low);
        if let (Some(raw), Some([q_norm, k_norm])) = (&mut saved.raw_heads, p.qk_norm) {
            for (norm, heads, from, to, inverse) in [
                (q_norm, c.heads, &raw.q, q, &mut raw.q_inverse),
                (k_norm, c.kv_heads, &raw.k, k, &mut raw.k_inverse),
            ] {
                self.device.rms_norm(
                    c.rms_eps,
                    from.first(rows * heads * c.head_dim),
                    self.model.param(norm),
                    to,
                    inverse.first_mut(rows * heads),
                    None,
                );
            }
        }
        if let Some([q, k, v]) = heads {
            self.device.store_heads(
                c.attention_shape(),
                self.model.angles(),
                self.positions,
                [q.first(q_len), k.first(kv_len), v.first(kv_len)],
                [
                    saved.q.first_mut(q_len),
                    saved.k.at_mut(kv_at, kv_len),
                    saved.v.at_mut(kv_at, kv_len),
                ],
            );
        } else {
            self.rope(1.0, saved.q.first_mut(q_len));
            self.rope(1.0, saved.k.at_mut(kv_at, kv_len));
        }
    }

    /// Gradient of [`Layer::attention_block`]: `d.resid` goes from `resid_mid` to the layer's input.
    fn attention_block_grad(
        &self,
        x: &D::Buf,
        segments: &D::Table<SegmentRow>,
        saved: &mut LayerActivations<D>,
        low: &mut D::Buf,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (device, model, rows) = (self.device, self.model, self.rows);
        let (p, c) = (self.params(), &model.config);
        let (q_dim, kv_dim) = self.dims();
        let all = rows * c.hidden;
        let (dy, d_attn_out) = (d.resid.first(all), d.attn_out.first_mut(rows * q_dim));
        self.input_grad(Projection::O, dy, Accumulate::Nothing, d_attn_out, &mut d.low);
        let attn_out = saved.attn_out.first(rows * q_dim);
        self.weight_grad(Projection::O, attn_out, dy, &d.low, low, gradients);
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
        self.qkv_grad(saved, low, d, gradients);
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
        low: &mut D::Buf,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (device, model, rows) = (self.device, self.model, self.rows);
        let (p, c) = (self.params(), &model.config);
        let (q_dim, kv_dim) = self.dims();
        self.rope(-1.0, d.q.first_mut(rows * q_dim));
        self.rope(-1.0, d.k.first_mut(rows * kv_dim));
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
        for (i, (which, dim, dy)) in [
            (Projection::Q, q_dim, &d.q),
            (Projection::K, kv_dim, &d.k),
            (Projection::V, kv_dim, &d.v),
        ]
        .into_iter()
        .enumerate()
        {
            let dy = dy.first(rows * dim);
            let dx = d.norm.first_mut(rows * c.hidden);
            self.input_grad(which, dy, onto_first(i), dx, &mut d.low);
            self.weight_grad(which, attn_norm, dy, &d.low, low, gradients);
            if let Some(bias) = &p.qkv_bias {
                gradients.add_bias(device, bias[i], dy);
            }
        }
    }

    /// `x_next = resid_mid + down_proj(silu(gate_proj(y)) · up_proj(y))` with `y = mlp_norm(resid_mid)`.
    fn mlp_block(
        &self,
        saved: &mut LayerActivations<D>,
        scratch: &mut Scratch<D>,
        x_next: &mut D::Buf,
    ) {
        let (p, c, rows) = (self.params(), &self.model.config, self.rows);
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        let Scratch { mlp_hidden, low, .. } = scratch;
        self.device.rms_norm(
            c.rms_eps,
            saved.resid_mid.first(all),
            self.model.param(p.mlp_norm),
            saved.mlp_norm.first_mut(all),
            saved.mlp_norm_inverse.first_mut(rows),
            Some(x_next.first_mut(all)),
        );
        let mlp_norm = saved.mlp_norm.first(all);
        let both = [Projection::Gate, Projection::Up];
        let to = [saved.gate.first_mut(ffn), saved.up.first_mut(ffn)];
        self.project_pair(both, mlp_norm, [const { Accumulate::Nothing }; 2], to, low);
        self.device.swiglu(saved.gate.first(ffn), saved.up.first(ffn), mlp_hidden.first_mut(ffn));
        let (hidden, y) = (mlp_hidden.first(ffn), x_next.first_mut(all));
        self.project(Projection::Down, hidden, Accumulate::Existing, y, low);
    }

    /// Gradient of [`Layer::mlp_block`]: `d.resid` goes from the layer's output to `resid_mid`.
    fn mlp_block_grad(
        &self,
        saved: &mut LayerActivations<D>,
        scratch: &mut Scratch<D>,
        d: &mut LayerGradients<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (device, model, rows) = (self.device, self.model, self.rows);
        let (p, c) = (self.params(), &model.config);
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        let Scratch { mlp_hidden, low, .. } = scratch;
        let (dy, dx) = (d.resid.first(all), mlp_hidden.first_mut(ffn));
        self.input_grad(Projection::Down, dy, Accumulate::Nothing, dx, &mut d.low);
        device.swiglu_grad(
            saved.gate.first_mut(ffn),
            saved.up.first_mut(ffn),
            mlp_hidden.first_mut(ffn),
        );
        self.weight_grad(Projection::Down, mlp_hidden.first(ffn), dy, &d.low, low, gradients);
        let mlp_norm = saved.mlp_norm.first(all);
        for (i, (which, dy)) in
            [(Projection::Gate, &saved.gate), (Projection::Up, &saved.up)].into_iter().enumerate()
        {
            let (dy, dx) = (dy.first(ffn), d.norm.first_mut(all));
            self.input_grad(which, dy, onto_first(i), dx, &mut d.low);
            self.weight_grad(which, mlp_norm, dy, &d.low, low, gradients);
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

    pub(crate) fn params(&self) -> &LayerParams {
        &self.model.roles.layers[self.index]
    }

    /// Numbers per row of q, and of k and v each.
    fn dims(&self) -> (usize, usize) {
        let shape = self.model.config.attention_shape();
        (shape.q_dim(), shape.kv_dim())
    }

    /// Turns the heads of `x` by their positions, backwards where `sign` is −1.
    fn rope(&self, sign: f32, x: SpanMut<D::Buf>) {
        let (head_dim, angles) = (self.model.config.head_dim, self.model.angles());
        self.device.rope(head_dim, sign, angles, self.positions, x);
    }
}

/// The first of several products overwrites their sum.
fn onto_first<'a, B>(index: usize) -> Accumulate<'a, B> {
    if index == 0 { Accumulate::Nothing } else { Accumulate::Existing }
}

/// Activations of one layer that its gradient reads; in decoding, the keys and values of all layers.
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
    /// Buffers for the keys and values of `kv_layers` layers, and for one layer of all else.
    pub(crate) fn new(
        device: &D,
        config: &Config,
        rows: usize,
        kv_layers: usize,
    ) -> Result<Self, ComputeError> {
        let shape = config.attention_shape();
        let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
        let formats = ActivationFormats::of(device, config);
        let buf = |width: usize| device.alloc(rows * width);
        let factor = |width: usize| device.alloc_as(rows * width, formats.factors);
        let of_attention = |width: usize| device.alloc_as(rows * width, formats.attention);
        Ok(Self {
            attn_norm: factor(config.hidden)?,
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
            q: of_attention(q_dim)?,
            k: of_attention(kv_layers * kv_dim)?,
            v: of_attention(kv_layers * kv_dim)?,
            attn_out: of_attention(q_dim)?,
            log_sums: buf(config.heads)?,
            resid_mid: buf(config.hidden)?,
            mlp_norm: factor(config.hidden)?,
            mlp_norm_inverse: buf(1)?,
            gate: factor(config.ffn)?,
            up: factor(config.ffn)?,
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
        plain.into_iter().chain(raw).map(Buffer::bytes).sum::<usize>() as u64
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
    /// Of x·A of an adapter.
    low: D::Buf,
}

impl<D: Device> LayerGradients<D> {
    pub(crate) fn new(
        device: &D,
        config: &Config,
        rows: usize,
        rank: usize,
    ) -> Result<Self, ComputeError> {
        let shape = config.attention_shape();
        let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
        let format = device.attention_format(shape);
        let buf = |width: usize| device.alloc(rows * width);
        let of_attention = |width: usize| device.alloc_as(rows * width, format);
        Ok(Self {
            resid: buf(config.hidden)?,
            norm: buf(config.hidden)?,
            attn_out: of_attention(q_dim)?,
            q: of_attention(q_dim)?,
            k: of_attention(kv_dim)?,
            v: of_attention(kv_dim)?,
            low: buf(rank)?,
        })
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        let all = [&self.resid, &self.norm, &self.attn_out, &self.q, &self.k, &self.v, &self.low];
        all.into_iter().map(Buffer::bytes).sum::<usize>() as u64
    }
}
