//! A model folder in memory: weights, tokenizer, and the files that travel with them.

use std::path::Path;
use std::time::Instant;

use hapo_core::{Fault, Refusal};
use hapo_kernels::{Device, Held, NumberFormat};

use crate::config::Config;
use crate::files::Companions;
use crate::model::Model;
use crate::text::tokenizer::Tokenizer;

use super::fill::{Filled, fill};
use super::read::{ModelFolder, open};

#[derive(Debug)]
pub struct LoadedModel<D: Device> {
    pub model: Model<D>,
    pub tokenizer: Tokenizer,
    /// Tokenizer files and the like, name and bytes, for folders that are written from this one.
    pub tokenizer_files: Companions,
    pub warnings: Vec<String>,
    /// Name of the weights, by which an adapter knows its base.
    pub fingerprint: String,
    /// [`Model::published_hash`] of the base, where it was known while reading.
    pub hash: Option<String>,
    /// Seconds of the parts of the reading, of which the tokenizer's lie within those of the weights.
    pub seconds: Vec<(&'static str, f64)>,
}

/// Opens a Hugging Face folder on a device, for sequences of at most `context` tokens, prompt
/// included. A tokenizer that names ids beyond the embedding is refused.
pub fn load<D: Device>(
    dir: &Path,
    device: D,
    context: impl Fn(&Config) -> usize,
) -> Result<LoadedModel<D>, Refusal> {
    load_held(dir, device, context, |_| Held::Trained)
}

/// As [`load`], for weights that do not change: matrices are held in bf16 where the folder has them so.
pub fn load_frozen<D: Device>(
    dir: &Path,
    device: D,
    context: impl Fn(&Config) -> usize,
) -> Result<LoadedModel<D>, Refusal> {
    load_held(dir, device, context, |it| {
        if it.matrices_are_bf16() { Held::Frozen(NumberFormat::Bf16) } else { Held::Trained }
    })
}

fn load_held<D: Device>(
    dir: &Path,
    device: D,
    context: impl Fn(&Config) -> usize,
    held: impl Fn(&ModelFolder) -> Held,
) -> Result<LoadedModel<D>, Refusal> {
    let opened = open(dir)?;
    let context = context(&opened.config);
    let mut model = Model::held(device, opened.config.clone(), context, held(&opened))
        .map_err(|refusal| refusal.with_fault(Fault::Input))?;
    let started = Instant::now();
    let read_tokenizer = || {
        let files = opened.tokenizer_files()?;
        let tokenizer = Tokenizer::of_files(dir, &files)?;
        tokenizer.check_fits(opened.config.vocab_size)?;
        Ok::<_, Refusal>((tokenizer, files, started.elapsed().as_secs_f64()))
    };
    // One thread is all that a tokenizer takes; where none can be started, it is read afterwards.
    let (read, filled) = std::thread::scope(|scope| {
        let read = std::thread::Builder::new().spawn_scoped(scope, read_tokenizer);
        let filled = fill(&mut model, &opened);
        let joined = |it: std::thread::ScopedJoinHandle<'_, _>| {
            it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (read.map_or_else(|_| read_tokenizer(), joined), filled)
    });
    let (tokenizer, tokenizer_files, of_tokenizer) = read?;
    let Filled { fingerprint, hash } = filled?;
    let of_weights = started.elapsed().as_secs_f64();
    Ok(LoadedModel {
        seconds: vec![("weights", of_weights), ("tokenizer beside them", of_tokenizer)],
        model,
        tokenizer,
        tokenizer_files,
        warnings: opened.warnings,
        fingerprint: fingerprint.to_string(),
        hash,
    })
}
