//! The shape of a decoder, as this project understands it.
//!
//! One struct for the three architectures (Qwen2/2.5, Qwen3 dense, Llama 3.x); the differences between them are four
//! fields, not three types. `config.json` is read into it elsewhere; unsupported features are refused there by name.

pub(crate) mod dtype;
pub mod json;
pub(crate) mod rope;

use hapo_kernels::AttentionShape;

use crate::compute_error::ComputeError;

/// Which published architecture a folder holds; decides names in `config.json` and the flags below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// `Qwen2ForCausalLM`: bias on q, k and v.
    Qwen2,
    /// `Qwen3ForCausalLM` (dense): RMS norm per head on q and k, no bias, explicit `head_dim`.
    Qwen3,
    /// `LlamaForCausalLM` (3.x): no bias, llama3 rope scaling.
    Llama,
}

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the geometric frequency series.
    pub theta: f64,
    /// Llama 3's frequency-dependent stretch, when the model has one.
    pub llama3: Option<Llama3Scaling>,
}

/// `rope_type = "llama3"`: low frequencies are divided by `factor`, high ones kept, those between
/// interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Stretch of the lowest frequencies.
    pub factor: f64,
    /// Wavelengths above `original_max_positions / low_freq_factor` are stretched in full.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_max_positions / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context length of the model before stretching.
    pub original_max_positions: usize,
}

/// The shape of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Published architecture.
    pub architecture: Architecture,
    /// Rows of the embedding; may be padded beyond the tokenizer.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width of the `SwiGLU` block.
    pub ffn: usize,
    /// Added to the mean square inside every RMS norm.
    pub rms_eps: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// The output head is the embedding, transposed.
    pub tied: bool,
    /// q, k and v have a bias (Qwen2).
    pub qkv_bias: bool,
    /// q and k are RMS-normalised per head before the rotation (Qwen3).
    pub qk_norm: bool,
    /// Longest sequence the model was made for.
    pub max_positions: usize,
    /// Ids that end a sequence, from `generation_config.json` where present, else `config.json`.
    pub eos: Vec<u32>,
    /// Id of the beginning-of-sequence token, when the folder names one.
    pub bos: Option<u32>,
    /// Id of the padding token, when the folder names one.
    pub pad: Option<u32>,
}

impl Config {
    /// The warning for sequences of up to `tokens` tokens, if the model was made for fewer.
    pub fn beyond_positions(&self, tokens: usize) -> Option<String> {
        (tokens > self.max_positions).then(|| {
            format!(
                "sequences of up to {tokens} tokens are read, the model was made for {} (max_position_embeddings)",
                self.max_positions
            )
        })
    }
}

/// A tensor of the Hugging Face folder: its published name and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in the safetensors files.
    pub name: String,
    /// Shape in the safetensors files; linear weights are `[out, in]`.
    pub shape: Vec<usize>,
}

impl Config {
    /// Widths of its attention blocks.
    pub fn attention_shape(&self) -> AttentionShape {
        AttentionShape { heads: self.heads, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// Checks that a decoder of this shape can be computed.
    ///
    /// # Errors
    /// [`ComputeError::Config`] with the first field that forbids it.
    pub fn check_computable(&self) -> Result<(), ComputeError> {
        let positive = [
            ("vocab_size", self.vocab_size),
            ("hidden", self.hidden),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("ffn", self.ffn),
        ];
        for (field, got) in positive {
            if got == 0 {
                return Err(ComputeError::Config { field, expected: "at least 1".to_owned(), got });
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ComputeError::Config {
                field: "kv_heads",
                expected: format!("a divisor of heads = {}", self.heads),
                got: self.kv_heads,
            });
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(ComputeError::Config {
                field: "head_dim",
                expected: "an even number".to_owned(),
                got: self.head_dim,
            });
        }
        Ok(())
    }

    /// Every tensor of the folder, in the order of the flat parameter buffer. `lm_head.weight` is
    /// absent when the head is tied.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let (h, hd) = (self.hidden, self.head_dim);
        let (q, kv) = (self.heads * hd, self.kv_heads * hd);
        let mut all = Vec::new();
        let mut push = |name: String, shape: &[usize]| {
            all.push(TensorSpec { name, shape: shape.to_vec() });
        };
        push("model.embed_tokens.weight".to_owned(), &[self.vocab_size, h]);
        for i in 0..self.layers {
            let layer = format!("model.layers.{i}");
            push(format!("{layer}.input_layernorm.weight"), &[h]);
            for (name, width) in [("q", q), ("k", kv), ("v", kv)] {
                push(format!("{layer}.self_attn.{name}_proj.weight"), &[width, h]);
                if self.qkv_bias {
                    push(format!("{layer}.self_attn.{name}_proj.bias"), &[width]);
                }
            }
            if self.qk_norm {
                push(format!("{layer}.self_attn.q_norm.weight"), &[hd]);
                push(format!("{layer}.self_attn.k_norm.weight"), &[hd]);
            }
            push(format!("{layer}.self_attn.o_proj.weight"), &[h, q]);
            push(format!("{layer}.post_attention_layernorm.weight"), &[h]);
            push(format!("{layer}.mlp.gate_proj.weight"), &[self.ffn, h]);
            push(format!("{layer}.mlp.up_proj.weight"), &[self.ffn, h]);
            push(format!("{layer}.mlp.down_proj.weight"), &[h, self.ffn]);
        }
        push("model.norm.weight".to_owned(), &[h]);
        if !self.tied {
            push("lm_head.weight".to_owned(), &[self.vocab_size, h]);
        }
        all
    }
}
