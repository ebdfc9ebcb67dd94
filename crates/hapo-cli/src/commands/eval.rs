//! `hapo eval`: a model on held-out problems, and models next to each other.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_core::{Truncated, found_at};
use hapo_data::task::Split;
use hapo_eval::{
    Client, Completions, Estimate, Judge, Layout, LocalModel, LocalSampling, Other, Plan,
    ProblemSets, Progress, PromptForm, Recorded, RetryPolicy, Sampling, Score, SetChoice, compare,
    counterpart, unsuited,
};
use hapo_train::ChosenTemplate;
use hapo_verify::Grader;

use crate::support::arguments::{
    ColumnsArg, GraderArgs, KvArgs, SamplingArgs, ServerArgs, count, one_of, wait_for,
};
use crate::support::device::{DeviceArg, tell_start};
use crate::support::{hub, model};
use crate::{failure::bad_input, progress::CountProgress, support::admission::engine_format};

/// Evaluate a model on the built-in task's held-out sets, on the paper's benchmarks or on a file of problems; or print
/// several evaluations side by side.
#[derive(clap::Args)]
#[command(
    mut_arg("temperature", |arg| arg.default_value("0.6")),
    mut_arg("max_new_tokens", |arg| arg.help("Longest completion in tokens [default: the suite's own, else 96]")),
    mut_arg("seed", |arg| arg.help("Seed of the draws and of the intervals")),
    before_help = "Examples: hapo eval --model builtin:base --suite mini6 --k 4\n          hapo eval --model ./run/best --suite math6 --data benchmarks/ --template qwen-boxed --out best.jsonl\n          hapo eval --compare GRPO=grpo.jsonl TRAPO=trapo.jsonl TRAPO-HAPO=hapo.jsonl"
)]
pub(crate) struct Args {
    /// Hugging Face folder, GGUF file, org/name@revision, builtin:base, or the name at the --endpoint
    #[arg(long, required_unless_present = "compare")]
    model: Option<String>,
    #[command(flatten)]
    adapter: model::AdapterArg,
    /// Base address of an OpenAI-compatible server to ask instead of a local model
    #[arg(help_heading = "Server", long, value_name = "URL", conflicts_with_all = ["device", "compute"])]
    endpoint: Option<String>,
    #[command(flatten)]
    device: DeviceArg,
    /// Comma-separated: mini6, math6, names of `hapo list benchmarks`, family:level of the built-in task
    /// [default: mini6; math6 where --data is a folder]
    #[arg(help_heading = "Problems", long)]
    suite: Option<String>,
    /// A file of problems, or the folder of a suite's benchmark files
    #[arg(help_heading = "Problems", long)]
    data: Option<PathBuf>,
    /// Problems of each benchmark, the first of a file's [default: 200 of the built-in task, all of a file]
    #[arg(help_heading = "Problems", long, value_name = "N", value_parser = count(u64::MAX))]
    problems: Option<usize>,
    /// Split of the built-in task for family:level; choose settings on `development`
    #[arg(help_heading = "Problems", long, default_value = "held-out", value_parser = one_of(SPLITS))]
    split: Split,
    /// Completions of each problem [default: the benchmark's own, else 2]
    #[arg(help_heading = "Sampling", long, value_parser = count(65_536))]
    k: Option<usize>,
    #[command(flatten, next_help_heading = "Sampling")]
    sampling: SamplingArgs,
    /// Sequences decoded at once by a local model; scores do not depend on it
    #[arg(
        help_heading = "Sampling",
        long,
        value_name = "N",
        default_value_t = 256,
        value_parser = count(u64::MAX),
        conflicts_with = "endpoint"
    )]
    max_sequences: usize,
    #[command(flatten, next_help_heading = "Sampling")]
    kv: KvArgs,
    #[command(flatten, next_help_heading = "Sampling")]
    template: model::TemplateArgs,
    #[command(flatten, next_help_heading = "Server")]
    server: ServerArgs,
    /// Text after a problem that is sent to a server
    #[arg(
        help_heading = "Server",
        long,
        default_value = "Please reason step by step, and put your final answer within \\boxed{}."
    )]
    instruction: String,
    #[command(flatten, next_help_heading = "Problems")]
    columns: ColumnsArg,
    #[command(flatten, next_help_heading = "Grading")]
    grader: GraderArgs,
    /// Grade completions cut off at --max-tokens as wrong, or like any other
    #[arg(help_heading = "Grading", long, default_value = "wrong", value_parser = one_of(TRUNCATED))]
    truncated: Truncated,
    /// Record every completion in this file; the same command resumes where it ends
    #[arg(long, value_name = "FILE.jsonl")]
    out: Option<PathBuf>,
    /// Print files of --out side by side, as FILE or NAME=FILE
    #[arg(long, num_args = 1.., value_name = "NAME=FILE", conflicts_with_all = ["model", "endpoint", "suite", "data", "out"])]
    compare: Vec<String>,
    /// Layout of --compare
    #[arg(long, default_value = "text", value_parser = one_of(LAYOUTS), requires = "compare")]
    layout: Layout,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

