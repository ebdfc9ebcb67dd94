//! `hapo-lab replay`: recomputes a recorded batch: losses, gradient norms and parameters after each step.
//!
//! A batch is an array of cases, each with its sequences (prompt, response, reward, whether it is the teacher's,
//! log-probabilities recorded while sampling) and its objective. Groups are formed, advantages taken and the loss computed
//! by the functions that train, so that numbers of other software can be compared with them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_cli::support::device::DeviceArg;
use hapo_cli::{on_device, outln};
use hapo_core::{
    AdvantageGroup, AdvantageRule, Clip, Gate, Loss, Normaliser, NormaliserKind, OPERATORS,
    PolicyAndTeacher, PromptId, Rollout, SampledGroup, Schedule, Slot, SlotRule, Step, StepContext,
    TeacherWeight, TrainPrompt, Verdict, admit_teacher, apply_gate, operator,
};
use hapo_kernels::{AdamW, Device};
use hapo_model::ActivationCheckpointing;
use hapo_train::pack::{TokenGroup, token_group};
use hapo_train::{Batching, Trainer, loss_of};
use serde::{Deserialize, Serialize};

/// Recompute a recorded batch; prints JSON: per case, losses, gradient norms and parameter norms of each step.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo-lab replay --model testdata/fixtures/models/tiny-qwen2 --batch testdata/fixtures/losses/cases.json"
)]
pub(crate) struct Args {
    /// Hugging Face folder of the model
    #[arg(long)]
    model: String,
    /// An array of cases, laid out as testdata/fixtures/losses/cases.json
    #[arg(long)]
    batch: PathBuf,
    #[command(flatten)]
    device: DeviceArg,
}

const LAYOUT: &str = "the layout is that of testdata/fixtures/losses/cases.json";

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let compute = args.device.compute.or_f32();
    on_device!(args.device, compute, threads, |device| replay_on(args, &device))
}

fn replay_on<D: Device + Clone>(args: &Args, device: &D) -> Result<()> {
    let origin = args.batch.display();
    let text = std::fs::read_to_string(&args.batch).map_err(|error| {
        bad_input(format!("cannot read {origin}: {error}"), "name a JSON file of cases")
    })?;
    let cases: Vec<Case> = serde_json::from_str(&text)
        .map_err(|error| bad_input(format!("{error} ({origin})"), LAYOUT))?;
    let longest = |case: &Case| {
        let lengths = case.sequences.iter().map(|it| it.prompt.len() + it.response.len());
        lengths.max().unwrap_or(1)
    };
    let context = cases.iter().map(longest).max().unwrap_or(1);
    let mut all = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        // Every case starts from the weights of the folder.
        let model = hapo_train::open_model_on(&args.model, context, device.clone())?.model;
        let mut trainer = Trainer::new(model, ActivationCheckpointing::None)?;
        let steps = replay(case, &mut trainer, &format!("case {index} of {origin}"))?;
        all.push(serde_json::json!({ "steps": steps }));
    }
    outln!("{}", serde_json::to_string(&all)?);
    Ok(())
}

/// A recorded batch and its objective.
#[derive(Clone, Debug, Deserialize)]
struct Case {
    /// `none`, or an entry of `hapo list operators`.
    operator: String,
    normaliser: CaseNormaliser,
    /// Longest response allowed, for the constant normaliser.
    l_max: usize,
    /// Divide advantages by the standard deviation (D12).
    advantage_std: bool,
    /// λ.
    teacher_weight: f64,
    clip_low: f64,
    clip_high: f64,
    entropy_coef: f64,
    /// The operators' d.
    d: f64,
    adamw: CaseAdamW,
    sequences: Vec<CaseSequence>,
    /// As many optimiser steps are made as are recorded; two when none are.
    #[serde(default)]
    steps: Vec<serde::de::IgnoredAny>,
}

