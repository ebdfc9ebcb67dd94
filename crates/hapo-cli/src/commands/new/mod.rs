//! `hapo new`: a recipe for a model and a file of problems, from what the graders say of its solutions and from what the
//! model writes on eight of them.

mod draft;
mod rates;
mod rule;

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_core::{
    Annealing, Decimal, Gate, Method, MethodSettings, Schedule, Threshold, counted, found_at,
};
use hapo_data::{CHAT, FileSummary, Lengths, Reading, TemplateChoice, TokenCount, summarise};
use hapo_model::{Config, Tokenizer};
use hapo_train::plan::{DeviceSpec, Estimate};
use hapo_train::recipe::AUTO;
use hapo_train::{Overrides, Preflight, Run, RunPlan};
use hapo_verify::Extraction;

use self::draft::{pace, step_seconds};
use self::rates::{Rate, rate};
use self::rule::Rule;
use crate::support::arguments::{
    ColumnsArg, GRADERS, TEMPLATES, method_names, not_an_input, number, one_of,
};
use crate::support::machine::{self, ProductRates};
use crate::{commands::train, failure::bad_input, progress::CountProgress, support::hub};

/// Write a commented recipe: the grader by the file's solutions, lengths, a learning rate, the template by eight prompts.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo new --model Qwen/Qwen2.5-0.5B-Instruct --data train.jsonl -o my.toml && hapo train my.toml"
)]
pub(crate) struct Args {
    /// Hugging Face folder, GGUF file, org/name@revision of the hub, or builtin:base
    #[arg(long)]
    model: String,
    /// File or folder of problems in any layout of `hapo list layouts`, or `hf://datasets/…`
    #[arg(long)]
    data: PathBuf,
    #[command(flatten)]
    columns: ColumnsArg,
    /// File of other problems, to evaluate on before, during and after the run
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Method of `hapo list methods`, or stages: sft,grpo [default: HAPO where the data have solutions, else grpo]
    #[arg(long, value_delimiter = ',', hide_possible_values = true, value_parser = method_names())]
    method: Vec<String>,
    /// Grader, or `python:FILE.py:FUNCTION` or `command:PROGRAM` [default: one by which the solutions count]
    #[arg(long, hide_possible_values = true, value_parser = GRADERS)]
    grader: Option<String>,
    /// Where an answer is read [default: the strictest rule by which the solutions count]
    #[arg(long, value_parser = one_of(Extraction::ALL))]
    extraction: Option<Extraction>,
    /// Prompt template [default: the one under which the model answers best]
    #[arg(long, hide_possible_values = true, value_parser = TEMPLATES)]
    template: Option<String>,
    /// Text after the problem in the user's turn, with --template chat [default: asks for a box, where answers are read there]
    #[arg(long, value_name = "TEXT")]
    suffix: Option<String>,
    /// Name of the run in tables and of its folder [default: that of the recipe's file]
    #[arg(long)]
    name: Option<String>,
    /// Second model, for methods that need one: a folder or a name of the hub
    #[arg(long, value_name = "MODEL")]
    reference: Option<String>,
    /// Steps of the run, of each stage [default: an epoch, at least 20, at most what the rate is made for]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    steps: Option<u64>,
    /// Take as many steps as fit into this time, by the estimate; at least one
    #[arg(long, value_name = "HOURS", conflicts_with = "steps", value_parser = number(f64::MIN_POSITIVE..=87_600.0, "a number of hours above 0, such as 1.5"))]
    hours: Option<f64>,
    /// Train a low-rank adapter beside frozen weights
    #[arg(long)]
    lora: bool,
    /// Choose by the files alone
    #[arg(long)]
    no_sample: bool,
    /// File to write
    #[arg(short, long, default_value = "recipe.toml")]
    output: PathBuf,
    /// Replace the file where it exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let mut inputs = vec![args.data.as_path(), Path::new(&args.model)];
    inputs.extend(args.test.as_deref());
    not_an_input(&args.output, &inputs, "toml")?;
    if found_at(&args.output)?.is_some() && !args.force {
        let problem = format!("{} exists", args.output.display());
        return Err(bad_input(problem, "name another with -o, or replace it with --force"));
    }
    let found = Found::look(args, threads)?;
    errln!("{}", found.rule.said);
    let mut chosen = found.choose()?;
    if let Some(hours) = args.hours {
        let (_, planned) = found.settle(&chosen)?;
        chosen.fit_into(3600.0 * hours / found.methods.len() as f64, &planned);
    }
    let (text, planned) = found.settle(&chosen)?;
    hapo_run::write_atomically(&args.output, text.as_bytes())?;
    found.tell(&chosen, &planned);
    let file = args.output.display();
    let length = args.hours.map(|_| format!(": {}", found.length(&planned, &chosen)));
    let length = length.unwrap_or_default();
    outln!("{file} is written{length}; next:\n  hapo plan {file}\n  hapo train {file}");
    Ok(())
}

