//! Families of decoders: one file each, and one line of [`FAMILIES`].
//!
//! A family's file reads what its class of transformers has in `config.json` into a [`Decoder`], and writes the fields
//! that are its own. It holds no arithmetic.

mod exaone4;
mod gemma3;
mod granite;
mod llama;
mod ministral;
mod mistral;
mod olmo2;
mod olmo3;
mod phi3;
mod qwen2;
mod qwen3;
mod smollm3;

use hapo_core::Refusal;
use hapo_kernels::Habits;
use serde_json::Value;

use crate::config::Config;
use crate::config::decoder::Decoder;
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;
use crate::lora::LoraShape;
use crate::places::Projection;

/// A family of decoders.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// `model_type` in `config.json`.
    pub name: &'static str,
    /// The name in `architectures`.
    pub architecture: &'static str,
    /// Published models.
    pub summary: &'static str,
    /// It has run on a GPU.
    pub on_gpu: bool,
    pub(crate) absent: Absent,
    /// Takes the family's fields.
    pub(crate) read: fn(&mut Reader<'_>) -> Decoder,
    /// The fields that other families do not have, as an object.
    pub(crate) write: fn(&Config) -> Value,
}

/// All families.
pub const FAMILIES: &[Family] = &[
    qwen2::FAMILY,
    qwen3::FAMILY,
    llama::FAMILY,
    mistral::FAMILY,
    ministral::FAMILY,
    granite::FAMILY,
    smollm3::FAMILY,
    olmo2::FAMILY,
    olmo3::FAMILY,
    gemma3::FAMILY,
    phi3::FAMILY,
    exaone4::FAMILY,
];

/// `layer_types` of a configuration.
fn layer_types(config: &Config) -> Value {
    let kind = |layer| match config.decoder.kind(layer).window {
        Some(_) => "sliding_attention",
        None => "full_attention",
    };
    (0..config.layers).map(kind).collect()
}

/// The window of the layers that have one.
fn window(config: &Config) -> Option<usize> {
    config.decoder.layers.iter().find_map(|it| it.window)
}

/// Checks that a model of this configuration, with this adapter, runs on a device of these habits: before memory is
/// taken.
///
/// # Errors
/// A family that has not run on a GPU, a target of the adapter that is a part of a matrix in the folder.
pub fn check_run(
    config: &Config,
    habits: Habits,
    adapter: Option<&LoraShape>,
) -> Result<(), Refusal> {
    let family = family_of(config);
    if !(habits.is_cpu() || family.on_gpu) {
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

/// The family of a configuration.
///
/// # Panics
/// When there is none of its name.
pub(crate) fn family_of(config: &Config) -> &'static Family {
    let found = FAMILIES.iter().find(|it| it.name == config.family);
    found.expect("a configuration names a family of the table")
}
