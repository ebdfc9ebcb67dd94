//! Families of decoders: a row of [`FAMILIES`] each.
//!
//! A family is a function of the fields in `config.json`: it takes what its class of transformers has and gives a
//! [`Decoder`]. It holds no arithmetic.

use hapo_core::{Refusal, expected};
use hapo_kernels::{Activation, DeviceCaps};

use crate::config::decoder::{Decoder, LayerKind, Multipliers, Norms, QkNorm};
use crate::fields::{HfConfig, positive, shown};
use crate::{
    config::Config, fields::keys::Fixed, fields::rope::Beside, lora::LoraShape,
    param_layout::Projection,
};

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "defaults of four independent fields of a file")]
pub struct Family {
    /// `model_type` in `config.json`.
    pub name: &'static str,
    pub architecture: &'static str,
    /// Published models.
    pub summary: &'static str,
    /// It has run on a GPU.
    pub on_gpu: bool,
    /// A missing `num_key_value_heads` is `num_attention_heads`.
    pub(crate) kv_heads_follow: bool,
    /// A missing `head_dim` is `hidden_size` / `num_attention_heads`.
    pub(crate) head_dim_follows: bool,
    /// A missing `tie_word_embeddings`.
    pub(crate) tied: bool,
    /// Keys of the class with the only value that is implemented.
    pub(crate) fixed: &'static [Fixed],
    /// Takes the other fields of the class.
    pub(crate) read: fn(&mut HfConfig) -> Result<Decoder, Refusal>,
    /// Keys that not all families write.
    pub(crate) written: &'static str,
}

const NO_BIAS: Fixed = ("attention_bias", "false");

/// Llama's class: no bias; since 3.1 its own scaling of the context. The others are told by how they differ.
const LLAMA: Family = Family {
    name: "llama",
    architecture: "LlamaForCausalLM",
    summary: "Llama 2 and 3, SmolLM2, TinyLlama",
    on_gpu: false,
    kv_heads_follow: true,
    head_dim_follows: true,
    tied: false,
    fixed: &[NO_BIAS],
    read: |fields| {
        fields.full_attention(false)?;
        // Folders from before the field: transformers takes 10000.
        Ok(Decoder::plain(fields.rope(Some(1e4))?))
    },
    written: "attention_bias head_dim mlp_bias pretraining_tp",
};

