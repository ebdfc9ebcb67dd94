//! The place of every parameter in the flat buffers of gradients and moments, and in files.
//!
//! Purpose: the optimiser, clipping and checkpoints are loops over one buffer and one list. Price: a CPU holds linear
//! weights transposed, `[in, out]`, since that is the faster order for every product, and a tied embedding in the order
//! of the head; a GPU holds all as published. The buffers that a resumed run reads have the CPU's order on both. Tensors
//! start on cache lines, so up to 15 elements between them are padding (always zero).

use hapo_core::Refusal;
use hapo_kernels::{DeviceCaps, Published};

use crate::config::{Config, TensorSpec};

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const NORM: &str = "model.norm.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

/// Elements between which tensors start.
const ALIGN: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    /// Published shape; linear weights are `[out, in]`.
    pub shape: Vec<usize>,
    /// First element in the flat buffer.
    pub offset: usize,
    pub len: usize,
    /// A factor of products, which a CPU and the files of a run's state have transposed.
    pub is_factor: bool,
    /// The buffer holds the transposed matrix.
    pub transposed: bool,
}

/// A range of a flat buffer that files have in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its first element.
    pub first: usize,
    /// Its elements.
    pub len: usize,
    /// Rows and columns of a matrix that files have transposed.
    turned: Option<[usize; 2]>,
}

impl Piece {
    /// From the order of the buffer to that of files.
    pub fn into_files_order(self, values: &mut [f32]) {
        if let Some([rows, columns]) = self.turned {
            let matrix = &mut values[..rows * columns];
            matrix.copy_from_slice(&transpose(matrix, rows, columns));
        }
    }

    /// The way back.
    pub fn out_of_files_order(self, values: &mut [f32]) {
        Self { turned: self.turned.map(|[rows, columns]| [columns, rows]), ..self }
            .into_files_order(values);
    }
}

/// All parameters in the order of [`Config::tensors`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamLayout {
    params: Vec<Param>,
    len: usize,
}

impl ParamLayout {
    pub fn of(config: &Config) -> Self {
        let is_product = |it: &TensorSpec| it.name != EMBEDDING || config.tied;
        Self::of_tensors(config.tensors(), is_product)
    }

    /// The layout of a decoder all of whose matrices are transposed, the embedding too.
    pub(crate) fn transposed(config: &Config) -> Self {
        Self::of_tensors(config.tensors(), |_| true)
    }

    /// Tensors one after the other; matrices that are factors of products are transposed.
    pub(crate) fn of_tensors(
        tensors: Vec<TensorSpec>,
        is_product: impl Fn(&TensorSpec) -> bool,
    ) -> Self {
        let mut len = 0;
        let params = tensors
            .into_iter()
            .map(|spec| {
                let elements = spec.shape.iter().product();
                let offset = len;
                len += usize::next_multiple_of(elements, ALIGN);
                let is_factor = spec.shape.len() == 2 && is_product(&spec);
                Param {
                    is_factor,
                    transposed: is_factor,
                    name: spec.name,
                    shape: spec.shape,
                    offset,
                    len: elements,
                }
            })
            .collect();
        Self { params, len }
    }

    /// As a device holds it.
    #[must_use]
    pub(crate) fn on(mut self, caps: DeviceCaps) -> Self {
        for param in &mut self.params {
            param.transposed = param.is_factor && !caps.holds_published();
        }
        self
    }

    /// The buffer in pieces of at most `most` elements. Where files have another order, each tensor is a piece.
    pub fn pieces(&self, most: usize) -> Vec<Piece> {
        if self.params.iter().all(|it| it.is_factor == it.transposed) {
            let firsts = (0..self.len).step_by(most);
            let piece = |first| Piece { first, len: most.min(self.len - first), turned: None };
            return firsts.map(piece).collect();
        }
        let piece = |it: &Param| Piece {
            first: it.offset,
            len: it.len.next_multiple_of(ALIGN),
            turned: it.is_factor.then(|| [it.shape[0], it.shape[1]]),
        };
        self.params.iter().map(piece).collect()
    }

    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Elements of the flat buffer, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Parameters of the model, padding excluded.
    pub fn parameters(&self) -> usize {
        self.params.iter().map(|p| p.len).sum()
    }

    /// Bytes of the flat buffer in f32: of gradients, and of each of the two moments.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<f32>()) as u64
    }

    /// The parts of tensors in `offset..offset + len`: the tensor's number, its first element, the place in the range.
    pub(crate) fn parts(
        &self,
        offset: usize,
        len: usize,
    ) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
        self.params.iter().enumerate().filter_map(move |(index, it)| {
            let start = it.offset.max(offset);
            let end = (it.offset + it.len).min(offset + len);
            (start < end).then(|| (index, start - it.offset, start - offset..end - offset))
        })
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|it| it.name == name)
    }

    pub fn get(&self, name: &str) -> Result<&Param, Refusal> {
        let found = self.position(name).map(|it| &self.params[it]);
        found.ok_or_else(|| unknown_tensor(name))
    }
}

impl Param {
    pub(crate) fn place(&self) -> Range {
        (self.offset, self.len)
    }

