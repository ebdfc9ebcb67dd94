//! A decoder from nothing: `[model.init]`.

use std::path::Path;

use hapo_core::{CounterRng, Refusal, RngCounter, RngStream, found_at};
use hapo_kernels::Device;
use hapo_model::folder::{Companions, Fingerprint, is_model, read_file, read_tokenizer_files};
use hapo_model::{Config, Decoder, LoadedModel, Model, Rope, Tokenizer};

use crate::{Result, model::file, recipe::InitSection};

/// Tokens that end an assistant's turn in published vocabularies.
const END_TOKENS: &[&str] =
    &["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>"];

/// A Qwen2-shaped decoder with random weights, and its tokenizer.
pub(crate) fn init_model<D: Device>(
    init: &InitSection,
    context: usize,
    seed: u64,
    device: D,
) -> Result<LoadedModel<D>> {
    let (tokenizer, tokenizer_files) = tokenizer_of(init)?;
    let config = config_of(init, &tokenizer, context)?;
    let mut model = Model::new(device, config.clone(), context)?;
    let mut fingerprint = Fingerprint::default();
    for (index, spec) in config.tensors().iter().enumerate() {
        let n: usize = spec.shape.iter().product();
        let values: Vec<f32> = if spec.name.ends_with("bias") {
            vec![0.0; n]
        } else if spec.shape.len() == 1 {
            vec![1.0; n]
        } else {
            let counter = RngCounter { step: 0, prompt: index as u64, rollout: 0, position: 0 };
            let mut rng = CounterRng::new(seed, RngStream::Init, counter);
            (0..n).map(|_| (rng.normal() * init.std) as f32).collect()
        };
        fingerprint.add(spec, &values);
        model.set_tensor(&spec.name, &values)?;
    }
    let (warnings, fingerprint) = (Vec::new(), fingerprint.to_string());
    let (hash, seconds) = (None, Vec::new());
    Ok(LoadedModel { model, tokenizer, tokenizer_files, warnings, fingerprint, hash, seconds })
}

pub(crate) fn config_of(
    init: &InitSection,
    tokenizer: &Tokenizer,
    context: usize,
) -> Result<Config> {
    let eos: Vec<u32> = END_TOKENS.iter().filter_map(|it| tokenizer.id(it)).collect();
    if eos.is_empty() {
        let problem = "model.init.tokenizer: expected a vocabulary with an end token, got none";
        let hint = format!("known ones are {}", END_TOKENS.join(" "));
        return Err(Refusal::input(problem).hint(hint));
    }
    Ok(Config {
        family: "qwen2",
        vocab_size: tokenizer.vocab_size(),
        hidden: init.hidden,
        layers: init.layers,
        heads: init.heads,
        kv_heads: init.kv_heads,
        head_dim: init.hidden / init.heads,
        ffn: init.ffn,
        rms_eps: 1e-6,
        decoder: Decoder { qkv_bias: true, ..Decoder::plain(Rope::of(init.rope_theta)) },
        tied: true,
        max_positions: context,
        eos,
        bos: None,
        pad: tokenizer.id("<|endoftext|>"),
    })
}

/// The tokenizer of `[model.init]`, and the files that go with it: a folder's, a `tokenizer.json`, or the built-in one.
pub(crate) fn tokenizer_of(init: &InitSection) -> Result<(Tokenizer, Companions)> {
    let Some(path) = &init.tokenizer else {
        let files = ["tokenizer.json", "tokenizer_config.json"].map(|it| (it, file(it).to_vec()));
        let tokenizer = Tokenizer::from_bytes(Path::new("built-in tokenizer.json"), &files[0].1)?;
        return Ok((tokenizer, files.to_vec()));
    };
    let path = Path::new(path);
    if is_model(path)? {
        let mut files = read_tokenizer_files(path)?;
        files.retain(|it| it.0.starts_with("tokenizer"));
        return Ok((Tokenizer::of_files(path, &files)?, files));
    }
    let is_dir = found_at(path)?.is_some_and(|it| it.is_dir());
    let folder = if is_dir { path } else { path.parent().unwrap_or(Path::new(".")) };
    let file = if is_dir { path.join("tokenizer.json") } else { path.to_owned() };
    let json = read_file(&file)?;
    let tokenizer = Tokenizer::from_bytes(&file, &json)?;
    let mut tokenizer_files = vec![("tokenizer.json", json)];
    let config = folder.join("tokenizer_config.json");
    if found_at(&config)?.is_some() {
        tokenizer_files.push(("tokenizer_config.json", read_file(&config)?));
    }
    Ok((tokenizer, tokenizer_files))
}
