//! The values of keys that are neither numbers nor texts: words, and what a word or a list may stand for.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use hapo_core::{METHODS, Method, MethodEntry};
use hapo_model::Projection;
use serde::{Deserialize, Deserializer, Serialize, de};
use toml::{Table, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracker {
    Wandb,
    Trackio,
    Mlflow,
}

impl Tracker {
    pub fn name(self) -> &'static str {
        match self {
            Self::Wandb => "wandb",
            Self::Trackio => "trackio",
            Self::Mlflow => "mlflow",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoraInit {
    #[default]
    Default,
    Gaussian,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Names", into = "Names")]
pub enum LoraTargets {
    AllLinear,
    /// These, at least one.
    Named(Vec<Projection>),
}

const ALL_LINEAR: &str = "all-linear";

impl LoraTargets {
    pub fn projections(&self) -> Vec<Projection> {
        match self {
            Self::AllLinear => Projection::ALL.to_vec(),
            Self::Named(it) => it.clone(),
        }
    }
}

impl TryFrom<Names> for LoraTargets {
    type Error = String;

    fn try_from(names: Names) -> Result<Self, String> {
        let names = match names {
            Names::One(it) if it == ALL_LINEAR => return Ok(Self::AllLinear),
            Names::One(it) => vec![it],
            Names::Several(it) => it,
        };
        let refused = |got: &str| {
            let known = Projection::ALL.map(Projection::name).join(", ");
            format!("expected {ALL_LINEAR} or some of {known}, got {got}")
        };
        let named = |name: &String| {
            let found = Projection::ALL.into_iter().find(|it| it.name() == name);
            found.ok_or_else(|| refused(&format!("`{name}`")))
        };
        let mut all = names.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err(refused("none"));
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self::Named(all))
    }
}

impl From<LoraTargets> for Names {
    fn from(it: LoraTargets) -> Self {
        match it {
            LoraTargets::AllLinear => Self::One(ALL_LINEAR.to_owned()),
            LoraTargets::Named(it) => {
                Self::Several(it.iter().map(|it| it.name().to_owned()).collect())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutEngine {
    Hapo,
    Vllm,
    Sglang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HintSource {
    /// The first parts of the teacher's solution.
    Solution,
    Column,
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlong {
    /// They are left out and counted.
    Drop,
    /// The run does not start.
    Error,
}

/// The value of a key that is left to the model.
pub const AUTO: &str = "auto";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum MicroBatch {
    /// By the model's shape.
    Auto,
    Tokens(usize),
}

impl TryFrom<Value> for MicroBatch {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Integer(tokens @ 0..) => Ok(Self::Tokens(tokens as usize)),
            Value::String(word) if word == AUTO => Ok(Self::Auto),
            other => Err(format!("expected a number of tokens, or \"auto\", got {other}")),
        }
    }
}

impl From<MicroBatch> for Value {
    fn from(it: MicroBatch) -> Self {
        match it {
            MicroBatch::Auto => AUTO.into(),
            MicroBatch::Tokens(tokens) => Self::Integer(tokens as i64),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Names", into = "Names")]
pub enum DataSource {
    Builtin,
    /// Documents of the built-in task, for a base model.
    Corpus,
    /// Files, folders or patterns, by their paths or their names on the hub.
    Files(Vec<String>),
}

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "a name or a list of names")]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl DataSource {
    pub fn name(&self) -> String {
        match self {
            Self::Builtin => "builtin".to_owned(),
            Self::Corpus => "builtin:corpus".to_owned(),
            Self::Files(names) => names.join(", "),
        }
    }
}

impl From<Names> for DataSource {
    fn from(names: Names) -> Self {
        match names {
            Names::One(name) if name == "builtin" => Self::Builtin,
            Names::One(name) if name == "builtin:corpus" => Self::Corpus,
            Names::One(name) => Self::Files(vec![name]),
            Names::Several(names) => Self::Files(names),
        }
    }
}

impl From<DataSource> for Names {
    fn from(it: DataSource) -> Self {
        match it {
            DataSource::Files(names) if names.len() != 1 => Self::Several(names),
            it => Self::One(it.name()),
        }
    }
}

/// The name of a method of [`METHODS`], or of a registered one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MethodName(pub(super) &'static str);

impl MethodName {
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Its entry of the table; none for a registered method.
    pub(super) fn entry(self) -> Option<&'static MethodEntry> {
        hapo_core::method(self.0)
    }
}

impl<'de> Deserialize<'de> for MethodName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: LazyLock<Vec<&'static str>> =
            LazyLock::new(|| METHODS.iter().map(|it| it.name).collect());
        let name = String::deserialize(deserializer)?;
        if name == "chord" {
            let now = "`chord` was neither published variant: expected `chord-mu` or `chord-phi`";
            return Err(de::Error::custom(now));
        }
        let known = NAMES.iter().find(|it| **it == name).copied();
        let known = known.or_else(|| registered(&name).map(|it| it.0));
        known.map(Self).ok_or_else(|| de::Error::unknown_variant(&name, &NAMES))
    }
}

/// Builds the method of that name of the keys of its table, or says which key it refuses and why. A recipe is read in many
/// places, so the names are known to the whole process. What a recipe was read with stays its own: a later registration of
/// the name changes nothing of it.
pub type BuildMethod =
    dyn Fn(&'static str, &Table) -> Result<Method, (String, String)> + Send + Sync;

static REGISTERED: RwLock<BTreeMap<&str, Arc<BuildMethod>>> = RwLock::new(BTreeMap::new());

pub(super) fn register(name: &str, build: Arc<BuildMethod>) -> Option<Arc<BuildMethod>> {
    // A process registers a handful of names.
    let known = registered(name).map(|it| it.0);
    let name = known.unwrap_or_else(|| Box::leak(name.to_owned().into_boxed_str()));
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(name, build)
}

/// A registered method by its name, which stays as long as the process.
pub(super) fn registered(name: &str) -> Option<(&'static str, Arc<BuildMethod>)> {
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    all.get_key_value(name).map(|(name, build)| (*name, build.clone()))
}

/// Names of the tables that methods have, built in or not.
pub(super) fn method_names() -> Vec<&'static str> {
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    METHODS.iter().map(|it| it.name).chain(all.keys().copied()).collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearningRateSchedule {
    #[default]
    Constant,
    /// Straight down to 0 at the end.
    Linear,
    /// Half a cosine down to 0 at the end.
    Cosine,
}

impl LearningRateSchedule {
    /// Factor of the peak rate at optimiser step `step` (from 1) of `total`, with a linear rise over
    /// the first `warmup` of them.
    pub fn factor(self, step: u64, total: u64, warmup: f64) -> f64 {
        let warm_steps = (warmup * total as f64).round();
        let at = step as f64;
        if at <= warm_steps {
            return at / warm_steps;
        }
        let left = (total as f64 - warm_steps).max(1.0);
        // The last step still moves: its rate is that of one step before the end.
        let progress = ((at - warm_steps - 1.0) / left).clamp(0.0, 1.0);
        match self {
            Self::Constant => 1.0,
            Self::Linear => 1.0 - progress,
            Self::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress)),
        }
    }
}
