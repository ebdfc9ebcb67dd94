//! The text of the new recipe, its plan, and what is said of it.

use std::fmt::Write as _;

use anyhow::Result;
use hapo_core::{Method, counted};
use hapo_run::duration;
use hapo_train::plan::{DeviceSpec, Estimate, Workload, estimate};
use hapo_train::{Overrides, Recipe};

use super::{Args, Chosen, Found, GROUP_SIZE, evaluation_every, longest, own_key};

/// Activations are computed again.
const LAYERS: &str = "activation_checkpointing = \"layers\"   # less memory, a third more time\n";

impl Found {
    /// The recipe and its plan: activations are computed again where the machine has no room for them.
    pub(super) fn settle(
        &self,
        args: &Args,
        chosen: &Chosen,
        device: &DeviceSpec,
    ) -> Result<(String, Estimate)> {
        let mut last = None;
        for optim in ["", LAYERS] {
            let stages = self.methods.iter();
            let stages = stages.map(|it| Ok(self.planned(args, chosen, (it, optim), device)?.1));
            let mut stages: Vec<Estimate> = stages.collect::<Result<_>>()?;
            // Other programs want some of the memory too.
            let fits = stages.iter().all(|it| it.total_bytes <= device.memory_bytes / 10 * 7);
            let planned = stages.pop().expect("there is a method");
            let body = self.draft(args, chosen, &self.methods, optim);
            let said = self.said(&planned, chosen);
            last = Some((format!("# Planned on this machine: {said}.\n{body}"), planned));
            if fits {
                break;
            }
        }
        Ok(last.expect("there are choices"))
    }

    /// The recipe of one method alone, and its plan.
    pub(super) fn planned(
        &self,
        args: &Args,
        chosen: &Chosen,
        (method, optim): (&Method, &str),
        device: &DeviceSpec,
    ) -> Result<(Recipe, Estimate)> {
        let text = self.draft(args, chosen, std::slice::from_ref(method), optim);
        let recipe = Recipe::parse(&text, "new recipe", &Overrides::default())?;
        let prompts = chosen.template.summary.tokens_of_prompts;
        let lengths = hapo_train::plan::Lengths {
            prompt: prompts.map_or(64.0, |it| it.mean),
            response: recipe.sampling().max_new_tokens as f64 / 2.0,
        };
        let workload = Workload::new(&recipe, &self.config, device);
        workload.check()?;
        let planned = estimate(workload, lengths);
        Ok((recipe, planned))
    }

    fn draft(&self, args: &Args, chosen: &Chosen, methods: &[Method], optim: &str) -> String {
        let mut text = String::new();
        let mut line =
            |it: String| writeln!(text, "{it}").expect("writing to a string never fails");
        if let Some(name) = &args.name {
            line(format!("name = {}", quoted(name)));
        }
        if let [method] = methods {
            let name = quoted(method.name);
            line(format!("method = {name:<22}# one of `hapo list methods`"));
        }
        let (steps, epoch) = (chosen.steps, chosen.steps_per_epoch);
        let each = if methods.len() > 1 { "of each stage; " } else { "" };
        line(format!("steps = {steps:<23}# {each}an epoch is {epoch}; every key: `hapo recipe`\n"));
        line(format!("[model]\npath = {}", quoted(&args.model)));
        if args.lora {
            line(String::new());
        } else {
            line("dtype = \"bf16\"                 # number format of checkpoints\n".to_owned());
        }
        line(self.data(args, chosen));
        line(self.sampling(chosen, methods));
        if args.lora {
            line(
                "[lora]                         # the weights stay as they are\nrank = 16"
                    .to_owned(),
            );
            line("alpha = 32                     # the adapter counts alpha / rank".to_owned());
            // The other matrices are parts of a larger one in such a family's folders.
            if self.config.decoder.is_fused {
                line("targets = [\"o_proj\", \"down_proj\"]   # q, k, v, gate and up are fused in this family".to_owned());
            }
            line(String::new());
        }
        if let ([method], Some((key, value, why))) = (methods, own_key(methods[0].name, chosen)) {
            line(format!("[{}]\n{:<31}# {why}\n", method.name, format!("{key} = {value}")));
        }
        if let Some(path) = &args.reference {
            line(format!("[reference]\npath = {}\n", quoted(path)));
        }
        let rate = match methods {
            [method] if !method.samples() => self.rate.imitation,
            _ => self.rate.lr,
        };
        line(format!("[optim]\nlr = {rate:<26}# {}", self.rate.evidence));
        let half = chosen.per_step.div_ceil(2);
        line(format!("mini_batch_prompts = {half:<10}# two updates of a step"));
        line(optim.to_owned());
        if let Some((epoch, schedule)) = chosen.gate(args) {
            let helps = schedule.table(0).teacher_helps(steps);
            line(format!(
                "[hapo]                         # the teacher helps groups that fail, and only at first\nturn_off_epoch = {:<14}# {helps}; leave the section out for the bare method\n",
                epoch.to_string()
            ));
        }
        if let Some(test) = &args.test {
            let (data, every) = (quoted(&test.display().to_string()), evaluation_every(steps));
            line(format!("[eval]\ndata = {data}\nevery = {every}\n"));
        }
        line("[checkpoint]\nevery = 20".to_owned());
        if methods.len() > 1 {
            line(self.stages(chosen, methods));
        }
        text
    }

