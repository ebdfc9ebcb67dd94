//! `hapo teacher`: verified traces for a set of prompts.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use hapo_core::{PromptId, RngStream};
use hapo_sampler::{GroupRequest, SampleSettings};
use hapo_teacher::{
    Attempt, Begin, Client, Leaked, Length, Origin, Outcome, Patience, Prices, PromptKind, Rule,
    Rules, Session, Summary, teach,
};
use serde_json::{Map, Value, json};

use crate::failure::bad_input;
use crate::progress::CountProgress;
use crate::support::arguments::decoding;
use crate::support::model;

/// Ask a teacher for a solution to each prompt, verify them, and keep the best.
///
/// Every answer goes into OUT.jsonl.journal as it arrives; the same command goes on where it stopped and asks nothing
/// twice. OUT.jsonl is written whole at the end, in the order of the prompts.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo teacher --input prompts.jsonl --endpoint http://localhost:8000/v1 --model gpt-oss-120b -o traces.jsonl"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Args {
    /// Prompts with gold answers, in any layout of `hapo list layouts`
    #[arg(long)]
    input: PathBuf,
    /// Base address of an OpenAI-compatible server; without it, --model is a local model
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The model's name at the server; without --endpoint a Hugging Face folder, or builtin:base
    #[arg(long)]
    model: String,
    /// Where the traces go, as JSONL
    #[arg(short, long, value_name = "OUT.jsonl")]
    output: PathBuf,
    /// Attempts at each prompt
    #[arg(long, default_value_t = 4, value_name = "K")]
    attempts: u32,
    /// Requests on their way at once
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Told the answer; asked to reason and to box it; or given the problem alone
    #[arg(long, value_enum, default_value_t = Prompt::Conditioned)]
    prompt: Prompt,
    /// System turn
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Sampling temperature
    #[arg(long, default_value_t = 0.7)]
    temperature: f64,
    /// Nucleus mass
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Longest answer in tokens; what is cut off there is never admitted [default: the server's own; 1024 for a local model]
    #[arg(long)]
    max_tokens: Option<u64>,
    /// Which correct traces are kept
    #[arg(long, value_enum, default_value_t = RuleName::ShortestCorrect)]
    rule: RuleName,
    /// What becomes of correct traces that let on that the answer was told: chosen last, never, or like any other
    #[arg(long, value_enum, default_value_t = LeakedName::Last)]
    leaked: LeakedName,
    /// Grader
    #[arg(long, default_value = "math")]
    grader: String,
    /// tokenizer.json, or the folder it lies in, of the model to be trained: turns on --max-trace-tokens
    #[arg(long, value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Longest trace that is admitted, in tokens of --tokenizer, end token included
    #[arg(long, default_value_t = 8192, value_name = "N")]
    max_trace_tokens: usize,
    /// Leave out prompts without a trace
    #[arg(long)]
    only_admitted: bool,
    /// Environment variable that holds the server's key
    #[arg(long, default_value = "OPENAI_API_KEY", value_name = "NAME")]
    api_key_env: String,
    /// Longest time of one request, in seconds
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    timeout: f64,
    /// How often a question is asked again after a fault of the server
    #[arg(long, default_value_t = 6)]
    retries: u32,
    /// The wait after the first fault, in seconds; doubles up to a minute
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    first_wait: f64,
    /// Longest wait that the server may ask for, in seconds
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    longest_wait: f64,
    /// Price of a million tokens of questions
    #[arg(long, requires = "price_out")]
    price_in: Option<f64>,
    /// Price of a million tokens of answers
    #[arg(long, requires = "price_in")]
    price_out: Option<f64>,
    /// Further fields of the request, as a JSON object; null removes a field
    #[arg(long, value_name = "JSON")]
    extra: Option<String>,
    /// Prompt template of a local model
    #[arg(long, default_value = "chatml")]
    template: String,
    /// Seed: sent with each request, and behind a local model's draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Go on only if there is a journal (without this flag: go on if there is one that fits)
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Throw the journal away and begin anew
    #[arg(long)]
    fresh: bool,
    /// Make attempts again that failed for good
    #[arg(long)]
    retry_failed: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Prompt {
    Conditioned,
    Plain,
    Bare,
}

#[expect(
    clippy::enum_variant_names,
    reason = "they are the names on the command line"
)]
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum RuleName {
    ShortestCorrect,
    FirstCorrect,
    AllCorrect,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum LeakedName {
    Last,
    Never,
    Any,
}

/// Longest answer of a local model when none is given.
const LOCAL_MAX_TOKENS: u64 = 1024;

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    check(args)?;
    let dataset = hapo_train::load_file(&args.input)?;
    if dataset.examples.is_empty() {
        return Err(bad_input(
            format!("{}: expected prompts, got none", args.input.display()),
            "each line holds an id, a problem and an answer",
        ));
    }
    let grader = hapo_verify::grader(&args.grader)
        .map_err(|it| bad_input(it.to_string(), "`hapo list graders` names them"))?;
    let tokenizer = args
        .tokenizer
        .as_deref()
        .map(model::open_tokenizer)
        .transpose()?;
    // An encoder never fails on text it was made for; if this one does, the run must not go on.
    let encoding_failed = OnceLock::new();
    let tokens = |text: &str| match tokenizer.as_ref().map(|it| it.encode(text)) {
        Some(Ok(it)) => it.len() + 1,
        Some(Err(it)) => {
            let _ = encoding_failed.set(it);
            usize::MAX
        }
        None => 0,
    };
    let rules = Rules {
        attempts: args.attempts,
        rule: match args.rule {
            RuleName::ShortestCorrect => Rule::ShortestCorrect,
            RuleName::FirstCorrect => Rule::FirstCorrect,
            RuleName::AllCorrect => Rule::AllCorrect,
        },
        leaked: match args.leaked {
            LeakedName::Last => Leaked::Last,
            LeakedName::Never => Leaked::Never,
            LeakedName::Any => Leaked::Any,
        },
        grader,
        length: tokenizer.is_some().then_some(Length {
            limit: args.max_trace_tokens,
            tokens: &tokens,
        }),
        prices: args.price_in.zip(args.price_out).map(|it| Prices {
            input: it.0,
            output: it.1,
        }),
    };
    let client = args
        .endpoint
        .as_deref()
        .map(|it| client(it, args))
        .transpose()?;
    let origin = Origin {
        endpoint: match &client {
            Some(it) => it.address().to_owned(),
            None => format!("local, template {}", args.template),
        },
        model: args.model.clone(),
        prompt: match args.prompt {
            Prompt::Conditioned => PromptKind::Conditioned,
            Prompt::Plain => PromptKind::Plain,
            Prompt::Bare => PromptKind::Bare,
        },
        system: args.system.clone(),
        temperature: args.temperature,
        top_p: args.top_p,
        max_tokens: match &client {
            Some(_) => args.max_tokens,
            None => Some(args.max_tokens.unwrap_or(LOCAL_MAX_TOKENS)),
        },
        seed: args.seed,
        extra: extra(args)?,
        input: String::new(),
    };
    let begin = match (args.fresh, args.resume) {
        (true, _) => Begin::Fresh,
        (_, true) => Begin::Resume,
        _ => Begin::ResumeOrStart,
    };
    let mut session = Session::open(
        &dataset,
        &args.output,
        origin,
        rules,
        begin,
        args.retry_failed,
    )?;
    let before = session.summary();
    if before.resumed > 0 {
        eprintln!(
            "{} answers are in {} already",
            before.resumed,
            session.journal().display()
        );
    }
    let mut seen = Seen::new(
        &before,
        dataset.examples.len() as u64 * u64::from(args.attempts),
    );
    let started = Instant::now();
    let asked = match &client {
        Some(client) => remote(client, &mut session, &mut seen),
        None => local(args, &mut session, &mut seen, threads),
    };
    seen.progress.finish();
    asked?;
    if let Some(it) = encoding_failed.get() {
        return Err(bad_input(
            it.to_string(),
            "give the tokenizer of the model to be trained",
        ));
    }
    session.write(!args.only_admitted)?;
    report(args, &session.summary(), started.elapsed())
}

