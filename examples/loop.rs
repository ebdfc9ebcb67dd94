//! A whole HAPO training loop, stage by stage: sample → score → gate → credit → loss → update.
//!
//! `cargo run --release --example loop [FOLDER FOR THE MODEL]`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::core::{
    Annealing, Candidate, Gate, Gated, HapoGate, Loss, MethodSettings, NormaliserKind, RngStream,
    Rollout, Scores, Slot, Step, Threshold, TrainPrompt, method,
};
use hapo::data::find_template;
use hapo::data::task::{Split, TaskSet, TeacherSteps, make_set};
use hapo::kernels::AdamW;
use hapo::model::folder::{self, Layout};
use hapo::model::{ActivationCheckpointing, Dtype, TensorSpec};
use hapo::sampler::{
    ChatFormat, Decoding, GroupRequest, KvMemory, SampleSettings, Truncation, sample,
};
use hapo::train::pack::token_group;
use hapo::train::recipe::Overlong;
use hapo::train::{BUILTIN_BASE, Batching, Order, PromptLimits, PromptTable, Trainer, open_model};
use hapo::train::{grading::verdict_of, loss_of};
use hapo::verify::MATH;

const GROUP_SIZE: usize = 8;
const PROMPTS_PER_STEP: usize = 8;
const MAX_TOKENS: usize = 96;

// A stage, a line.
#[rustfmt::skip]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = open_model(BUILTIN_BASE, 128, 2)?;
    let chat = ChatFormat::new(base.tokenizer, find_template("chatml")?, &base.model.config().eos)?;
    let task = TaskSet { seed: 0, levels: vec![("linear".into(), 4)], split: Split::Train, count: 64, teacher_coverage: 0.5, teacher_steps: TeacherSteps::Exact };
    let limits = PromptLimits { prompt_tokens: 32, response_tokens: MAX_TOKENS, success_at: 1.0, overlong: Overlong::Error, hints: None, traces: 1, grades: true };
    let table = PromptTable::new(&make_set(&task)?, "builtin", &chat, &MATH, limits)?;
    let order = Order { seed: 0, prompts: table.prompts.len(), per_step: PROMPTS_PER_STEP };

    // TRAPO's terms behind HAPO's gate: the teacher enters groups without a success, until the second epoch.
    let annealing = Annealing::Sigmoid { turn_off_epoch: "1".parse()?, steepness: 10.into() };
    let gate = Gate::Confidence { threshold: Threshold::Derived { success_limit: 0 }, annealing };
    let trapo = method("trapo").ok_or("a method of the table")?.build(&MethodSettings::default())?;
    let method = Gated::hapo(trapo, HapoGate::of(gate), GROUP_SIZE, order.steps_per_epoch())?;
    let loss = Loss::new(NormaliserKind::Constant.of(MAX_TOKENS));
    let batching = Batching { micro_batch_tokens: 8192, inverse_temperature: 1.0 };
    let optimizer = AdamW { learning_rate: 4e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, step: 0, gradient_scale: 1.0 };

    let mut trainer = Trainer::new(base.model, ActivationCheckpointing::None)?;
    let mut rewards = Vec::new();
    for step in (1..=12).map(Step) {
        let prompts = table.at(&order.of_step(step.0));
        let request = |id, tokens| GroupRequest::new(id, tokens, GROUP_SIZE);
        let requests: Vec<_> = prompts.iter().map(|it| request(it.id, &it.tokens)).collect();
        let settings = SampleSettings {
            decoding: Decoding::Sample { temperature: 1.0, truncation: Truncation::NONE },
            stop: &chat.stop, max_new_tokens: MAX_TOKENS, max_sequences: 64, kv_memory: KvMemory::Auto, usable_vocab: chat.tokenizer.vocab_size(),
            seed: 0, rng_stream: RngStream::Sample, step: step.0,
        };
        let slot = Slot { rule: method.slot, seed: 0, step };
        let (mut groups, mut successes) = (Vec::new(), 0);
        for (prompt, sampled) in prompts.iter().zip(sample(&trainer.model, &requests, &settings, None)?) {
            let gold = prompt.gold.as_ref().expect("the limits ask for one");
            let verdict = |it: &Rollout| Ok(verdict_of(gold, &chat.text(&it.tokens)?));
            let verdicts: Result<_, hapo::core::Refusal> = sampled.group.rollouts.iter().map(verdict).collect();
            let scored = sampled.group.score(verdicts?);
            successes += scored.successes();
            let offer = Candidate { teachers: &prompt.teachers, stored: &[], scores: &[], slot };
            let is_open = method.success_limit(step).is_open(scored.successes());
            let mixed = method.mix(scored, &offer, is_open);
            let members = mixed.members().iter().zip(method.credit(&mixed, step, Scores::NONE));
            groups.push(token_group(members, prompt.tokens.clone(), |_| TrainPrompt::Sampled, &loss));
        }
        let stats = trainer.gradient(&loss, &groups, batching)?;
        let norm = trainer.gradient_norm()?;
        trainer.apply(optimizer, norm, 1.0)?;
        rewards.push(successes as f64 / (GROUP_SIZE * PROMPTS_PER_STEP) as f64);
        println!("step {:2}: reward {:.3}, loss {:+.4}", step.0, rewards[rewards.len() - 1], loss_of(&stats));
    }
    if let Some(folder) = std::env::args().nth(1) {
        let layout = Layout { dtype: Dtype::F32, ..Layout::default() };
        let tensor = |spec: &TensorSpec| trainer.model.tensor(&spec.name);
        folder::write(folder.as_ref(), trainer.model.config(), &layout, tensor)?;
    }
    let mean = |it: &[f64]| it.iter().sum::<f64>() / it.len() as f64;
    let (first, last) = (mean(&rewards[..5]), mean(&rewards[rewards.len() - 5..]));
    assert!(last >= first + 0.1, "the base learns: {first:.3} → {last:.3}");
    println!("the policy-only reward rose from {first:.3} to {last:.3}");
    Ok(())
}
