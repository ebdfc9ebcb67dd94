//! The measured cases, each repeated, on random weights.

use std::time::Instant;

use anyhow::Result;
use hapo_core::{
    Gated, Loss, MethodSettings, NormaliserKind, PromptId, RngStream, SampledGroup, Scores, Slot,
    SlotRule, Step, SuccessLimit, TrainPrompt, Verdict, apply_gate,
};
use hapo_kernels::{AdamW, Cpu, NumberFormat};
use hapo_model::{ActivationCheckpointing, Config, Model, Moments, PackedBatch, Tape, Target};
use hapo_sampler::{
    Decoding, Engine, EngineLimits, GroupRequest, KvMemory, Request, RngKey, SampleSettings,
    Truncation, sample,
};
use hapo_train::{Batching, Trainer, pack::token_group};

/// One case, measured.
#[derive(Default)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) times: Vec<f64>,
    /// CPU time of the process over all repetitions and threads.
    pub(super) cpu_seconds: Option<f64>,
    /// Tokens or pairs of a repetition.
    pub(super) items: f64,
    /// Operations of a repetition, of products and attention; 0 where they are not counted.
    pub(super) flops: f64,
    /// Bytes that a repetition must read; 0 where they are not counted.
    pub(super) bytes: f64,
}

/// Repetitions of a case.
struct Repeated {
    times: Vec<f64>,
    cpu_seconds: Option<f64>,
}

/// Seconds of each repetition, after one that does not count, and figures over all of them.
fn repeat(n: usize, mut work: impl FnMut() -> Result<()>) -> Result<Repeated> {
    work()?;
    let before = cpu_seconds();
    let times = (0..n)
        .map(|_| {
            let start = Instant::now();
            work()?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect::<Result<_>>()?;
    let cpu_seconds = cpu_seconds_since(before);
    Ok(Repeated { times, cpu_seconds })
}

pub(super) fn training(
    model: &mut Model<Cpu>,
    (sequences, length): (usize, usize),
) -> Result<Case> {
    let vocabulary = model.config().vocab_size as u32;
    let mut batch = PackedBatch::default();
    for s in 0..sequences {
        let tokens: Vec<u32> =
            (0..=length).map(|i| (i * 7919 + s * 104_729) as u32 % vocabulary).collect();
        let index = batch.push(&tokens[..length], None);
        let start = batch.segments[index].start;
        batch.targets.extend((0..length).map(|i| Target {
            row: start + i,
            token: tokens[i + 1],
            inverse_temperature: 1.0,
        }));
    }
    let n = batch.targets.len();
    let mut tape = Tape::new(ActivationCheckpointing::None);
    let mut gradients = model.gradients()?;
    let mut moments = Moments::new(model)?;
    let (d, zero) = (vec![-1.0 / n as f32; n], vec![0.0; n]);
    let mut step = 0;
    let reps = if model.config().hidden < 512 { 15 } else { 3 };
    let Repeated { times, cpu_seconds } = repeat(reps, || {
        step += 1;
        tape.forward(model, &batch)?;
        gradients.clear();
        tape.backward(model, &d, &zero, &mut gradients)?;
        let norm = model.gradient_norms(&gradients).iter().sum::<f64>().sqrt();
        moments.adamw(model, adamw(step, (1.0 / norm).min(1.0)), &gradients);
        Ok(())
    })?;
    let c = model.config();
    let q_dim = c.heads * c.head_dim;
    // Products of the weights, and of causal attention, whose backward is 2.5 forwards.
    let flops = 6.0 * (matrices(c) * n) as f64
        + 3.5 * 2.0 * (c.layers * q_dim * sequences * length * length) as f64;
    Ok(Case {
        name: format!("{sequences} x {length} tokens"),
        times,
        cpu_seconds,
        items: n as f64,
        flops,
        ..Case::default()
    })
}

/// Elements of all matrices, the head included.
pub(super) fn matrices(c: &Config) -> usize {
    let (q_dim, kv_dim) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let layer = c.hidden * (2 * q_dim + 2 * kv_dim) + 3 * c.hidden * c.ffn;
    c.layers * layer + c.hidden * c.vocab_size
}

pub(super) fn adamw(step: u64, gradient_scale: f64) -> AdamW {
    AdamW {
        learning_rate: 1e-6,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
        step,
        gradient_scale,
    }
}

const PROMPT: usize = 32;
const NEW: usize = 64;
const DECODING: Decoding = Decoding::Sample { temperature: 1.0, truncation: Truncation::NONE };

fn prompts(n: usize, vocabulary: usize) -> Vec<Vec<u32>> {
    (0..n).map(|s| (0..PROMPT).map(|i| ((i * 31 + s * 17) % vocabulary) as u32).collect()).collect()
}

fn settings(sequences: usize, vocabulary: usize, step: u64) -> SampleSettings<'static> {
    SampleSettings {
        decoding: DECODING,
        stop: &[],
        max_new_tokens: NEW,
        max_sequences: sequences,
        kv_memory: KvMemory::Auto,
        usable_vocab: vocabulary,
        seed: 0,
        rng_stream: RngStream::Generate,
        step,
    }
}

fn groups_of(prompts: &[Vec<u32>], completions: usize) -> Vec<GroupRequest<'_>> {
    prompts
        .iter()
        .zip(0..)
        .map(|(tokens, id)| GroupRequest::new(PromptId(id), tokens, completions))
        .collect()
}