pub const FAMILIES: &[Family] = &[
    // A bias on q, k and v.
    Family {
        name: "qwen2",
        on_gpu: true,
        architecture: "Qwen2ForCausalLM",
        summary: "Qwen2, Qwen2.5, Qwen2.5-Math, DeepSeek-R1-Distill-Qwen",
        kv_heads_follow: false,
        fixed: &[("attention_bias", "true")],
        read: |fields| {
            fields.full_attention(true)?;
            Ok(Decoder { qkv_bias: true, ..Decoder::plain(fields.rope(None)?) })
        },
        written: "max_window_layers sliding_window use_sliding_window",
        ..LLAMA
    },
    // RMS norm of every head of q and k, and an explicit `head_dim`.
    Family {
        name: "qwen3",
        on_gpu: true,
        architecture: "Qwen3ForCausalLM",
        summary: "Qwen3, dense",
        kv_heads_follow: false,
        head_dim_follows: false,
        read: |fields| {
            fields.full_attention(true)?;
            Ok(Decoder { qk_norm: Some(QkNorm::Head), ..Decoder::plain(fields.rope(None)?) })
        },
        written: "attention_bias head_dim max_window_layers sliding_window use_sliding_window",
        ..LLAMA
    },
    Family { on_gpu: true, ..LLAMA },
    // A window that all layers have, or none.
    Family {
        name: "mistral",
        architecture: "MistralForCausalLM",
        summary: "Mistral 7B and Nemo, Ministral 8B",
        kv_heads_follow: false,
        fixed: &[],
        read: |fields| {
            let window = fields.sliding_window.take();
            Ok(Decoder::plain(fields.rope(Some(1e4))?).with_window(window))
        },
        written: "head_dim sliding_window",
        ..LLAMA
    },
    // Mistral with a window in some layers; without `layer_types` all have it.
    Family {
        name: "ministral",
        architecture: "MinistralForCausalLM",
        summary: "Ministral 8B with interleaved windows",
        kv_heads_follow: false,
        fixed: &[],
        read: |fields| {
            let kinds = fields.layers(usize::MAX)?.into_iter();
            let layers = kinds.map(|kind| LayerKind { rope: Some(0), ..kind }).collect();
            Ok(Decoder { layers, ..Decoder::plain(fields.rope(Some(1e4))?) })
        },
        written: "head_dim layer_types sliding_window",
        ..LLAMA
    },
    // Factors on the embedding, the scores, the blocks and the logits.
    Family {
        name: "granite",
        architecture: "GraniteForCausalLM",
        summary: "Granite 3, dense",
        read: granite,
        written: "attention_bias attention_multiplier embedding_multiplier logits_scaling mlp_bias \
                  residual_multiplier",
        ..LLAMA
    },
    // Some layers do not turn their heads.
    Family {
        name: "smollm3",
        architecture: "SmolLM3ForCausalLM",
        summary: "SmolLM3 3B",
        kv_heads_follow: false,
        tied: true,
        read: smollm3,
        written: "attention_bias layer_types mlp_bias no_rope_layers use_sliding_window",
        ..LLAMA
    },
    // Norms after the blocks, and one over all heads of q and of k.
    Family {
        name: "olmo2",
        architecture: "Olmo2ForCausalLM",
        summary: "OLMo 2",
        read: |fields| {
            let plain = Decoder::plain(fields.rope(Some(1e4))?);
            Ok(Decoder { norms: Norms::After, qk_norm: Some(QkNorm::Row), ..plain })
        },
        written: "attention_bias",
        ..LLAMA
    },
    // OLMo 2 with windows in three layers of four; the others may stretch their context by YaRN.
    Family {
        name: "olmo3",
        architecture: "Olmo3ForCausalLM",
        summary: "OLMo 3",
        read: |fields| {
            let (ropes, layers) = (fields.ropes(5e5, None)?, fields.layers(4)?);
            let plain = Decoder::plain(ropes[0].clone());
            Ok(Decoder { norms: Norms::After, qk_norm: Some(QkNorm::Row), ropes, layers, ..plain })
        },
        written: "attention_bias layer_types sliding_window",
        ..LLAMA
    },
    // Norms by 1 + w before and after the blocks and of every head, a scaled embedding, GELU, windows with a rotary
    // embedding of their own.
    Family {
        name: "gemma3_text",
        on_gpu: false,
        architecture: "Gemma3ForCausalLM",
        summary: "Gemma 3 270M and 1B",
        kv_heads_follow: false,
        head_dim_follows: false,
        tied: true,
        fixed: &[
            NO_BIAS,
            ("hidden_activation", "\"gelu_pytorch_tanh\""),
            ("use_bidirectional_attention", "false"),
            ("cache_implementation", "\"hybrid\""),
        ],
        read: gemma3,
        written: "attention_bias attn_logit_softcapping final_logit_softcapping head_dim layer_types \
                  query_pre_attn_scalar rope_local_base_freq sliding_window",
    },
    // q, k and v in one matrix, gate and up in one; a part of each head is turned, by one of two sets of frequencies.
    Family {
        name: "phi3",
        architecture: "Phi3ForCausalLM",
        summary: "Phi-3-mini, Phi-3.5-mini, Phi-4-mini",
        fixed: &[
            NO_BIAS,
            ("full_attn_mod", "1"),
            ("interpolate_factor", "1"),
            ("lm_head_bias", "false"),
        ],
        read: phi3,
        written: "attention_bias embd_pdrop original_max_position_embeddings resid_pdrop \
                  sliding_window",
        ..LLAMA
    },
    // Norms after the blocks and of every head; where some layers have a window, the others do not turn their heads.
    Family {
        name: "exaone4",
        architecture: "Exaone4ForCausalLM",
        summary: "EXAONE 4 1.2B and 32B",
        kv_heads_follow: false,
        read: exaone4,
        written: "attention_bias layer_types sliding_window sliding_window_pattern",
        ..LLAMA
    },
];

fn granite(fields: &mut HfConfig) -> Result<Decoder, Refusal> {
    let logits = positive(fields.logits_scaling.take(), 1.0, "logits_scaling")?;
    let attention = positive(fields.attention_multiplier.take(), 1.0, "attention_multiplier")?;
    let multipliers = Multipliers {
        embedding: positive(fields.embedding_multiplier.take(), 1.0, "embedding_multiplier")?,
        attention: Some(attention),
        residual: positive(fields.residual_multiplier.take(), 1.0, "residual_multiplier")?,
        logits: 1.0 / logits,
    };
    Ok(Decoder { multipliers, ..Decoder::plain(fields.rope(Some(1e4))?) })
}

