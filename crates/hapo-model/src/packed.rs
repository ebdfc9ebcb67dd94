//! A second copy of the matrices, in bf16, for decoding.
//!
//! Purpose: a decode step reads every weight once, so its time is their memory traffic; bf16 halves it.
//! Sums stay in f32 and in the order of every other product. Where all matrices are bf16 numbers (a
//! folder in bf16, not trained further) the copy changes no bit: the log-probabilities of sampled
//! tokens stay those of [`Model::forward`]. Otherwise weights are rounded, and what is sampled is
//! another, nearby model; only who asks for it gets it.
//!
//! Price: 2 bytes per parameter. Norms, biases and the look-up of embeddings stay f32. Weights that
//! change make the copy stale; it is not used until it is made again.

use hapo_kernels::{Buffer, Device, Span};

use crate::compute_error::ComputeError;
use crate::model::Model;
use crate::params::{LayerParams, Range};

/// How the bf16 copy stands to the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// There is none: decoding reads the f32 weights.
    No,
    /// Every matrix is equal to its copy: decoding gives the same bits, faster.
    Exact,
    /// Weights are rounded in the copy: decoding samples another, nearby model.
    Rounded,
}

/// The copy, and where each matrix lies in it.
#[derive(Debug)]
pub(crate) struct PackedWeights<D: Device> {
    buf: D::Buf,
    pub(crate) layers: Vec<PackedLayer>,
    pub(crate) head: Range,
    state: Packed,
}

impl<D: Device> PackedWeights<D> {
    pub(crate) fn at(&self, range: Range) -> Span<'_, D::Buf> {
        self.buf.at(range.0, range.1)
    }
}

/// Ranges of one layer's matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedLayer {
    pub(crate) q: Range,
    pub(crate) k: Range,
    pub(crate) v: Range,
    pub(crate) o: Range,
    pub(crate) gate: Range,
    pub(crate) up: Range,
    pub(crate) down: Range,
}

/// Rows up to which an exact copy is read: with 8 and with 64 rows it was the faster one.
const FEW_ROWS: usize = 64;

impl<D: Device> Model<D> {
    /// Makes the bf16 copy if it is exact: results stay the same to the bit.
    ///
    /// # Errors
    /// No memory.
    pub fn pack_exact(&mut self) -> Result<Packed, ComputeError> {
        if self.matrices_are_bf16() {
            self.pack(Packed::Exact)?;
        } else {
            self.packed = None;
        }
        Ok(self.packed())
    }

    /// Makes the bf16 copy anew from the weights as they are, rounding them where they are no bf16
    /// numbers. Sampled log-probabilities are then those of the rounded model.
    ///
    /// # Errors
    /// No memory.
    pub fn pack_rounded(&mut self) -> Result<Packed, ComputeError> {
        let state = if self.matrices_are_bf16() {
            Packed::Exact
        } else {
            Packed::Rounded
        };
        self.pack(state)?;
        Ok(self.packed())
    }

    /// Which weights decoding reads.
    pub fn packed(&self) -> Packed {
        self.packed.as_ref().map_or(Packed::No, |it| it.state)
    }

    /// Gives the copy's memory back.
    pub fn unpack(&mut self) {
        self.packed = None;
    }

    /// The weights have changed.
    pub(crate) fn invalidate_packed(&mut self) {
        if let Some(it) = &mut self.packed {
            it.state = Packed::No;
        }
    }

    /// The copy, where sampling `rows` rows is to read it.
    pub(crate) fn packed_for(&self, rows: usize) -> Option<&PackedWeights<D>> {
        self.packed.as_ref().filter(|it| match it.state {
            Packed::No => false,
            Packed::Exact => rows <= FEW_ROWS,
            Packed::Rounded => true,
        })
    }

    fn matrices(&self) -> Vec<(Range, usize, usize)> {
        let c = &self.config;
        let (wide, narrow) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let of_layer = |p: &LayerParams| {
            [
                (p.q, c.hidden, wide),
                (p.k, c.hidden, narrow),
                (p.v, c.hidden, narrow),
                (p.o, wide, c.hidden),
                (p.gate, c.hidden, c.ffn),
                (p.up, c.hidden, c.ffn),
                (p.down, c.ffn, c.hidden),
            ]
        };
        let head = (self.roles.head, c.hidden, c.vocab_size);
        let layers = self.roles.layers.iter().flat_map(of_layer);
        layers.chain([head]).collect()
    }

    fn matrices_are_bf16(&self) -> bool {
        self.device.enter(|| {
            self.matrices()
                .into_iter()
                .all(|(range, _, _)| self.device.is_bf16(self.param(range)))
        })
    }

    fn pack(&mut self, state: Packed) -> Result<(), ComputeError> {
        let matrices = self.matrices();
        let mut end = 0;
        let mut ranges = Vec::with_capacity(matrices.len());
        for (_, inputs, outputs) in &matrices {
            let Some(len) = self.device.packed_len(*inputs, *outputs) else {
                self.packed = None;
                return Ok(());
            };
            ranges.push((end, len));
            end += len.next_multiple_of(16);
        }
        let mut buf = match self.packed.take() {
            Some(it) => it.buf,
            None => self.device.alloc(end)?,
        };
        self.device.enter(|| {
            for ((range, inputs, outputs), to) in matrices.iter().zip(&ranges) {
                let to = buf.at_mut(to.0, to.1);
                self.device.pack(*inputs, *outputs, self.param(*range), to);
            }
        });
        let (layers, head) = ranges.split_at(ranges.len() - 1);
        let layers = layers
            .as_chunks::<7>()
            .0
            .iter()
            .map(|&[q, k, v, o, gate, up, down]| PackedLayer {
                q,
                k,
                v,
                o,
                gate,
                up,
                down,
            })
            .collect();
        self.packed = Some(PackedWeights {
            buf,
            layers,
            head: head[0],
            state,
        });
        Ok(())
    }
}