fn check(args: &Args) -> Result<()> {
    let numbers = [
        (
            "--temperature",
            args.temperature,
            args.temperature >= 0.0,
            "a number from 0",
        ),
        (
            "--top-p",
            args.top_p,
            args.top_p > 0.0 && args.top_p <= 1.0,
            "a number in (0, 1]",
        ),
        (
            "--attempts",
            f64::from(args.attempts),
            args.attempts > 0,
            "at least 1",
        ),
        (
            "--concurrency",
            args.concurrency as f64,
            (1..=4096).contains(&args.concurrency),
            "1 to 4096",
        ),
        (
            "--timeout",
            args.timeout,
            args.timeout > 0.0,
            "seconds above 0",
        ),
        (
            "--first-wait",
            args.first_wait,
            args.first_wait >= 0.0,
            "seconds from 0",
        ),
        (
            "--longest-wait",
            args.longest_wait,
            args.longest_wait >= 0.0,
            "seconds from 0",
        ),
        (
            "--price-in",
            args.price_in.unwrap_or(0.0),
            args.price_in.is_none_or(|it| it >= 0.0),
            "a price from 0",
        ),
        (
            "--price-out",
            args.price_out.unwrap_or(0.0),
            args.price_out.is_none_or(|it| it >= 0.0),
            "a price from 0",
        ),
    ];
    for (name, got, good, expected) in numbers {
        if !(good && got.is_finite() && got <= 1e9) {
            return Err(bad_input(
                format!("{name}: expected {expected}, got {got}"),
                "`hapo teacher --help` says what each option does",
            ));
        }
    }
    if args.endpoint.is_none() && (args.system.is_some() || args.extra.is_some()) {
        return Err(bad_input(
            "--system and --extra need --endpoint",
            "a local model is asked by its template",
        ));
    }
    Ok(())
}

