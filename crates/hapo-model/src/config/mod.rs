//! The shape of a decoder, as this project understands it.
//!
//! One struct for all families: sizes, and a [`Decoder`] that says in what else they differ. A family's file reads
//! `config.json` into it; unsupported features are refused there by name.

pub(crate) mod check;
pub(crate) mod decoder;
pub(crate) mod dtype;

use hapo_kernels::AttentionShape;

use decoder::{Decoder, QkNorm};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of its family, `model_type` in `config.json`.
    pub family: &'static str,
    /// Rows of the embedding; may be padded beyond the tokenizer.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Width of the `SwiGLU` block.
    pub ffn: usize,
    /// Added to the mean square inside every RMS norm.
    pub rms_eps: f32,
    /// The output head is the embedding, transposed.
    pub tied: bool,
    pub decoder: Decoder,
    /// Longest sequence the model was made for.
    pub max_positions: usize,
    /// Ids that end a sequence, from `generation_config.json` where present, else `config.json`.
    pub eos: Vec<u32>,
    pub bos: Option<u32>,
    pub pad: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    /// Shape in the safetensors files; linear weights are `[out, in]`.
    pub shape: Vec<usize>,
}

/// A tensor of a folder, and the decoder's tensors that its rows are, one below the other.
#[derive(Clone, Debug)]
pub(crate) struct FileTensor {
    pub(crate) spec: TensorSpec,
    pub(crate) parts: Vec<TensorSpec>,
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

    pub fn attention_shape(&self) -> AttentionShape {
        AttentionShape::new(self.heads, self.kv_heads, self.head_dim)
    }

    /// The factor of the queries on top of 1/√`head_dim`.
    pub(crate) fn query_multiplier(&self) -> f64 {
        let of_scores = self.decoder.multipliers.attention;
        of_scores.map_or(1.0, |it| it * (self.head_dim as f64).sqrt())
    }

    pub fn attention_of(&self, layer: usize) -> AttentionShape {
        let rotated = self.decoder.rope_of(layer).map_or(0, |it| it.rotated(self.head_dim));
        let window = self.decoder.kind(layer).window;
        AttentionShape { rotated, window, ..self.attention_shape() }
    }

    /// Every tensor of the folder, in the order of the flat buffer; there is no `lm_head.weight` when the head is tied.
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
            let [before_attention, after_attention, before_mlp, after_mlp] =
                self.decoder.norms.names().map(|it| it.map(|name| format!("{layer}.{name}")));
            if let Some(name) = before_attention {
                push(name, &[h]);
            }
            for (name, width) in [("q", q), ("k", kv), ("v", kv)] {
                push(format!("{layer}.self_attn.{name}_proj.weight"), &[width, h]);
                if self.decoder.qkv_bias {
                    push(format!("{layer}.self_attn.{name}_proj.bias"), &[width]);
                }
            }
            if let Some(norm) = self.decoder.qk_norm {
                let [of_q, of_k] = if norm == QkNorm::Head { [hd; 2] } else { [q, kv] };
                push(format!("{layer}.self_attn.q_norm.weight"), &[of_q]);
                push(format!("{layer}.self_attn.k_norm.weight"), &[of_k]);
            }
            push(format!("{layer}.self_attn.o_proj.weight"), &[h, q]);
            for name in after_attention.into_iter().chain(before_mlp) {
                push(name, &[h]);
            }
            push(format!("{layer}.mlp.gate_proj.weight"), &[self.ffn, h]);
            push(format!("{layer}.mlp.up_proj.weight"), &[self.ffn, h]);
            push(format!("{layer}.mlp.down_proj.weight"), &[h, self.ffn]);
            if let Some(name) = after_mlp {
                push(name, &[h]);
            }
        }
        push("model.norm.weight".to_owned(), &[h]);
        if !self.tied {
            push("lm_head.weight".to_owned(), &[self.vocab_size, h]);
        }
        all
    }

    /// Every tensor as the folder has it: those of [`Config::tensors`], some of them in one.
    pub(crate) fn file_tensors(&self) -> Vec<FileTensor> {
        let mut all: Vec<FileTensor> = Vec::new();
        for part in self.tensors() {
            let name = self.decoder.is_fused.then(|| fused_name(&part.name)).flatten();
            let name = name.unwrap_or_else(|| part.name.clone());
            // The parts of a fused matrix follow each other.
            if let Some(it) = all.last_mut().filter(|it| it.spec.name == name) {
                it.spec.shape[0] += part.shape[0];
                it.parts.push(part);
            } else {
                let spec = TensorSpec { name, shape: part.shape.clone() };
                all.push(FileTensor { spec, parts: vec![part] });
            }
        }
        all
    }
}

/// The matrix that has this one's rows among its own.
fn fused_name(part: &str) -> Option<String> {
    let (module, tensor) = part.rsplit_once('.')?;
    let (block, name) = module.rsplit_once('.')?;
    let fused = match name {
        "q_proj" | "k_proj" | "v_proj" => "qkv_proj",
        "gate_proj" | "up_proj" => "gate_up_proj",
        _ => return None,
    };
    Some(format!("{block}.{fused}.{tensor}"))
}
