//! Arguments of several commands.

use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{ffi::OsStr, ops::RangeInclusive, path::Path, str::FromStr};

use anyhow::{Context, Result};
use clap::builder::{
    PossibleValue, PossibleValuesParser, RangedU64ValueParser, StringValueParser, TypedValueParser,
};
use hapo_core::{Refusal, if_there};
use hapo_data::{Columns, Dataset, Reading};
use hapo_eval::{Client, LocalSampling, RetryPolicy};
use hapo_kernels::{Compute, NumberFormat};
use hapo_net::reward::{OwnReward, RewardSettings};
use hapo_sampler::KvMemory;
use hapo_train::Overrides;
use hapo_train::recipe::{KeyEntry, WrittenAs, key_entries};
use hapo_verify::{DEFAULT_GRADER, Extracting, Extraction, Grader};
use serde_json::{Map, Value};

use crate::failure::bad_input;

/// One of several values, by its name on the command line.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static>(
    values: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.iter().map(|it| it.0)).map(|name| {
        let value = values.iter().find(|it| it.0 == name);
        value.expect("the parser knows these names").1.clone()
    })
}

pub(crate) fn method_names() -> PossibleValuesParser {
    PossibleValuesParser::new(hapo_core::METHODS.iter().map(|it| it.name))
}

/// A text for which a shell's completions suggest words. Other texts are taken too.
#[derive(Clone)]
pub struct Suggesting(pub(crate) fn() -> Vec<&'static str>);

impl TypedValueParser for Suggesting {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

pub(crate) const GRADERS: Suggesting =
    Suggesting(|| hapo_verify::GRADERS.iter().map(|it| it.name()).collect());

pub(crate) const TEMPLATES: Suggesting = Suggesting(|| {
    let named = hapo_data::TEMPLATES.iter().map(|it| it.name);
    named.chain([hapo_data::CHAT]).collect()
});

pub(crate) const KEYS: Suggesting = Suggesting(|| {
    static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let own = hapo_core::METHODS
            .iter()
            .flat_map(|method| method.own_keys.iter().map(|key| format!("{}.{key}", method.name)));
        key_entries().iter().map(KeyEntry::path).chain(own).collect()
    });
    KEYS.iter().map(String::as_str).collect()
});

/// Keys of a recipe before their values.
pub(crate) const SETTINGS: Suggesting = Suggesting(|| {
    static SETTINGS: LazyLock<Vec<String>> =
        LazyLock::new(|| (KEYS.0)().iter().map(|key| format!("{key}=")).collect());
    SETTINGS.iter().map(String::as_str).collect()
});

/// A number from 1 to `most`; larger ones would fail later, for lack of memory.
pub fn count(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// A number of a range, which `expected` puts in words.
pub(crate) fn number<T: FromStr + PartialOrd + Clone + Send + Sync + 'static>(
    range: RangeInclusive<T>,
    expected: &'static str,
) -> impl TypedValueParser<Value = T> {
    move |text: &str| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("expected {expected}")),
    }
}

/// Seconds of a request to a server, from `least` on.
pub(crate) fn seconds(least: f64) -> impl TypedValueParser<Value = f64> {
    number(least..=1e9, if least > 0.0 { "seconds above 0" } else { "seconds from 0" })
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct SamplingArgs {
    /// Sampling temperature; 0 takes the most likely token
    #[arg(long, default_value_t = 1.0, value_parser = number(0.0..=f32::MAX, "a number from 0"))]
    pub(crate) temperature: f32,
    /// Nucleus mass
    #[arg(long, default_value_t = 1.0, value_parser = number(f32::MIN_POSITIVE..=1.0, "a number in (0, 1]"))]
    pub(crate) top_p: f32,
    /// Longest completion in tokens
    #[arg(long = "max-tokens", value_name = "MAX_TOKENS", value_parser = count(u64::MAX))]
    pub(crate) max_new_tokens: Option<usize>,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct KvArgs {
    /// Memory of the KV cache, such as 6GB; results do not depend on it
    #[arg(long, value_name = "SIZE", default_value_t = KvMemory::Auto)]
    pub(crate) kv_memory: KvMemory,
    /// Number format of the KV cache; bf16 halves its memory, results differ slightly
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = one_of(NumberFormat::ALL))]
    pub(crate) kv_dtype: NumberFormat,
}

impl KvArgs {
    pub(crate) fn local(&self, compute: Compute) -> LocalSampling {
        let Self { kv_memory, kv_dtype } = *self;
        LocalSampling { kv_memory, kv_dtype, compute, ..LocalSampling::default() }
    }
}

#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// Concurrent requests to a server
    #[arg(long, default_value_t = 16, value_parser = count(4096))]
    concurrency: usize,
    /// Longest time of one request to a server, in seconds
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS", value_parser = seconds(f64::MIN_POSITIVE))]
    timeout: f64,
    /// Environment variable that holds the server's key [default: `OPENAI_API_KEY`, where it is set]
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// Further field of the request, or a JSON object of several; null removes one
    #[arg(long, value_name = "KEY=VALUE", requires = "endpoint")]
    extra: Vec<String>,
}