/// Most seconds that sampling may take.
const LOOK: f64 = 120.0;
const PROMPTS: usize = 8;

struct Found<'a> {
    args: &'a Args,
    threads: usize,
    config: Config,
    /// This machine, and its products where the CPU has those of bf16 numbers.
    device: DeviceSpec,
    rates: Option<ProductRates>,
    /// The stages, with each method's own defaults.
    methods: Vec<Method>,
    rule: Rule,
    rate: &'static Rate,
    /// Tokens of the longest gold answer.
    longest_answer: u32,
    /// `data.columns`, where they were named.
    columns: Option<String>,
    /// The data under each template that the model may know, the likelier first.
    templates: Vec<Template>,
}

#[derive(Clone)]
struct Template {
    name: String,
    /// The text at the end of the user's turn.
    suffix: Option<String>,
    why: &'static str,
    summary: FileSummary,
    /// Tokens of the longest prompt of the file of --test.
    longest_test: u32,
    test_problems: u64,
    /// Prompts with a character that the tokenizer does not know.
    unknown: usize,
}

struct Chosen {
    template: Template,
    /// Longest prompt, with what the method shows in it.
    prompt: usize,
    response: usize,
    /// Steps of an epoch, by the prompts that a run keeps.
    steps_per_epoch: u64,
    steps: u64,
    per_step: usize,
    seen: Option<Preflight>,
    warnings: Vec<String>,
}

/// The text at the end of the user's turn under a model's own template.
const SUFFIX: &str = "\nPlease reason step by step, and put your final answer within \\boxed{}.";
/// For base models without a template of their own.
const BASE_TEMPLATE: &str = "qwen-boxed";