fn extra(args: &Args) -> Result<Map<String, Value>> {
    let Some(text) = &args.extra else {
        return Ok(Map::new());
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(it)) => Ok(it),
        _ => Err(bad_input(
            format!("--extra: expected a JSON object, got {text}"),
            r#"as in --extra '{"reasoning_effort": "high"}'"#,
        )),
    }
}

fn client(endpoint: &str, args: &Args) -> Result<Client> {
    let key = std::env::var(&args.api_key_env).ok();
    let patience = Patience {
        concurrency: args.concurrency,
        timeout: Duration::from_secs_f64(args.timeout),
        retries: args.retries,
        first_wait: Duration::from_secs_f64(args.first_wait),
        longest_wait: Duration::from_secs_f64(args.longest_wait),
        seed: args.seed,
        ..Patience::default()
    };
    let key = key.as_deref().map(str::trim).filter(|it| !it.is_empty());
    Ok(Client::new(endpoint, key, patience)?)
}

/// What the progress line counts.
struct Seen {
    progress: CountProgress,
    attempts: u64,
    correct: u64,
    failed: u64,
}

impl Seen {
    fn new(before: &Summary, total: u64) -> Self {
        Self {
            progress: CountProgress::new("teacher", total, "attempts"),
            attempts: before.attempts as u64,
            correct: before.correct as u64,
            failed: before.failed as u64,
        }
    }

    fn finished(&mut self, outcome: Outcome) {
        self.attempts += 1;
        self.correct += u64::from(outcome == Outcome::Correct);
        self.failed += u64::from(outcome == Outcome::Failed);
        let text = format!("{} correct, {} failed", self.correct, self.failed);
        self.progress.at(self.attempts, &text);
    }
}

fn remote(client: &Client, session: &mut Session<'_>, seen: &mut Seen) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime cannot start")?;
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let finished = |outcome| seen.finished(outcome);
    Ok(runtime.block_on(async { teach(client, session, stop, finished).await })?)
}

