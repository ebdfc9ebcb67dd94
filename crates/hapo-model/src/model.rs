//! A decoder on a device: its weights and the way through its layers.
//!
//! Purpose: the one place where the order of operations is written, for training, for the prompt and
//! for decoding.
//!
//! Price: weights are plain `f32`; sampler and trainer borrow the same ones, but for the bf16 copy that
//! decoding may read ([`crate::Packed`]).

use hapo_kernels::{
    Accumulate, AttentionShape, Buffer, Device, EmbeddingLayout, MatShape, Span, SpanMut,
};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::packed::{PackedLayer, PackedWeights};
use crate::params::{ParamLayout, Range, Roles};
use crate::rope::{self, rope_frequencies};

/// A decoder: shape, weights, device.
#[derive(Debug)]
pub struct Model<D: Device> {
    pub(crate) device: D,
    pub(crate) config: Config,
    pub(crate) layout: ParamLayout,
    pub(crate) roles: Roles,
    pub(crate) params: D::Buf,
    pub(crate) angles: D::Buf,
    pub(crate) positions: usize,
    pub(crate) packed: Option<PackedWeights<D>>,
}

impl<D: Device> Model<D> {
    /// A decoder of zeros for sequences of at most `positions` tokens (prompt included). Fill it with
    /// [`Model::set_tensor`].
    ///
    /// # Errors
    /// A shape that cannot be computed with, or no memory.
    pub fn new(device: D, config: Config, positions: usize) -> Result<Self, ComputeError> {
        check(&config)?;
        let layout = ParamLayout::of(&config);
        let roles = Roles::of(&config, &layout)?;
        let params = device.alloc(layout.len())?;
        let angles = device.alloc(positions * config.head_dim)?;
        let mut model = Self {
            device,
            config,
            layout,
            roles,
            params,
            angles,
            positions,
            packed: None,
        };
        model.set_rope_frequencies(&rope_frequencies(&model.config))?;
        Ok(model)
    }

    /// Replaces the frequencies of the rotary embedding, which [`rope_frequencies`] gives: for numbers
    /// made by a program that rounded them with the weights (`module.to(bfloat16)` in `PyTorch` does).
    ///
    /// # Errors
    /// Another number of frequencies than half a head.
    pub fn set_rope_frequencies(&mut self, frequencies: &[f32]) -> Result<(), ComputeError> {
        let expected = self.config.head_dim / 2;
        if frequencies.len() != expected {
            return Err(ComputeError::TensorLength {
                name: "rotary frequencies".to_owned(),
                expected,
                got: frequencies.len(),
            });
        }
        let table = rope::angles(frequencies, self.positions);
        let to = self.angles.first_mut(table.len());
        self.device.upload(&table, to);
        Ok(())
    }

    /// The shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where every parameter lies.
    pub fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Longest sequence, prompt included.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// All weights, laid out as [`Model::layout`] says.
    pub fn params(&self) -> &D::Buf {
        &self.params
    }

    /// All weights, to write.
    pub fn params_mut(&mut self) -> &mut D::Buf {
        self.invalidate_packed();
        &mut self.params
    }

    /// Overwrites all weights by a flat buffer laid out as [`Model::layout`] says.
    ///
    /// # Panics
    /// When the buffer has another length.
    pub fn set_params(&mut self, flat: &[f32]) {
        assert_eq!(flat.len(), self.params.len(), "one number per weight");
        self.set_params_at(0, flat);
    }

    /// As [`Model::set_params`], of the weights from `offset` on that `part` has.
    ///
    /// # Panics
    /// When the part goes beyond the buffer.
    pub fn set_params_at(&mut self, offset: usize, part: &[f32]) {
        self.invalidate_packed();
        let to = self.params.at_mut(offset, part.len());
        self.device.upload(part, to);
    }

    /// Loads a tensor given in its published order.
    ///
    /// # Errors
    /// An unknown name or another number of elements.
    pub fn set_tensor(&mut self, name: &str, published: &[f32]) -> Result<(), ComputeError> {
        let param = self.layout.get(name)?;
        let data = param.to_buffer(published)?;
        let to = self.params.at_mut(param.offset, param.len);
        self.device.upload(&data, to);
        self.invalidate_packed();
        Ok(())
    }

    /// A tensor in its published order.
    ///
    /// # Errors
    /// An unknown name.
    pub fn tensor(&self, name: &str) -> Result<Vec<f32>, ComputeError> {
        self.published(&self.params, name)
    }

    /// The same of any buffer laid out as the parameters: gradients, moments.
    ///
    /// # Errors
    /// An unknown name.
    pub fn published(&self, buffer: &D::Buf, name: &str) -> Result<Vec<f32>, ComputeError> {
        let param = self.layout.get(name)?;
        let mut data = vec![0.0; param.len];
        self.device
            .download(buffer.at(param.offset, param.len), &mut data);
        param.to_published(&data)
    }

