//! `hapo eval`: a model on held-out problems, and models beside each other.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use hapo_core::{CounterRng, RngCounter, RngStream};
use hapo_data::Dataset;
use hapo_data::task::{Split, TaskSet, make_set};
use hapo_eval::{
    Benchmark, EvalModel, EvalSettings, Judge, Layout, ProblemResult, RawCompletion, Record,
    Recorded, Score, benchmark, compare, sample_problems, score, suite, text_checksum,
};
use hapo_kernels::Device;
use hapo_teacher::{Client, Patience, Question};
use hapo_verify::Gold;
use serde_json::{Map, Value, json};

use crate::commands::generate::decoding;
use crate::device::DeviceArg;
use crate::failure::bad_input;
use crate::model;
use crate::progress::CountProgress;

/// Evaluate a model on the built-in task's held-out sets, on the paper's benchmarks or on a file of problems; or print
/// several evaluations side by side.
#[derive(clap::Args)]
#[command(
    before_help = "Examples: hapo eval --model builtin:base --suite mini6 --k 4\n          hapo eval --model ./run/best --suite math6 --data benchmarks/ --template qwen-boxed --out best.jsonl\n          hapo eval --compare GRPO=grpo.jsonl TRAPO=trapo.jsonl TRAPO-HAPO=hapo.jsonl"
)]
pub(crate) struct Args {
    /// Hugging Face folder, org/name@revision of the hub, or builtin:base; with --endpoint the model's name at the server
    #[arg(long, required_unless_present = "compare")]
    model: Option<String>,
    /// Base address of an OpenAI-compatible server to ask instead of a local model
    #[arg(long, value_name = "URL", conflicts_with = "device")]
    endpoint: Option<String>,
    #[command(flatten)]
    device: DeviceArg,
    /// Suites (mini6, math6), names of `hapo list benchmarks`, or family:level of the built-in task, separated by commas
    /// [default: mini6; math6 where --data is a folder]
    #[arg(long)]
    suite: Option<String>,
    /// The folder with the files of a suite's benchmarks, or one file of problems instead of a suite
    #[arg(long)]
    data: Option<PathBuf>,
    /// Problems of each benchmark of the built-in task
    #[arg(long, default_value_t = 200)]
    problems: usize,
    /// Split of the built-in task for family:level; choose settings on `development`
    #[arg(long, value_enum, default_value_t = EvalSplit::HeldOut)]
    split: EvalSplit,
    /// Completions of each problem [default: the benchmark's own, else 2]
    #[arg(long)]
    k: Option<usize>,
    /// Sampling temperature; 0 takes the most likely token
    #[arg(long, default_value_t = 0.6)]
    temperature: f32,
    /// Nucleus mass
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Longest completion in tokens [default: the suite's own, else 96]
    #[arg(long)]
    max_tokens: Option<usize>,
    /// Prompt template of a local model; `chat` is its own
    #[arg(long, default_value = "chatml")]
    template: String,
    /// System text, with --template chat
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// What follows the problem in the user's turn, with --template chat
    #[arg(long, value_name = "TEXT")]
    suffix: Option<String>,
    /// What follows a problem that is sent to a server
    #[arg(
        long,
        default_value = "Please reason step by step, and put your final answer within \\boxed{}."
    )]
    instruction: String,
    /// Grader; `math` and `oat` are shown beside each other
    #[arg(long, default_value = "math")]
    grader: String,
    /// Seed of the draws and of the intervals
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Keep every completion in this file; the same command goes on where it ends
    #[arg(long, value_name = "FILE.jsonl")]
    out: Option<PathBuf>,
    /// Files of --out to print side by side, as FILE or NAME=FILE; X-HAPO is compared with X
    #[arg(long, num_args = 1.., value_name = "NAME=FILE", conflicts_with_all = ["model", "endpoint", "suite", "data", "out"])]
    compare: Vec<String>,
    /// Layout of --compare
    #[arg(long, value_enum, default_value_t = TableLayout::Text, requires = "compare")]
    layout: TableLayout,
    /// Requests to a server on their way at once
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Longest time of one request to a server, in seconds
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    timeout: f64,
    /// Environment variable that holds the server's key
    #[arg(long, default_value = "OPENAI_API_KEY", value_name = "NAME")]
    api_key_env: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum EvalSplit {
    Development,
    HeldOut,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum TableLayout {
    Text,
    Markdown,
    Csv,
    Json,
    Latex,
}

/// Problems to be asked, and how often each.
struct Set {
    name: String,
    dataset: Dataset,
    k: usize,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    if !args.compare.is_empty() {
        return print_comparison(args);
    }
    let grader = hapo_verify::grader(&args.grader)
        .map_err(|it| bad_input(it.to_string(), "`hapo list graders` names them"))?;
    if args.k == Some(0) || args.problems == 0 || args.max_tokens == Some(0) {
        return Err(bad_input(
            "--k, --problems and --max-tokens: expected at least 1, got 0",
            "ask for one",
        ));
    }
    decoding(args.temperature, truncation(args))?;
    template(args).check()?;
    let (sets, max_tokens) = sets(args)?;
    let model = args.model.as_deref().unwrap_or_default();
    let texts: Map<String, Value> = sets
        .iter()
        .map(|it| (it.name.clone(), text_checksum(&it.dataset).into()))
        .collect();
    let settings = json!({
        "texts": texts, "model": model, "endpoint": args.endpoint.as_deref().map(without_secrets), "k": args.k,
        "temperature": args.temperature, "top_p": args.top_p, "max_tokens": max_tokens, "grader": args.grader,
        "prompt": if args.endpoint.is_some() { &args.instruction } else { &args.template },
        "seed": args.seed,
    });
    let (record, mut found) = match &args.out {
        Some(path) => {
            let (record, found) = Record::open(path, &settings)?;
            (Some(record), found)
        }
        None => (
            None,
            Recorded {
                settings,
                benchmarks: Vec::new(),
            },
        ),
    };
    let mut done: Vec<BTreeMap<usize, ProblemResult>> = Vec::new();
    for set in &sets {
        let place = found.benchmarks.iter().position(|it| it.0 == set.name);
        let old = place.map(|it| found.benchmarks.swap_remove(it).1);
        done.push(old.unwrap_or_default());
        fits(args, set, &done[done.len() - 1])?;
    }
    let other = grader.counterpart().map(hapo_verify::grader).transpose()?;
    let mut keep = Keep {
        sets: &sets,
        judges: sets
            .iter()
            .map(|it| Judge::new(&it.dataset, grader, other))
            .collect::<std::result::Result<_, _>>()?,
        progress: CountProgress::new(
            "eval",
            sets.iter().map(|it| it.dataset.examples.len() as u64).sum(),
            "problems",
        ),
        record,
        done,
    };
    match &args.endpoint {
        Some(endpoint) => remote(args, endpoint, model, max_tokens, &mut keep)?,
        None => on_device!(args.device.device, threads, |device| local(
            args, model, max_tokens, device, &mut keep
        ))?,
    }
    keep.progress.finish();
    let scores: Vec<Score> = sets
        .iter()
        .zip(keep.done)
        .filter_map(|(set, done)| {
            let answers: Vec<ProblemResult> = done.into_values().collect();
            score(&set.name, &answers, args.seed)
        })
        .collect();
    print_scores(args, &scores)
}

fn without_secrets(endpoint: &str) -> String {
    let rest = endpoint.split(['?', '#']).next().unwrap_or_default();
    match (rest.find("://"), rest.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", &rest[..scheme + 3], &rest[at + 1..])
        }
        _ => rest.to_owned(),
    }
}

