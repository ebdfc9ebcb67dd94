//! `[lora]`: the adapter that a run trains beside weights that stay as they are.

use std::path::Path;

use hapo_core::{CounterRng, Refusal, RngCounter, RngStream, found_at};
use hapo_kernels::Device;
use hapo_model::folder::{AdapterFolder, is_model, open_adapter};
use hapo_model::{LoadedModel, LoraShape, Model, load, load_frozen};

use crate::Result;
use crate::model::{BUILTIN_BASE, base_folder};
use crate::recipe::{LoraInit, LoraSection};

impl LoraSection {
    pub fn shape(&self) -> LoraShape {
        let Self { rank, alpha, rslora, .. } = *self;
        LoraShape { rank, alpha, rslora, targets: self.targets.projections() }
    }
}

/// A model under training, and the name that its base has in an adapter's folder.
pub(crate) struct Opened<D: Device> {
    pub(crate) loaded: LoadedModel<D>,
    pub(crate) base: String,
}

#[derive(Clone, Copy)]
pub(crate) enum Use<'a> {
    /// Its weights are trained, or another adapter is added to them.
    Change,
    Read,
    /// They stay as they are, and an adapter beside them is trained. With the seed of a new one.
    Adapter(&'a LoraSection, u64),
}

/// Opens a model by its folder. An adapter lies beside it if one is trained: a new one, or the one that the folder is of.
/// Else a folder of an adapter stands for the merged model.
pub(crate) fn open<D: Device>(
    path: &str,
    context: usize,
    device: D,
    purpose: Use<'_>,
) -> Result<Opened<D>> {
    let adapter = adapter_of(path)?;
    let base = adapter.as_ref().map_or_else(|| Ok(path.to_owned()), base_of)?;
    let read = |dir: &Path| match (purpose, &adapter) {
        (Use::Change, _) | (Use::Read, Some(_)) => load(dir, device, |_| context),
        (Use::Read, None) | (Use::Adapter(..), _) => load_frozen(dir, device, |_| context),
    };
    let mut loaded =
        if base == BUILTIN_BASE { read(base_folder()?.path())? } else { read(Path::new(&base))? };
    match (&adapter, purpose) {
        (None, Use::Change | Use::Read) => {}
        (None, Use::Adapter(section, seed)) => begin(&mut loaded.model, section, seed)?,
        (Some(it), Use::Change | Use::Read) => {
            it.add_to_loaded(&mut loaded)?;
            loaded.model.merge_adapter()?;
            loaded.hash = None;
        }
        (Some(it), Use::Adapter(section, _)) => {
            require_same_shape(it, &section.shape())?;
            it.add_to_loaded(&mut loaded)?;
        }
    }
    Ok(Opened { loaded, base })
}

/// Puts a new adapter beside a model's weights: B is 0, so that it changes nothing yet, and A is drawn as PEFT does.
pub(crate) fn begin<D: Device>(model: &mut Model<D>, lora: &LoraSection, seed: u64) -> Result<()> {
    let shape = lora.shape();
    model.add_adapter(shape.clone())?;
    for (index, spec) in shape.tensors(model.config()).iter().enumerate().step_by(2) {
        let counter = RngCounter { step: 0, prompt: index as u64, rollout: 0, position: 0 };
        let mut rng = CounterRng::new(seed, RngStream::Adapter, counter);
        // PyTorch's kaiming_uniform_ with a = √5 draws from ±1/√inputs.
        let bound = 1.0 / (spec.shape[1] as f64).sqrt();
        let mut draw = || match lora.init {
            LoraInit::Default => bound * (2.0 * rng.uniform() - 1.0),
            LoraInit::Gaussian => rng.normal() / lora.rank as f64,
        };
        let a: Vec<f32> = (0..spec.shape.iter().product()).map(|_| draw() as f32).collect();
        model.set_tensor(&spec.name, &a)?;
    }
    Ok(())
}

/// The adapter in a folder that holds one and no model.
pub(crate) fn adapter_of(path: &str) -> Result<Option<AdapterFolder>> {
    let folder = Path::new(path);
    let is_adapter = !is_model(folder)? && found_at(&folder.join("adapter_config.json"))?.is_some();
    is_adapter.then(|| open_adapter(folder)).transpose()
}

/// The folder of an adapter's base, or [`BUILTIN_BASE`].
pub(crate) fn base_of(adapter: &AdapterFolder) -> Result<String> {
    for it in [adapter.base_folder(), adapter.base.as_deref()].into_iter().flatten() {
        if it == BUILTIN_BASE || is_model(Path::new(it))? {
            return Ok(it.to_owned());
        }
    }
    let (dir, base) = (adapter.dir.display(), adapter.base.as_deref().unwrap_or("it names none"));
    let problem = format!("{dir}: the base of the adapter is not here: {base}");
    Err(Refusal::input(problem).hint("merge the adapter into its base and start from that"))
}

fn require_same_shape(adapter: &AdapterFolder, wanted: &LoraShape) -> Result<()> {
    if adapter.shape == *wanted {
        return Ok(());
    }
    let words = |it: &LoraShape| {
        let targets: Vec<&str> = it.targets.iter().map(|it| it.name()).collect();
        let (rank, alpha, rslora) = (it.rank, it.alpha, it.rslora);
        format!("rank {rank}, alpha {alpha}, rslora {rslora}, {}", targets.join(" "))
    };
    let (dir, wanted, got) = (adapter.dir.display(), words(wanted), words(&adapter.shape));
    let problem = format!("{dir}: expected an adapter of [lora]: {wanted}; got {got}");
    let hint = "an adapter is continued as it is; merge it into its base to begin another";
    Err(Refusal::input(problem).hint(hint))
}
