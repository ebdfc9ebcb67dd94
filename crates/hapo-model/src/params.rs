//! Where every parameter lies in one flat buffer.
//!
//! Purpose: the optimiser, clipping and checkpoints are loops over one buffer and one list.
//!
//! Price: linear weights lie transposed, `[in, out]`, since that is the faster order for every product;
//! a tied embedding lies in the order of the head. Tensors start on cache lines, so up to 15 elements
//! between them are padding (always zero).

use crate::compute_error::ComputeError;
use crate::config::Config;

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
        let mut len = 0;
        let params = config
            .tensors()
            .into_iter()
            .map(|spec| {
                let elements = spec.shape.iter().product();
                let offset = len;
                len += usize::next_multiple_of(elements, ALIGN);
                let lookup_only = spec.name == EMBEDDING && !config.tied;
                Param {
                    transposed: spec.shape.len() == 2 && !lookup_only,
                    name: spec.name,
                    shape: spec.shape,
                    offset,
                    len: elements,
                }
            })
            .collect();
        Self { params, len }
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
            .ok_or_else(|| ComputeError::UnknownTensor {
                name: name.to_owned(),
            })
    }
}

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";

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

    /// From the order of the buffer to the published order.
    pub fn to_published(&self, buffer: &[f32]) -> Result<Vec<f32>, ComputeError> {
        self.check(buffer.len())?;
        Ok(if self.transposed {
            transpose(buffer, self.shape[1], self.shape[0])
        } else {
            buffer.to_vec()
        })
    }

    fn check(&self, got: usize) -> Result<(), ComputeError> {
        if got == self.len {
            return Ok(());
        }
        Err(ComputeError::TensorLength {
            name: self.name.clone(),
            expected: self.len,
            got,
        })
    }
}

/// `[rows, columns]` to `[columns, rows]`, in blocks that stay in the cache.
fn transpose(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    const BLOCK: usize = 32;
    let mut y = vec![0.0; x.len()];
    for r in (0..rows).step_by(BLOCK) {
        for c in (0..columns).step_by(BLOCK) {
            for column in c..(c + BLOCK).min(columns) {
                for row in r..(r + BLOCK).min(rows) {
                    y[column * rows + row] = x[row * columns + column];
                }
            }
        }
    }
    y
}

/// A range of the flat buffer.
pub(crate) type Range = (usize, usize);

/// Ranges of one layer's tensors.
#[derive(Clone, Debug)]
pub(crate) struct LayerParams {
    pub(crate) norm1: Range,
    pub(crate) q: Range,
    pub(crate) k: Range,
    pub(crate) v: Range,
    pub(crate) bias: Option<[Range; 3]>,
    pub(crate) head_norm: Option<[Range; 2]>,
    pub(crate) o: Range,
    pub(crate) norm2: Range,
    pub(crate) gate: Range,
    pub(crate) up: Range,
    pub(crate) down: Range,
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
    pub(crate) fn of(config: &Config, layout: &ParamLayout) -> Result<Self, ComputeError> {
        let range = |name: &str| layout.get(name).map(|p| (p.offset, p.len));
        let layers = (0..config.layers)
            .map(|i| {
                let at = |name: &str| range(&format!("model.layers.{i}.{name}"));
                let attn = |name: &str| at(&format!("self_attn.{name}"));
                Ok(LayerParams {
                    norm1: at("input_layernorm.weight")?,
                    q: attn("q_proj.weight")?,
                    k: attn("k_proj.weight")?,
                    v: attn("v_proj.weight")?,
                    bias: if config.qkv_bias {
                        Some([
                            attn("q_proj.bias")?,
                            attn("k_proj.bias")?,
                            attn("v_proj.bias")?,
                        ])
                    } else {
                        None
                    },
                    head_norm: if config.qk_norm {
                        Some([attn("q_norm.weight")?, attn("k_norm.weight")?])
                    } else {
                        None
                    },
                    o: attn("o_proj.weight")?,
                    norm2: at("post_attention_layernorm.weight")?,
                    gate: at("mlp.gate_proj.weight")?,
                    up: at("mlp.up_proj.weight")?,
                    down: at("mlp.down_proj.weight")?,
                })
            })
            .collect::<Result<_, ComputeError>>()?;
        let embedding = range(EMBEDDING)?;
        Ok(Self {
            embedding,
            layers,
            norm: range("model.norm.weight")?,
            head: if config.tied {
                embedding
            } else {
                range("lm_head.weight")?
            },
        })
    }
}
