//! A model's keys and tensors in GGUF, for llama.cpp and what is built on it.

use std::path::Path;

use hapo_core::Refusal;
use serde_json::{Map, Value as Json, json};

use super::architecture::{ARCHITECTURES, Architecture, KEYS, llama3_divisors, name};
use super::vocabulary::{self, Keys};
use super::{Change, Encoding, file::ALIGNMENT};
use crate::config::decoder::{Scaling, long_factor};
use crate::config::{Config, TensorSpec};
use crate::{config::dtype::Dtype, config_json::render, files::refused};

/// What stands before the tensors' bytes, and the tensors in the order of those.
pub(crate) struct Header {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tensors: Vec<Out>,
}

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
    (files, template): (&[(&str, Vec<u8>)], Option<&str>),
) -> Result<Header, Refusal> {
    let has_window = config.decoder.layers.iter().any(|kind| kind.window.is_some());
    let known = ARCHITECTURES.iter().find(|it| it.family == config.family);
    let Some(architecture) = known.filter(|it| it.family != "mistral" || !has_window) else {
        let got = if known.is_some() { "mistral with a window" } else { config.family };
        return Err(refused(path, "", "a family that llama.cpp has", got));
    };
    // `llama_ftype`.
    let file_type = match dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 1,
        Dtype::Bf16 => 32,
    };
    let mut keys = vec![
        ("general.architecture".to_owned(), json!(architecture.name)),
        ("general.type".to_owned(), json!("model")),
        ("general.file_type".to_owned(), json!(file_type)),
    ];
    keys.extend(fields(*architecture, config, has_window));
    keys.extend(vocabulary::keys(path, config, files)?);
    keys.extend(template.map(|it| ("tokenizer.chat_template".to_owned(), json!(it))));
    let ropes = &config.decoder.ropes;
    let f32s = |all: &[f64]| all.iter().map(|it| *it as f32).collect();
    let divisors: Vec<(&str, Vec<f32>)> = match &ropes[0].scaling {
        Scaling::Llama3(it) => {
            let all = llama3_divisors(*it, ropes[0].theta, config.head_dim / 2);
            vec![("rope_freqs", all.map(|it| it as f32).collect())]
        }
        Scaling::Long(it) => {
            vec![("rope_factors_long", f32s(&it.long)), ("rope_factors_short", f32s(&it.short))]
        }
        _ => Vec::new(),
    };
    let divisors = divisors.into_iter().map(|(name, values)| {
        let spec = TensorSpec { name: format!("{name}.weight"), shape: vec![values.len()] };
        Out { spec, values: Some(values), dtype: Dtype::F32, change: Change::None }
    });
    let of_folder = config.file_tensors().into_iter().map(|it| {
        let change = architecture.change(config, &name(config, &it.spec.name));
        let dtype = if it.spec.shape.len() == 1 { Dtype::F32 } else { dtype };
        Out { spec: it.spec, values: None, dtype, change }
    });
    let tensors: Vec<Out> = divisors.chain(of_folder).collect();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in &keys {
        put(&mut bytes, &json!(key));
        bytes.extend(kind(value).to_le_bytes());
        put(&mut bytes, value);
    }
    let mut offset = 0;
    for it in &tensors {
        let name =
            if it.values.is_some() { it.spec.name.clone() } else { name(config, &it.spec.name) };
        put(&mut bytes, &json!(name));
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

fn kind(value: &Json) -> u32 {
    match value {
        Json::Bool(_) => 7,
        Json::String(_) => 8,
        Json::Array(_) => 9,
        it if it.is_f64() => 6,
        _ => 4,
    }
}

/// Appends a value: numbers with a fraction are f32, others u32, in lists i32.
fn put(to: &mut Vec<u8>, value: &Json) {
    match value {
        Json::Bool(it) => to.push((*it).into()),
        Json::String(it) => {
            to.extend((it.len() as u64).to_le_bytes());
            to.extend(it.as_bytes());
        }
        Json::Array(all) => {
            let kind = all.first().map_or(8, kind);
            to.extend(if kind == 4 { 5 } else { kind }.to_le_bytes());
            to.extend((all.len() as u64).to_le_bytes());
            for it in all {
                put(to, it);
            }
        }
        it if it.is_f64() => to.extend((it.as_f64().unwrap_or_default() as f32).to_le_bytes()),
        it => to.extend((it.as_u64().unwrap_or_default() as u32).to_le_bytes()),
    }
}

fn fields(architecture: Architecture, config: &Config, has_window: bool) -> Keys {
    let text = render(config, Dtype::F32);
    let fields: Map<String, Json> = serde_json::from_str(&text).expect("an object was written");
    let rope = &config.decoder.ropes[0];
    let mut all: Vec<(&str, Json)> = KEYS
        .iter()
        .filter_map(|(key, field)| Some((*key, fields.get(*field)?.clone())))
        .filter(|(key, value)| value.is_number() && *key != "attention.key_length")
        .collect();
    all.extend([
        ("attention.key_length", json!(config.head_dim)),
        ("attention.value_length", json!(config.head_dim)),
        ("rope.dimension_count", json!(rope.rotated(config.head_dim))),
        ("vocab_size", json!(config.vocab_size)),
    ]);
    if has_window && config.decoder.layers.len() > 1 {
        let windows = (0..config.layers).map(|it| config.decoder.kind(it).window.is_some());
        all.push(("attention.sliding_window_pattern", windows.collect()));
    }
    match &rope.scaling {
        Scaling::Linear(factor) => all.extend([
            ("rope.scaling.type", json!("linear")),
            ("rope.scaling.factor", json!(factor)),
        ]),
        Scaling::Yarn(it) => all.extend([
            ("rope.scaling.type", json!("yarn")),
            ("rope.scaling.factor", json!(it.factor)),
            ("rope.scaling.yarn_beta_fast", json!(it.beta_fast)),
            ("rope.scaling.yarn_beta_slow", json!(it.beta_slow)),
            ("rope.scaling.original_context_length", json!(it.original_max_positions)),
        ]),
        Scaling::Long(it) => {
            let factor = long_factor(it.original_max_positions, config.max_positions);
            all.push(("rope.scaling.attn_factor", json!(factor)));
        }
        Scaling::None | Scaling::Llama3(_) => {}
    }
    all.into_iter().map(|(key, value)| (format!("{}.{key}", architecture.name), value)).collect()
}