const SPLITS: &[(&str, Split)] =
    &[("development", Split::Development), ("held-out", Split::HeldOut)];
const TRUNCATED: &[(&str, Truncated)] = &[("wrong", Truncated::Wrong), ("grade", Truncated::Grade)];
const LAYOUTS: &[(&str, Layout)] = &[
    ("text", Layout::Text),
    ("markdown", Layout::Markdown),
    ("json", Layout::Json),
    ("latex", Layout::Latex),
];

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    if !args.compare.is_empty() {
        let layout = if args.json { Layout::Json } else { args.layout };
        return print_comparison(&args.compare, layout, args.sampling.seed);
    }
    let (mut plan, template) = args.plan()?;
    // A part of a benchmark has another text.
    let whole = args.problems.is_none();
    for warning in plan.text_warnings().into_iter().filter(|_| whole) {
        errln!("warning: {warning}");
    }
    let completions = plan.sets.iter().map(|it| it.dataset.examples.len() * it.completions);
    let progress = (!args.quiet).then(|| {
        let rule = plan.grader.extraction().name();
        errln!("grader `{}`, extraction `{rule}`", plan.grader.name());
        CountProgress::new("eval", completions.sum::<usize>() as u64, "completions")
    });
    let observer = |at: Progress| {
        let share = at.correct as f64 / at.completions as f64;
        if let Some(progress) = &progress {
            progress.at(at.completions as u64, &format!("{:.1} % correct", 100.0 * share));
        }
    };
    let scores = match (&args.endpoint, &template) {
        (Some(endpoint), _) => {
            let policy = RetryPolicy { seed: args.sampling.seed, ..RetryPolicy::default() };
            let client = args.server.client(endpoint, policy)?;
            check_served(&client, &plan.sampling.model)?;
            let session = Completions::of_evaluation(&plan, args.out.as_deref())?;
            let mut session = session.observed(&observer);
            let requests = session.request(&client, std::future::pending());
            wait_for(requests, client.retry_policy().concurrency)??;
            session.scores()
        }
        (None, Some(template)) => {
            on_device!(args.device, plan.local.compute, threads, |device| sample(
                args, &mut plan, template, &observer, device
            ))?
        }
        (None, None) => unreachable!("a local model has its template"),
    };
    if let Some(progress) = &progress {
        progress.finish();
    }
    if args.json {
        outln!("{}", serde_json::to_string(&scores)?);
        return Ok(());
    }
    print_scores(&scores, plan.grader.name(), plan.grader.counterpart())?;
    match &args.out {
        None => errln!("to keep and read the answers: add --out FILE.jsonl"),
        Some(it) => errln!(
            "every answer is in {0}; to compare models: hapo eval --compare {0} OTHER.jsonl",
            it.display()
        ),
    }
    Ok(())
}

const PROBLEMS: usize = 200;