/// Whether answers in the record are answers to these problems.
fn fits(args: &Args, set: &Set, done: &BTreeMap<usize, ProblemResult>) -> Result<()> {
    for (number, it) in done {
        let same = set.dataset.examples.get(*number).is_some_and(|example| {
            example.id == it.id && example.answer == it.gold && it.completions.len() == set.k
        });
        if !same {
            let file = args.out.as_deref().unwrap_or(Path::new("the record"));
            return Err(bad_input(
                format!(
                    "{} has answers to other problems of {}: number {number} is {}",
                    file.display(),
                    set.name,
                    it.id
                ),
                "use the data it was begun with, or another --out",
            ));
        }
    }
    Ok(())
}

/// Answers as they come: graded, recorded, counted.
struct Keep<'a> {
    sets: &'a [Set],
    judges: Vec<Judge<'a>>,
    progress: CountProgress,
    record: Option<Record>,
    done: Vec<BTreeMap<usize, ProblemResult>>,
}

impl Keep<'_> {
    fn add(&mut self, set: usize, number: usize, said: Vec<RawCompletion>) -> Result<()> {
        let answers = self.judges[set].grade(number, said);
        if let Some(record) = &mut self.record {
            record.add(&self.sets[set].name, number, &answers)?;
        }
        self.done[set].insert(number, answers);
        let all = || self.done.iter().flat_map(BTreeMap::values);
        let correct = all().map(ProblemResult::success).sum::<f64>() / all().count() as f64;
        self.progress.at(
            all().count() as u64,
            &format!("{:.1} % correct", 100.0 * correct),
        );
        Ok(())
    }

    fn wanted(&self, set: usize) -> Vec<usize> {
        let all = 0..self.sets[set].dataset.examples.len();
        all.filter(|it| !self.done[set].contains_key(it)).collect()
    }

    fn flush(&self) -> Result<()> {
        match &self.record {
            Some(it) => Ok(it.flush()?),
            None => Ok(()),
        }
    }
}