impl<'a> Found<'a> {
    fn look(args: &'a Args, threads: usize) -> Result<Self> {
        let rates = ProductRates::measure(threads)?;
        let folder = hub::model_folder(&args.model)?;
        let aside =
            (folder == hapo_train::BUILTIN_BASE).then(hapo_train::base_folder).transpose()?;
        let path = aside.as_ref().map_or(Path::new(&folder), |it| it.path());
        // The header of every weight file is read, so that a folder without weights is refused here.
        let config = hapo_model::folder::open(path)?.config;
        let files = hapo_model::folder::read_tokenizer_files(path)?;
        let tokenizer = Tokenizer::of_files(path, &files)?;
        let auto = hapo_train::template_of(TemplateChoice::named(AUTO), &folder)?;
        let (file, reading) = (hub::data_file(&args.data)?, args.columns.reading()?);
        let test = args.test.as_deref().map(hub::data_file).transpose()?;
        let unknown = ["<unk>", "[UNK]"].iter().find_map(|it| tokenizer.id(it));
        refuse_bad_rows(args, &summarise::<anyhow::Error>(&file, &reading, None)?)?;
        let keeps_fields = args.grader.as_deref().is_some_and(hapo_net::reward::is_own);
        let dataset = args.columns.load(&file, keeps_fields)?;
        let rule = Rule::find(args, &dataset)?;
        let lengths =
            dataset.examples.iter().map(|it| Ok(tokenizer.encode(&it.answer)?.len() as u32));
        let longest_answer = lengths.collect::<Result<Vec<u32>>>()?.into_iter().max().unwrap_or(0);
        let said = args.suffix.as_deref();
        let known = (auto.name, None, "what `auto` takes for this model");
        let own = (CHAT.to_owned(), said, "the model's own");
        let asking = (CHAT.to_owned(), Some(SUFFIX), "the model's own, which asks for a box");
        // An answer that counts without a box is asked for by the problem itself.
        let candidates = match &args.template {
            Some(name) if name != CHAT => vec![(name.clone(), said, "as asked for")],
            _ if said.is_some() => vec![own],
            None if hapo_model::chat_files(&files, path)?.template.is_none() => {
                let base = (BASE_TEMPLATE.to_owned(), None, "the model has none of its own");
                std::iter::once(known).chain(rule.seeks_boxes().then_some(base)).collect()
            }
            _ if rule.seeks_boxes() => vec![asking, own],
            _ => vec![own],
        };
        let mut templates = Vec::new();
        for (name, suffix, why) in candidates {
            let choice = TemplateChoice { suffix, ..TemplateChoice::named(&name) };
            let template = hapo_sampler::choose_template(choice, &args.model, &files)?;
            let count = std::cell::Cell::new(0);
            let tokens = |text: &str| -> Result<usize> {
                // A solution does not begin a sequence: it is counted a token too long where prompts have one in front.
                let tokens = tokenizer.encode_prompt(text)?;
                let has_unknown = unknown.is_some_and(|id| tokens.contains(&id));
                count.set(count.get() + usize::from(has_unknown));
                Ok(tokens.len())
            };
            let counts = TokenCount { tokens: &tokens, template: &template };
            let summary = summarise(&file, &reading, Some(&counts))?;
            let unknown = count.get();
            // An evaluation reads its file by its layout, whatever the columns of the data.
            let by_layout = Reading::default();
            let test = test.as_deref().map(|it| summarise(it, &by_layout, Some(&counts)));
            let test = test.transpose()?;
            let test_problems = test.as_ref().map_or(0, |it| it.distinct_prompts);
            let longest_test = longest(test.and_then(|it| it.tokens_of_prompts));
            templates.push(Template {
                name,
                suffix: suffix.map(str::to_owned),
                why,
                summary,
                longest_test,
                test_problems,
                unknown,
            });
        }
        templates.sort_by_key(|it| it.unknown);
        let least = templates[0].unknown;
        templates.retain(|it| it.unknown == least);
        let summary = &templates[0].summary;
        let asked = match (args.method.as_slice(), summary.with_teacher) {
            ([], 0) => &["grpo".to_owned()][..],
            ([], _) => &["trapo".to_owned()],
            (named, _) => named,
        };
        let build = |name: &String| {
            let entry = hapo_core::method(name).expect("the command line takes known methods");
            Ok(entry.build(&MethodSettings::default())?)
        };
        let methods: Vec<Method> = asked.iter().map(build).collect::<Result<_>>()?;
        methods.iter().try_for_each(|it| refuse_missing(args, it, summary, &rule))?;
        if methods.iter().any(|it| it.needs().grades) {
            rule.check(&dataset.examples, &file)?;
            test.as_deref().map_or(Ok(()), |it| rule.check_test(it))?;
        }
        let (rate, columns) = (rate(&config, args.lora), args.columns.written()?);
        let compute = rates.map_or(hapo_kernels::Compute::F32, ProductRates::faster);
        let device = machine::device_spec(threads, compute, &config)?;
        Ok(Self {
            args,
            threads,
            config,
            device,
            rates,
            methods,
            rule,
            rate,
            longest_answer,
            columns,
            templates,
        })
    }

