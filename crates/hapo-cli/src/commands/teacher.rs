//! `hapo teacher`: verified traces for a set of prompts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hapo_core::counted;
use hapo_data::Dataset;
use hapo_eval::{
    Client, Completions, Leaked, Length, OpenMode, Plan, Prices, ProblemSet, Progress, PromptForm,
    RetryPolicy, Rule, Rules, Sampling, Summary,
};
use hapo_verify::Extracting;
use serde_json::json;

use crate::support::arguments::{
    ColumnsArg, GraderArgs, SamplingArgs, ServerArgs, count, not_an_input, number, one_of, seconds,
    wait_for,
};
use crate::{failure::bad_input, progress::CountProgress, support::model};

/// Ask a teacher for a solution to each prompt, verify them, and keep the best.
///
/// Every answer goes into OUT.jsonl.journal as it arrives; the same command resumes where it stopped and asks nothing
/// twice. OUT.jsonl is written at the end, in the order of the prompts.
#[derive(clap::Args)]
#[command(
    mut_arg("temperature", |arg| arg.default_value("0.7")),
    mut_arg("max_new_tokens", |arg| arg.help("Longest answer; what is cut off there is never admitted [default: the server's own]")),
    mut_arg("seed", |arg| arg.help("Seed of the seeds that are sent with the requests")),
    before_help = "Example: hapo teacher --input prompts.jsonl --endpoint http://localhost:8000/v1 --model gpt-oss-120b -o traces.jsonl"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// Prompts with gold answers, in any layout of `hapo list layouts`
    #[arg(long)]
    input: PathBuf,
    /// Base address of an OpenAI-compatible server; `hapo serve --model DIR` is one
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// The model's name at the server
    #[arg(long)]
    model: String,
    /// Where the traces go, as JSONL
    #[arg(short, long, value_name = "OUT.jsonl")]
    output: PathBuf,
    /// Attempts at each prompt
    #[arg(long, default_value_t = 4, value_name = "K", value_parser = count(u64::from(u32::MAX)))]
    attempts: usize,
    /// Told the answer; asked to reason and to box it; or given the problem alone
    #[arg(long, default_value = "conditioned", value_parser = one_of(PROMPTS))]
    prompt: PromptForm,
    /// System turn
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Which correct traces are kept
    #[arg(long, default_value = "shortest-correct", value_parser = one_of(RULES))]
    rule: Rule,
    /// Use traces that reveal the told answer: last, never, or like any other
    #[arg(long, default_value = "last", value_parser = one_of(LEAKED))]
    leaked: Leaked,
    #[command(flatten)]
    grader: GraderArgs,
    #[command(flatten)]
    columns: ColumnsArg,
    /// tokenizer.json, or its folder, of the model to be trained: turns on --max-trace-tokens
    #[arg(long, value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Longest trace that is admitted, in tokens of --tokenizer, end token included
    #[arg(long, default_value_t = 8192, value_name = "N")]
    max_trace_tokens: usize,
    /// Leave out prompts without a trace
    #[arg(long)]
    only_admitted: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// How often a question is asked again after a fault of the server
    #[arg(long, default_value_t = 6)]
    retries: u32,
    /// The wait after the first fault, in seconds; doubles up to a minute
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds(0.0))]
    first_wait: f64,
    /// Longest wait that the server may ask for, in seconds
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS", value_parser = seconds(0.0))]
    longest_wait: f64,
    /// Price of a million tokens of questions
    #[arg(long, requires = "price_out", value_parser = price())]
    price_in: Option<f64>,
    /// Price of a million tokens of answers
    #[arg(long, requires = "price_in", value_parser = price())]
    price_out: Option<f64>,
    /// Fail where there is no journal to resume from
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Discard the journal and start again
    #[arg(long)]
    fresh: bool,
    /// Make attempts again that failed for good
    #[arg(long)]
    retry_failed: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