impl ServerArgs {
    /// A client of the server, with the key in the variable that was named, which must be set, or else in the usual one.
    pub(crate) fn client(&self, endpoint: &str, policy: RetryPolicy) -> Result<Client> {
        let name = self.api_key_env.as_deref();
        let key = std::env::var(name.unwrap_or("OPENAI_API_KEY")).unwrap_or_default();
        let key = Some(key.trim()).filter(|it| !it.is_empty());
        if let (None, Some(name)) = (key, name) {
            let problem = format!("--api-key-env: the environment variable {name} is not set");
            return Err(bad_input(problem, "leave the option out for a server that needs no key"));
        }
        let timeout = Duration::from_secs_f64(self.timeout);
        let policy = RetryPolicy { concurrency: self.concurrency, timeout, ..policy };
        Ok(Client::new(endpoint, key, policy)?.on_wait(say_wait))
    }

    /// Further fields of requests; a value that is no JSON is a text.
    pub(crate) fn fields(&self) -> Result<Map<String, Value>> {
        let mut fields = Map::new();
        for it in &self.extra {
            match (serde_json::from_str(it), it.split_once('=')) {
                (Ok(Value::Object(several)), _) => fields.extend(several),
                (_, Some((key, value))) if !key.is_empty() => {
                    let json = serde_json::from_str(value).unwrap_or_else(|_| value.into());
                    fields.insert(key.to_owned(), json);
                }
                _ => {
                    let problem = format!("--extra: expected KEY=VALUE or a JSON object, got {it}");
                    return Err(bad_input(problem, "as in --extra reasoning_effort=high"));
                }
            }
        }
        Ok(fields)
    }
}

/// The two flags of every command that reads a recipe.
#[derive(clap::Args)]
pub struct OverrideArgs {
    /// Override a key: section.key=value
    #[arg(long, value_name = "KEY=VALUE", hide_possible_values = true, value_parser = SETTINGS)]
    set: Vec<String>,
    /// Leave a key of the recipe out, before anything is set: section.key
    #[arg(long, value_name = "KEY", hide_possible_values = true, value_parser = KEYS)]
    unset: Vec<String>,
}

impl OverrideArgs {
    /// With what the option for a recipe's `compute` sets.
    pub(crate) fn computing(&self, compute: Option<String>) -> Overrides {
        let mut overrides = self.overrides();
        overrides.set.extend(compute);
        overrides
    }

    pub fn overrides(&self) -> Overrides {
        Overrides {
            set: self.set.clone(),
            unset: self.unset.clone(),
            written_as: WrittenAs { set: "--set", unset: "--unset" },
            of_many: false,
        }
    }
}

/// Who judges, and the limits of a custom reward.
#[derive(Clone, clap::Args)]
pub(crate) struct GraderArgs {
    /// Grader of `hapo list graders`, `command:PROGRAM`, `python:FILE.py:FUNCTION` or a server's address [default: training, in eval that of the model's run]
    #[arg(id = "grader", long = "grader", hide_possible_values = true, value_parser = GRADERS)]
    name: Option<String>,
    /// Where an answer is read: the last box, also an announced answer, or anywhere [default: announced, in eval that of the model's run]
    #[arg(long, value_parser = one_of(Extraction::ALL))]
    extraction: Option<Extraction>,
    /// Longest time of one answer of a custom reward, in seconds
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = number(f64::MIN_POSITIVE..=86_400.0, "seconds above 0, at most a day"))]
    reward_timeout: f64,
    /// Further seconds for the first answer of its process
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS", value_parser = number(0.0..=86_400.0, "seconds, at most a day"))]
    reward_start_timeout: f64,
    /// Processes of a custom reward, or requests at once; 0 = one per core
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = number(0_usize..=1024, "a number from 0 to 1024"))]
    reward_workers: usize,
}

impl GraderArgs {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(DEFAULT_GRADER)
    }

    pub(crate) fn extraction(&self) -> Extraction {
        self.extraction.unwrap_or_default()
    }

    pub(crate) fn is_own(&self) -> bool {
        hapo_net::reward::is_own(self.name())
    }

    /// Those of the run that trained a model, where no grader is named. Who names a model has not chosen its programs: a
    /// custom reward is not taken.
    pub(crate) fn or_trained(&self, folders: [Option<&Path>; 2]) -> Result<Self> {
        let folders = folders.into_iter().flatten();
        let mut trained = folders.filter_map(|it| hapo_train::trained_grading(it).transpose());
        let (None, Some(trained)) = (&self.name, trained.next()) else { return Ok(self.clone()) };
        let (name, extraction) = trained?;
        if named_grader(&name).is_err() {
            errln!("warning: the model's run was judged by `{name}`; --grader names it");
            return Ok(self.clone());
        }
        let extraction = self.extraction.or(Some(extraction));
        Ok(Self { name: Some(name), extraction, ..self.clone() })
    }

    /// One of the list, or a custom program or server. A program's output beside its answers goes to standard error.
    pub(crate) fn open(&self) -> Result<Extracting<'static>> {
        let (name, extraction) = (self.name(), self.extraction());
        if !self.is_own() {
            return Ok(Extracting::new(named_grader(name)?, extraction));
        }
        let settings = RewardSettings {
            timeout: Duration::from_secs_f64(self.reward_timeout),
            start_timeout: Duration::from_secs_f64(self.reward_start_timeout),
            workers: hapo_net::reward::workers(self.reward_workers),
            extraction,
            ..RewardSettings::default()
        };
        let reward = OwnReward::new(name, settings)?;
        reward.log().keep_in(std::io::stderr());
        Ok(Extracting::new(REWARD.get_or_init(|| reward), extraction))
    }
}