    /// The stage that is sampled and planned: the last.
    fn method(&self) -> &Method {
        self.methods.last().expect("there is a method")
    }

    /// Samples with each template and takes the best; without sampling, the likelier.
    fn choose(&self) -> Result<Chosen> {
        let mut best: Option<Chosen> = None;
        for template in &self.templates {
            let chosen = self.seen(self.chosen(template)?)?;
            if best.as_ref().is_none_or(|best| chosen.score() > best.score()) {
                best = Some(chosen);
            }
        }
        Ok(best.expect("there is a template"))
    }

    /// The settings that follow from the data under a template.
    fn chosen(&self, template: &Template) -> Result<Chosen> {
        let summary = &template.summary;
        // Room to think beyond what a solution needs, but where it is the answer alone.
        let wanted = match (summary.tokens_of_teachers, self.rule.kind) {
            (Some(it), _) if self.is_short(it) => rounded(it.max + it.max / 4, 16),
            (Some(it), _) => rounded(2 * it.p95, 64).max(rounded(it.max, 16)),
            (None, Some(_)) => rounded(self.longest_answer * 5 / 4 + 16, 16),
            (None, None) => 512,
        };
        let prompt = self.prompt_tokens(template, wanted);
        let room = self.config.max_positions.saturating_sub(prompt).min(4096);
        if room < 8 {
            let most = self.config.max_positions;
            return Err(bad_input(
                format!("the model holds {most} tokens, and the longest prompt takes {prompt}"),
                "leave out long problems, or take a model of more positions",
            ));
        }
        let distinct = summary.distinct_prompts as usize;
        let per_step = [8, 4, 2, 1].into_iter().find(|it| *it <= distinct).unwrap_or(1);
        let steps_per_epoch = (distinct / per_step).max(1) as u64;
        Ok(Chosen {
            template: template.clone(),
            prompt,
            response: wanted.min(room),
            steps_per_epoch,
            steps: self.args.steps.unwrap_or_else(|| steps_per_epoch.clamp(20, self.rate.steps)),
            per_step,
            seen: None,
            warnings: Vec::new(),
        })
    }

    /// True for solutions that are the answer and little else.
    fn is_short(&self, solutions: Lengths) -> bool {
        solutions.p95 <= 48 && self.rule.is_exact()
    }

    /// Reads model and data as `hapo train` would, and samples where that takes seconds.
    fn seen(&self, mut chosen: Chosen) -> Result<Chosen> {
        // Fewer completions of a prompt than in the run: this is a look.
        const FEW: usize = 4;
        let (recipe, planned) = self.planned(&chosen, self.method(), "")?;
        let seconds = planned.step_seconds() * (PROMPTS as f64 / chosen.per_step as f64).min(1.0);
        let few = format!("sampling.group_size={FEW}");
        let few = Overrides::set(self.method().samples().then_some(few));
        let recipe = recipe.with(&few)?;
        let plan = RunPlan::of(&recipe, train::sources_of(&recipe)?, None)?;
        if self.args.no_sample || !planned.fits || seconds > LOOK {
            if let Some(it) = hapo_train::schedule_of(&plan)? {
                chosen.steps_per_epoch = it.steps_per_epoch();
            }
            if !self.args.no_sample {
                chosen.warnings.push(format!(
                    "nothing was sampled, as it would take {:.0} min here: `hapo train` looks at the first prompts before its first step",
                    seconds / 60.0
                ));
            }
            return Ok(chosen);
        }
        if recipe.method().samples() {
            let length = counted(chosen.response as u64, "token", "tokens");
            let seconds = hapo_run::duration(seconds * FEW as f64 / GROUP_SIZE as f64);
            let (all, name) = (PROMPTS * FEW, &chosen.template.name);
            errln!(
                "sampling {all} answers of at most {length} with template {name}: about {seconds}"
            );
        }
        let mut run = Run::new(&plan, self.threads)?;
        let bar = CountProgress::new("looking", 100, "%");
        run.set_meter(&bar.meter());
        if let Some((steps_per_epoch, _)) = run.epoch() {
            chosen.steps_per_epoch = steps_per_epoch;
        }
        chosen.seen = run.preflight(PROMPTS)?;
        bar.finish();
        chosen.warnings = run.warnings();
        // A stage of imitation changes the model before the one that was sampled for.
        if self.methods.iter().all(Method::samples) {
            chosen.warnings.extend(chosen.seen.iter().flat_map(Preflight::warnings));
        }
        Ok(chosen)
    }