fn local<D: Device>(
    args: &Args,
    model: &str,
    max_tokens: usize,
    device: D,
    keep: &mut Keep<'_>,
) -> Result<()> {
    const PROBLEMS_AT_ONCE: usize = 64;
    let (opened, chat_format) = model::open(model, template(args), max_tokens, device)?;
    model::warn_of_another_template(model, &chat_format);
    let asked = EvalModel {
        model: &opened,
        chat_format: &chat_format,
    };
    for (n, set) in keep.sets.iter().enumerate() {
        let settings = EvalSettings {
            completions: set.k,
            decoding: decoding(args.temperature, truncation(args))?,
            max_new_tokens: max_tokens,
            max_sequences: 256,
            seed: args.seed,
        };
        let wanted = keep.wanted(n);
        // Answers do not depend on how the problems are cut; without a record nothing is gained by cutting.
        let at_once = if keep.record.is_some() {
            PROBLEMS_AT_ONCE
        } else {
            wanted.len().max(1)
        };
        for numbers in wanted.chunks(at_once) {
            let said = sample_problems(asked, &set.dataset, numbers, settings)?;
            for (number, said) in numbers.iter().zip(said) {
                keep.add(n, *number, said)?;
            }
            keep.flush()?;
        }
    }
    Ok(())
}

fn remote(
    args: &Args,
    endpoint: &str,
    model: &str,
    max_tokens: usize,
    keep: &mut Keep<'_>,
) -> Result<()> {
    if !(args.timeout > 0.0 && args.timeout <= 1e9 && (1..=4096).contains(&args.concurrency)) {
        return Err(bad_input(
            "--timeout and --concurrency: expected seconds above 0, and 1 to 4096",
            "leave them out for 600 seconds and 16",
        ));
    }
    let key = std::env::var(&args.api_key_env).ok();
    let patience = Patience {
        concurrency: args.concurrency,
        timeout: Duration::from_secs_f64(args.timeout),
        seed: args.seed,
        ..Patience::default()
    };
    let client = Client::new(endpoint, key.as_deref().map(str::trim), patience)?;
    let sets = keep.sets;
    let mut questions = Vec::new();
    for (n, set) in sets.iter().enumerate() {
        for number in keep.wanted(n) {
            let problem = set.dataset.examples[number].problem.as_str();
            questions.extend((0..set.k).map(|completion| Asking {
                set: n,
                number,
                completion,
                problem,
            }));
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime cannot start")?;
    let mut parts: BTreeMap<(usize, usize), BTreeMap<usize, RawCompletion>> = BTreeMap::new();
    runtime.block_on(async {
        let mut answers = futures::stream::iter(questions)
            .map(|it| ask(&client, args, model, max_tokens, it))
            .buffer_unordered(args.concurrency);
        while let Some(it) = answers.next().await {
            let (
                Asking {
                    set,
                    number,
                    completion,
                    ..
                },
                said,
            ) = it?;
            let part = parts.entry((set, number)).or_default();
            part.insert(completion, said);
            if part.len() == sets[set].k {
                let said = parts.remove(&(set, number)).unwrap_or_default();
                keep.add(set, number, said.into_values().collect())?;
            }
        }
        keep.flush()
    })
}

/// One completion of one problem.
#[derive(Clone, Copy)]
struct Asking<'a> {
    set: usize,
    number: usize,
    completion: usize,
    problem: &'a str,
}

async fn ask<'a>(
    client: &Client,
    args: &Args,
    model: &str,
    max_tokens: usize,
    it: Asking<'a>,
) -> Result<(Asking<'a>, RawCompletion)> {
    let user = match args.instruction.as_str() {
        "" => it.problem.to_owned(),
        instruction => format!("{}\n{instruction}", it.problem),
    };
    let counter = RngCounter {
        step: it.set as u64,
        prompt: it.number as u64,
        rollout: it.completion as u64,
        position: u64::MAX,
    };
    let question = Question {
        model,
        system: None,
        user: &user,
        temperature: f64::from(args.temperature),
        top_p: f64::from(args.top_p),
        max_tokens: Some(max_tokens as u64),
        // Servers take 31 bits.
        seed: CounterRng::new(args.seed, RngStream::Evaluate, counter).word() >> 33,
        extra: &Map::new(),
    };
    let exchange = client.ask(&question, question.seed).await?;
    let reply = exchange.reply.map_err(|failure| {
        anyhow::anyhow!(
            "{} has no answer for problem {} after {} requests: {}",
            client.address(),
            it.number,
            exchange.requests,
            failure.reason
        )
    })?;
    let said = RawCompletion {
        text: reply.text,
        tokens: reply.completion_tokens.map(|it| it as usize),
        ended: reply.finish_reason.as_deref() != Some("length"),
    };
    Ok((it, said))
}

