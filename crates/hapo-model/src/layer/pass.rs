//! One decoder layer: the forward pass of each block with its gradient next to it.
//!
//! Purpose: the order of a layer's operations is written once, for training, for the prompt and for decoding. Names are
//! those of the published weights (`q_proj`, `down_proj`) and of the values between the blocks: `resid_mid` is the
//! input plus the attention block's output. Price: gradients are written by hand, and they overwrite saved activations
//! that nothing reads again (`gate`, `up`, and `q`, `k` where their heads are normalised).

use hapo_kernels::{
    Accumulate, AttentionGrad, AttentionShape, Buffer, Device, Heads, NumberFormat, RmsNorm,
    RmsNormGrad, Rotation, SegmentRow, Span, SpanMut,
};

use super::saved::{LayerActivations, LayerGradients, NormInput, Scratch};
use crate::config::Config;
use crate::linear::{Backward, Input, Linear, Vector};
use crate::model::{Layer, Model, times};

pub(crate) struct LayerPass<'a, D: Device> {
    layer: &'a Layer<D>,
    config: &'a Config,
    shape: AttentionShape,
    /// Is `None` where heads are not turned.
    angles: Option<Span<'a, D::Buf>>,
    pub(crate) device: &'a D,
    pub(crate) rows: usize,
    pub(crate) positions: &'a D::Table<u32>,
    /// The format of keys and values; they are rounded before attention reads them, or by attention itself.
    pub(crate) kv_format: NumberFormat,
    /// Where the keys, and the values, of its rows begin in their buffers.
    pub(crate) kv_at: usize,
}

pub(crate) struct AttentionArgs<'a, D: Device> {
    pub(crate) shape: AttentionShape,
    pub(crate) qkv: [Span<'a, D::Buf>; 3],
    pub(crate) out: SpanMut<'a, D::Buf>,
    pub(crate) log_sums: SpanMut<'a, D::Buf>,
}

pub(crate) struct BackwardPass<'a, D: Device> {
    pub(crate) products: Backward<'a, D>,
    pub(crate) mlp_hidden: &'a mut D::Buf,
}

struct Exit<'a, D: Device> {
    /// The norm after it, and its saved input.
    norm: Option<(&'a Vector<D>, &'a mut NormInput<D>)>,
    block: Option<&'a mut D::Buf>,
}

struct Normed<'a, D: Device> {
    norm: &'a Vector<D>,
    x: Span<'a, D::Buf>,
    inverse: &'a D::Buf,
}

impl<'a, D: Device> LayerPass<'a, D> {
    pub(crate) fn new(
        model: &'a Model<D>,
        index: usize,
        rows: usize,
        positions: &'a D::Table<u32>,
    ) -> Self {
        Self {
            layer: &model.layers[index],
            config: &model.config,
            shape: model.config.attention_of(index),
            angles: model.angles(index),
            device: &model.device,
            rows,
            positions,
            kv_format: model.kv_format(),
            kv_at: 0,
        }
    }