    /// `[data]`: the file, its template and what counts.
    fn data(&self, args: &Args, chosen: &Chosen) -> String {
        let Chosen { template, prompt, .. } = chosen;
        let mut text = format!("[data]\ntrain = {}\n", quoted(&args.data.display().to_string()));
        if let Some(columns) = &self.columns {
            text += &format!("columns = {columns}\n");
        }
        if !args.columns.drop.is_empty() {
            text += &format!("drop = {}\n", serde_json::json!(args.columns.drop));
        }
        let rule = &self.rule;
        let counted = match rule.tried {
            0 => "assumed, as there is no solution to try".to_owned(),
            all => format!("{} of {all} solutions count", rule.correct),
        };
        text += &format!("grader = {:<22}# {counted}\n", quoted(&rule.grader));
        let grader = hapo_verify::grader(&rule.grader);
        if args.extraction.is_some() || grader.is_ok_and(|it| it.reads_answers()) {
            text += &format!("extraction = {}\n", quoted(rule.extraction.name()));
        }
        text += &format!("template = {:<20}# {}\n", quoted(&template.name), template.why);
        if let Some(it) = template.suffix {
            text += &format!("template_suffix = \"{it}\"\n");
        }
        let longest = longest(template.summary.tokens_of_prompts);
        let hint = if self.method().needs().hints { ", without its hint" } else { "" };
        let test = match template.longest_test {
            0 => String::new(),
            it => format!(", of the evaluation {it}"),
        };
        text + &format!(
            "max_prompt_tokens = {prompt:<11}# the longest of the data has {longest}{hint}{test}\n"
        )
    }

    fn sampling(&self, chosen: &Chosen, methods: &[Method]) -> String {
        let mut text = "[sampling]\n".to_owned();
        if methods.iter().any(Method::samples) {
            text += &format!("group_size = {GROUP_SIZE:<18}# completions of a prompt\n");
        }
        let (per_step, response) = (chosen.per_step, chosen.response);
        text += &format!("prompts_per_step = {per_step}\nmax_new_tokens = {response:<14}");
        match chosen.template.summary.tokens_of_teachers {
            Some(it) => text + &format!("# 95 % of the solutions have at most {} tokens\n", it.p95),
            None => text.trim_end().to_owned() + "\n",
        }
    }