/// `no_rope_layers` has a 1 for each layer that turns its heads, or all but each fourth do.
fn smollm3(fields: &mut HfConfig) -> Result<Decoder, Refusal> {
    fields.full_attention(true)?;
    let every = fields.no_rope_layer_interval.take().map_or(4, usize::from);
    let depth = fields.depth()?;
    let turned: Vec<bool> = match fields.no_rope_layers.take() {
        None => (1..=depth).map(|layer| layer % every != 0).collect(),
        Some(list) if list.len() == depth && list.iter().all(|it| *it < 2) => {
            list.iter().map(|it| *it == 1).collect()
        }
        Some(list) => {
            let wanted = format!("0 or 1 for each of the {depth} layers");
            return Err(expected(wanted).got(shown(list)).at("no_rope_layers"));
        }
    };
    let kinds = turned.into_iter().map(|it| LayerKind { window: None, rope: it.then_some(0) });
    Ok(Decoder { layers: kinds.collect(), ..Decoder::plain(fields.rope(Some(2e6))?) })
}

fn gemma3(fields: &mut HfConfig) -> Result<Decoder, Refusal> {
    let scalar = positive(fields.query_pre_attn_scalar.take(), 256.0, "query_pre_attn_scalar")?;
    let every = fields.pattern(6)?;
    let local = fields.rope_local_base_freq.take().unwrap_or(1e4);
    let (ropes, layers) = (fields.ropes(1e6, Some(local))?, fields.layers(every)?);
    let multipliers = Multipliers {
        embedding: (fields.hidden_size.unwrap_or(1) as f64).sqrt(),
        attention: Some(1.0 / scalar.sqrt()),
        ..Multipliers::default()
    };
    Ok(Decoder {
        qk_norm: Some(QkNorm::Head),
        norms: Norms::Both,
        unit_offset: true,
        activation: Activation::GeluTanh,
        multipliers,
        layers,
        ropes: ropes.clone(),
        ..Decoder::plain(ropes[0].clone())
    })
}

fn phi3(fields: &mut HfConfig) -> Result<Decoder, Refusal> {
    // The class that folders name beside theirs is that of transformers.
    let map = fields.rest.get("auto_map").map(|map| &map["AutoModelForCausalLM"]);
    if map.is_some_and(|class| class == "modeling_phi3.Phi3ForCausalLM") {
        fields.rest.remove("auto_map");
    }
    let window = fields.sliding_window.take();
    let share = positive(fields.partial_rotary_factor.take(), 1.0, "partial_rotary_factor")?;
    let original = fields.original_max_position_embeddings.take();
    let beside = Beside { absent: Some(1e4), original, share: Some(share), ..Beside::default() };
    let rope = fields.rope_with(beside)?;
    Ok(Decoder { is_fused: true, ..Decoder::plain(rope).with_window(window) })
}

fn exaone4(fields: &mut HfConfig) -> Result<Decoder, Refusal> {
    let every = fields.pattern(4)?;
    let kinds = fields.layers(every)?;
    let is_hybrid = kinds.iter().any(|kind| kind.window.is_some());
    let turns = |kind: &LayerKind| !is_hybrid || kind.window.is_some();
    let layers = kinds.iter().map(|it| LayerKind { rope: turns(it).then_some(0), ..*it }).collect();
    let plain = Decoder::plain(fields.rope(Some(1e4))?);
    Ok(Decoder { norms: Norms::After, qk_norm: Some(QkNorm::Head), layers, ..plain })
}

/// Checks, before memory is taken, that a model with this adapter runs on a device of these caps.
pub fn check_run(
    config: &Config,
    caps: DeviceCaps,
    adapter: Option<&LoraShape>,
) -> Result<(), Refusal> {
    let family = family_of(config)?;
    if !(caps.is_cpu() || family.on_gpu) {
        let problem = format!("{}: this family runs on a CPU only", family.name);
        return Err(Refusal::input(problem).hint("run it with --device cpu"));
    }
    let is_part = |it: &&Projection| !matches!(it, Projection::O | Projection::Down);
    let targets = adapter.iter().flat_map(|it| &it.targets);
    match targets.into_iter().find(is_part).filter(|_| config.decoder.is_fused) {
        Some(part) => {
            let name = part.name();
            let problem =
                format!("lora: {name} is a part of a larger matrix in this family's folders");
            Err(Refusal::input(problem).hint("targets that work are o_proj and down_proj"))
        }
        None => Ok(()),
    }
}

pub(crate) fn family_of(config: &Config) -> Result<&'static Family, Refusal> {
    let found = FAMILIES.iter().find(|family| family.name == config.family);
    found.ok_or_else(|| expected("the name of a family").got(config.family).at("model_type"))
}
