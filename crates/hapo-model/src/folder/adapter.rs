//! PEFT's folders of low-rank adapters, in and out: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! A field that would change the computation is refused by name; so is a tensor that is missing, left over or of
//! another shape. The price: of PEFT's many kinds, only plain `LoRA` on the layers' matrices.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs, io::Write};

use hapo_core::{Refusal, expected, is_among};
use hapo_kernels::Device;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::load::LoadedModel;
use super::read::read_tokenizer_files;
use super::weight_file::WeightFile;
use super::write::{refuse_file_names, sync_dir, write_companions, write_file, write_weights};
use super::{ADAPTER, ADAPTER_WEIGHTS, GENERATION, TOKENIZER};
use crate::fields::{HfConfig, from_json, required, shown};
use crate::files::{
    Checksums, Companions, MAX_JSON_BYTES, excerpt, in_file, io, read_bounded, refused,
    require_finite,
};
use crate::{
    config::Config, config::dtype::Dtype, lora::LoraShape, model::Model, param_layout::Projection,
    text::chat::chat_files, text::tokenizer::Tokenizer,
};

const BASE: &str = "base_fingerprint";
const BASE_FOLDER: &str = "base_folder";

/// A PEFT folder whose configuration and header have been read.
#[derive(Debug)]
pub struct AdapterFolder {
    pub dir: PathBuf,
    pub shape: LoraShape,
    /// Name or path of the model that it was trained on, where the folder has one.
    pub base: Option<String>,
    file: WeightFile,
}

/// The adapter's model, as a written folder names it.
#[derive(Clone, Copy, Debug)]
pub struct AdapterNote<'a> {
    pub base: &'a str,
    pub folder: &'a str,
    /// Its fingerprint ([`crate::LoadedModel::fingerprint`]).
    pub fingerprint: &'a str,
}