    /// The stages, each continuing the one before.
    fn stages(&self, chosen: &Chosen, methods: &[Method]) -> String {
        let names: Vec<&str> = methods.iter().map(|it| it.name).collect();
        let mut text = String::new();
        for (at, method) in methods.iter().enumerate() {
            let name = stage_name(&names, at);
            text += &format!(
                "\n[[stage]]\nname = {}\nmethod = {}\n",
                quoted(&name),
                quoted(method.name)
            );
            if let Some(before) = at.checked_sub(1) {
                let before = format!("stage:{}", stage_name(&names, before));
                text += &format!("model.path = {}\n", quoted(&before));
            }
            let imitates = |it: &Method| !it.samples();
            let rate = match at.checked_sub(1).map(|it| &methods[it]) {
                _ if imitates(method) => self.rate.imitation,
                Some(before) if imitates(before) => self.rate.after,
                _ => self.rate.lr,
            };
            if rate != self.rate.lr {
                text += &format!("optim.lr = {rate}\n");
            }
            if let Some((key, value, why)) = own_key(method.name, chosen) {
                text += &format!("{:<31}# {why}\n", format!("{}.{key} = {value}", method.name));
            }
        }
        text
    }

    pub(super) fn tell(&self, args: &Args, chosen: &Chosen, planned: &Estimate) {
        let (summary, data) = (&chosen.template.summary, args.data.display());
        let repeated = match summary.rows - summary.distinct_prompts {
            0 => String::new(),
            1 => " (1 row repeats another)".to_owned(),
            copies => format!(" ({copies} rows repeat another)"),
        };
        errln!(
            "{data}: {}, {}{repeated}, {} with a solution; {}",
            counted(summary.rows, "row", "rows"),
            counted(summary.distinct_prompts, "problem", "problems"),
            counted(summary.with_teacher, "row", "rows"),
            self.said(planned, chosen)
        );
        if let Some(it) = &chosen.seen {
            errln!("template {}: {}", chosen.template.name, chosen.template.why);
            for line in it.lines() {
                errln!("{line}");
            }
        }
        if chosen.template.unknown > 0 {
            errln!(
                "warning: {} characters that the tokenizer does not know",
                counted(
                    chosen.template.unknown,
                    "text of the data holds",
                    "texts of the data hold"
                )
            );
        }
        for (name, rows) in &summary.unread.unread_solutions {
            errln!(
                "warning: `{name}` looks like solutions ({}) and is not read; data.columns = {{ problem = \"…\", answer = \"…\", teacher = [\"{name}\"] }} reads it",
                counted(*rows, "row", "rows")
            );
        }
        for it in chosen.warnings.iter().filter(|it| !it.contains("looks like solutions")) {
            errln!("warning: {it}");
        }
        let is_short = summary.tokens_of_teachers.is_some_and(|it| self.is_short(it));
        if is_short && self.rule.is_exact() && args.method.is_empty() {
            errln!(
                "to imitate first, which is cheaper and at least as good where solutions are exact and short: --method sft,grpo"
            );
        }
        if let Some((_, schedule)) = chosen.gate(args) {
            errln!("gate: {}", schedule.table(0).teacher_helps(chosen.steps));
        }
    }

    pub(super) fn said(&self, planned: &Estimate, chosen: &Chosen) -> String {
        let more = if planned.fits { "" } else { ", which is more than there is" };
        format!(
            "{:.1} GB of memory{more}; a step takes about {}, {}",
            planned.total_bytes as f64 / 1e9,
            duration(step_seconds(planned, chosen)),
            self.length(planned, chosen)
        )
    }

    /// The steps of the run, of the last stage where there are several, and their time, evaluations included.
    pub(super) fn length(&self, planned: &Estimate, chosen: &Chosen) -> String {
        let steps = counted(chosen.steps, "step", "steps");
        let stages = match self.methods.len() {
            1 => String::new(),
            n => format!("{n} stages, the last of "),
        };
        format!("{stages}{steps} about {}", duration(planned.seconds() * pace(planned, chosen)))
    }
}

/// A method's name; a number behind it where an earlier stage has it.
fn stage_name(names: &[&str], at: usize) -> String {
    match names[..at].iter().filter(|it| **it == names[at]).count() {
        0 => names[at].to_owned(),
        before => format!("{}-{}", names[at], before + 1),
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

/// A text in TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
