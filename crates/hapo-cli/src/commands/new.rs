//! `hapo new`: a recipe for a model and a file of problems.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_data::{CHAT, FileSummary, Lengths, TemplateChoice, TokenCount, summarise};
use hapo_kernels::Compute;
use hapo_model::{Config, Tokenizer};
use hapo_train::plan::{DeviceSpec, Estimate, Workload, estimate};
use hapo_train::{Overrides, Recipe};

use crate::failure::bad_input;
use crate::support::{hub, machine};

/// Write a commented recipe: lengths from the data, memory from the plan, the model's own template.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo new --model Qwen/Qwen2.5-0.5B-Instruct --data train.jsonl -o my.toml && hapo train my.toml"
)]
pub(crate) struct Args {
    /// Hugging Face folder, org/name@revision of the hub, or builtin:base
    #[arg(long)]
    model: String,
    /// File or folder of problems in any layout of `hapo list layouts`, or <hf://datasets>/…
    #[arg(long)]
    data: PathBuf,
    /// Method, of `hapo list methods` [default: trapo with the gate where the data have solutions, else grpo]
    #[arg(long)]
    method: Option<String>,
    /// Train a low-rank adapter beside frozen weights
    #[arg(long)]
    lora: bool,
    /// File to write
    #[arg(short, long, default_value = "recipe.toml")]
    output: PathBuf,
    /// Replace the file where it exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    if args.output.exists() && !args.force {
        return Err(bad_input(
            format!("{} exists", args.output.display()),
            "name another with -o, or replace it with --force",
        ));
    }
    let found = Found::look(args)?;
    let draft = found.draft(args);
    let device = machine::device_spec(threads, Compute::F32, &found.config)?;
    let (text, planned) = found.settle(&draft, &device)?;
    hapo_run::write_atomically(&args.output, text.as_bytes())?;
    let summary = &found.summary;
    errln!(
        "{}: {} problems, {} with a solution; {}",
        args.data.display(),
        summary.distinct_prompts,
        summary.with_teacher,
        said(&planned)
    );
    let file = args.output.display();
    for (name, rows) in &summary.unread_solutions {
        errln!(
            "warning: `{name}` looks like solutions ({rows} rows) and is not read; data.columns = {{ problem = \"…\", answer = \"…\", teacher = [\"{name}\"] }} reads it"
        );
    }
    if planned.step_seconds() > SLOW {
        errln!(
            "for a first look in minutes: hapo train {file} --set steps=3 --set sampling.prompts_per_step=2 --set sampling.group_size=4 --set optim.mini_batch_prompts=1 --set sampling.max_new_tokens=256"
        );
    }
    outln!("{file} is written; next:\n  hapo plan {file}\n  hapo train {file}");
    Ok(())
}

/// Seconds of a step above which a smaller one is named too.
const SLOW: f64 = 60.0;

/// What there is: a model and data.
struct Found {
    config: Config,
    /// Whether the model has a chat template.
    has_chat: bool,
    summary: FileSummary,
}

/// A recipe but for what the plan decides.
struct Draft {
    text: String,
}

/// What the user's turn ends in under a model's own template.
const SUFFIX: &str = r"\nPlease reason step by step, and put your final answer within \\boxed{}.";

impl Found {
    fn look(args: &Args) -> Result<Self> {
        let folder = hub::model_folder(&args.model)?;
        let aside;
        let folder = if folder == hapo_train::BUILTIN_BASE {
            aside = hapo_train::base_folder()?;
            aside.path()
        } else {
            Path::new(&folder)
        };
        let config = hapo_model::folder::read_config(folder)?.config;
        let tokenizer = Tokenizer::open(folder)?;
        let files = hapo_model::folder::read_tokenizer_files(folder)?;
        let own = hapo_model::chat_files(&files, folder)?.template;
        let suffix = SUFFIX.replace("\\n", "\n").replace("\\\\", "\\");
        let choice = match own {
            Some(_) => TemplateChoice { suffix: Some(&suffix), ..TemplateChoice::named(CHAT) },
            None => TemplateChoice::named(BASE_TEMPLATE),
        };
        let template = hapo_sampler::choose_template(choice, &args.model, &files)?;
        let tokens = |text: &str| -> Result<usize> { Ok(tokenizer.encode(text)?.len()) };
        let count = TokenCount { tokens: &tokens, template: &template };
        let file = hub::data_file(&args.data)?;
        let summary = summarise(&file, None, Some(&count))?;
        if summary.rows == summary.bad_rows {
            let first = summary.first_bad_row.unwrap_or_else(|| "it has no rows".to_owned());
            return Err(bad_input(
                format!("{}: {first}", args.data.display()),
                "`hapo data check` names the bad rows",
            ));
        }
        Ok(Self { config, has_chat: own.is_some(), summary })
    }
}

/// For base models without a template of their own.
const BASE_TEMPLATE: &str = "qwen-boxed";

/// The least multiple of `step` that is not below.
fn rounded(tokens: u32, step: usize) -> usize {
    (tokens as usize).next_multiple_of(step).max(step)
}

fn longest(it: Option<Lengths>) -> u32 {
    it.map_or(0, |it| it.max)
}