    /// The longest prompt with what the method shows in it, and some room. Hints are up to three quarters of a solution;
    /// SDPO shows a whole response. An evaluation shows neither.
    fn prompt_tokens(&self, template: &Template, response: usize) -> usize {
        /// Tokens of the words before a hint.
        const WORDS: u32 = 16;
        let (positions, summary) = (self.config.max_positions, &template.summary);
        let prompt = longest(summary.tokens_of_prompts);
        let shown = match self.method().name {
            "sdpo" => response.min(positions.saturating_sub(prompt as usize) / 2) as u32,
            _ if self.method().needs().hints => longest(summary.tokens_of_teachers) * 3 / 4 + WORDS,
            _ => 0,
        };
        let longest = (prompt + shown).max(template.longest_test);
        rounded(longest, if positions < 1024 { 16 } else { 64 })
    }
}

impl Chosen {
    /// The order of preference: correct answers, then readable ones, then whole ones.
    fn score(&self) -> [f64; 3] {
        let of = |it: &Preflight| [it.success, it.shares.read, -it.shares.truncated];
        self.seen.as_ref().map_or([0.0; 3], of)
    }

    /// Takes as many steps as end in time, evaluations included.
    fn fit_into(&mut self, seconds: f64, planned: &Estimate) {
        let evaluation = planned.evaluation.as_ref().map_or(0.0, |it| it.seconds);
        let evaluation = evaluation * pace(planned, self);
        self.steps = steps_within(seconds, step_seconds(planned, self), evaluation);
        if let Some(it) = &mut self.seen {
            it.steps = self.steps;
        }
    }

    /// The epoch at which the teacher leaves, so that it helps in three fifths of the run, with the gate that it makes.
    fn gate(&self, args: &Args) -> Option<(Decimal, Schedule)> {
        if self.template.summary.with_teacher == 0 || !args.method.is_empty() {
            return None;
        }
        let closed = (self.steps * 3 / 5 + 1).max(2);
        let epochs = closed as f64 / self.steps_per_epoch as f64;
        // A run that is short beside its epoch needs finer numbers.
        let turn_off_epoch: Decimal = format!("{epochs:.6}").parse().ok()?;
        let annealing = Annealing::Sigmoid { turn_off_epoch, steepness: "10".parse().ok()? };
        let threshold = Threshold::Derived { success_limit: 0 };
        let gate = Gate::Confidence { threshold, annealing };
        let schedule = Schedule::new(&gate, GROUP_SIZE, self.steps_per_epoch).ok()?;
        Some((turn_off_epoch, schedule))
    }
}

const GROUP_SIZE: usize = 8;

/// Steps, each of some seconds, that end within a number of seconds, with a run's five evaluations; at least one.
fn steps_within(seconds: f64, step: f64, evaluation: f64) -> u64 {
    ((seconds - 5.0 * evaluation) / step.max(1e-6)).clamp(1.0, 1e9) as u64
}

