//! Checks that the numbers of a configuration agree with each other.

use std::path::Path;

use super::fields::size_between;
use super::keys::names_of;
use crate::config::{Architecture, Config, Rope, TensorSpec};
use crate::error::Error;

/// Most parameters a model may have (2^40); larger sums in a file are taken for damage.
pub const MAX_PARAMETERS: u64 = 1 << 40;

/// Checks that the numbers of a configuration agree with each other: positive sizes, heads divisible by key/value
/// heads, an even head width, special tokens inside the vocabulary, at most [`MAX_PARAMETERS`] parameters. `file` only
/// appears in errors.
///
/// # Errors
/// [`Error::Refused`] with the name the field has in `config.json`.
pub fn check(file: &Path, config: &Config) -> Result<(), Error> {
    let refuse = |field, expected, got| Err(Error::refused(file, field, expected, got));
    let sizes = [
        ("vocab_size", config.vocab_size, 1 << 24),
        ("hidden_size", config.hidden, 1 << 18),
        ("num_hidden_layers", config.layers, 1 << 10),
        ("num_attention_heads", config.heads, 1 << 12),
        ("num_key_value_heads", config.kv_heads, 1 << 12),
        ("head_dim", config.head_dim, 1 << 12),
        ("intermediate_size", config.ffn, 1 << 20),
        ("max_position_embeddings", config.max_positions, 1 << 31),
    ];
    for (field, size, limit) in sizes {
        if !(1..=limit).contains(&size) {
            return refuse(field, size_between(limit), size.to_string());
        }
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        let expected = format!("a divisor of num_attention_heads ({})", config.heads);
        return refuse("num_key_value_heads", expected, config.kv_heads.to_string());
    }
    if !config.head_dim.is_multiple_of(2) {
        let expected = "an even number, as the rotation turns pairs".to_owned();
        return refuse("head_dim", expected, config.head_dim.to_string());
    }
    if !(config.rms_eps > 0.0 && config.rms_eps < 1.0) {
        let expected = "a number between 0 and 1".to_owned();
        return refuse("rms_norm_eps", expected, config.rms_eps.to_string());
    }
    check_rope(file, &config.rope, "rope_scaling")?;
    let special = (config.eos.iter().map(|id| ("eos_token_id", *id)))
        .chain(config.bos.map(|id| ("bos_token_id", id)))
        .chain(config.pad.map(|id| ("pad_token_id", id)));
    for (field, id) in special {
        if id as usize >= config.vocab_size {
            let expected = format!("an id below vocab_size ({})", config.vocab_size);
            return refuse(field, expected, id.to_string());
        }
    }
    for (name, has, needs) in [
        ("qkv_bias", config.qkv_bias, config.architecture == Architecture::Qwen2),
        ("qk_norm", config.qk_norm, config.architecture == Architecture::Qwen3),
    ] {
        if has != needs {
            let expected = format!("{name} {needs}, as {} has it", names_of(config.architecture).0);
            return refuse("architectures", expected, has.to_string());
        }
    }
    check_parameters(file, config)
}

/// Bounds the sum of parameters. One layer stands for all: they are alike, and a sum over 1024 of them
/// cannot overflow u64 within the bounds of the sizes.
fn check_parameters(file: &Path, config: &Config) -> Result<(), Error> {
    let count = |spec: &TensorSpec| spec.shape.iter().map(|size| *size as u64).product::<u64>();
    let one = Config { layers: 1, ..config.clone() };
    let copies = |spec: &TensorSpec| {
        if spec.name.starts_with("model.layers.") { config.layers as u64 } else { 1 }
    };
    let tensors = one.tensors();
    let parameters: u64 = tensors.iter().map(|it| copies(it) * count(it)).sum();
    if parameters <= MAX_PARAMETERS {
        return Ok(());
    }
    let place = "hidden_size × num_hidden_layers";
    let expected = format!("at most {MAX_PARAMETERS} parameters in all");
    Err(Error::refused(file, place, expected, parameters.to_string()))
}

/// `object` is the field that holds the scaling: each dialect has its own.
pub(super) fn check_rope(file: &Path, rope: &Rope, object: &str) -> Result<(), Error> {
    let refuse = |field, expected: String, got| Err(Error::refused(file, field, expected, got));
    if !(rope.theta.is_finite() && rope.theta >= 1.0) {
        let field = match object {
            "rope_scaling" => "rope_theta".to_owned(),
            object => format!("{object}.rope_theta"),
        };
        let expected = "a finite number of at least 1".to_owned();
        return refuse(field, expected, rope.theta.to_string());
    }
    let Some(scaling) = rope.llama3 else {
        return Ok(());
    };
    if !(scaling.factor.is_finite() && scaling.factor >= 1.0) {
        let expected = "a finite number of at least 1".to_owned();
        return refuse(format!("{object}.factor"), expected, scaling.factor.to_string());
    }
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    if !(low > 0.0 && high > low && high.is_finite()) {
        let expected = format!("a finite number above low_freq_factor ({low}), both positive");
        return refuse(format!("{object}.high_freq_factor"), expected, high.to_string());
    }
    if !(1..=1 << 31).contains(&scaling.original_max_positions) {
        let field = format!("{object}.original_max_position_embeddings");
        return refuse(field, size_between(1 << 31), scaling.original_max_positions.to_string());
    }
    Ok(())
}