/// Opens a PEFT folder and checks everything that does not need its model.
pub fn open_adapter(dir: &Path) -> Result<AdapterFolder, Refusal> {
    let file = dir.join(ADAPTER);
    let text = read_bounded(&file, MAX_JSON_BYTES)?;
    let fields = from_json::<PeftConfig>(&text).and_then(|fields| Ok((fields.shape()?, fields)));
    let (shape, fields) = fields.map_err(|refusal| in_file(&file, refusal))?;
    let (base, file) =
        (fields.base_model_name_or_path, WeightFile::open(dir.join(ADAPTER_WEIGHTS))?);
    Ok(AdapterFolder { dir: dir.to_owned(), shape, base, file })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PeftConfig {
    peft_type: Option<String>,
    base_model_name_or_path: Option<String>,
    r: Option<usize>,
    lora_alpha: Option<f64>,
    use_rslora: Option<bool>,
    bias: Option<String>,
    init_lora_weights: Value,
    target_modules: Value,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Fields that, when set, change an adapter's computation or its model.
const UNSUPPORTED: &str = "use_dora use_qalora use_bdlora lora_bias fan_in_fan_out rank_pattern alpha_pattern \
     modules_to_save layers_to_transform layers_pattern layer_replication exclude_modules \
     target_parameters trainable_token_indices alora_invocation_tokens arrow_config kasa_config \
     monteclora_config velora_config";

/// PEFT's initialisations that leave the base as it is. `PiSSA`, `OLoRA`, `CorDA`, `LoftQ` and `LoRA-GA` change its
/// weights, so their A and B do not go with those in the base's folder.
const PLAIN_INITS: &[&str] = &["gaussian", "eva", "orthogonal"];

impl PeftConfig {
    fn shape(&self) -> Result<LoraShape, Refusal> {
        let require = |is_met: bool, wanted: &str, got: String, key: &str| {
            let hint = "merge it with PEFT first: model.merge_and_unload()";
            if is_met { Ok(()) } else { Err(expected(wanted).got(got).at(key).hint(hint)) }
        };
        let is_lora = self.peft_type.as_deref() == Some("LORA");
        require(is_lora, "\"LORA\"", shown(&self.peft_type), "peft_type")?;
        let says_nothing = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        for (key, value) in self.rest.iter().filter(|(key, _)| is_among(UNSUPPORTED, key)) {
            require(says_nothing(value), "plain LoRA without it", shown(value), key)?;
        }
        let has_none = self.bias.as_deref().is_none_or(|bias| bias == "none");
        require(has_none, "\"none\"", shown(&self.bias), "bias")?;
        let init = &self.init_lora_weights;
        let is_plain = match init {
            Value::Null | Value::Bool(_) => true,
            it => it.as_str().is_some_and(|name| PLAIN_INITS.contains(&name)),
        };
        let wanted = "true, false, \"gaussian\", \"eva\" or \"orthogonal\"";
        require(is_plain, wanted, shown(init), "init_lora_weights")?;
        let rank = self.r.filter(|rank| (1..=1 << 16).contains(rank));
        let rank =
            rank.ok_or_else(|| expected("a rank from 1 to 65536").got(shown(self.r)).at("r"))?;
        let alpha = required(self.lora_alpha, "lora_alpha", "a number")?;
        let rslora = self.use_rslora.unwrap_or(false);
        Ok(LoraShape { rank, alpha, rslora, targets: self.targets()? })
    }

    fn targets(&self) -> Result<Vec<Projection>, Refusal> {
        const WANTED: &str = "\"all-linear\" or names among q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj";
        let value = &self.target_modules;
        if value == "all-linear" {
            return Ok(Projection::ALL.to_vec());
        }
        // PEFT writes "all-linear" as the whole name of every matrix; the tensors say whether every layer has one.
        let within_layer = |name: &str| -> Option<String> {
            let (layer, module) = name.strip_prefix("model.layers.")?.split_once('.')?;
            layer.parse::<u32>().ok().map(|_| module.to_owned())
        };
        let named = |name: &Value| {
            let name = name.as_str()?;
            let name = within_layer(name).unwrap_or_else(|| name.to_owned());
            Projection::ALL.into_iter().find(|it| it.name() == name || it.module() == name)
        };
        let all = value.as_array().filter(|names| !names.is_empty());
        let all = all.and_then(|names| names.iter().map(named).collect::<Option<Vec<_>>>());
        let mut all = all.ok_or_else(|| expected(WANTED).got(shown(value)).at("target_modules"))?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

impl AdapterFolder {
    /// The folder that the base was read from, where this project wrote the adapter.
    pub fn base_folder(&self) -> Option<&str> {
        self.file.metadata.get(BASE_FOLDER).map(String::as_str)
    }

    /// Checks that all tensors for a model are there, with their shapes, and no other; `fingerprint` is the model's.
    pub fn check(&self, config: &Config, fingerprint: &str) -> Result<(), Refusal> {
        let refuse = |tensor: &str, expected: &str, got: &str| {
            refused(&self.file.path, excerpt(tensor), expected, excerpt(got))
        };
        let specs = self.shape.tensors(config);
        for spec in &specs {
            let expected = format!("a tensor of shape {:?}", spec.shape);
            let Some(entry) = self.file.tensors.get(&spec.name) else {
                return Err(refuse(&spec.name, &expected, "none"));
            };
            if !entry.shape.iter().copied().eq(spec.shape.iter().map(|it| *it as u64)) {
                let hint = "the adapter is of another rank than adapter_config.json says, or of another model";
                let got = format!("{:?}", entry.shape);
                return Err(refuse(&spec.name, &expected, &got).hint(hint));
            }
            if Dtype::from_safetensors_name(&entry.dtype).is_none() {
                return Err(refuse(&spec.name, "dtype F32, BF16 or F16", &entry.dtype));
            }
        }
        let mut names = self.file.tensors.keys();
        if let Some(name) = names.find(|it| specs.iter().all(|spec| spec.name != **it)) {
            let hint = "the adapter is of a model with other layers, or has other targets than adapter_config.json says";
            return Err(refuse(name, "no such tensor", "one").hint(hint));
        }
        match self.file.metadata.get(BASE) {
            Some(it) if it != fingerprint => {
                let expected = format!("an adapter of the weights {fingerprint}");
                let got = format!("one of {it} ({})", self.base.as_deref().unwrap_or("unnamed"));
                Err(refused(&self.file.path, "", expected, got)
                    .hint("an adapter goes with the very weights that it was trained beside"))
            }
            _ => Ok(()),
        }
    }

    /// The files that go with the adapter's model and the tokens that end its answers: those of the adapter's folder, which
    /// were trained with, before the model's `files` and `eos`.
    pub(super) fn trained_with(
        &self,
        mut files: Companions,
        config: &Config,
    ) -> Result<(Companions, Vec<u32>), Refusal> {
        let own = read_tokenizer_files(&self.dir)?;
        let find = |name: &str| own.iter().find(|it| it.0 == name).map(|it| it.1.as_slice());
        files.retain(|(name, _)| {
            find(name).is_none() && (*name == GENERATION || find(TOKENIZER).is_none())
        });
        let mut eos: Vec<u32> = Vec::new();
        if let Some(text) = find(GENERATION) {
            let fields = from_json::<HfConfig>(text);
            let fields = fields.map_err(|it| in_file(&self.dir.join(GENERATION), it))?;
            eos = fields.eos_token_id.map(Into::into).unwrap_or_default();
        }
        if let Some(bytes) = find(TOKENIZER) {
            let tokenizer = Tokenizer::from_bytes(&self.dir.join(TOKENIZER), bytes)?;
            tokenizer.check_fits(config.vocab_size)?;
            let named = chat_files(&own, &self.dir)?.special_tokens.remove("eos_token");
            eos.extend(named.and_then(|named| tokenizer.id(&named)));
        }
        eos.extend(&config.eos);
        let mut seen = BTreeSet::new();
        eos.retain(|it| seen.insert(*it));
        files.extend(own);
        Ok((files, eos))
    }

    /// As [`AdapterFolder::add_to`], with the chat template and end tokens that the adapter was trained with.
    pub fn add_to_loaded<D: Device>(&self, loaded: &mut LoadedModel<D>) -> Result<(), Refusal> {
        self.add_to(&mut loaded.model, &loaded.fingerprint)?;
        let files = std::mem::take(&mut loaded.tokenizer_files);
        let (files, eos) = self.trained_with(files, loaded.model.config())?;
        loaded.model.set_eos(&eos);
        loaded.tokenizer_files = files;
        Ok(())
    }

    /// Puts the adapter beside a model's weights, after [`AdapterFolder::check`].
    pub fn add_to<D: Device>(
        &self,
        model: &mut Model<D>,
        fingerprint: &str,
    ) -> Result<(), Refusal> {
        self.check(model.config(), fingerprint)?;
        model.add_adapter(self.shape.clone())?;
        for spec in self.shape.tensors(model.config()) {
            model.set_tensor(&spec.name, &self.tensor(&spec.name)?)?;
        }
        Ok(())
    }

    /// A and B of the matrix of this name, in their published order, where it has a pair.
    pub(super) fn pair_of(&self, matrix: &str) -> Result<Option<[Vec<f32>; 2]>, Refusal> {
        let Some(module) = matrix.strip_suffix(".weight") else { return Ok(None) };
        let name = |pair: &str| format!("base_model.model.{module}.lora_{pair}.weight");
        if !self.file.tensors.contains_key(&name("A")) {
            return Ok(None);
        }
        Ok(Some([self.tensor(&name("A"))?, self.tensor(&name("B"))?]))
    }

    fn tensor(&self, name: &str) -> Result<Vec<f32>, Refusal> {
        let entry = &self.file.tensors[name];
        let stored = entry.stored(0, 1).expect("the format was checked");
        let mut values = Vec::new();
        stored.read(&self.file, &mut values)?;
        require_finite(&self.file.path, name, 0, &values)?;
        Ok(values)
    }
}

/// Writes a model's adapter as a PEFT folder, with further files; `adapter_config.json` comes last.
///
/// # Panics
/// When the model has no adapter.
pub fn write_adapter<D: Device>(
    dir: &Path,
    model: &Model<D>,
    note: AdapterNote<'_>,
    tokenizer_files: &[(&'static str, Vec<u8>)],
) -> Result<Checksums, Refusal> {
    let shape = model.adapter().expect("a model with an adapter");
    refuse_file_names(dir, tokenizer_files)?;
    fs::create_dir_all(dir).map_err(io("create", dir))?;
    let mut specs = shape.tensors(model.config());
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let notes = [(BASE, note.fingerprint), (BASE_FOLDER, note.folder)];
    let path = dir.join(ADAPTER_WEIGHTS);
    let written =
        write_weights(&path, &specs, Dtype::F32, &notes, &mut |spec| model.tensor(&spec.name))?;
    let mut written = Checksums::from([(ADAPTER_WEIGHTS.to_owned(), written)]);
    write_companions(dir, model.config(), tokenizer_files, &mut written)?;
    let text = format!("{:#}\n", config_json(shape, note.base));
    let config = write_file(&dir.join(ADAPTER), |out| out.write_all(text.as_bytes()))?;
    written.insert(ADAPTER.to_owned(), config);
    sync_dir(dir)?;
    Ok(written)
}

fn config_json(shape: &LoraShape, base: &str) -> Value {
    let targets: Vec<&str> = shape.targets.iter().map(|it| it.name()).collect();
    let whole = shape.alpha.fract() == 0.0 && shape.alpha.abs() < 1e9;
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": shape.rank,
        "lora_alpha": if whole { json!(shape.alpha as i64) } else { json!(shape.alpha) },
        "use_rslora": shape.rslora,
        "target_modules": targets,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        "inference_mode": true,
        "modules_to_save": null,
    })
}