/// Refuses a file with rows that cannot be read, or without answers.
fn refuse_bad_rows(args: &Args, summary: &FileSummary) -> Result<()> {
    let file = args.data.display().to_string();
    hapo_train::check_columns(&file, &summary.named_columns)?;
    if summary.bad_rows > 0 || summary.rows == 0 {
        let first = summary.first_bad_row.as_deref().unwrap_or("it has no rows");
        let (bad, rows) = (summary.bad_rows, summary.rows);
        let at = if first.starts_with(&file) { String::new() } else { format!("{file}: ") };
        let hint = if bad == rows {
            "name the columns: --columns problem=NAME,answer=NAME,teacher=NAME"
        } else {
            "leave bad rows out: hapo data check FILE --drop-bad -o OUT"
        };
        let bad = counted(bad, "bad row", "bad rows");
        return Err(bad_input(format!("{at}{first}; {bad} of {rows}"), hint));
    }
    if let Some(refusal) = summary.unread.not_whole(&file) {
        return Err(refusal.into());
    }
    if summary.without_gold == summary.rows {
        let problem = format!("{file}: no row has an answer");
        return Err(bad_input(problem, "name its column: --columns problem=NAME,answer=NAME"));
    }
    Ok(())
}

/// Refuses a method of which the data or the command line lack a part.
fn refuse_missing(args: &Args, method: &Method, summary: &FileSummary, rule: &Rule) -> Result<()> {
    let (name, needs, data) = (method.name, method.needs(), args.data.display());
    let traces = needs.traces > 0 && method.plan.gate != Gate::Never;
    let reads_solutions = !needs.samples() || needs.prefixes || needs.hints || traces;
    if reads_solutions && summary.with_teacher == 0 {
        return Err(bad_input(
            format!("`{name}` learns from solutions, and no row of {data} has one"),
            "name their column with --columns problem=…,answer=…,teacher=NAME, or choose another --method",
        ));
    }
    if let (true, 0, Some(first)) = (reads_solutions, rule.correct, &rule.first_wrong) {
        let (tried, said) = (counted(rule.tried as u64, "solution", "solutions"), &rule.said);
        return Err(bad_input(
            format!(
                "{data}: `{name}` learns from solutions, and by no grader any of {tried} counts ({said}); the first, {first}"
            ),
            "let solutions end in the answer, judge by your own --grader python:FILE.py:FUNCTION, or leave them out with --method grpo",
        ));
    }
    if needs.reference && args.reference.is_none() {
        let hint = "name its folder with --reference";
        return Err(bad_input(format!("`{name}` needs a second model"), hint));
    }
    Ok(())
}

/// The key of the method's own table that depends on the length of the run; published values suit hundreds of steps.
fn own_key(method: &str, chosen: &Chosen) -> Option<(&'static str, u64, &'static str)> {
    let (steps, per_step) = (chosen.steps, chosen.per_step as u64);
    Some(match method {
        "scaf-grpo" => ("warmup", steps * 15 / 100, "steps without hints"),
        "uft" => ("steps", (steps * 2 / 3).max(1), "steps that show a part of the solution"),
        "prefix-rft" => ("steps", steps, "steps in which the prefixes shrink"),
        "chord-mu" => ("decay", steps, "steps in which imitation gives way"),
        "relift" => ("batch", per_step, "failed prompts of an update of imitation"),
        _ => return None,
    })
}

/// The least multiple of `step` that is not below.
fn rounded(tokens: u32, step: usize) -> usize {
    (tokens as usize).next_multiple_of(step).max(step)
}

fn longest(it: Option<Lengths>) -> u32 {
    it.map_or(0, |it| it.max)
}

#[cfg(test)]
mod tests {
    use super::steps_within;

    #[test]
    fn steps_fit_into_the_time_with_their_evaluations() {
        assert_eq!(steps_within(3600.0, 0.25, 0.0), 14_400);
        assert_eq!(steps_within(3600.0, 7200.0, 0.0), 1);
        assert_eq!(steps_within(150.0, 1.0, 10.0), 100);
        assert_eq!(steps_within(5.0, 1.0, 10.0), 1);
        assert_eq!(steps_within(1e9, 0.0, 0.0), 1_000_000_000);
    }
}