pub(super) fn sampling(model: &Model<Cpu>, sequences: usize) -> Result<Case> {
    let vocabulary = model.config().vocab_size;
    let prompts = prompts(sequences, vocabulary);
    let requests = groups_of(&prompts, 1);
    let settings = settings(sequences, vocabulary, 0);
    let Repeated { times, cpu_seconds } = repeat(15, || {
        sample(model, &requests, &settings, None)?;
        Ok(())
    })?;
    Ok(Case {
        name: format!("{sequences} sequences, {PROMPT} + {NEW}"),
        times,
        cpu_seconds,
        items: (sequences * NEW) as f64,
        ..Case::default()
    })
}

/// Completions of a prompt that end at a number of tokens alone.
pub(super) fn request(prompt: Vec<u32>, completions: usize, max_tokens: usize) -> Request {
    let rng_stream = RngStream::Generate;
    Request {
        prompt,
        completions,
        decoding: DECODING,
        max_tokens,
        stop_tokens: Vec::new(),
        stop_strings: Vec::new(),
        text: None,
        top_log_probs: 0,
        rng: RngKey { seed: 0, rng_stream, step: 0, prompt: PromptId(0) },
    }
}

/// One time per step of the engine. `format` is the format of the weights that it reads.
pub(super) fn decoding(model: &Model<Cpu>, sequences: usize, format: NumberFormat) -> Result<Case> {
    let c = model.config();
    let new = if c.hidden < 512 { NEW } else { 24 };
    let limits = EngineLimits {
        max_sequences: sequences,
        cache_tokens: hapo_sampler::cache_tokens::<Cpu>(sequences, sequences, PROMPT, NEW),
        prefill_tokens: sequences * PROMPT,
        usable_vocab: c.vocab_size,
    };
    let mut engine = Engine::new(model, None, limits)?;
    let (mut times, mut used_seconds) = (Vec::new(), Some(0.0));
    for round in 0..3 {
        for (prompt, id) in prompts(sequences, c.vocab_size).into_iter().zip(0..) {
            let mut request = request(prompt, 1, new);
            (request.rng.step, request.rng.prompt) = (round, PromptId(id));
            engine.submit(request)?;
        }
        // The first step reads the prompts.
        engine.step()?;
        let before = cpu_seconds();
        while !engine.is_idle() {
            let start = Instant::now();
            engine.step()?;
            if round > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        if round > 0 {
            let used = cpu_seconds_since(before);
            used_seconds = used_seconds.zip(used).map(|(all, used)| all + used);
        }
    }
    let weights = NumberFormat::ALL[format as usize].0;
    Ok(Case {
        name: format!("{sequences} sequences, {weights} weights, a step"),
        times,
        cpu_seconds: used_seconds,
        items: sequences as f64,
        flops: (2 * matrices(c) * sequences) as f64,
        bytes: (matrices(c) * format.bytes()) as f64,
    })
}

/// 32 prompts × 8 completions × 64 tokens, every other completion right, one update.
pub(super) fn grpo_step(model: Model<Cpu>) -> Result<Case> {
    const GROUPS: usize = 32;
    const COMPLETIONS: usize = 8;
    let vocabulary = model.config().vocab_size;
    let prompts = prompts(GROUPS, vocabulary);
    let requests = groups_of(&prompts, COMPLETIONS);
    let loss = Loss::new(NormaliserKind::Constant.of(NEW));
    let grpo = hapo_core::method("grpo").expect("a method of the table");
    let grpo = Gated::bare(grpo.build(&MethodSettings::default())?, COMPLETIONS)?;
    let batching = Batching { micro_batch_tokens: 8192, inverse_temperature: 1.0 };
    let mut trainer = Trainer::new(model, ActivationCheckpointing::None)?;
    let mut step = 0;
    let Repeated { times, cpu_seconds } = repeat(8, || {
        step += 1;
        let settings = settings(GROUPS * COMPLETIONS, vocabulary, step);
        let groups: Vec<_> = sample(&trainer.model, &requests, &settings, None)?
            .into_iter()
            .zip(&prompts)
            .map(|(it, prompt)| {
                let group = mixed(it.group);
                let credit = grpo.credit(&group, Step(1), Scores::NONE);
                token_group(
                    group.members().iter().zip(credit),
                    prompt.clone(),
                    |_| TrainPrompt::Sampled,
                    &loss,
                )
            })
            .collect();
        trainer.gradient(&loss, &groups, batching)?;
        let norm = trainer.gradient_norm()?;
        trainer.apply(adamw(0, 1.0), norm, 1.0)?;
        Ok(())
    })?;
    Ok(Case {
        name: format!("{GROUPS} prompts x {COMPLETIONS} x {NEW} tokens"),
        times,
        cpu_seconds,
        items: (GROUPS * COMPLETIONS * NEW) as f64,
        ..Case::default()
    })
}

/// A group in which every other completion is right, past a closed gate.
fn mixed(group: SampledGroup) -> hapo_core::MixedGroup {
    let verdicts = (0..group.rollouts.len())
        .map(|i| if i % 2 == 0 { Verdict::Correct } else { Verdict::Wrong })
        .collect();
    let slot = Slot { rule: SlotRule::LowestReward, seed: 0, step: Step(1) };
    apply_gate(group.score(verdicts), None, SuccessLimit::CLOSED, slot)
}

/// Pairs of every kind of answer.
const PAIRS: [(&str, &str); 10] = [
    ("42", "The sum is 40 + 2, so the answer is \\boxed{42}."),
    ("\\frac{1}{2}", "Therefore $x = \\boxed{0.5}$."),
    ("2\\sqrt{3}", "We get \\boxed{\\sqrt{12}}."),
    ("(1, 2)", "The point is \\boxed{(1,2)}."),
    ("x^2 + 2x + 1", "Expanding gives $\\boxed{(x+1)^2}$"),
    ("\\{1, 2, 3\\}", "so the set is \\boxed{\\{3, 2, 1\\}}"),
    ("[0, 1)", "It holds on \\boxed{[0, 1)}."),
    (
        "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
        "\\boxed{\\begin{pmatrix} 1 & 2 \\\\ 3 & 5 \\end{pmatrix}}",
    ),
    ("1000", "That is \\boxed{1,000} dollars."),
    ("x = 3", "I am not sure what the answer is."),
];

pub(super) fn grading() -> Result<Case> {
    const ROUNDS: usize = 200;
    let grader = hapo_verify::grader("math")?;
    let Repeated { times, .. } = repeat(10, || {
        for _ in 0..ROUNDS {
            for (gold, completion) in PAIRS {
                std::hint::black_box(hapo_verify::grade(grader, gold, completion));
            }
        }
        Ok(())
    })?;
    Ok(Case {
        name: "pairs of gold and completion".to_owned(),
        times,
        items: (ROUNDS * PAIRS.len()) as f64,
        ..Case::default()
    })
}

/// CPU seconds of all threads of this process so far, in hundredths; `None` where the system does not say.
fn cpu_seconds() -> Option<f64> {
    // Linux counts them in ticks of 10 ms for programs, whatever the kernel's own clock.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name before may hold blanks and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

/// CPU seconds since then.
fn cpu_seconds_since(before: Option<f64>) -> Option<f64> {
    Some(cpu_seconds()? - before?)
}