impl Args {
    /// The evaluation, and the template of a local model.
    fn plan(&self) -> Result<(Plan, Option<ChosenTemplate>)> {
        // A file is judged as in the run that trained the model, a benchmark alike for all models.
        let found = self.data.as_deref().map(found_at).transpose()?.flatten();
        let folder = self.data.as_deref().filter(|_| found.is_some_and(|found| found.is_dir()));
        let is_file = self.data.is_some() && folder.is_none();
        let model::Named { model, adapter } = self.named();
        let rule = if is_file && self.suite.is_none() && self.endpoint.is_none() {
            self.grader.or_trained([adapter, Some(Path::new(model))])?
        } else {
            self.grader.clone()
        };
        let grader = rule.open()?;
        let ProblemSets { sets, max_tokens } = self.sets(&grader, rule.is_own(), folder)?;
        // After what can be refused without the model.
        let template = match &self.endpoint {
            Some(_) => None,
            None => Some(model::template(self.template.request(), self.named())?),
        };
        let instruction = || PromptForm::Instruction(self.instruction.clone());
        let name = template.as_ref().map(|it| it.name.clone());
        let prompt = name.map_or_else(instruction, PromptForm::Template);
        let sampling = Sampling {
            model: self.named().to_string(),
            endpoint: self.endpoint.clone(),
            prompt,
            system: None,
            temperature: f64::from(self.sampling.temperature),
            top_p: f64::from(self.sampling.top_p),
            max_tokens: Some(max_tokens),
            seed: self.sampling.seed,
            extra: self.server.fields()?,
        };
        let local = LocalSampling {
            max_sequences: self.max_sequences,
            ..self.kv.local(self.device.compute.or_f32())
        };
        let (completions, truncated, other) = (self.k, self.truncated, counterpart(&grader));
        let plan = Plan { sets, sampling, local, completions, grader, other, truncated };
        Ok((plan, template))
    }

    fn sets(
        &self,
        grader: &dyn Grader,
        keeps_fields: bool,
        folder: Option<&Path>,
    ) -> Result<ProblemSets> {
        if let (Some(file), None) = (&self.data, folder) {
            let name = file.display().to_string();
            if self.suite.is_some() {
                let problem = format!("--suite needs a folder in --data, got the file {name}");
                return Err(bad_input(problem, "leave out --suite to evaluate on the file"));
            }
            let dataset = self.columns.load(&hub::data_file(file)?, keeps_fields)?;
            check(&dataset, file, grader)?;
            let max_tokens = self.sampling.max_new_tokens;
            return Ok(ProblemSets::of_file(name, dataset, self.problems, self.k, max_tokens));
        }
        let names = match (&self.suite, folder) {
            (Some(it), _) => it.as_str(),
            (None, Some(_)) => "math6",
            (None, None) => "mini6",
        };
        Ok(ProblemSets::choose(SetChoice {
            names,
            folder,
            problems: self.problems.unwrap_or(PROBLEMS),
            first: self.problems,
            split: self.split,
            completions: self.k,
            max_tokens: self.sampling.max_new_tokens,
        })?)
    }

    fn named(&self) -> model::Named<'_> {
        self.adapter.of(self.model.as_deref().unwrap_or_default())
    }
}

/// Refuses a server that says that its model is in a folder whose files do not name the end of an answer, as they are
/// found here: every answer would run on to the limit.
fn check_served(client: &Client, model: &str) -> Result<()> {
    // On EIO the folder is taken for another machine's, which nobody can look into.
    let folder = client.served_folder(model).filter(|it| Path::new(it).is_dir());
    // Else a name of the hub, another machine's folder, or a family that is not read here.
    let format = folder.and_then(|it| engine_format(&it, "chat").ok());
    Ok(format.map_or(Ok(()), |(_, end)| end)?)
}

