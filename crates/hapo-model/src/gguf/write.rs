//! A model's keys and tensors in GGUF, for llama.cpp and what is built on it.

use std::path::Path;

use hapo_core::{Refusal, is_among};
use serde_json::{Map, Value as Json};

use super::architecture::{ARCHITECTURES, Architecture, KEYS, llama3_divisors, name};
use super::file::ALIGNMENT;
use super::keys::{Keys, put_text};
use super::{Change, Encoding, vocabulary};
use crate::config::decoder::Scaling;
use crate::config::dtype::Dtype;
use crate::config::rope::long_factor;
use crate::config::{Config, TensorSpec};
use crate::config_json::render;
use crate::files::refused;

/// What stands before the tensors' bytes, and the tensors in the order of those.
pub(crate) struct Header {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tensors: Vec<Out>,
}

/// A tensor of the file.
pub(crate) struct Out {
    pub(crate) spec: TensorSpec,
    /// The divisors of a stretched context; none of a folder's tensor.
    pub(crate) values: Option<Vec<f32>>,
    pub(crate) dtype: Dtype,
    pub(crate) change: Change,
}

impl Out {
    /// Bytes that it takes, up to the next one.
    pub(crate) fn padded(&self) -> usize {
        (self.spec.shape.iter().product::<usize>() * self.dtype.size()).next_multiple_of(ALIGNMENT)
    }
}

/// The header of a model whose matrices are stored as `dtype`; vectors are f32, as llama.cpp wants them.
pub(crate) fn header(
    path: &Path,
    config: &Config,
    dtype: Dtype,
    (files, template): (&[(&str, &[u8])], Option<&str>),
) -> Result<Header, Refusal> {
    let refuse = |expected: &str, got: &str| Err(refused(path, "", expected, got));
    let has_window = config.decoder.layers.iter().any(|kind| kind.window.is_some());
    let known = ARCHITECTURES.iter().find(|it| it.family == config.family);
    let Some(architecture) = known.filter(|it| it.family != "mistral" || !has_window) else {
        let got = if known.is_some() { "mistral with a window" } else { config.family };
        return refuse("a family that llama.cpp has", got);
    };
    let mut keys = Keys::default();
    keys.text("general.architecture", architecture.name);
    keys.text("general.type", "model");
    // `llama_ftype`.
    keys.u32(
        "general.file_type",
        match dtype {
            Dtype::F32 => 0,
            Dtype::F16 => 1,
            Dtype::Bf16 => 32,
        },
    );
    let mut tensors = Vec::new();
    let ropes = &config.decoder.ropes;
    let divisors = match &ropes[0].scaling {
        Scaling::Llama3(it) => {
            let all = llama3_divisors(*it, ropes[0].theta, config.head_dim / 2);
            vec![("rope_freqs", all.map(|it| it as f32).collect())]
        }
        Scaling::Long(it) => {
            let f32s = |all: &[f64]| all.iter().map(|it| *it as f32).collect::<Vec<_>>();
            vec![("rope_factors_long", f32s(&it.long)), ("rope_factors_short", f32s(&it.short))]
        }
        _ => Vec::new(),
    };
    fields(&mut keys, *architecture, config, has_window);
    vocabulary::write(&mut keys, path, config, files)?;
    if let Some(template) = template {
        keys.text("tokenizer.chat_template", template);
    }
    for (name, values) in divisors {
        let spec = TensorSpec { name: format!("{name}.weight"), shape: vec![values.len()] };
        let change = Change::None;
        tensors.push(Out { spec, values: Some(values), dtype: Dtype::F32, change });
    }
    for it in config.file_tensors() {
        let change = architecture.change(config, &name(config, &it.spec.name));
        let dtype = if it.spec.shape.len() == 1 { Dtype::F32 } else { dtype };
        tensors.push(Out { spec: it.spec, values: None, dtype, change });
    }
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend(keys.count.to_le_bytes());
    bytes.extend(keys.bytes);
    let mut offset = 0;
    for it in &tensors {
        let name =
            if it.values.is_some() { it.spec.name.clone() } else { name(config, &it.spec.name) };
        put_text(&mut bytes, &name);
        bytes.extend((it.spec.shape.len() as u32).to_le_bytes());
        for size in it.spec.shape.iter().rev() {
            bytes.extend((*size as u64).to_le_bytes());
        }
        bytes.extend(Encoding::Plain(it.dtype).number().to_le_bytes());
        bytes.extend((offset as u64).to_le_bytes());
        offset += it.padded();
    }
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    Ok(Header { bytes, tensors })
}

/// The fields of `config.json` under the architecture's keys.
fn fields(keys: &mut Keys, architecture: Architecture, config: &Config, has_window: bool) {
    let text = render(config, Dtype::F32);
    let fields: Map<String, Json> = serde_json::from_str(&text).expect("an object was written");
    let key = |key: &str| format!("{}.{key}", architecture.name);
    for (name, field) in KEYS {
        match fields.get(field) {
            Some(Json::Number(it)) if it.is_u64() && !is_among(FLOATS, field) => {
                keys.u32(&key(name), it.as_u64().unwrap_or_default() as u32);
            }
            Some(Json::Number(it)) => keys.f32(&key(name), it.as_f64().unwrap_or_default() as f32),
            _ => {}
        }
    }
    if !fields.contains_key("head_dim") {
        keys.u32(&key("attention.key_length"), config.head_dim as u32);
    }
    keys.u32(&key("attention.value_length"), config.head_dim as u32);
    let rope = &config.decoder.ropes[0];
    keys.u32(&key("rope.dimension_count"), rope.rotated(config.head_dim) as u32);
    keys.u32(&key("vocab_size"), config.vocab_size as u32);
    if has_window && config.decoder.layers.len() > 1 {
        let windows = (0..config.layers).map(|it| config.decoder.kind(it).window.is_some());
        keys.list(&key("attention.sliding_window_pattern"), 7, windows, |to, it| {
            to.push(it.into());
        });
    }
    let scaling = |name: &str| key(&format!("rope.scaling.{name}"));
    match &rope.scaling {
        Scaling::Linear(factor) => {
            keys.text(&scaling("type"), "linear");
            keys.f32(&scaling("factor"), *factor as f32);
        }
        Scaling::Yarn(it) => {
            keys.text(&scaling("type"), "yarn");
            for (name, value) in [
                ("factor", it.factor),
                ("yarn_beta_fast", it.beta_fast),
                ("yarn_beta_slow", it.beta_slow),
            ] {
                keys.f32(&scaling(name), value as f32);
            }
            keys.u32(&scaling("original_context_length"), it.original_max_positions as u32);
        }
        Scaling::Long(it) => {
            let factor = long_factor(it.original_max_positions, config.max_positions);
            keys.f32(&scaling("attn_factor"), factor as f32);
        }
        Scaling::None | Scaling::Llama3(_) => {}
    }
}

/// Fields that are numbers with a fraction, however they are written.
const FLOATS: &str = "rms_norm_eps rope_theta rope_local_base_freq embedding_multiplier residual_multiplier \
     attention_multiplier logits_scaling";