    /// Inputs and outputs, or rows and columns of an embedding that is looked up; of a vector 1 and its length.
    pub(crate) fn held_shape(&self) -> [usize; 2] {
        match (&self.shape[..], self.is_factor) {
            (&[outputs, inputs], true) => [inputs, outputs],
            (&[rows, columns], false) => [rows, columns],
            _ => [1, self.len],
        }
    }

    /// The matrix in its published order, of which so many rows are read together.
    pub(crate) fn published_matrix(&self, together: usize) -> Published {
        let (rows, columns) = (self.shape[0], self.shape[1]);
        Published { rows, columns, is_transposed: self.transposed, together }
    }

    /// In the published order, from elements of the buffer that `read` hands over from one of the tensor's on.
    pub(crate) fn published(&self, mut read: impl FnMut(usize, &mut [f32])) -> Vec<f32> {
        let mut all = vec![0.0; self.len];
        if self.transposed {
            transpose_pieces(&mut all, (self.shape[1], self.shape[0]), read);
        } else {
            read(0, &mut all);
        }
        all
    }

    pub(crate) fn check(&self, got: usize) -> Result<(), Refusal> {
        if got == self.len {
            return Ok(());
        }
        let (name, expected) = (&self.name, self.len);
        Err(Refusal::bug(format!("tensor {name}: expected {expected} elements, got {got}")))
    }
}

/// `[rows, columns]` to `[columns, rows]`.
pub(crate) fn transpose(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    transpose_pieces(&mut y, (rows, columns), |first, to| {
        to.copy_from_slice(&x[first..first + to.len()]);
    });
    y
}

/// Transposes `[rows, columns]`, which `read` returns in pieces from an offset, to `[columns, rows]`: in blocks that
/// stay in the cache, and without a second copy of the whole.
pub(crate) fn transpose_pieces(
    y: &mut [f32],
    (rows, columns): (usize, usize),
    mut read: impl FnMut(usize, &mut [f32]),
) {
    const BLOCK: usize = 32;
    let mut piece = vec![0.0; BLOCK.min(rows) * columns];
    for first in (0..rows).step_by(BLOCK) {
        let n = BLOCK.min(rows - first);
        read(first * columns, &mut piece[..n * columns]);
        for c in (0..columns).step_by(BLOCK) {
            for column in c..(c + BLOCK).min(columns) {
                for row in 0..n {
                    y[column * rows + first + row] = piece[row * columns + column];
                }
            }
        }
    }
}

/// A range of the flat buffer: its first element and its length.
pub(crate) type Range = (usize, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
}

impl Projection {
    pub const ALL: [Self; 7] =
        [Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

    /// The same in order, those together that multiply the same numbers.
    pub(crate) const BESIDE: [&[Self]; 4] =
        [&[Self::Q, Self::K, Self::V], &[Self::O], &[Self::Gate, Self::Up], &[Self::Down]];

    /// Its published name: `q_proj`.
    pub fn name(self) -> &'static str {
        self.module().split_once('.').expect("a block and a name").1
    }

    /// Its published name within the layer: `self_attn.q_proj`.
    pub fn module(self) -> &'static str {
        match self {
            Self::Q => "self_attn.q_proj",
            Self::K => "self_attn.k_proj",
            Self::V => "self_attn.v_proj",
            Self::O => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    pub(crate) fn shape(self, config: &Config) -> (usize, usize) {
        let (hidden, ffn) = (config.hidden, config.ffn);
        let shape = config.attention_shape();
        match self {
            Self::Q => (hidden, shape.q_dim()),
            Self::K | Self::V => (hidden, shape.kv_dim()),
            Self::O => (shape.q_dim(), hidden),
            Self::Gate | Self::Up => (hidden, ffn),
            Self::Down => (ffn, hidden),
        }
    }
}
pub(crate) fn unknown_tensor(name: &str) -> Refusal {
    Refusal::bug(format!("unknown tensor {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapo_kernels::Compute;

    /// A GPU's buffer comes to files in the order of a CPU's, and back.
    #[test]
    fn files_have_the_order_of_a_cpu() {
        let spec = |name: &str, shape: &[usize]| TensorSpec {
            name: name.to_owned(),
            shape: shape.to_vec(),
        };
        let tensors = vec![spec("a", &[3, 2]), spec("b", &[5]), spec(EMBEDDING, &[2, 7])];
        let cpu = ParamLayout::of_tensors(tensors, |it| it.name != EMBEDDING);
        let gpu = cpu.clone().on(DeviceCaps::gpu(Compute::Bf16));
        let mut published: Vec<f32> = (0..gpu.len()).map(|i| i as f32).collect();
        let mut in_file = published.clone();
        in_file[..6].copy_from_slice(&[0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        let held = published.clone();
        for piece in gpu.pieces(4) {
            piece.into_files_order(&mut published[piece.first..piece.first + piece.len]);
        }
        assert_eq!(published, in_file);
        for piece in gpu.pieces(4) {
            piece.out_of_files_order(&mut published[piece.first..piece.first + piece.len]);
        }
        assert_eq!(published, held);
        let of_cpu: Vec<usize> = cpu.pieces(10).iter().map(|it| it.len).collect();
        assert_eq!(of_cpu.iter().sum::<usize>(), cpu.len());
        assert!(of_cpu.iter().all(|it| *it <= 10));
    }
}