/// Scores a local model. It is opened before its record, which is of its weights and not of their path.
fn sample<D: hapo_kernels::Device>(
    args: &Args,
    plan: &mut Plan,
    template: &ChosenTemplate,
    observer: &dyn Fn(Progress),
    device: D,
) -> Result<Vec<Score>> {
    let named = args.named();
    let model::Opened { mut model, chat_format, fingerprints, seconds } =
        model::open(named, template.choice(), plan.max_tokens(), device)?;
    tell_start(args.device.verbose, &seconds);
    plan.local.fingerprints = Some(fingerprints);
    let mut session = Completions::of_evaluation(plan, args.out.as_deref())?.observed(observer);
    model.round_keys_and_values_to(plan.local.kv_dtype);
    model::warn_of_another_template(named, &chat_format)?;
    let local = LocalModel { model: &model, chat_format: &chat_format };
    let longest = local.longest_prompt(plan)?;
    if let Some(it) = model.config().beyond_positions(longest + plan.max_tokens()) {
        errln!("warning: {it}");
    }
    session.sample(local)?;
    Ok(session.scores())
}

/// Refuses a row that cannot be graded, and reports how often a file repeats its problems.
fn check(dataset: &hapo_data::Dataset, file: &Path, grader: &dyn Grader) -> Result<()> {
    Judge::new(dataset, grader, None, Truncated::Wrong).map_err(|it| it.at(file.display()))?;
    let golds = dataset.examples.iter().map(|it| it.answer.as_str());
    if let Some(it) = unsuited(grader.name(), golds) {
        errln!("warning: {it}");
    }
    if let Some(k @ 2..) = dataset.examples.iter().map(|it| it.copies + 1).max() {
        let file = file.display();
        errln!("{file}: it repeats problems up to {k} times; --k completions are sampled for each");
    }
    Ok(())
}

fn print_scores(scores: &[Score], grader: &str, other: Option<&str>) -> Result<()> {
    outln!(
        "benchmark      problems   k           avg@k [95 %]  pass@k   maj@k truncated no answer  length"
    );
    for it in scores {
        let Score { benchmark, problems, k, truncated, no_answer, .. } = it;
        let Estimate { mean, low, high } = it.average;
        let average = format!("{mean:.3} [{low:.3}, {high:.3}]");
        let (pass, majority) = (it.pass_at.last().map_or(0.0, |it| it.1), it.majority.mean);
        let length = it.length.map_or("-".to_owned(), |it| format!("{it:.1}"));
        outln!(
            "{benchmark:<14} {problems:>8} {k:>3} {average:>22} {pass:>7.3} {majority:>7.3} {truncated:>9.3} {no_answer:>9.3} {length:>7}"
        );
    }
    for (it, reward) in scores.iter().filter_map(|it| Some((it, it.reward?))) {
        let Estimate { mean, low, high } = reward;
        outln!("{}: mean reward {mean:.3} [{low:.3}, {high:.3}]", it.benchmark);
    }
    let Some(other) = other else { return Ok(()) };
    for it in scores {
        if let Some(Other { average, only_first, only_other }) = &it.other
            && only_first + only_other > 0
        {
            let (name, mean) = (&it.benchmark, it.average.mean);
            outln!(
                "{name}: {grader} {mean:.3}, {other} {average:.3}; only {grader} says correct to {only_first} completions, only {other} to {only_other}"
            );
        }
    }
    Ok(())
}

/// The table of several records, given as `FILE` or `NAME=FILE`.
fn print_comparison(files: &[String], layout: Layout, seed: u64) -> Result<()> {
    let mut runs = Vec::new();
    for it in files {
        let path = Path::new(it);
        let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        let named = it.split_once('=').map(|(name, path)| (name.to_owned(), Path::new(path)));
        let (name, path) = named.unwrap_or_else(|| (stem.into_owned(), path));
        if runs.iter().any(|it: &(String, Recorded)| it.0 == name) {
            let problem = format!("--compare: two evaluations are named {name}");
            return Err(bad_input(problem, "name them: --compare A=one.jsonl B=two.jsonl"));
        }
        runs.push((name, Recorded::read(path)?));
    }
    for warning in hapo_eval::warnings(&runs) {
        errln!("warning: {warning}");
    }
    let table = compare(&runs, seed).render(layout);
    std::io::stdout().lock().write_all(table.as_bytes())?;
    Ok(())
}