    pub(crate) fn param(&self, range: Range) -> Span<'_, D::Buf> {
        self.params.at(range.0, range.1)
    }

    pub(crate) fn attention_shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.config.heads,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
        }
    }

    pub(crate) fn embedding_layout(&self) -> EmbeddingLayout {
        if self.config.tied {
            EmbeddingLayout::Columns {
                vocabulary: self.config.vocab_size,
            }
        } else {
            EmbeddingLayout::Rows {
                width: self.config.hidden,
            }
        }
    }

    pub(crate) fn mat(rows: usize, inputs: usize, outputs: usize) -> MatShape {
        MatShape {
            rows,
            inputs,
            outputs,
        }
    }

    pub(crate) fn angles(&self) -> Span<'_, D::Buf> {
        self.angles.first(self.angles.len())
    }

    /// A product with a matrix, read from its bf16 copy where there is one.
    fn product(
        &self,
        device: &D,
        shape: MatShape,
        x: Span<D::Buf>,
        full: Range,
        copy: Option<Span<D::Buf>>,
        onto: Accumulate<D::Buf>,
        y: SpanMut<D::Buf>,
    ) {
        match copy {
            Some(copy) => device.matmul_packed(shape, x, copy, onto, y),
            None => device.matmul(shape, x, self.param(full), onto, y),
        }
    }

    /// Runs layer `layer` on `rows` rows, with the bf16 copy of its matrices where one is given.
    /// `attend(q, k, v, o)` is what differs between packed and decoded rows.
    pub(crate) fn layer_forward(
        &self,
        device: &D,
        packed: Option<&PackedWeights<D>>,
        layer: usize,
        rows: usize,
        positions: &D::Table<u32>,
        x: &D::Buf,
        x_next: &mut D::Buf,
        kept: &mut LayerKept<D>,
        h: &mut D::Buf,
        attend: impl FnOnce(&D, Attend<'_, D>),
    ) {
        let p = &self.roles.layers[layer];
        let c = &self.config;
        let shape = self.attention_shape();
        let (wide, narrow) = (shape.q_dim(), shape.kv_dim());
        let all = rows * c.hidden;
        let copies = packed.map(|it| (it, it.layers[layer]));
        let copied =
            |pick: fn(PackedLayer) -> Range| copies.map(|(it, ranges)| it.at(pick(ranges)));
        device.rms_norm(
            c.rms_eps,
            x.first(all),
            self.param(p.norm1),
            kept.n1.first_mut(all),
            kept.inverse1.first_mut(rows),
            Some(kept.middle.first_mut(all)),
        );
        let (q_to, k_to) = match &mut kept.raw {
            Some(raw) => (&mut raw.q, &mut raw.k),
            None => (&mut kept.q, &mut kept.k),
        };
        let bias = |i: usize| match &p.bias {
            Some(bias) => Accumulate::Bias(self.param(bias[i])),
            None => Accumulate::Nothing,
        };
        let n1 = kept.n1.first(all);
        let copies_of = [copied(|it| it.q), copied(|it| it.k), copied(|it| it.v)];
        for (i, (w, width, to)) in [
            (p.q, wide, q_to),
            (p.k, narrow, k_to),
            (p.v, narrow, &mut kept.v),
        ]
        .into_iter()
        .enumerate()
        {
            self.product(
                device,
                Self::mat(rows, c.hidden, width),
                n1,
                w,
                copies_of[i],
                bias(i),
                to.first_mut(rows * width),
            );
        }
        if let (Some(raw), Some(norms)) = (&mut kept.raw, &p.head_norm) {
            for (norm, heads, from, to, inverse) in [
                (norms[0], c.heads, &raw.q, &mut kept.q, &mut raw.inverse_q),
                (
                    norms[1],
                    c.kv_heads,
                    &raw.k,
                    &mut kept.k,
                    &mut raw.inverse_k,
                ),
            ] {
                let len = rows * heads * c.head_dim;
                device.rms_norm(
                    c.rms_eps,
                    from.first(len),
                    self.param(norm),
                    to.first_mut(len),
                    inverse.first_mut(rows * heads),
                    None,
                );
            }
        }
        for (x, width) in [(&mut kept.q, wide), (&mut kept.k, narrow)] {
            device.rope(
                c.head_dim,
                1.0,
                self.angles(),
                positions,
                x.first_mut(rows * width),
            );
        }
        attend(
            device,
            Attend {
                q: kept.q.first(rows * wide),
                k: kept.k.first(rows * narrow),
                v: kept.v.first(rows * narrow),
                out: &mut kept.o,
                log_sums: &mut kept.log_sums,
            },
        );
        self.product(
            device,
            Self::mat(rows, wide, c.hidden),
            kept.o.first(rows * wide),
            p.o,
            copied(|it| it.o),
            Accumulate::Existing,
            kept.middle.first_mut(all),
        );
        device.rms_norm(
            c.rms_eps,
            kept.middle.first(all),
            self.param(p.norm2),
            kept.n2.first_mut(all),
            kept.inverse2.first_mut(rows),
            Some(x_next.first_mut(all)),
        );
        let n2 = kept.n2.first(all);
        let copies_of = [copied(|it| it.gate), copied(|it| it.up)];
        for ((w, to), copy) in [(p.gate, &mut kept.gate), (p.up, &mut kept.up)]
            .into_iter()
            .zip(copies_of)
        {
            self.product(
                device,
                Self::mat(rows, c.hidden, c.ffn),
                n2,
                w,
                copy,
                Accumulate::Nothing,
                to.first_mut(rows * c.ffn),
            );
        }
        let ffn = rows * c.ffn;
        device.swiglu(kept.gate.first(ffn), kept.up.first(ffn), h.first_mut(ffn));
        self.product(
            device,
            Self::mat(rows, c.ffn, c.hidden),
            h.first(ffn),
            p.down,
            copied(|it| it.down),
            Accumulate::Existing,
            x_next.first_mut(all),
        );
    }
}

