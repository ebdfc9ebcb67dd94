//! Cases and batches from their JSON files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// A case with its batch filled in.
#[derive(Clone, Debug)]
pub struct Case {
    /// Family, law and variant.
    pub id: String,
    /// "loss", "law", "advantage", "reward" or "schedule".
    pub kind: String,
    /// The batch by field.
    pub batch: Map<String, Value>,
    /// The hyperparameters by name.
    pub hyper: Map<String, Value>,
    /// Steps of ranks of micro-batches of sequences, by the cut's name.
    pub cuts: BTreeMap<String, Vec<Vec<Vec<Vec<usize>>>>>,
    /// The whole file.
    pub json: Value,
}

/// One sequence, \[tokens\] each.
#[derive(Clone, Debug)]
pub struct Row {
    /// log π.
    pub logp: Vec<f64>,
    /// log `π_old`.
    pub old: Vec<f64>,
    /// log `π_ref`.
    pub reference: Vec<f64>,
    /// The sampler's log π.
    pub sampler: Vec<f64>,
    /// Entropies.
    pub entropy: Vec<f64>,
    /// Whether a token is in the loss.
    pub mask: Vec<bool>,
    /// A.
    pub advantage: f64,
    /// R.
    pub reward: f64,
    /// The prompt.
    pub group: u64,
    /// Whether a teacher wrote it.
    pub teacher: bool,
    /// Tokens at its start that a teacher wrote.
    pub prefix: usize,
}

impl Row {
    /// Tokens in the loss.
    pub fn n(&self) -> usize {
        self.mask.iter().filter(|inside| **inside).count()
    }

    /// The sum of a number over the tokens in the loss.
    pub fn masked_sum(&self, number: impl Fn(usize) -> f64) -> f64 {
        (0..self.logp.len()).filter(|t| self.mask[*t]).map(number).sum()
    }

    /// The mean of a number over the tokens in the loss; 0 without any.
    pub fn masked_mean(&self, number: impl Fn(usize) -> f64) -> f64 {
        self.masked_sum(number) / self.n().max(1) as f64
    }
}

/// All cases of a folder with `cases/` and `batches/`, sorted by path.
///
/// # Panics
/// Where a file cannot be read or is not a case.
pub fn cases(folder: &Path) -> Vec<Case> {
    let mut paths = Vec::new();
    collect(&folder.join("cases"), &mut paths);
    paths.sort();
    paths.iter().map(|path| Case::read(path, folder)).collect()
}

fn collect(folder: &Path, paths: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder of cases") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl Case {
    fn read(path: &Path, folder: &Path) -> Self {
        let json = read(path);
        let mut batch = match &json["batch"] {
            Value::String(name) => object(&read(&folder.join(format!("batches/{name}.json")))),
            inline => object(inline),
        };
        batch.extend(object(&json["with"]));
        let cuts = json["cuts"].as_object().into_iter().flatten();
        Self {
            id: text(&json["id"]),
            kind: text(&json["kind"]),
            batch,
            hyper: object(&json["hyper"]),
            cuts: cuts.map(|(name, steps)| (name.clone(), partition(steps))).collect(),
            json,
        }
    }

    /// The same case with some hyperparameters replaced.
    #[must_use]
    pub fn with_hyper(&self, change: &Value) -> Self {
        let mut other = self.clone();
        other.hyper.extend(object(change));
        other
    }

    /// The sequences.
    pub fn rows(&self) -> Vec<Row> {
        let logp = self.field("logp").expect("a batch of log-probabilities");
        let row = |(i, logp): (usize, &Value)| {
            let logp = numbers(logp);
            let or = |name: &str, other: &[f64]| {
                self.field(name).map_or_else(|| other.to_vec(), |rows| numbers(&rows[i]))
            };
            let scalar = |name: &str| self.field(name).map_or(0.0, |rows| number(&rows[i]));
            let old = or("old_logp", &logp);
            Row {
                reference: or("ref_logp", &logp),
                sampler: or("sampler_logp", &old),
                entropy: or("entropy", &vec![0.0; logp.len()]),
                mask: or("mask", &vec![1.0; logp.len()]).iter().map(|m| *m > 0.0).collect(),
                advantage: scalar("advantage"),
                reward: scalar("reward"),
                group: scalar("group") as u64,
                teacher: self.field("source").is_some_and(|rows| rows[i] == "teacher"),
                prefix: scalar("prefix") as usize,
                old,
                logp,
            }
        };
        logp.iter().enumerate().map(row).collect()
    }

    /// A field of the batch, one entry for each sequence.
    pub fn field(&self, name: &str) -> Option<&Vec<Value>> {
        self.batch.get(name).and_then(Value::as_array)
    }

    /// A number among the hyperparameters.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.hyper.get(name).filter(|value| !value.is_null()).map(number)
    }

    /// A word among the hyperparameters; "" where there is none.
    pub fn word(&self, name: &str) -> &str {
        self.hyper.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A truth value among the hyperparameters.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.hyper.get(name).and_then(Value::as_bool)
    }
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A number, or the words for those that JSON lacks.
pub(crate) fn number(value: &Value) -> f64 {
    match value.as_str() {
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        Some("nan") => f64::NAN,
        _ => value.as_f64().expect("a number"),
    }
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list of numbers").iter().map(number).collect()
}

fn partition(steps: &Value) -> Vec<Vec<Vec<Vec<usize>>>> {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let sequences = |micro: &Value| list(micro).iter().map(|i| number(i) as usize).collect();
    let micros = |rank: &Value| list(rank).iter().map(sequences).collect();
    list(steps).iter().map(|step| list(step).iter().map(micros).collect()).collect()
}
