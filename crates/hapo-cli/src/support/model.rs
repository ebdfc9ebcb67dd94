//! Opening a model for a command.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_data::TemplateChoice;
use hapo_eval::Fingerprints;
use hapo_kernels::Device;
use hapo_model::folder::{Fingerprint, is_model, read_file};
use hapo_model::{LoadedModel, LoraShape, Model, Tokenizer};
use hapo_sampler::ChatFormat;
use hapo_train::recipe::AUTO;
use hapo_train::{ChosenTemplate, trained_template};

use crate::{failure::bad_input, support::arguments::TEMPLATES, support::hub};

/// A model by its folder or its name on the hub, and its adapter.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) model: &'a str,
    pub(crate) adapter: Option<&'a Path>,
}

#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// Hugging Face folder, GGUF file, org/name@revision of the hub, or builtin:base
    #[arg(long)]
    pub(crate) model: String,
    #[command(flatten)]
    adapter: AdapterArg,
}

impl ModelArgs {
    pub(crate) fn named(&self) -> Named<'_> {
        self.adapter.of(&self.model)
    }
}

#[derive(clap::Args)]
pub(crate) struct AdapterArg {
    /// PEFT folder of an adapter, such as a checkpoint of a run with `[lora]`
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
}

impl AdapterArg {
    pub(crate) fn of<'a>(&'a self, model: &'a str) -> Named<'a> {
        Named { model, adapter: self.adapter.as_deref() }
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.adapter {
            None => f.write_str(self.model),
            Some(it) => write!(f, "{} with {}", self.model, it.display()),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct TemplateArgs {
    /// Prompt template of a local model; `chat` is its own [default: the one it was trained with by hapo train, else its own]
    #[arg(long, hide_possible_values = true, value_parser = TEMPLATES)]
    template: Option<String>,
    /// System text, with --template chat
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Text after the problem in the user's turn, with --template chat
    #[arg(long, value_name = "TEXT")]
    suffix: Option<String>,
}

impl TemplateArgs {
    pub(crate) fn request(&self) -> TemplateChoice<'_> {
        TemplateChoice {
            name: self.template.as_deref().unwrap_or(AUTO),
            system: self.system.as_deref(),
            suffix: self.suffix.as_deref(),
        }
    }
}

/// The template of a local model's prompts; says which where nobody named it.
pub(crate) fn template(asked: TemplateChoice<'_>, named: Named<'_>) -> Result<ChosenTemplate> {
    let folder = match named.adapter {
        _ if asked.name != AUTO => named.model.to_owned(),
        Some(it) if trained_template(it, asked)?.is_some() => it.display().to_string(),
        _ => hub::model_folder(named.model)?,
    };
    let chosen = hapo_train::template_of(asked, &folder)?;
    if let Some(note) = chosen.note() {
        errln!("{note} (--template names another)");
    }
    Ok(chosen)
}

/// Says what the built-in model can be asked; other models are the user's.
pub(crate) fn tell_what_it_knows(model: &str) {
    if model == hapo_train::BUILTIN_BASE {
        errln!("{model} solves its own task only: 4738*6=?, 12345+67890+13579=? and equations");
    }
}

pub(crate) struct Opened<D: Device> {
    pub(crate) model: Model<D>,
    pub(crate) chat_format: ChatFormat,
    pub(crate) fingerprints: Fingerprints,
    /// Seconds of the parts of the start.
    pub(crate) seconds: Vec<(&'static str, f64)>,
}

/// A model and its chat format. The longest sequence is the model's own limit, or
/// `PROMPT_TOKENS` and `max_new_tokens`, whichever is shorter.
pub(crate) fn open<D: Device>(
    named: Named<'_>,
    template: TemplateChoice<'_>,
    max_new_tokens: usize,
    device: D,
) -> Result<Opened<D>> {
    const PROMPT_TOKENS: usize = 4096;
    let mut loaded = open_loaded(named, PROMPT_TOKENS + max_new_tokens, device)?;
    let (files, started) = (&loaded.tokenizer_files, std::time::Instant::now());
    let template = hapo_sampler::choose_template(template, named.model, files)?;
    loaded.model.pack_for_decode()?;
    let chat_format = ChatFormat::new(loaded.tokenizer, template, &loaded.model.config().eos)?;
    let mut seconds = loaded.seconds;
    seconds.push(("packed for decoding", started.elapsed().as_secs_f64()));
    let template = chat_format.template.hash();
    let fingerprints = Fingerprints { weights: loaded.fingerprint, template };
    Ok(Opened { model: loaded.model, chat_format, fingerprints, seconds })
}

/// A tokenizer by its `tokenizer.json` or the folder that has one.
pub(crate) fn open_tokenizer(path: &Path) -> Result<Tokenizer> {
    let is_dir = hapo_core::found_at(path)?.is_some_and(|it| it.is_dir());
    if is_dir || is_model(path)? {
        return Ok(Tokenizer::open(path)?);
    }
    let hint = "name a tokenizer.json or the folder of a model";
    let bytes = read_file(path).map_err(|it| bad_input(it.to_string(), hint))?;
    Ok(Tokenizer::from_bytes(path, &bytes)?)
}

/// A model for sequences of `context` tokens, its adapter merged into it.
pub(crate) fn open_loaded<D: Device>(
    named: Named<'_>,
    context: usize,
    device: D,
) -> Result<LoadedModel<D>> {
    if named.adapter.is_none() {
        return open_by(hapo_train::open_frozen_on, named, context, device);
    }
    let mut loaded = open_by(hapo_train::open_model_on, named, context, device)?;
    loaded.model.merge_adapter()?;
    Ok(loaded)
}

/// A model for sequences of `context` tokens, as `open` opens it, with its adapter beside it as in training.
pub(crate) fn open_by<D: Device>(
    open: fn(&str, usize, D) -> hapo_train::Result<LoadedModel<D>>,
    named: Named<'_>,
    context: usize,
    device: D,
) -> Result<LoadedModel<D>> {
    let folder = hub::model_folder(named.model)?;
    let mut loaded = open(&folder, context, device)?;
    for it in &loaded.warnings {
        errln!("warning: {it}");
    }
    if let Some(dir) = named.adapter {
        let adapter = hapo_model::folder::open_adapter(dir)?;
        adapter.add_to_loaded(&mut loaded)?;
        loaded.fingerprint += &adapter_fingerprint(&loaded.model, &adapter.shape)?;
    }
    Ok(loaded)
}

/// The part of the weights' name that is the adapter's: its numbers and their scale.
fn adapter_fingerprint<D: Device>(model: &Model<D>, shape: &LoraShape) -> Result<String> {
    let mut fingerprint = Fingerprint::default();
    for spec in shape.tensors(model.config()) {
        fingerprint.add(&spec, &model.tensor(&spec.name)?);
    }
    Ok(format!("+{}*{fingerprint}", shape.scale()))
}

/// Warns if a checkpoint of `hapo train` is sampled with another template than it was trained with.
pub(crate) fn warn_of_another_template(named: Named<'_>, chat_format: &ChatFormat) -> Result<()> {
    let (path, other) = (named.adapter.unwrap_or(Path::new(named.model)), &chat_format.template);
    if let Some((trained, hash)) = trained_template(path, TemplateChoice::named(AUTO))?
        && hash != other.hash()
    {
        let (path, name, other) = (path.display(), &*trained.name, other.name());
        let text = if name == other { " of another text" } else { "" };
        errln!(
            "warning: {path} was trained with template `{name}`, and is sampled with `{other}`{text}"
        );
    }
    Ok(())
}
