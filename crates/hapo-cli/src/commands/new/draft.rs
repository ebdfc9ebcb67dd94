//! The text of the new recipe, its plan, and what is said of it.

use std::fmt::Display;

use anyhow::Result;
use hapo_core::{Method, counted};
use hapo_net::reward::is_own;
use hapo_run::duration;
use hapo_train::plan::{Estimate, Workload, estimate};
use hapo_train::recipe::EvalSection;
use hapo_train::{Overrides, Recipe};
use hapo_verify::Grader;
use serde_json::json;

use super::{Chosen, Found, GROUP_SIZE, longest, own_key};
use crate::commands::data::not_read;

/// Activations are computed again.
const LAYERS: &str = "activation_checkpointing = \"layers\"   # less memory, a third more time\n";

impl Found<'_> {
    /// The recipe and its plan: activations are computed again where the machine has no room for them.
    pub(super) fn settle(&self, chosen: &Chosen) -> Result<(String, Estimate)> {
        let mut last = None;
        for optim in ["", LAYERS] {
            let plan = |it: &Method| Ok(self.planned(chosen, it, optim)?.1);
            let mut stages: Vec<Estimate> = self.methods.iter().map(plan).collect::<Result<_>>()?;
            // Other programs want some of the memory too.
            let most = self.device.memory_bytes / 10 * 7;
            let fits = stages.iter().all(|it| it.total_bytes <= most);
            let planned = stages.pop().expect("there is a method");
            let body = self.draft(chosen, &self.methods, optim);
            let said = self.said(&planned, chosen);
            last = Some((format!("# Planned on this machine: {said}.\n{body}"), planned));
            if fits {
                break;
            }
        }
        Ok(last.expect("there are choices"))
    }

    pub(super) fn planned(
        &self,
        chosen: &Chosen,
        method: &Method,
        optim: &str,
    ) -> Result<(Recipe, Estimate)> {
        let text = self.draft(chosen, std::slice::from_ref(method), optim);
        let recipe = Recipe::parse(&text, "new recipe", &Overrides::default())?;
        let prompts = chosen.template.summary.tokens_of_prompts;
        let lengths = hapo_train::plan::Lengths {
            prompt: prompts.map_or(64.0, |it| it.mean),
            response: recipe.sampling.max_new_tokens as f64 / 2.0,
        };
        let workload = Workload::new(&recipe, &self.config, &self.device);
        workload.check()?;
        let planned = estimate(workload, lengths);
        Ok((recipe, planned))
    }

    fn draft(&self, chosen: &Chosen, methods: &[Method], optim: &str) -> String {
        let (mut toml, args, steps) = (Toml::default(), self.args, chosen.steps);
        toml.maybe("name", args.name.as_deref().map(|it| json!(it)));
        let mut each = "of each stage; ";
        if let [method] = methods {
            each = "";
            toml.put("method", json!(method.name), "one of `hapo list methods`");
        }
        let mut epoch = chosen.steps_per_epoch.to_string();
        let solved = chosen.template.summary.with_teacher;
        if methods.iter().any(|it| !it.samples()) && solved < chosen.template.summary.rows {
            epoch += &format!(" (sft takes the {solved} rows with a solution alone)");
        }
        toml.put("steps", steps, &format!("{each}an epoch is {epoch}; every key: `hapo recipe`"));
        if let Some(rates) = self.rates.filter(|it| it.faster() == hapo_kernels::Compute::Bf16) {
            toml.put("compute", json!("bf16"), &rates.to_string());
        }
        toml.head("model", "");
        toml.maybe("path", Some(json!(args.model)));
        if !args.lora {
            toml.put("dtype", json!("bf16"), "number format of checkpoints");
        }
        self.data(chosen, &mut toml);
        toml.head("sampling", "");
        if methods.iter().any(Method::samples) {
            toml.put("group_size", GROUP_SIZE, "completions of a prompt");
        }
        toml.maybe("prompts_per_step", Some(chosen.per_step));
        let p95 = chosen.template.summary.tokens_of_teachers.map(|it| it.p95);
        let p95 = p95.map(|it| format!("95 % of the solutions have at most {it} tokens"));
        toml.put("max_new_tokens", chosen.response, &p95.unwrap_or_default());
        if args.lora {
            toml.head("lora", "the weights stay as they are");
            toml.maybe("rank", Some(16));
            toml.put("alpha", 32, "the adapter counts alpha / rank");
            // The other matrices are parts of a larger one in such a family's folders.
            if self.config.decoder.is_fused {
                let fused = "q, k, v, gate and up are fused in this family";
                toml.put("targets", "[\"o_proj\", \"down_proj\"]", fused);
            }
        }
        if let ([method], Some((key, value, why))) = (methods, own_key(methods[0].name, chosen)) {
            toml.head(method.name, "");
            toml.put(key, value, why);
        }
        if let Some(path) = &args.reference {
            toml.head("reference", "");
            toml.maybe("path", Some(json!(path)));
        }
        toml.head("optim", "");
        let imitates = !methods.iter().any(Method::samples);
        let rate = if imitates { self.rate.imitation } else { self.rate.lr };
        toml.put("lr", rate, self.rate.evidence);
        toml.put("mini_batch_prompts", chosen.per_step.div_ceil(2), "two updates of a step");
        toml.0 += optim;
        if let Some((epoch, schedule)) = chosen.gate(args) {
            toml.head("hapo", "the teacher helps groups that fail, and only at first");
            let helps = schedule.table(0).teacher_helps(steps);
            let why = format!("{helps}; leave the section out for the bare method");
            toml.put("turn_off_epoch", epoch, &why);
        }
        if let Some(test) = &args.test {
            toml.head("eval", "");
            toml.maybe("data", Some(json!(test.display().to_string())));
            toml.maybe("every", Some((steps / 4).max(1)));
            let (all, most) = (chosen.template.test_problems, EvalSection::default().problems);
            if all > most as u64 {
                toml.put("problems", most, &format!("the first ones of {all}"));
            }
        }
        toml.head("checkpoint", "");
        toml.maybe("every", Some(20));
        if methods.len() > 1 {
            self.stages(chosen, &mut toml);
        }
        toml.0
    }

    fn data(&self, chosen: &Chosen, toml: &mut Toml) {
        let args = self.args;
        let Chosen { template, prompt, .. } = chosen;
        toml.head("data", "");
        toml.maybe("train", Some(json!(args.data.display().to_string())));
        toml.maybe("columns", self.columns.as_ref());
        let drop = &args.columns.drop;
        toml.maybe("drop", (!drop.is_empty()).then(|| json!(drop)));
        let rule = &self.rule;
        let counted = match rule.tried {
            0 => "assumed, as there is no solution to try".to_owned(),
            all => format!("{} of {all} solutions count", rule.correct),
        };
        toml.put("grader", json!(rule.grader), &counted);
        let grader = hapo_verify::grader(&rule.grader);
        let is_read = args.extraction.is_some() || grader.is_ok_and(Grader::reads_answers);
        toml.maybe("extraction", is_read.then(|| json!(rule.extraction.name())));
        toml.put("template", json!(template.name), template.why);
        toml.maybe("template_suffix", template.suffix.as_deref().map(|it| json!(it)));
        let longest = longest(template.summary.tokens_of_prompts);
        let hint = if self.method().needs().hints { ", without its hint" } else { "" };
        let test = match template.longest_test {
            0 => String::new(),
            it => format!(", of the evaluation {it}"),
        };
        let why = format!("the longest of the data has {longest}{hint}{test}");
        toml.put("max_prompt_tokens", prompt, &why);
    }

    fn stages(&self, chosen: &Chosen, toml: &mut Toml) {
        let mut before: Option<&Method> = None;
        for method in &self.methods {
            toml.head("[stage]", "");
            toml.maybe("name", Some(json!(method.name)));
            toml.maybe("method", Some(json!(method.name)));
            toml.maybe("model.path", before.map(|it| json!(format!("stage:{}", it.name))));
            let rate = match before {
                _ if !method.samples() => self.rate.imitation,
                Some(before) if !before.samples() => self.rate.after,
                _ => self.rate.lr,
            };
            toml.maybe("optim.lr", (rate != self.rate.lr).then_some(rate));
            if let Some((key, value, why)) = own_key(method.name, chosen) {
                toml.put(&format!("{}.{key}", method.name), value, why);
            }
            before = Some(method);
        }
    }

    pub(super) fn tell(&self, chosen: &Chosen, planned: &Estimate) {
        let (summary, data) = (&chosen.template.summary, self.args.data.display());
        let repeated = match summary.rows - summary.distinct_prompts {
            0 => String::new(),
            1 => " (1 row repeats another)".to_owned(),
            copies => format!(" ({copies} rows repeat another)"),
        };
        let problems = counted(summary.distinct_prompts, "problem", "problems");
        let [rows, solved] =
            [summary.rows, summary.with_teacher].map(|it| counted(it, "row", "rows"));
        let said = self.said(planned, chosen);
        errln!("{data}: {rows}, {problems}{repeated}, {solved} with a solution; {said}");
        if let Some(it) = &chosen.seen {
            errln!("template {}: {}", chosen.template.name, chosen.template.why);
            it.lines().iter().for_each(|line| errln!("{line}"));
        }
        if chosen.template.unknown > 0 {
            let several = "texts of the data hold";
            let texts = counted(chosen.template.unknown, "text of the data holds", several);
            errln!("warning: {texts} characters that the tokenizer does not know");
        }
        if let Some(it) = not_read(&summary.unread).filter(|_| !is_own(&self.rule.grader)) {
            errln!("{data}: {it}");
        }
        for (name, rows) in &summary.unread.unread_solutions {
            let rows = counted(*rows, "row", "rows");
            errln!(
                "warning: `{name}` looks like solutions ({rows}) and is not read; data.columns = {{ problem = \"…\", answer = \"…\", teacher = [\"{name}\"] }} reads it"
            );
        }
        for it in chosen.warnings.iter().filter(|it| !it.contains("looks like solutions")) {
            errln!("warning: {it}");
        }
        let is_short = summary.tokens_of_teachers.is_some_and(|it| self.is_short(it));
        let is_hopeless = chosen.seen.as_ref().is_some_and(|it| it.success == 0.0);
        let advice = match (is_short, 2 * summary.with_teacher < summary.rows) {
            (true, true) => {
                "warning: most rows have no solution, and a group that fails without one teaches nothing; to imitate all solutions first: --method sft,grpo"
            }
            (true, false) => {
                "to imitate first, which is as good, and sooner, where solutions are exact and short: --method sft,grpo"
            }
            (false, _) if is_hopeless && summary.with_teacher > 0 => {
                "warning: no sampled answer is right, and solutions are long: 40 steps of GSM8K taught a model of 135M nothing; take easier problems or a larger model"
            }
            (false, _) => "",
        };
        if self.args.method.is_empty() && !advice.is_empty() {
            errln!("{advice}");
        }
        if let Some((_, schedule)) = chosen.gate(self.args) {
            errln!("gate: {}", schedule.table(0).teacher_helps(chosen.steps));
        }
    }

    pub(super) fn said(&self, planned: &Estimate, chosen: &Chosen) -> String {
        let more = if planned.fits { "" } else { ", which is more than there is" };
        let (gigabytes, length) = (planned.total_bytes as f64 / 1e9, self.length(planned, chosen));
        let step = duration(step_seconds(planned, chosen));
        format!("{gigabytes:.1} GB of memory{more}; a step takes about {step}, {length}")
    }

    /// The steps of the run, of the last stage where there are several, and their time, evaluations included.
    pub(super) fn length(&self, planned: &Estimate, chosen: &Chosen) -> String {
        let steps = counted(chosen.steps, "step", "steps");
        let stages = match self.methods.len() {
            1 => steps,
            n => format!("{n} stages of {steps}, the last"),
        };
        format!("{stages} about {}", duration(planned.seconds() * pace(planned, chosen)))
    }
}

/// Seconds of a step: as it was seen, else as it is planned.
pub(super) fn step_seconds(planned: &Estimate, chosen: &Chosen) -> f64 {
    chosen.seen.as_ref().map_or_else(|| planned.step_seconds(), |it| it.step_seconds)
}

/// Seconds as they were seen for one that is planned.
pub(super) fn pace(planned: &Estimate, chosen: &Chosen) -> f64 {
    step_seconds(planned, chosen) / planned.step_seconds().max(f64::MIN_POSITIVE)
}

/// A recipe that is written line by line; texts are as in JSON.
#[derive(Default)]
struct Toml(String);

impl Toml {
    /// A key with its value, and why it has it.
    fn put(&mut self, key: &str, value: impl Display, why: &str) {
        self.line(&format!("{key} = {value}"), why);
    }

    /// A key that needs no word, where it has a value.
    fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(key, value, "");
        }
    }

    fn head(&mut self, name: &str, why: &str) {
        self.0.push('\n');
        self.line(&format!("[{name}]"), why);
    }

    fn line(&mut self, text: &str, why: &str) {
        let line = if why.is_empty() { text.to_owned() } else { format!("{text:<30} # {why}") };
        self.0 += &(line + "\n");
    }
}
