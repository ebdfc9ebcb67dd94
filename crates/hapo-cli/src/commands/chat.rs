//! `hapo chat`: a conversation with a model, token by token.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use hapo_core::{PromptId, RngStream};
use hapo_data::{Message, PromptTemplate, Rendering};
use hapo_kernels::Device;
use hapo_sampler::{
    ChatFormat, Decoding, Engine, EngineLimits, EventKind, Request, RngKey, SpecialTokens,
    Truncation, cache_tokens,
};

use crate::support::device::{DeviceArg, tell_start};
use crate::{failure::bad_input, support::arguments::SamplingArgs, support::model};

/// Talk to a model: each line of standard input is a turn. Ctrl-C ends an answer, Ctrl-D the conversation.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo chat --model runs/try/checkpoints/step-000100",
    mut_arg("temperature", |arg| arg.default_value("0.6")),
    mut_arg("max_new_tokens", |arg| arg.default_value("1024"))
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
    #[command(flatten)]
    template: model::TemplateArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    device: DeviceArg,
}

/// True while an answer is written: Ctrl-C ends it then, and the program otherwise.
static ANSWERING: AtomicBool = AtomicBool::new(false);
/// True once Ctrl-C asked for the end of the answer.
static STOPPED: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let SamplingArgs { temperature, top_p, .. } = args.sampling;
    let decoding = Decoding::at_temperature(temperature, Truncation { top_p, ..Truncation::NONE })?;
    let template = model::template(args.template.request(), args.model.named())?;
    model::tell_what_it_knows(&args.model.model);
    ctrlc::set_handler(|| {
        if !ANSWERING.load(Ordering::Relaxed) || STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    on_device!(args.device, args.device.compute.or_f32(), threads, |device| {
        talk(args, &template, decoding, device)
    })
}

fn talk<D: Device>(
    args: &Args,
    template: &hapo_train::ChosenTemplate,
    decoding: Decoding,
    device: D,
) -> Result<()> {
    let max_new_tokens = args.sampling.max_new_tokens.expect("it has a default");
    let model::Opened { model, chat_format, seconds, .. } =
        model::open(args.model.named(), template.choice(), max_new_tokens, device)?;
    tell_start(args.device.verbose, &seconds);
    let (seed, chat_format) = (args.sampling.seed, &chat_format);
    let answerer = Answerer { model: &model, chat_format, max_new_tokens, seed, decoding };
    let is_terminal = std::io::stdin().is_terminal();
    if let PromptTemplate::Named(named) = &chat_format.template {
        errln!("template `{}` has no turns: each line is a problem of its own", named.name);
    }
    let mut turns = Vec::new();
    let mut lines = std::io::stdin().lock().lines();
    for turn in 0.. {
        if is_terminal {
            let mut out = std::io::stderr();
            // A closed terminal ends the conversation at the next line.
            let _ = write!(out, "> ").and_then(|()| out.flush());
        }
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|it| {
            bad_input(format!("cannot read standard input: {it}"), "write lines of text in UTF-8")
        })?;
        if line.trim().is_empty() {
            continue;
        }
        turns.push(Message::new("user", line));
        let prompt = answerer.prompt(&mut turns)?;
        let answer = answerer.answer(prompt, turn)?;
        turns.push(Message::new("assistant", answer));
    }
    if is_terminal {
        errln!();
    }
    Ok(())
}

struct Answerer<'a, D: Device> {
    model: &'a hapo_model::Model<D>,
    chat_format: &'a ChatFormat,
    max_new_tokens: usize,
    seed: u64,
    decoding: Decoding,
}

impl<D: Device> Answerer<'_, D> {
    /// Tokens that an answer may have behind a prompt of that length.
    fn room(&self, prompt: usize) -> usize {
        self.model.positions().saturating_sub(prompt).min(self.max_new_tokens)
    }

    /// The conversation as its template writes it, without the first turns where it is too long.
    fn prompt(&self, turns: &mut Vec<Message>) -> Result<Vec<u32>> {
        let PromptTemplate::Chat(chat) = &self.chat_format.template else {
            return Ok(self.chat_format.prompt(&turns.last().expect("somebody asked").content)?);
        };
        let system = chat.system.as_ref().map(|it| Message::new("system", it));
        loop {
            let messages: Vec<Message> = system.iter().chain(turns.iter()).cloned().collect();
            let text = chat.template.render(&messages, &Rendering::prompt())?;
            let prompt = self.chat_format.tokenizer.encode(&text)?;
            if turns.len() < 3 || self.room(prompt.len()) > 0 {
                return Ok(prompt);
            }
            errln!("the model reads no more: the first question is left out");
            turns.drain(..2);
        }
    }

    /// The answer, written to standard output as it comes.
    fn answer(&self, prompt: Vec<u32>, turn: u64) -> Result<String> {
        let (length, room) = (prompt.len(), self.room(prompt.len()));
        if room == 0 {
            let most = self.model.positions();
            let problem = format!("the model reads {most} tokens, and the prompt has {length}");
            return Err(bad_input(problem, "write less, or raise --max-tokens above 0"));
        }
        let limits = EngineLimits {
            max_sequences: 1,
            cache_tokens: cache_tokens::<D>(1, 1, length, room),
            prefill_tokens: 512,
            usable_vocab: self.chat_format.tokenizer.vocab_size(),
        };
        let mut engine = Engine::new(self.model, Some(&self.chat_format.tokenizer), limits)?;
        let (rng_stream, prompt_id) = (RngStream::Generate, PromptId(turn));
        let rng = RngKey { seed: self.seed, rng_stream, step: 0, prompt: prompt_id };
        engine.submit(Request {
            prompt,
            completions: 1,
            decoding: self.decoding,
            max_tokens: room,
            stop_tokens: self.chat_format.stop.clone(),
            stop_strings: Vec::new(),
            text: Some(SpecialTokens::WrittenOut),
            top_log_probs: 0,
            rng,
        })?;
        let (mut answer, mut out) = (String::new(), std::io::stdout());
        STOPPED.store(false, Ordering::Relaxed);
        ANSWERING.store(true, Ordering::Relaxed);
        while !engine.is_idle() && !STOPPED.load(Ordering::Relaxed) {
            for event in engine.step()? {
                let text = match event.kind {
                    EventKind::Token(token) => token.text,
                    EventKind::Finished { text, .. } => text,
                };
                write!(out, "{}", crate::shown(&text)).and_then(|()| out.flush())?;
                answer += &text;
            }
        }
        ANSWERING.store(false, Ordering::Relaxed);
        outln!();
        Ok(answer)
    }
}
