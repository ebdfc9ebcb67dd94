//! One decoder layer: the forward pass of each block with its gradient next to it.
//!
//! Purpose: the order of a layer's operations is written once, for training, for the prompt and for decoding. Names are
//! those of the published weights (`q_proj`, `down_proj`) and of the values between the blocks: `resid_mid` is the
//! input plus the attention block's output.
//!
//! Price: gradients are written by hand, and they overwrite saved activations that nothing reads
//! again (`gate`, `up`, and `q`, `k` where their heads are normalised).

use hapo_kernels::{Accumulate, Buffer, Device, Heads, NumberFormat, SegmentRow, Span};

use super::saved::{LayerActivations, LayerGradients, Scratch};
use crate::config::Config;
use crate::linear::{Backward, Input, Linear, Vector};
use crate::model::{Layer, Model};

/// A layer and the rows it runs on.
pub(crate) struct LayerPass<'a, D: Device> {
    layer: &'a Layer<D>,
    config: &'a Config,
    angles: Span<'a, D::Buf>,
    /// The part of the device that runs it.
    pub(crate) device: &'a D,
    pub(crate) rows: usize,
    pub(crate) positions: &'a D::Table<u32>,
    /// The format of keys and values; they are rounded before attention reads them, or by attention itself.
    pub(crate) kv_format: NumberFormat,
    /// Where the keys, and the values, of its rows begin in their buffers.
    pub(crate) kv_at: usize,
}

/// Inputs and outputs of one layer's attention.
pub(crate) struct AttentionArgs<'a, D: Device> {
    pub(crate) q: Span<'a, D::Buf>,
    pub(crate) k: Span<'a, D::Buf>,
    pub(crate) v: Span<'a, D::Buf>,
    pub(crate) out: &'a mut D::Buf,
    pub(crate) log_sums: &'a mut D::Buf,
}

/// State that a backward pass carries from layer to layer.
pub(crate) struct BackwardPass<'a, D: Device> {
    pub(crate) products: Backward<'a, D>,
    pub(crate) mlp_hidden: &'a mut D::Buf,
}

impl<'a, D: Device> LayerPass<'a, D> {
    /// A layer of a model for rows of a prompt or a batch.
    pub(crate) fn new(
        model: &'a Model<D>,
        index: usize,
        rows: usize,
        positions: &'a D::Table<u32>,
    ) -> Self {
        Self {
            layer: &model.layers[index],
            config: &model.config,
            angles: model.angles(),
            device: &model.device,
            rows,
            positions,
            kv_format: model.kv_format(),
            kv_at: 0,
        }
    }

    /// From the layer's input to its output. `attend` differs between packed and decoded rows; `scratch` is
    /// overwritten.
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

    /// From the gradient of the layer's output in `d.resid` to the gradient of its input, in the same buffer.
    pub(crate) fn backward(
        &self,
        x: &D::Buf,
        segments: &D::Table<SegmentRow>,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        pass: &mut BackwardPass<'_, D>,
    ) {
        self.mlp_block_grad(saved, d, pass);
        self.attention_block_grad(x, segments, saved, d, &mut pass.products);
    }