/// Names of two normalisers (D16).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaseNormaliser {
    Constant,
    TokenMean,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseAdamW {
    lr: f64,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    max_grad_norm: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseSequence {
    group: u64,
    prompt: Vec<u32>,
    response: Vec<u32>,
    reward: f64,
    teacher: bool,
    old_logprobs: Vec<f32>,
}

/// The result of one optimiser step.
#[derive(Clone, Debug, Serialize)]
struct ReplayedStep {
    /// The loss that was minimised.
    loss: f64,
    /// Global gradient norm before clipping.
    grad_norm: f64,
    /// Gradient norm of every tensor, by its published name.
    grad_norms: BTreeMap<String, f64>,
    /// Norm of every tensor after the step.
    param_norms_after: BTreeMap<String, f64>,
}

/// Makes the optimiser steps of one case from the trainer's weights. `origin` names the case.
fn replay<D: Device>(
    case: &Case,
    trainer: &mut Trainer<D>,
    origin: &str,
) -> Result<Vec<ReplayedStep>> {
    let (loss, terms) = (loss_settings(case), terms_of(case, origin)?);
    let groups = groups_of(case, &loss, &terms, origin)?;
    let batching = Batching { micro_batch_tokens: 8192, inverse_temperature: 1.0 };
    let n_steps = if case.steps.is_empty() { 2 } else { case.steps.len() };
    let mut steps = Vec::with_capacity(n_steps);
    for _ in 0..n_steps {
        let stats = trainer.gradient(&loss, &groups, batching)?;
        let grad_norm = trainer.gradient_norm()?;
        let grad_norms = named_roots(trainer, trainer.model.gradient_norms(&trainer.gradients));
        let it = &case.adamw;
        let settings = AdamW {
            learning_rate: it.lr,
            beta1: it.betas[0],
            beta2: it.betas[1],
            epsilon: it.eps,
            weight_decay: it.weight_decay,
            step: 0,
            gradient_scale: 1.0,
        };
        trainer.apply(settings, grad_norm, it.max_grad_norm)?;
        let param_norms_after = named_roots(trainer, trainer.model.trained_squared_norms());
        steps.push(ReplayedStep {
            loss: loss_of(&stats),
            grad_norm,
            grad_norms,
            param_norms_after,
        });
    }
    Ok(steps)
}

/// Norms of trained tensors, of their squares, by their published names.
fn named_roots<D: Device>(trainer: &Trainer<D>, squares: Vec<f64>) -> BTreeMap<String, f64> {
    let names = trainer.model.trained_layout().params().iter().map(|it| it.name.clone());
    names.zip(squares.into_iter().map(f64::sqrt)).collect()
}

fn loss_settings(case: &Case) -> Loss {
    Loss {
        clip: Clip { low: case.clip_low, high: case.clip_high },
        entropy_coef: case.entropy_coef,
        ..Loss::new(match case.normaliser {
            CaseNormaliser::Constant => NormaliserKind::Constant.of(case.l_max),
            CaseNormaliser::TokenMean => Normaliser::TOKEN_MEAN,
        })
    }
}

fn terms_of(case: &Case, origin: &str) -> Result<PolicyAndTeacher> {
    let name = if case.operator == "none" { "srft" } else { &case.operator };
    let known: Vec<&str> = OPERATORS.iter().map(|it| it.name).collect();
    Ok(PolicyAndTeacher {
        advantage: AdvantageRule { group: AdvantageGroup::Mixed, std: case.advantage_std },
        weight: TeacherWeight::Constant(case.teacher_weight),
        operator: operator(name).ok_or_else(|| {
            let known = known.join(", ");
            bad_input(format!("operator: expected one of {known}, got `{name}` ({origin})"), LAYOUT)
        })?,
        d: case.d,
    })
}

fn groups_of(
    case: &Case,
    loss: &Loss,
    terms: &PolicyAndTeacher,
    origin: &str,
) -> Result<Vec<TokenGroup>> {
    let mut by_group: BTreeMap<u64, Vec<&CaseSequence>> = BTreeMap::new();
    for (index, it) in case.sequences.iter().enumerate() {
        let bad = |problem: &str| {
            let hint =
                "every sequence has a prompt, a response and one old_logprob per response token";
            bad_input(format!("sequence {index}: {problem} ({origin})"), hint)
        };
        if it.prompt.is_empty() || it.response.is_empty() {
            return Err(bad("expected a prompt and a response, got an empty one"));
        }
        if it.old_logprobs.len() != it.response.len() && !it.teacher {
            let (expected, got) = (it.response.len(), it.old_logprobs.len());
            return Err(bad(&format!("expected {expected} old_logprobs, got {got}")));
        }
        by_group.entry(it.group).or_default().push(it);
    }
    by_group.into_iter().map(|(id, members)| group_of(id, &members, loss, terms, origin)).collect()
}

fn group_of(
    id: u64,
    members: &[&CaseSequence],
    loss: &Loss,
    terms: &PolicyAndTeacher,
    origin: &str,
) -> Result<TokenGroup> {
    let bad = |problem: String| bad_input(format!("group {id}: {problem} ({origin})"), LAYOUT);
    if members.iter().any(|it| it.prompt != members[0].prompt) {
        return Err(bad("expected one prompt for all sequences".to_owned()));
    }
    let policy: Vec<&CaseSequence> = members.iter().copied().filter(|it| !it.teacher).collect();
    let rollouts = policy
        .iter()
        .map(|it| Rollout {
            tokens: it.response.clone(),
            log_probs: it.old_logprobs.clone(),
            ended: true,
            ..Rollout::default()
        })
        .collect();
    let verdicts = policy
        .iter()
        .map(|it| if it.reward > 0.5 { Verdict::Correct } else { Verdict::Wrong })
        .collect();
    let teacher = members.iter().find(|it| it.teacher).map(|it| {
        let end = *it.response.last().expect("checked above");
        admit_teacher(it.response.clone(), &[end], &Verdict::Correct, it.response.len())
            .map_err(|it| bad(it.to_string()))
    });
    let teacher = teacher.transpose()?;
    let scored = SampledGroup::new(PromptId(id), policy.len(), rollouts).score(verdicts);
    let gate = if teacher.is_some() { Gate::Always } else { Gate::Never };
    let schedule = Schedule::new(&gate, members.len(), 1).map_err(|it| bad(it.to_string()))?;
    let slot = Slot { rule: SlotRule::Fixed, seed: 0, step: Step(1) };
    let mixed = apply_gate(scored, teacher.as_ref(), schedule.success_limit(Step(1)), slot);
    let at = StepContext { step: Step(1), initial_threshold: 0.0 };
    let credit = terms.credit(&mixed, at);
    let members_of_group = mixed.members().iter().zip(credit);
    Ok(token_group(members_of_group, members[0].prompt.clone(), |_| TrainPrompt::Sampled, loss))
}