    /// From a layer's input to its output. `attend` differs between packed and decoded rows; `scratch` is overwritten.
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
        let (all, q_dim) = (rows * c.hidden, self.shape.q_dim());
        let to = [saved.attn_norm.first_mut(all), saved.resid_mid.first_mut(all)];
        let [before, after] = &p.attn_norms;
        self.enter(before.as_ref(), x.first(all), &mut saved.attn_norm_inverse, to);
        self.qkv(x, saved, scratch);
        if self.kv_format != self.device.caps().attention(c.attention_shape()) {
            let [_, k, v] = self.heads_mut(&mut saved.qkv, self.kv_at);
            self.device.round_to_bf16(k);
            self.device.round_to_bf16(v);
        }
        let (shape, qkv) = (self.shape, self.heads(&saved.qkv, self.kv_at));
        let out = saved.attn_out.first_mut(rows * q_dim);
        let log_sums = saved.log_sums.first_mut(rows * c.heads);
        attend(self.device, AttentionArgs { shape, qkv, out, log_sums });
        let Scratch { low, block, .. } = scratch;
        let input = self.input(saved.attn_out.first(rows * q_dim), low);
        let output = saved.blocks.as_mut().map(|[attention, _]| attention);
        let exit = Exit { norm: after.as_ref().zip(output), block: block.as_mut() };
        self.leave(&p.o, input, exit, saved.resid_mid.first_mut(all));
    }

    /// The input of a block, normalised where there is a norm, and a copy of it to add the block's output to.
    fn enter(
        &self,
        norm: Option<&Vector<D>>,
        x: Span<'_, D::Buf>,
        inverse: &mut D::Buf,
        [normed, residual]: [SpanMut<'_, D::Buf>; 2],
    ) {
        match norm {
            Some(norm) => self.norm(norm, x, normed, inverse, Some(residual)),
            None => self.device.copy(x, residual),
        }
    }

    /// Adds a block's output, the product of its last matrix, to the residual stream.
    fn leave(
        &self,
        linear: &Linear<D>,
        input: Input<'_, D>,
        exit: Exit<'_, D>,
        residual: SpanMut<'_, D::Buf>,
    ) {
        let (len, factor) = (residual.len, self.config.decoder.multipliers.residual);
        let Some(block) = exit.block else { return linear.add_to(input, residual) };
        match exit.norm {
            Some((norm, output)) => {
                linear.forward(input, output.x.first_mut(len));
                let x = output.x.first(len);
                self.norm(norm, x, block.first_mut(len), &mut output.inverse, None);
            }
            None => linear.forward(input, block.first_mut(len)),
        }
        self.device.add(factor as f32, block.first(len), residual);
    }

    fn norm(
        &self,
        norm: &Vector<D>,
        x: Span<'_, D::Buf>,
        y: SpanMut<'_, D::Buf>,
        inverse: &mut D::Buf,
        residual: Option<SpanMut<'_, D::Buf>>,
    ) {
        let (w, eps, offset) = (norm.all(), self.config.rms_eps, self.config.decoder.norm_offset());
        let inverse_rms = inverse.first_mut(x.len / w.len);
        self.device.rms_norm(RmsNorm { eps, offset, x, w, y, inverse_rms, residual });
    }

    /// Queries, keys and values of `attn_norm`, or of `x` without one: projections, norm of the heads if any, rotation.
    fn qkv(&self, x: &D::Buf, saved: &mut LayerActivations<D>, scratch: &mut Scratch<D>) {
        let (p, c, rows) = (self.layer, self.config, self.rows);
        let Scratch { low, heads, .. } = scratch;
        let [mut q, mut k, v] = match heads {
            Some(heads) => self.heads_mut(heads, 0),
            None => self.heads_mut(&mut saved.qkv, self.kv_at),
        };
        let (q_to, k_to) = match &mut saved.raw_heads {
            Some([raw_q, raw_k]) => (raw_q.x.first_mut(q.len), raw_k.x.first_mut(k.len)),
            None => (q.again(), k.again()),
        };
        let is_normed = p.attn_norms[0].is_some();
        let x = if is_normed { &saved.attn_norm } else { x }.first(rows * c.hidden);
        Linear::forward_all([(&p.q, q_to), (&p.k, k_to), (&p.v, v)], self.input(x, low));
        if let (Some(raw), Some(norms)) = (&mut saved.raw_heads, &p.qk_norm) {
            for ((norm, raw), y) in norms.iter().zip(raw).zip([q, k]) {
                self.norm(norm, raw.x.first(y.len), y, &mut raw.inverse, None);
            }
        }
        let to = self.heads_mut(&mut saved.qkv, self.kv_at);
        self.turn(match (heads, to) {
            (Some(from), to) => Heads::Stored { from: self.heads(from, 0), to },
            (None, [q, k, _]) => Heads::Forward([q, k]),
        });
        let [q, ..] = self.heads_mut(&mut saved.qkv, self.kv_at);
        times(self.device, q, c.query_multiplier());
    }

    fn turn(&self, heads: Heads<'_, D::Buf>) {
        if let Some(angles) = self.angles {
            let (shape, positions) = (self.shape, self.positions);
            self.device.rope(Rotation { shape, angles, positions, heads });
        }
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
        let (p, c, q_dim) = (self.layer, self.config, self.shape.q_dim());
        let [before, after] = &p.attn_norms;
        let output = saved.blocks.as_ref().map(|[attention, _]| attention);
        let (norm, to) = (after.as_ref().zip(output), [&mut d.resid, &mut d.norm]);
        let dy = self.leave_grad(norm, to, d.block.as_mut(), pass);
        let d_attn_out = d.attn_out.first_mut(rows * q_dim);
        p.o.input_grad(pass, dy, Accumulate::Nothing, d_attn_out);
        p.o.weight_grad(pass, saved.attn_out.first(rows * q_dim), dy);
        device.attention_grad(AttentionGrad {
            shape: self.shape,
            segments,
            qkv: self.heads(&saved.qkv, 0),
            out: saved.attn_out.first(rows * q_dim),
            log_sums: saved.log_sums.first(rows * c.heads),
            dout: d.attn_out.first(rows * q_dim),
            dqkv: self.heads_mut(&mut d.qkv, 0),
        });
        self.qkv_grad(x, saved, d, pass);
        self.enter_grad(before.as_ref(), x, &saved.attn_norm_inverse, d, pass);
    }

    /// Gradient of [`LayerPass::enter`]: adds that of the block's input in `d.norm` to `d.resid`.
    fn enter_grad(
        &self,
        norm: Option<&Vector<D>>,
        x: &D::Buf,
        inverse: &D::Buf,
        d: &mut LayerGradients<D>,
        pass: &mut Backward<'_, D>,
    ) {
        let all = self.rows * self.config.hidden;
        let (dy, dx) = (d.norm.first(all), d.resid.first_mut(all));
        let Some(norm) = norm else { return self.device.add(1.0, dy, dx) };
        let normed = Normed { norm, x: x.first(all), inverse };
        self.norm_grad(normed, dy, Accumulate::Existing, dx, pass);
    }

    fn norm_grad(
        &self,
        Normed { norm, x, inverse }: Normed<'_, D>,
        dy: Span<'_, D::Buf>,
        onto: Accumulate<'_, D::Buf>,
        dx: SpanMut<'_, D::Buf>,
        pass: &mut Backward<'_, D>,
    ) {
        let (offset, w) = (self.config.decoder.norm_offset(), norm.all());
        let inverse_rms = inverse.first(x.len / w.len);
        let dw = pass.gradients.of_norm(pass.device, norm.place);
        self.device.rms_norm_grad(RmsNormGrad { offset, x, w, inverse_rms, dy, onto, dx, dw });
    }

    /// Gradient of [`LayerPass::qkv`]: from the gradients of q, k and v to that of `attn_norm` in `d.norm`.
    fn qkv_grad(
        &self,
        x: &D::Buf,
        saved: &mut LayerActivations<D>,
        d: &mut LayerGradients<D>,
        pass: &mut Backward<'_, D>,
    ) {
        let (device, rows) = (self.device, self.rows);
        let (p, c, shape) = (self.layer, self.config, self.shape);
        let [mut dq, dk, _] = self.heads_mut(&mut d.qkv, 0);
        times(device, dq.again(), c.query_multiplier());
        self.turn(Heads::Backward([dq, dk]));
        if let (Some(raw), Some(norms)) = (&saved.raw_heads, &p.qk_norm) {
            let ends = d.qkv.iter_mut().zip(&mut saved.qkv).zip([shape.q_dim(), shape.kv_dim()]);
            for ((norm, raw), ((dy, to), dim)) in norms.iter().zip(raw).zip(ends) {
                let len = rows * dim;
                let normed = Normed { norm, x: raw.x.first(len), inverse: &raw.inverse };
                let (onto, dx) = (Accumulate::Nothing, to.first_mut(len));
                self.norm_grad(normed, dy.first(len), onto, dx, pass);
                std::mem::swap(dy, to);
            }
        }
        let is_normed = p.attn_norms[0].is_some();
        let x = if is_normed { &saved.attn_norm } else { x }.first(rows * c.hidden);
        let all = [&p.q, &p.k, &p.v].into_iter().zip(self.heads(&d.qkv, 0));
        for (i, (linear, dy)) in all.enumerate() {
            let dx = d.norm.first_mut(rows * c.hidden);
            linear.input_grad(pass, dy, onto_first(i), dx);
            linear.weight_grad(pass, x, dy);
            if let Some(bias) = &linear.bias {
                pass.gradients.add_bias(device, bias.place, dy);
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
        let Scratch { mlp_hidden, low, block, .. } = scratch;
        let [before, after] = &p.mlp_norms;
        let to = [saved.mlp_norm.first_mut(all), x_next.first_mut(all)];
        let inverse = &mut saved.mlp_norm_inverse;
        self.enter(before.as_ref(), saved.resid_mid.first(all), inverse, to);
        let x = if before.is_some() { &saved.mlp_norm } else { &saved.resid_mid }.first(all);
        let (gate, up) = (saved.gate.first_mut(ffn), saved.up.first_mut(ffn));
        Linear::forward_all([(&p.gate, gate), (&p.up, up)], self.input(x, low));
        let (gate, up) = (saved.gate.first(ffn), saved.up.first(ffn));
        self.device.gated(c.decoder.activation, gate, up, mlp_hidden.first_mut(ffn));
        let output = saved.blocks.as_mut().map(|[_, mlp]| mlp);
        let exit = Exit { norm: after.as_ref().zip(output), block: block.as_mut() };
        let input = self.input(mlp_hidden.first(ffn), low);
        self.leave(&p.down, input, exit, x_next.first_mut(all));
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
        let [before, after] = &p.mlp_norms;
        let output = saved.blocks.as_ref().map(|[_, mlp]| mlp);
        let (norm, to) = (after.as_ref().zip(output), [&mut d.resid, &mut d.norm]);
        let dy = self.leave_grad(norm, to, d.block.as_mut(), pass);
        p.down.input_grad(pass, dy, Accumulate::Nothing, mlp_hidden.first_mut(ffn));
        let (gate, up) = (saved.gate.first_mut(ffn), saved.up.first_mut(ffn));
        device.gated_grad(c.decoder.activation, gate, up, mlp_hidden.first_mut(ffn));
        p.down.weight_grad(pass, mlp_hidden.first(ffn), dy);
        let x = if before.is_some() { &saved.mlp_norm } else { &saved.resid_mid }.first(all);
        let both = [(&p.gate, &saved.gate), (&p.up, &saved.up)];
        for (i, (linear, dy)) in both.into_iter().enumerate() {
            let (dy, dx) = (dy.first(ffn), d.norm.first_mut(all));
            linear.input_grad(pass, dy, onto_first(i), dx);
            linear.weight_grad(pass, x, dy);
        }
        self.enter_grad(before.as_ref(), &saved.resid_mid, &saved.mlp_norm_inverse, d, pass);
    }

    /// Gradient of [`LayerPass::leave`]: the product's from the residual stream's, in another buffer where they differ.
    fn leave_grad<'b>(
        &self,
        norm: Option<(&Vector<D>, &NormInput<D>)>,
        [resid, scaled]: [&'b mut D::Buf; 2],
        block: Option<&'b mut D::Buf>,
        pass: &mut Backward<'_, D>,
    ) -> Span<'b, D::Buf> {
        let (len, factor) =
            (self.rows * self.config.hidden, self.config.decoder.multipliers.residual);
        let mut dy = resid.first(len);
        if factor != 1.0 {
            self.device.copy(dy, scaled.first_mut(len));
            self.device.scale(scaled.first_mut(len), factor as f32);
            dy = scaled.first(len);
        }
        if let (Some((norm, output)), Some(block)) = (norm, block) {
            let normed = Normed { norm, x: output.x.first(len), inverse: &output.inverse };
            self.norm_grad(normed, dy, Accumulate::Nothing, block.first_mut(len), pass);
            dy = block.first(len);
        }
        dy
    }

    fn input<'b>(&'b self, x: Span<'b, D::Buf>, low: &'b mut D::Buf) -> Input<'b, D> {
        Input { device: self.device, x, low: Some(low) }
    }

    /// Queries, keys and values of its rows; keys and values begin at `kv_at`.
    fn heads<'b>(&self, [q, k, v]: &'b [D::Buf; 3], kv_at: usize) -> [Span<'b, D::Buf>; 3] {
        let (q_len, kv_len) = (self.rows * self.shape.q_dim(), self.rows * self.shape.kv_dim());
        [q.first(q_len), k.at(kv_at, kv_len), v.at(kv_at, kv_len)]
    }

    fn heads_mut<'b>(
        &self,
        [q, k, v]: &'b mut [D::Buf; 3],
        kv_at: usize,
    ) -> [SpanMut<'b, D::Buf>; 3] {
        let (q_len, kv_len) = (self.rows * self.shape.q_dim(), self.rows * self.shape.kv_dim());
        [q.first_mut(q_len), k.at_mut(kv_at, kv_len), v.at_mut(kv_at, kv_len)]
    }
}

/// The first of several products overwrites their sum.
fn onto_first<'a, B>(index: usize) -> Accumulate<'a, B> {
    if index == 0 { Accumulate::Nothing } else { Accumulate::Existing }
}
