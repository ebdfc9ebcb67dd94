//! Checks that the numbers of a configuration agree with each other.

use std::path::Path;

use hapo_core::Refusal;

use crate::config::decoder::{Decoder, Scaling};
use crate::config::{Config, TensorSpec};
use crate::error::Error;
use crate::families::FAMILIES;
use crate::fields::{rope, size_between};

/// Most parameters a model may have (2^40); larger sums in a file are taken for damage.
pub const MAX_PARAMETERS: u64 = 1 << 40;

/// Checks that the numbers of a configuration agree with each other: positive sizes, heads divisible by key/value
/// heads, an even head width, special tokens inside the vocabulary, at most [`MAX_PARAMETERS`] parameters. `file` only
/// appears in errors.
///
/// # Errors
/// A refusal with the name the field has in `config.json`.
pub fn check(file: &Path, config: &Config) -> Result<(), Refusal> {
    Ok(check_all(file, config)?)
}

fn check_all(file: &Path, config: &Config) -> Result<(), Error> {
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
    check_decoder(file, config)?;
    let special = (config.eos.iter().map(|id| ("eos_token_id", *id)))
        .chain(config.bos.map(|id| ("bos_token_id", id)))
        .chain(config.pad.map(|id| ("pad_token_id", id)));
    for (field, id) in special {
        if id as usize >= config.vocab_size {
            let expected = format!("an id below vocab_size ({})", config.vocab_size);
            return refuse(field, expected, id.to_string());
        }
    }
    if FAMILIES.iter().all(|it| it.name != config.family) {
        let expected = "the name of a family".to_owned();
        return refuse("model_type", expected, config.family.to_owned());
    }
    check_parameters(file, config)
}

/// Checks what the decoder's description and the sizes say of each other.
fn check_decoder(file: &Path, config: &Config) -> Result<(), Error> {
    let Decoder { ropes, layers, .. } = &config.decoder;
    let refuse =
        |field, expected: &str, got: String| Err(Error::refused(file, field, expected, got));
    if layers.is_empty() || layers.len() > config.layers {
        let expected = format!("kinds of {} layers", config.layers);
        return refuse("layer_types", &expected, layers.len().to_string());
    }
    if layers.iter().any(|it| it.window == Some(0)) {
        return refuse("sliding_window", "a positive integer or null", "0".to_owned());
    }
    for rope in ropes {
        rope::check(file, rope, "rope_scaling.")?;
        let rotated = rope.rotated(config.head_dim);
        if rotated == 0 || !rotated.is_multiple_of(2) {
            let expected = "a share of head_dim that is an even number";
            return refuse("partial_rotary_factor", expected, rope.share.to_string());
        }
        if let Scaling::Long(it) = &rope.scaling {
            for (field, all) in
                [("rope_scaling.short_factor", &it.short), ("rope_scaling.long_factor", &it.long)]
            {
                if all.len() != rotated / 2 {
                    let expected = format!("{} numbers, one for each pair of a head", rotated / 2);
                    return refuse(field, &expected, all.len().to_string());
                }
            }
        }
    }
    match layers.iter().find_map(|it| it.rope.filter(|it| *it >= ropes.len())) {
        Some(it) => refuse("layer_types", "a rotary embedding for each kind", it.to_string()),
        None => Ok(()),
    }
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