/// The local model as its own teacher: the same prompts, rules and journal.
fn local(args: &Args, session: &mut Session<'_>, seen: &mut Seen, threads: usize) -> Result<()> {
    const PROMPTS_AT_ONCE: usize = 16;
    let max_new_tokens = session.origin().max_tokens.unwrap_or(LOCAL_MAX_TOKENS) as usize;
    let decoding = decoding(
        args.temperature as f32,
        hapo_sampler::Truncation {
            top_p: args.top_p as f32,
            ..hapo_sampler::Truncation::NONE
        },
    )?;
    let template = hapo_data::find_template(&args.template)?;
    let (model, chat_format) = model::open(
        &args.model,
        template,
        max_new_tokens,
        crate::support::device::cpu(threads)?,
    )?;
    let settings = SampleSettings {
        decoding,
        stop: &chat_format.stop,
        max_new_tokens,
        max_sequences: 64,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed: args.seed,
        rng_stream: RngStream::Generate,
        step: 0,
    };
    loop {
        let wanting: Vec<usize> = (0..session.dataset().examples.len())
            .filter(|it| !session.wanted(*it).is_empty())
            .take(PROMPTS_AT_ONCE)
            .collect();
        if wanting.is_empty() {
            return Ok(session.flush()?);
        }
        let prompts = wanting
            .iter()
            .map(|it| chat_format.prompt(&session.question(*it)))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let requests: Vec<GroupRequest<'_>> = wanting
            .iter()
            .zip(&prompts)
            .map(|(prompt, tokens)| GroupRequest {
                prompt: PromptId(*prompt as u64),
                tokens,
                // A draw depends on the attempt's number alone, so those that are known come out again.
                completions: session
                    .wanted(*prompt)
                    .last()
                    .map_or(0, |it| *it as usize + 1),
            })
            .collect();
        let started = Instant::now();
        let sampled = hapo_sampler::sample(&model, &requests, &settings)?;
        let milliseconds = started.elapsed().as_millis() as u64;
        for ((prompt, tokens), sampled) in wanting.iter().zip(&prompts).zip(&sampled) {
            for attempt in session.wanted(*prompt) {
                let it = &sampled.group.rollouts()[attempt as usize];
                let attempt_made = Attempt {
                    text: Some(chat_format.text(&it.tokens)?),
                    failed: None,
                    finish_reason: Some(if it.ended { "stop" } else { "length" }.to_owned()),
                    served_by: None,
                    prompt_tokens: Some(tokens.len() as u64),
                    completion_tokens: Some(it.tokens.len() as u64),
                    requests: 1,
                    milliseconds,
                    at: SystemTime::now()
                        .duration_since(SystemTime::UNIX_EPOCH)
                        .unwrap_or_default()
                        .as_secs(),
                };
                seen.finished(session.record(*prompt, attempt, &attempt_made)?);
            }
        }
    }
}

fn report(args: &Args, it: &Summary, elapsed: Duration) -> Result<()> {
    if args.json {
        let mut line = serde_json::to_value(it)?;
        line["seconds"] = json!(elapsed.as_secs_f64());
        line["output"] = json!(args.output);
        outln!("{line}");
        return Ok(());
    }
    outln!(
        "{}: {} of {} prompts have a trace",
        args.output.display(),
        it.admitted,
        it.prompts
    );
    outln!(
        "attempts  {}: {} correct ({} leaked), {} wrong, {} unparsable, {} cut off, {} too long, {} failed",
        it.attempts,
        it.correct,
        it.leaked,
        it.wrong,
        it.unparsable,
        it.truncated,
        it.too_long,
        it.failed
    );
    outln!(
        "requests  {}, {} of them retries; {:.1} s",
        it.requests,
        it.retries,
        elapsed.as_secs_f64()
    );
    outln!(
        "tokens    {} in, {} out",
        it.prompt_tokens,
        it.completion_tokens
    );
    if let Some(cost) = it.cost {
        let unknown = match it.uncounted {
            0 => String::new(),
            n => format!(", without {n} attempts that the server did not count"),
        };
        outln!("cost      {cost:.4}{unknown}");
    }
    if it.failed > 0 {
        eprintln!(
            "hint: --retry-failed makes the {} failed attempts again",
            it.failed
        );
    }
    Ok(())
}