/// What the attention of one layer reads and writes.
pub(crate) struct Attend<'a, D: Device> {
    pub(crate) q: Span<'a, D::Buf>,
    pub(crate) k: Span<'a, D::Buf>,
    pub(crate) v: Span<'a, D::Buf>,
    pub(crate) out: &'a mut D::Buf,
    pub(crate) log_sums: &'a mut D::Buf,
}

/// Activations of one layer that its gradient reads.
#[derive(Debug)]
pub(crate) struct LayerKept<D: Device> {
    pub(crate) n1: D::Buf,
    pub(crate) inverse1: D::Buf,
    /// q and k before the norm of their heads, where there is one.
    pub(crate) raw: Option<RawHeads<D>>,
    pub(crate) q: D::Buf,
    pub(crate) k: D::Buf,
    pub(crate) v: D::Buf,
    pub(crate) o: D::Buf,
    pub(crate) log_sums: D::Buf,
    pub(crate) middle: D::Buf,
    pub(crate) n2: D::Buf,
    pub(crate) inverse2: D::Buf,
    pub(crate) gate: D::Buf,
    pub(crate) up: D::Buf,
}

#[derive(Debug)]
pub(crate) struct RawHeads<D: Device> {
    pub(crate) q: D::Buf,
    pub(crate) k: D::Buf,
    pub(crate) inverse_q: D::Buf,
    pub(crate) inverse_k: D::Buf,
}

impl<D: Device> LayerKept<D> {
    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        let raw = self
            .raw
            .iter()
            .flat_map(|it| [&it.q, &it.k, &it.inverse_q, &it.inverse_k]);
        let plain = [
            &self.n1,
            &self.inverse1,
            &self.q,
            &self.k,
            &self.v,
            &self.o,
            &self.log_sums,
            &self.middle,
            &self.n2,
            &self.inverse2,
            &self.gate,
            &self.up,
        ];
        let numbers: usize = plain.into_iter().chain(raw).map(Buffer::len).sum();
        (numbers * size_of::<f32>()) as u64
    }

    pub(crate) fn new(device: &D, config: &Config, rows: usize) -> Result<Self, ComputeError> {
        let (wide, narrow) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        let buf = |width: usize| device.alloc(rows * width);
        Ok(Self {
            n1: buf(config.hidden)?,
            inverse1: buf(1)?,
            raw: if config.qk_norm {
                Some(RawHeads {
                    q: buf(wide)?,
                    k: buf(narrow)?,
                    inverse_q: buf(config.heads)?,
                    inverse_k: buf(config.kv_heads)?,
                })
            } else {
                None
            },
            q: buf(wide)?,
            k: buf(narrow)?,
            v: buf(narrow)?,
            o: buf(wide)?,
            log_sums: buf(config.heads)?,
            middle: buf(config.hidden)?,
            n2: buf(config.hidden)?,
            inverse2: buf(1)?,
            gate: buf(config.ffn)?,
            up: buf(config.ffn)?,
        })
    }
}

fn check(config: &Config) -> Result<(), ComputeError> {
    let positive = [
        ("vocab_size", config.vocab_size),
        ("hidden", config.hidden),
        ("layers", config.layers),
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("head_dim", config.head_dim),
        ("ffn", config.ffn),
    ];
    for (field, got) in positive {
        if got == 0 {
            return Err(ComputeError::Config {
                field,
                expected: "at least 1".to_owned(),
                got,
            });
        }
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return Err(ComputeError::Config {
            field: "kv_heads",
            expected: format!("a divisor of heads = {}", config.heads),
            got: config.kv_heads,
        });
    }
    if !config.head_dim.is_multiple_of(2) {
        return Err(ComputeError::Config {
            field: "head_dim",
            expected: "an even number".to_owned(),
            got: config.head_dim,
        });
    }
    Ok(())
}