impl Found {
    fn draft(&self, args: &Args) -> Draft {
        let summary = &self.summary;
        let has_teachers = summary.with_teacher > 0;
        let method = args.method.as_deref();
        let method = method.unwrap_or(if has_teachers { "trapo" } else { "grpo" });
        let prompt = rounded(longest(summary.tokens_of_prompts), 64);
        let teachers = summary.tokens_of_teachers;
        // Room to think beyond what a teacher needs, and no more than the model can read.
        let wanted = teachers.map_or(1024, |it| rounded(it.p95, 128).max(512));
        let room = self.config.max_positions.saturating_sub(prompt).max(128);
        let response = wanted.min(room).min(4096);
        let distinct = summary.distinct_prompts as usize;
        let per_step = [16, 8, 4, 2, 1].into_iter().find(|it| *it <= distinct).unwrap_or(1);
        let steps_per_epoch = (distinct / per_step).max(1);
        let steps = steps_per_epoch.clamp(20, 200);
        let mut text = String::new();
        let mut line =
            |it: String| writeln!(text, "{it}").expect("writing to a string never fails");
        line(format!("method = {:<22}# one of `hapo list methods`", quoted(method)));
        line(format!(
            "steps = {steps:<23}# an epoch is {steps_per_epoch}; every key: `hapo recipe`\n"
        ));
        line(format!("[model]\npath = {}", quoted(&args.model)));
        if args.lora {
            line(String::new());
        } else {
            line("dtype = \"bf16\"                 # number format of checkpoints\n".to_owned());
        }
        line(format!("[data]\ntrain = {}", quoted(&args.data.display().to_string())));
        if self.has_chat {
            line("template = \"chat\"              # the model's own".to_owned());
            line(format!("template_suffix = \"{SUFFIX}\""));
        } else {
            line(format!(
                "template = {:<20}# the model has none of its own",
                quoted(BASE_TEMPLATE)
            ));
        }
        let longest = longest(summary.tokens_of_prompts);
        line(format!("max_prompt_tokens = {prompt:<11}# the longest of the data has {longest}\n"));
        line("[sampling]\ngroup_size = 8                 # completions of a prompt".to_owned());
        line(format!("prompts_per_step = {per_step}"));
        line(match teachers {
            Some(it) => format!(
                "max_new_tokens = {response:<14}# 95 % of the solutions have at most {} tokens\n",
                it.p95
            ),
            None => format!("max_new_tokens = {response}\n"),
        });
        if args.lora {
            let lora = "[lora]                         # the weights stay as they are\nrank = 16\nalpha = 32                     # the adapter counts alpha / rank\n";
            line(lora.to_owned());
            line(
                "[optim]\nlr = 1e-5                      # ten times that of all weights"
                    .to_owned(),
            );
        } else {
            line("[optim]\nlr = 1e-6".to_owned());
        }
        line(format!(
            "mini_batch_prompts = {:<10}# two updates from a batch of rollouts",
            per_step.div_ceil(2)
        ));
        line("@PLAN@".to_owned());
        if has_teachers && args.method.is_none() {
            let epochs = steps as f64 / steps_per_epoch as f64;
            let off = (epochs * 0.75 * 100.0).round().max(1.0) / 100.0;
            line(format!(
                "[hapo]                         # the teacher helps groups that fail, and only at first\nturn_off_epoch = {off:<14}# three quarters of this run; leave the section out for the bare method\n"
            ));
        }
        line("[checkpoint]\nevery = 20".to_owned());
        Draft { text }
    }

    /// The recipe and its plan: activations are computed again where the machine has no room for them.
    fn settle(&self, draft: &Draft, device: &DeviceSpec) -> Result<(String, Estimate)> {
        let mut last = None;
        let layers = "activation_checkpointing = \"layers\"   # less memory, a third more time\n";
        for optim in ["", layers] {
            let body = draft.text.replace("@PLAN@", optim);
            let recipe = Recipe::parse(&body, "new recipe", &Overrides::default())?;
            let lengths = hapo_train::plan::Lengths {
                prompt: self.summary.tokens_of_prompts.map_or(64.0, |it| it.mean),
                response: recipe.sampling().max_new_tokens as f64 / 2.0,
            };
            let planned = estimate(Workload::new(&recipe, &self.config, device), lengths);
            let imitates = !recipe.method().samples();
            if imitates && self.summary.with_teacher == 0 {
                return Err(bad_input(
                    "this method imitates solutions, and the data have none",
                    "choose another --method, or name the columns of the solutions with data.columns",
                ));
            }
            let text = format!("# Planned on this machine: {}.\n{body}", said(&planned));
            // Other programs want some of the memory too.
            let fits = planned.total_bytes <= device.memory_bytes / 10 * 7;
            last = Some((text, planned));
            if fits {
                break;
            }
        }
        Ok(last.expect("there are choices"))
    }
}

fn said(planned: &Estimate) -> String {
    let more = if planned.fits { "" } else { ", which is more than there is" };
    format!(
        "{:.1} GB of memory{more}; a step takes about {:.0} s",
        planned.total_bytes as f64 / 1e9,
        planned.step_seconds().max(1.0)
    )
}

/// A text in TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