pub(crate) fn named_grader(name: &str) -> Result<&'static dyn Grader> {
    hapo_verify::grader(name).map_err(|it| {
        let hint = "`hapo list graders` names them; a custom reward is `command:PROGRAM` or `python:FILE.py:FUNCTION`";
        bad_input(it.to_string(), hint)
    })
}

static REWARD: OnceLock<OwnReward> = OnceLock::new();

/// Ends the processes of the command's custom reward, each of which must have answered every line with one.
pub(crate) fn finish_reward() -> Result<()> {
    const HINT: &str = "docs/guides/own-reward.md has a program to begin with";
    let finished = REWARD.get().map_or(Ok(()), Grader::finish);
    finished.map_err(|problem| bad_input(problem, HINT))
}

#[derive(clap::Args)]
pub(crate) struct ColumnsArg {
    /// Names of columns for files that no layout fits: problem=NAME,answer=NAME,teacher=NAME,…
    #[arg(long, value_name = "NAMES")]
    columns: Option<String>,
    /// Column with a part of the question to leave out; repeatable
    #[arg(long, value_name = "COLUMN")]
    pub(crate) drop: Vec<String>,
}

impl ColumnsArg {
    /// As a recipe has them.
    pub(crate) fn written(&self) -> Result<Option<String>> {
        let Some(columns) = self.parsed()? else { return Ok(None) };
        let columns = serde_json::to_value(columns)?;
        // Texts and lists of texts are written alike in JSON and TOML.
        let pairs =
            columns.as_object().into_iter().flatten().map(|(key, it)| format!("{key} = {it}"));
        Ok(Some(format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))))
    }

    pub(crate) fn reading(&self) -> Result<Reading> {
        Ok(Reading { columns: self.parsed()?, drop: self.drop.clone(), ..Reading::default() })
    }

    fn parsed(&self) -> Result<Option<Columns>> {
        Ok(self.columns.as_deref().map(Columns::parse).transpose()?)
    }

    /// The problems of a file; `keeps_fields` is for graders that get whole rows.
    pub(crate) fn load(&self, file: &Path, keeps_fields: bool) -> Result<Dataset> {
        Ok(hapo_train::load_file(file, &Reading { keeps_fields, ..self.reading()? })?)
    }
}

/// Waits for requests to a server. Those that are still in flight at the end are given up.
pub(crate) fn wait_for<T>(requests: impl Future<Output = T>, concurrency: usize) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(concurrency.max(1))
        .build()
        .context("the asynchronous runtime cannot start")?;
    let outcome = runtime.block_on(requests);
    runtime.shutdown_background();
    Ok(outcome)
}

/// Waits shorter than this are not worth a line.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// Says that a server makes all requests wait; a storm of refusals is said once in a while.
pub(crate) fn say_wait(wait: Duration, reason: &str) {
    static SAID: Mutex<Option<Instant>> = Mutex::new(None);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if wait >= SHORT_WAIT && said.is_none_or(|it| it.elapsed() > Duration::from_secs(5)) {
        errln!("waiting {:.0} s: {reason}", wait.as_secs_f64());
        *said = Some(Instant::now());
    }
}

/// Refuses an output that is an input, under whatever name and through whatever link: writing it would lose what is read.
/// Of an input that is a folder, all that is in it is read, except files of the ending that the command writes.
pub(crate) fn not_an_input(output: &Path, inputs: &[impl AsRef<Path>], ending: &str) -> Result<()> {
    // A file that does not exist is no input.
    let Some(whole) = if_there(output, output.canonicalize())? else { return Ok(()) };
    let is_own = output.extension().is_some_and(|it| it == ending);
    for input in inputs.iter().map(AsRef::<Path>::as_ref) {
        let Some(input_whole) = if_there(input, input.canonicalize())? else { continue };
        let is_same = || same_file::is_same_file(output, input).map_err(Refusal::io("read", input));
        if is_same()? || whole.starts_with(&input_whole) && !is_own {
            let (output, input) = (output.display(), input.display());
            let problem = format!("the output {output} is the input {input}");
            return Err(bad_input(problem, "write to another file"));
        }
    }
    Ok(())
}
