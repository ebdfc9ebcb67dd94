//! Location of every parameter in one flat buffer.
//!
//! Purpose: the optimiser, clipping and checkpoints are loops over one buffer and one list.
//!
//! Price: linear weights are stored transposed, `[in, out]`, since that is the faster order for every product;
//! a tied embedding is stored in the order of the head. Tensors start on cache lines, so up to 15 elements
//! between them are padding (always zero).

use crate::compute_error::ComputeError;
use crate::config::{Config, TensorSpec};

/// Elements between which tensors start.
const ALIGN: usize = 16;

/// One parameter tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Published name.
    pub name: String,
    /// Published shape; linear weights are `[out, in]`.
    pub shape: Vec<usize>,
    /// First element in the flat buffer.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
    /// Whether the buffer holds the transposed matrix.
    pub transposed: bool,
}

/// All parameters in the order of [`Config::tensors`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamLayout {
    params: Vec<Param>,
    len: usize,
}

impl ParamLayout {
    /// The layout of a decoder.
    pub fn of(config: &Config) -> Self {
        let is_product = |it: &TensorSpec| it.name != EMBEDDING || config.tied;
        Self::of_tensors(config.tensors(), is_product)
    }

    /// The layout of a decoder whose matrices are held elsewhere.
    pub(crate) fn without_matrices(config: &Config) -> Self {
        let vectors = config.tensors().into_iter().filter(|it| it.shape.len() == 1);
        Self::of_tensors(vectors.collect(), |_| true)
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
                len += Self::aligned(elements);
                Param {
                    transposed: spec.shape.len() == 2 && is_product(&spec),
                    name: spec.name,
                    shape: spec.shape,
                    offset,
                    len: elements,
                }
            })
            .collect();
        Self { params, len }
    }

    /// Elements that a tensor takes, padding included.
    pub(crate) fn aligned(elements: usize) -> usize {
        elements.next_multiple_of(ALIGN)
    }

    /// The tensors, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Elements of the flat buffer, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no parameter.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Parameters of the model, padding excluded.
    pub fn parameters(&self) -> usize {
        self.params.iter().map(|p| p.len).sum()
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Result<&Param, ComputeError> {
        self.params
            .iter()
            .find(|p| p.name == name)
            .ok_or_else(|| ComputeError::UnknownTensor { name: name.to_owned() })
    }
}

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

impl Param {
    /// From the published order to the order of the buffer.
    pub fn to_buffer(&self, published: &[f32]) -> Result<Vec<f32>, ComputeError> {
        self.check(published.len())?;
        Ok(if self.transposed {
            transpose(published, self.shape[0], self.shape[1])
        } else {
            published.to_vec()
        })
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

    fn check(&self, got: usize) -> Result<(), ComputeError> {
        if got == self.len {
            return Ok(());
        }
        Err(ComputeError::TensorLength { name: self.name.clone(), expected: self.len, got })
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

/// `[rows, columns]`, of which `read` hands over the numbers from an offset on, to `[columns, rows]`: in blocks that stay
/// in the cache, and without a second copy of the whole.
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

/// A range of the flat buffer.
pub(crate) type Range = (usize, usize);

/// Ranges of one layer's tensors.
#[derive(Clone, Debug)]
pub(crate) struct LayerParams {
    /// `input_layernorm`.
    pub(crate) attn_norm: Range,
    /// `post_attention_layernorm`.
    pub(crate) mlp_norm: Range,
    /// Of q, k and v.
    pub(crate) qkv_bias: Option<[Range; 3]>,
    /// Norms of the heads of q and k.
    pub(crate) qk_norm: Option<[Range; 2]>,
    pub(crate) matrices: Matrices,
}

/// Ranges of one layer's matrices, in the parameters or in their bf16 copy, in the order of [`Projection::ALL`].
pub(crate) type Matrices = [Range; 7];

/// A matrix of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    /// `q_proj`.
    Q,
    /// `k_proj`.
    K,
    /// `v_proj`.
    V,
    /// `o_proj`.
    O,
    /// `gate_proj`.
    Gate,
    /// `up_proj`.
    Up,
    /// `down_proj`.
    Down,
}

impl Projection {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

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

    /// Its inputs and outputs.
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

/// Ranges of all tensors, by role.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    pub(crate) embedding: Range,
    pub(crate) layers: Vec<LayerParams>,
    pub(crate) norm: Range,
    /// The embedding when tied.
    pub(crate) head: Range,
}

impl Roles {
    /// Matrices that the layout does not have get an empty range: they are held elsewhere.
    pub(crate) fn of(config: &Config, layout: &ParamLayout) -> Result<Self, ComputeError> {
        let range = |name: &str| layout.get(name).map(|p| (p.offset, p.len));
        let matrix = |name: &str| range(name).unwrap_or((0, 0));
        let layers = (0..config.layers)
            .map(|i| {
                let at = |name: &str| range(&format!("model.layers.{i}.{name}"));
                let attn = |name: &str| at(&format!("self_attn.{name}"));
                let qkv_bias = ["q_proj.bias", "k_proj.bias", "v_proj.bias"];
                let [q_bias, k_bias, v_bias] = qkv_bias.map(attn);
                let [q_norm, k_norm] = ["q_norm.weight", "k_norm.weight"].map(attn);
                Ok(LayerParams {
                    attn_norm: at("input_layernorm.weight")?,
                    mlp_norm: at("post_attention_layernorm.weight")?,
                    qkv_bias: if config.qkv_bias {
                        Some([q_bias?, k_bias?, v_bias?])
                    } else {
                        None
                    },
                    qk_norm: if config.qk_norm { Some([q_norm?, k_norm?]) } else { None },
                    matrices: Projection::ALL
                        .map(|it| matrix(&format!("model.layers.{i}.{}.weight", it.module()))),
                })
            })
            .collect::<Result<_, ComputeError>>()?;
        let embedding = matrix(EMBEDDING);
        Ok(Self {
            embedding,
            layers,
            norm: range("model.norm.weight")?,
            head: if config.tied { embedding } else { matrix(HEAD) },
        })
    }
}