const PROMPTS: &[(&str, PromptForm)] = &[
    ("conditioned", PromptForm::Conditioned),
    ("plain", PromptForm::Plain),
    ("bare", PromptForm::Bare),
];
const RULES: &[(&str, Rule)] = &[
    ("shortest-correct", Rule::ShortestCorrect),
    ("first-correct", Rule::FirstCorrect),
    ("all-correct", Rule::AllCorrect),
];
const LEAKED: &[(&str, Leaked)] =
    &[("last", Leaked::Last), ("never", Leaked::Never), ("any", Leaked::Any)];

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut journal = args.output.clone().into_os_string();
    journal.push(".journal");
    for it in [args.output.as_path(), journal.as_ref()] {
        not_an_input(it, &[&args.input], "")?;
    }
    let dataset = args.columns.load(&args.input, args.grader.is_own())?;
    if dataset.examples.is_empty() {
        let problem = format!("{}: expected prompts, got none", args.input.display());
        return Err(bad_input(problem, "each line holds an id, a problem and an answer"));
    }
    let tokenizer = args.tokenizer.as_deref().map(model::open_tokenizer);
    let tokenizer = tokenizer.transpose()?;
    let tokens = tokenizer.map(|tokenizer| {
        move |text: &str| {
            let tokens = tokenizer.encode(text).map(|it| it.len() + 1);
            tokens.map_err(|it| it.hint("give the tokenizer of the model to be trained"))
        }
    });
    let length = tokens.as_ref().map(|tokens| Length { limit: args.max_trace_tokens, tokens });
    let grader = args.grader.open()?;
    let prices = args.price_in.zip(args.price_out);
    let prices = prices.map(|(input, output)| Prices { input, output });
    let rules = Rules { rule: args.rule, leaked: args.leaked, length, prices };
    let client = args.server.client(&args.endpoint, args.policy())?;
    let attempts = (dataset.examples.len() * args.attempts) as u64;
    let plan = args.plan(dataset, grader, &client)?;
    let progress = CountProgress::new("teacher", attempts, "attempts");
    let observer = |at: Progress| {
        let text = format!("{} correct, {} failed", at.correct, at.failed);
        progress.at(at.completions as u64, &text);
    };
    let mut session = Completions::of_teacher(&plan, &args.output, rules, args.begin())?;
    if args.retry_failed {
        session = session.retrying_failed();
    }
    session = session.observed(&observer);
    let before = session.summary();
    if before.resumed > 0 {
        let answers = counted(before.resumed, "answer is", "answers are");
        errln!("{answers} in {} already", session.journal().display());
    }
    if let [first, ..] = session.damaged_lines() {
        let (count, path) = (session.damaged_lines().len(), session.journal().display());
        errln!(
            "warning: {path}: {} cannot be read (the first is {first}); their attempts are made again",
            counted(count, "line", "lines")
        );
    }
    let started = Instant::now();
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let taught = wait_for(session.request(&client, stop), client.retry_policy().concurrency);
    progress.finish();
    taught??;
    session.write(!args.only_admitted)?;
    let (summary, elapsed) = (session.summary(), started.elapsed());
    if args.json {
        let mut line = serde_json::to_value(summary)?;
        line["seconds"] = json!(elapsed.as_secs_f64());
        line["output"] = json!(args.output.display().to_string());
        outln!("{line}");
    } else {
        print(&args.output, &summary, elapsed)?;
    }
    if summary.attempts > 0 && summary.failed == summary.attempts {
        let reason = session.last_failure().unwrap_or("no reason was given");
        let failed = summary.failed;
        return Err(anyhow!("all {failed} attempts failed, the last with: {reason}"));
    }
    Ok(())
}

impl Args {
    fn plan(&self, dataset: Dataset, grader: Extracting<'static>, client: &Client) -> Result<Plan> {
        let (name, completions) = (self.input.display().to_string(), self.attempts);
        let sampling = Sampling {
            endpoint: Some(client.address().to_owned()),
            system: self.system.clone(),
            temperature: f64::from(self.sampling.temperature),
            top_p: f64::from(self.sampling.top_p),
            max_tokens: self.sampling.max_new_tokens,
            seed: self.sampling.seed,
            extra: self.server.fields()?,
            ..Sampling::new(&self.model, self.prompt.clone())
        };
        let set = ProblemSet { name, dataset, completions, draws: 0 };
        Ok(Plan::new(vec![set], sampling, grader))
    }

    fn begin(&self) -> OpenMode {
        match (self.fresh, self.resume) {
            (true, _) => OpenMode::Fresh,
            (_, true) => OpenMode::Resume,
            _ => OpenMode::ResumeOrStart,
        }
    }

    fn policy(&self) -> RetryPolicy {
        RetryPolicy {
            retries: self.retries,
            first_wait: Duration::from_secs_f64(self.first_wait),
            longest_wait: Duration::from_secs_f64(self.longest_wait),
            seed: self.sampling.seed,
            ..RetryPolicy::default()
        }
    }
}

fn price() -> impl clap::builder::TypedValueParser<Value = f64> {
    number(0.0..=1e9, "a price from 0")
}

fn print(output: &Path, it: &Summary, elapsed: Duration) -> Result<()> {
    let Summary { attempts, correct, leaked, wrong, unparsable, truncated, too_long, .. } = it;
    let Summary { failed, requests, retries, prompt_tokens, completion_tokens, .. } = it;
    let prompts = counted(it.prompts, "prompt", "prompts");
    outln!("{}: traces for {} of {prompts}", output.display(), it.admitted);
    outln!(
        "attempts  {attempts}: {correct} correct ({leaked} leaked), {wrong} wrong, {unparsable} unparsable, {truncated} cut off, {too_long} too long, {failed} failed"
    );
    outln!("requests  {requests}, {retries} of them retries; {:.1} s", elapsed.as_secs_f64());
    outln!("tokens    {prompt_tokens} in, {completion_tokens} out");
    if let Some(cost) = it.cost {
        let unknown = match it.uncounted {
            0 => String::new(),
            n => format!(", without {n} attempts that the server did not count"),
        };
        outln!("cost      {cost:.4}{unknown}");
    }
    if it.failed > 0 {
        errln!("hint: --retry-failed makes the {} failed attempts again", it.failed);
    }
    Ok(())
}
