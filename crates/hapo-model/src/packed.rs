//! A second copy of the matrices, in bf16, for decoding.
//!
//! Purpose: a decode step reads every weight once, so its time is their memory traffic; bf16 halves it.
//! Sums stay in f32 and in the order of every other product. Where all matrices are bf16 numbers (a
//! folder in bf16, not trained further) the copy changes no bit: the log-probabilities of sampled
//! tokens stay those of [`Model::forward`](crate::Model::forward). Otherwise weights are rounded, and what is sampled is
//! another, nearby model; only who asks for it gets it.
//!
//! Price: 2 bytes per parameter. Norms, biases and the look-up of embeddings stay f32. Weights that
//! change make the copy stale; it is not used until it is made again.

use hapo_kernels::{Buffer, Device, Span};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::params::{LayerParams, Matrices, Range, Roles};

/// How the bf16 copy relates to the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// There is no copy: decoding reads the f32 weights.
    No,
    /// Every matrix is equal to its copy: decoding gives the same bits, faster.
    Exact,
    /// Weights are rounded in the copy: decoding samples another, nearby model.
    Rounded,
}

/// The copy, and where each matrix is in it.
#[derive(Debug)]
pub(crate) struct PackedWeights<D: Device> {
    buf: D::Buf,
    pub(crate) layers: Vec<Matrices>,
    pub(crate) head: Range,
    pub(crate) state: Packed,
}

/// Rows up to which an exact copy is read: with 8 and with 64 rows it was the faster one.
const FEW_ROWS: usize = 64;

impl<D: Device> PackedWeights<D> {
    /// The copy of the matrices of `params`, in the memory of `old` where there is one. Is `None` where
    /// the device has no packed form of a matrix.
    pub(crate) fn of(
        device: &D,
        config: &Config,
        roles: &Roles,
        params: &D::Buf,
        state: Packed,
        old: Option<Self>,
    ) -> Result<Option<Self>, ComputeError> {
        let matrices = matrices(config, roles);
        let mut end = 0;
        let mut ranges = Vec::with_capacity(matrices.len());
        for (_, inputs, outputs) in &matrices {
            let Some(len) = device.packed_len(*inputs, *outputs) else {
                return Ok(None);
            };
            ranges.push((end, len));
            end += len.next_multiple_of(16);
        }
        let mut buf = match old {
            Some(it) => it.buf,
            None => device.alloc(end)?,
        };
        device.enter(|| {
            for ((range, inputs, outputs), to) in matrices.iter().zip(&ranges) {
                let to = buf.at_mut(to.0, to.1);
                device.pack(*inputs, *outputs, params.at(range.0, range.1), to);
            }
        });
        let (layers, head) = ranges.split_at(ranges.len() - 1);
        let layers = layers.as_chunks::<7>().0.iter().map(
            |&[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]| Matrices {
                q_proj,
                k_proj,
                v_proj,
                o_proj,
                gate_proj,
                up_proj,
                down_proj,
            },
        );
        Ok(Some(Self { buf, layers: layers.collect(), head: head[0], state }))
    }

    pub(crate) fn at(&self, range: Range) -> Span<'_, D::Buf> {
        self.buf.at(range.0, range.1)
    }

    /// Whether sampling `rows` rows reads the copy.
    pub(crate) fn is_read_for(&self, rows: usize) -> bool {
        match self.state {
            Packed::No => false,
            Packed::Exact => rows <= FEW_ROWS,
            Packed::Rounded => true,
        }
    }
}

/// Whether every matrix consists of bf16 numbers.
pub(crate) fn is_exact<D: Device>(
    device: &D,
    config: &Config,
    roles: &Roles,
    params: &D::Buf,
) -> bool {
    device.enter(|| {
        matrices(config, roles)
            .into_iter()
            .all(|(range, _, _)| device.is_bf16(params.at(range.0, range.1)))
    })
}

/// Range, inputs and outputs of every matrix.
fn matrices(config: &Config, roles: &Roles) -> Vec<(Range, usize, usize)> {
    let shape = config.attention_shape();
    let (hidden, ffn, q_dim, kv_dim) = (config.hidden, config.ffn, shape.q_dim(), shape.kv_dim());
    let of_layer = |p: &LayerParams| {
        let it = &p.matrices;
        [
            (it.q_proj, hidden, q_dim),
            (it.k_proj, hidden, kv_dim),
            (it.v_proj, hidden, kv_dim),
            (it.o_proj, q_dim, hidden),
            (it.gate_proj, hidden, ffn),
            (it.up_proj, hidden, ffn),
            (it.down_proj, ffn, hidden),
        ]
    };
    let head = (roles.head, hidden, config.vocab_size);
    roles.layers.iter().flat_map(of_layer).chain([head]).collect()
}