    /// `resid_mid = x + o_proj(attention(q, k, v))` of `attn_norm(x)`.
    fn attention_block(
        &self,
        x: &D::Buf,
        saved: &mut LayerActivations<D>,
        scratch: &mut Scratch<D>,
        attend: impl FnOnce(&D, AttentionArgs<'_, D>),
    ) {
        let (p, c, rows) = (self.layer, self.config, self.rows);
        let (q_dim, kv_dim) = self.dims();
        let all = rows * c.hidden;
        self.device.rms_norm(
            c.rms_eps,
            x.first(all),
            p.attn_norm.all(),
            saved.attn_norm.first_mut(all),
            saved.attn_norm_inverse.first_mut(rows),
            Some(saved.resid_mid.first_mut(all)),
        );
        self.qkv(saved, scratch);
        let (kv_at, kv_len) = (self.kv_at, rows * kv_dim);
        if self.kv_format != self.device.habits().attention(c.attention_shape()) {
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
        let input = self.input(saved.attn_out.first(rows * q_dim), &mut scratch.low);
        p.o.add_to(input, saved.resid_mid.first_mut(all));
    }

    /// Queries, keys and values of `attn_norm`: projections, norm of the heads where there is one,
    /// rotary embedding.
    fn qkv(&self, saved: &mut LayerActivations<D>, scratch: &mut Scratch<D>) {
        let (p, c, rows) = (self.layer, self.config, self.rows);
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
        p.q.forward(self.input(attn_norm, low), q_to);
        Linear::forward_both([&p.k, &p.v], self.input(attn_norm, low), [k_to, v]);
        if let (Some(raw), Some([q_norm, k_norm])) = (&mut saved.raw_heads, &p.qk_norm) {
            for (norm, heads, from, to, inverse) in [
                (q_norm, c.heads, &raw.q, q, &mut raw.q_inverse),
                (k_norm, c.kv_heads, &raw.k, k, &mut raw.k_inverse),
            ] {
                self.device.rms_norm(
                    c.rms_eps,
                    from.first(rows * heads * c.head_dim),
                    norm.all(),
                    to,
                    inverse.first_mut(rows * heads),
                    None,
                );
            }
        }
        let heads = match heads {
            Some([q, k, v]) => Heads::Stored {
                from: [q.first(q_len), k.first(kv_len), v.first(kv_len)],
                to: [
                    saved.q.first_mut(q_len),
                    saved.k.at_mut(kv_at, kv_len),
                    saved.v.at_mut(kv_at, kv_len),
                ],
            },
            None => Heads::Forward([saved.q.first_mut(q_len), saved.k.at_mut(kv_at, kv_len)]),
        };
        self.device.rope(c.attention_shape(), self.angles, self.positions, heads);
    }

    /// Gradient of [`LayerPass::attention_block`]: `d.resid` goes from `resid_mid` to the layer's input.
    fn attention_block_grad(
        &self,
        x: &D::Buf,
        segments: &D::Table<SegmentRow>,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        pass: &mut Backward<'_, D>,
    ) {
        let (device, rows) = (self.device, self.rows);
        let (p, c) = (self.layer, self.config);
        let (q_dim, kv_dim) = self.dims();
        let all = rows * c.hidden;
        let (dy, d_attn_out) = (d.resid.first(all), d.attn_out.first_mut(rows * q_dim));
        p.o.input_grad(pass, dy, Accumulate::Nothing, d_attn_out);
        p.o.weight_grad(pass, saved.attn_out.first(rows * q_dim), dy);
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
        self.qkv_grad(saved, d, pass);
        device.rms_norm_grad(
            x.first(all),
            p.attn_norm.all(),
            saved.attn_norm_inverse.first(rows),
            d.norm.first(all),
            Accumulate::Existing,
            d.resid.first_mut(all),
            of_norm(pass, &p.attn_norm),
        );
    }

    /// Gradient of [`LayerPass::qkv`]: from the gradients of q, k and v to that of `attn_norm` in `d.norm`.
    fn qkv_grad(
        &self,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        pass: &mut Backward<'_, D>,
    ) {
        let (device, rows) = (self.device, self.rows);
        let (p, c) = (self.layer, self.config);
        let (q_dim, kv_dim) = self.dims();
        let heads = Heads::Backward([d.q.first_mut(rows * q_dim), d.k.first_mut(rows * kv_dim)]);
        device.rope(c.attention_shape(), self.angles, self.positions, heads);
        if let (Some(raw), Some([q_norm, k_norm])) = (&saved.raw_heads, &p.qk_norm) {
            for (norm, heads, x, inverse, dy, to) in [
                (q_norm, c.heads, &raw.q, &raw.q_inverse, &d.q, &mut saved.q),
                (k_norm, c.kv_heads, &raw.k, &raw.k_inverse, &d.k, &mut saved.k),
            ] {
                let len = rows * heads * c.head_dim;
                device.rms_norm_grad(
                    x.first(len),
                    norm.all(),
                    inverse.first(rows * heads),
                    dy.first(len),
                    Accumulate::Nothing,
                    to.first_mut(len),
                    of_norm(pass, norm),
                );
            }
            std::mem::swap(&mut saved.q, &mut d.q);
            std::mem::swap(&mut saved.k, &mut d.k);
        }
        let attn_norm = saved.attn_norm.first(rows * c.hidden);
        let all = [(&p.q, q_dim, &d.q), (&p.k, kv_dim, &d.k), (&p.v, kv_dim, &d.v)];
        for (i, (linear, dim, dy)) in all.into_iter().enumerate() {
            let dy = dy.first(rows * dim);
            let dx = d.norm.first_mut(rows * c.hidden);
            linear.input_grad(pass, dy, onto_first(i), dx);
            linear.weight_grad(pass, attn_norm, dy);
            if let Some(bias) = &linear.bias {
                pass.gradients.add_bias(device, bias.place(), dy);
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
        let (p, c, rows) = (self.layer, self.config, self.rows);
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        let Scratch { mlp_hidden, low, .. } = scratch;
        self.device.rms_norm(
            c.rms_eps,
            saved.resid_mid.first(all),
            p.mlp_norm.all(),
            saved.mlp_norm.first_mut(all),
            saved.mlp_norm_inverse.first_mut(rows),
            Some(x_next.first_mut(all)),
        );
        let mlp_norm = saved.mlp_norm.first(all);
        let to = [saved.gate.first_mut(ffn), saved.up.first_mut(ffn)];
        Linear::forward_both([&p.gate, &p.up], self.input(mlp_norm, low), to);
        self.device.swiglu(saved.gate.first(ffn), saved.up.first(ffn), mlp_hidden.first_mut(ffn));
        p.down.add_to(self.input(mlp_hidden.first(ffn), low), x_next.first_mut(all));
    }

    /// Gradient of [`LayerPass::mlp_block`]: `d.resid` goes from the layer's output to `resid_mid`.
    fn mlp_block_grad(
        &self,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        BackwardPass { products: pass, mlp_hidden }: &mut BackwardPass<'_, D>,
    ) {
        let (device, rows) = (self.device, self.rows);
        let (p, c) = (self.layer, self.config);
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        let (dy, dx) = (d.resid.first(all), mlp_hidden.first_mut(ffn));
        p.down.input_grad(pass, dy, Accumulate::Nothing, dx);
        device.swiglu_grad(
            saved.gate.first_mut(ffn),
            saved.up.first_mut(ffn),
            mlp_hidden.first_mut(ffn),
        );
        p.down.weight_grad(pass, mlp_hidden.first(ffn), dy);
        let mlp_norm = saved.mlp_norm.first(all);
        for (i, (linear, dy)) in
            [(&p.gate, &saved.gate), (&p.up, &saved.up)].into_iter().enumerate()
        {
            let (dy, dx) = (dy.first(ffn), d.norm.first_mut(all));
            linear.input_grad(pass, dy, onto_first(i), dx);
            linear.weight_grad(pass, mlp_norm, dy);
        }
        device.rms_norm_grad(
            saved.resid_mid.first(all),
            p.mlp_norm.all(),
            saved.mlp_norm_inverse.first(rows),
            d.norm.first(all),
            Accumulate::Existing,
            d.resid.first_mut(all),
            of_norm(pass, &p.mlp_norm),
        );
    }

    fn input<'b>(&'b self, x: Span<'b, D::Buf>, low: &'b mut D::Buf) -> Input<'b, D> {
        Input { device: self.device, x, low: Some(low) }
    }

    /// Numbers per row of q, and of k and v each.
    fn dims(&self) -> (usize, usize) {
        let shape = self.config.attention_shape();
        (shape.q_dim(), shape.kv_dim())
    }
}

/// Where the gradient of a norm goes.
fn of_norm<'b, D: Device>(
    pass: &'b mut Backward<'_, D>,
    norm: &Vector<D>,
) -> hapo_kernels::SpanMut<'b, D::Buf> {
    pass.gradients.of_norm(pass.device, norm.place(), norm.all().len)
}

/// The first of several products overwrites their sum.
fn onto_first<'a, B>(index: usize) -> Accumulate<'a, B> {
    if index == 0 { Accumulate::Nothing } else { Accumulate::Existing }
}