fn print_scores(args: &Args, scores: &[Score]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(scores)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<14} {:>8} {:>3} {:>22} {:>7} {:>7} {:>9} {:>9} {:>7}",
        "benchmark",
        "problems",
        "k",
        "avg@k [95 %]",
        "pass@k",
        "maj@k",
        "truncated",
        "no answer",
        "length"
    )?;
    for it in scores {
        let average = format!(
            "{:.3} [{:.3}, {:.3}]",
            it.average.mean, it.average.low, it.average.high
        );
        let pass = it.pass_at.last().map_or(0.0, |it| it.1);
        let length = it.length.map_or("-".to_owned(), |it| format!("{it:.1}"));
        writeln!(
            out,
            "{:<14} {:>8} {:>3} {average:>22} {pass:>7.3} {:>7.3} {:>9.3} {:>9.3} {length:>7}",
            it.benchmark, it.problems, it.k, it.majority.mean, it.truncated, it.no_answer
        )?;
    }
    for it in scores {
        let Some(other) = it
            .other
            .as_ref()
            .filter(|it| it.only_first + it.only_other > 0)
        else {
            continue;
        };
        let (first, second) = (
            args.grader.as_str(),
            if args.grader == "oat" { "math" } else { "oat" },
        );
        writeln!(
            out,
            "{}: {first} {:.3}, {second} {:.3}; only {first} says correct to {} completions, only {second} to {}",
            it.benchmark, it.average.mean, other.average, other.only_first, other.only_other
        )?;
    }
    Ok(())
}

fn template(args: &Args) -> hapo_data::TemplateChoice<'_> {
    hapo_data::TemplateChoice {
        name: &args.template,
        system: args.system.as_deref(),
        suffix: args.suffix.as_deref(),
    }
}

fn truncation(args: &Args) -> hapo_sampler::Truncation {
    hapo_sampler::Truncation {
        top_p: args.top_p,
        ..hapo_sampler::Truncation::NONE
    }
}

fn print_comparison(args: &Args) -> Result<()> {
    let mut runs = Vec::new();
    for it in &args.compare {
        let (name, path) = if let Some((name, path)) = it.split_once('=') {
            (name.to_owned(), Path::new(path))
        } else {
            let path = Path::new(it);
            let stem = path.file_stem().unwrap_or(path.as_os_str());
            (stem.to_string_lossy().into_owned(), path)
        };
        if runs.iter().any(|it: &(String, Recorded)| it.0 == name) {
            return Err(bad_input(
                format!("--compare: two evaluations are named {name}"),
                "name them: --compare A=one.jsonl B=two.jsonl",
            ));
        }
        let recorded = Recorded::read(path)?;
        runs.push((name, recorded));
    }
    for (benchmark, names) in of_different_texts(&runs) {
        eprintln!(
            "warning: {benchmark}: the problems' texts differ between {}",
            names.join(" and ")
        );
    }
    let layout = match args.layout {
        _ if args.json => Layout::Json,
        TableLayout::Text => Layout::Text,
        TableLayout::Markdown => Layout::Markdown,
        TableLayout::Csv => Layout::Csv,
        TableLayout::Json => Layout::Json,
        TableLayout::Latex => Layout::Latex,
    };
    let table = compare(&runs, args.seed).render(layout);
    std::io::stdout().lock().write_all(table.as_bytes())?;
    Ok(())
}

