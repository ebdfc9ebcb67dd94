//! Opening a model for a command.

use anyhow::Result;
use hapo_data::Template;
use hapo_kernels::Cpu;
use hapo_model::Model;
use hapo_sampler::Dialogue;

/// A model and the dialogue it is asked in. The longest sequence is the model's own limit, or
/// `PROMPT_ROOM` and `max_new_tokens`, whichever is shorter.
pub(crate) fn open(
    path: &str,
    template: &'static Template,
    max_new_tokens: usize,
    threads: usize,
) -> Result<(Model<Cpu>, Dialogue)> {
    const PROMPT_ROOM: usize = 4096;
    let mut loaded = hapo_train::open_model(path, PROMPT_ROOM + max_new_tokens, threads)?;
    loaded.model.pack_exact()?;
    let dialogue = Dialogue::new(loaded.tokenizer, template, &loaded.model.config().eos)?;
    Ok((loaded.model, dialogue))
}