/// Benchmarks of which two evaluations asked different texts, with the first two such.
fn of_different_texts(runs: &[(String, Recorded)]) -> BTreeMap<&str, [&str; 2]> {
    let mut first: BTreeMap<&str, (&str, &Value)> = BTreeMap::new();
    let mut differ = BTreeMap::new();
    for (name, recorded) in runs {
        let texts = recorded.settings.get("texts").and_then(Value::as_object);
        for (benchmark, text) in texts.into_iter().flatten() {
            let (other, expected) = first.entry(benchmark).or_insert((name, text));
            if *expected != text {
                differ.entry(benchmark.as_str()).or_insert([*other, name]);
            }
        }
    }
    differ
}

/// What to ask, and the longest completion.
fn sets(args: &Args) -> Result<(Vec<Set>, usize)> {
    const K: usize = 2;
    const MAX_TOKENS: usize = 96;
    let folder = args.data.as_deref().filter(|it| it.is_dir());
    if let (Some(file), None) = (&args.data, folder) {
        if args.suite.is_some() {
            return Err(bad_input(
                format!(
                    "--suite needs a folder in --data, got the file {}",
                    file.display()
                ),
                "leave out --suite to evaluate on the file",
            ));
        }
        let dataset = hapo_train::load_file(&crate::hub::data_file(file)?)?;
        check(&dataset, file, args)?;
        let set = Set {
            name: file.display().to_string(),
            dataset,
            k: args.k.unwrap_or(K),
        };
        return Ok((vec![set], args.max_tokens.unwrap_or(MAX_TOKENS)));
    }
    let names = match (&args.suite, folder) {
        (Some(it), _) => it.as_str(),
        (None, Some(_)) => "math6",
        (None, None) => "mini6",
    };
    let (mut sets, mut max_tokens) = (Vec::new(), None);
    for name in names.split(',') {
        let members: Vec<&Benchmark> = match (suite(name), benchmark(name)) {
            (Some(it), _) => it.benchmarks.iter().collect(),
            (None, Some(it)) => vec![it],
            (None, None) => {
                sets.push(Set {
                    name: name.to_owned(),
                    dataset: level(name, args)?,
                    k: args.k.unwrap_or(K),
                });
                continue;
            }
        };
        for it in members {
            if sets.iter().any(|set: &Set| set.name == it.name) {
                continue;
            }
            let own = hapo_eval::SUITES
                .iter()
                .find(|suite| suite.benchmarks.iter().any(|member| member.name == it.name));
            max_tokens = max_tokens.max(own.and_then(|it| it.max_tokens));
            let dataset = match folder {
                Some(folder) if it.is_file() => it.read(folder)?,
                _ => it.problems(args.problems)?,
            };
            if let Some(warning) = it.other_text(&dataset) {
                eprintln!("warning: {warning}");
            }
            sets.push(Set {
                name: it.name.to_owned(),
                dataset,
                k: args.k.or(it.completions).unwrap_or(K),
            });
        }
    }
    Ok((sets, args.max_tokens.or(max_tokens).unwrap_or(MAX_TOKENS)))
}

/// Whether every row of a file can be graded; says how often a file that repeats
/// its problems wants them asked.
fn check(dataset: &Dataset, file: &Path, args: &Args) -> Result<()> {
    let grader = hapo_verify::grader(&args.grader)
        .map_err(|it| bad_input(it.to_string(), "`hapo list graders` names them"))?;
    for it in &dataset.examples {
        let Err(reason) = Gold::any(grader, it.golds()) else {
            continue;
        };
        return Err(bad_input(
            format!(
                "the grader cannot read the gold answer `{}`: {reason} (row {}, id {}, {})",
                it.answer,
                it.row,
                it.id,
                file.display()
            ),
            "`hapo data check` names all such rows, --drop-bad -o OUT writes the others",
        ));
    }
    let k = dataset.examples.iter().map(hapo_data::Example::k).max();
    if let Some(k) = k.filter(|it| *it > 1) {
        eprintln!(
            "{}: problems stand there up to {k} times; each is asked --k times",
            file.display()
        );
    }
    Ok(())
}

/// Problems of one level of a family of the built-in task.
fn level(name: &str, args: &Args) -> Result<Dataset> {
    let (family, level) = name
        .split_once(':')
        .and_then(|it| Some((it.0, it.1.parse().ok()?)))
        .ok_or_else(|| {
            bad_input(
                format!("unknown benchmark `{name}`"),
                "`hapo list benchmarks` names them",
            )
        })?;
    let split = match args.split {
        EvalSplit::Development => Split::Development,
        EvalSplit::HeldOut => Split::HeldOut,
    };
    let levels = vec![(family.to_owned(), level)];
    Ok(make_set(&TaskSet {
        seed: 0,
        levels,
        split,
        count: args.problems,
        teacher_coverage: 0.0,
    })?)
}
