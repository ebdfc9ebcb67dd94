//! What must not change the numbers: how a batch is cut, the order of its sequences, threads,
//! recomputation, a gate that is closed.

use std::path::Path;

use hapo_core::{
    CounterRng, EntropyOver, Loss, METHODS, MethodSettings, Ratio, RngCounter, RngStream, Span,
    Term, operator,
};
use hapo_kernels::{AdamW, Cpu};
use hapo_model::{ActivationCheckpointing, Model, Tape};

use super::batches_of;
use crate::engine::trainer::{Trainer, loss_of};
use crate::pack::{Batching, Sequence, TokenGroup, pack};
use crate::plan::run_plan::RunPlan;
use crate::recipe::Overrides;
use crate::recipe::Recipe;
use crate::run::{Run, open_model};
use hapo_run::{Metrics, is_clock};

fn fixture(threads: usize) -> Model<Cpu> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/models/tiny-qwen2");
    open_model(path.to_str().unwrap(), 128, threads).unwrap().model
}

/// Four groups of four sequences of unlike lengths; in every second one the last is the teacher's. The
/// old log-probabilities are those of the model, moved a little.
fn groups() -> Vec<TokenGroup> {
    let model = fixture(1);
    let vocab = model.config().vocab_size as u64;
    let counter = |prompt| RngCounter { prompt, ..RngCounter::default() };
    let mut groups: Vec<TokenGroup> = (0..4)
        .map(|g| {
            let mut rng = CounterRng::new(5, RngStream::Generate, counter(g));
            let mut tokens =
                |n: u64| -> Vec<u32> { (0..n).map(|_| rng.below(vocab) as u32).collect() };
            let prompt = tokens(3 + g);
            let sequences = (0..4)
                .map(|s| {
                    let response = tokens(2 + (7 * g + 11 * s) % 23);
                    let term = if s == 3 && g % 2 == 0 {
                        teacher(0.7)
                    } else {
                        let advantage = [0.875, -0.125, 0.4, -0.3][s as usize];
                        Term::policy(advantage)
                    };
                    sequence(&response, Vec::new(), term)
                })
                .collect();
            TokenGroup { prompts: vec![prompt], sequences, has_signal: g != 3 }
        })
        .collect();
    let mut tape = Tape::new(ActivationCheckpointing::None);
    let mut rng = CounterRng::new(5, RngStream::Generate, counter(99));
    for batch in pack(&groups.clone(), batches_of(1 << 20), |_, _| true) {
        let log_probs = tape.forward(&model, &batch.packed).unwrap().log_probs;
        for (g, s, targets) in batch.spans {
            let sequence = &mut groups[g].sequences[s];
            if !sequence.is_teacher() {
                sequence.old_log_probs =
                    log_probs[targets].iter().map(|it| it + 0.2 * rng.normal() as f32).collect();
            }
        }
    }
    groups
}

/// TRAPO's term, as the recipes of this file have it.
fn teacher(weight: f64) -> Term {
    Term::Teacher { weight, operator: operator("trapo").unwrap(), d: 0.1 }
}

fn sequence(response: &[u32], old_log_probs: Vec<f32>, term: Term) -> Sequence {
    let spans = vec![Span::new(0..response.len(), term)];
    Sequence::new(response.to_vec(), old_log_probs, spans)
}

fn recipe(text: &str) -> Recipe {
    Recipe::parse(text, "test", &Overrides::default()).unwrap()
}

fn loss(normaliser: &str) -> Loss {
    recipe(&format!(
        "method = \"trapo\"\nmodel.path = \"x\"\nsampling.max_new_tokens = 32\n\
         loss.normaliser = \"{normaliser}\"\nloss.entropy_coef = 0.01\n"
    ))
    .loss()
    .to_owned()
}

/// Losses and gradients of three updates, and the parameters after them.
struct Trained {
    losses: Vec<f64>,
    gradients: Vec<Vec<f32>>,
    parameters: Vec<f32>,
}

fn train(
    groups: &[TokenGroup],
    loss: &Loss,
    micro_batch_tokens: usize,
    threads: usize,
    recompute: ActivationCheckpointing,
) -> Trained {
    let mut trainer = Trainer::new(fixture(threads), recompute).unwrap();
    let batching = batches_of(micro_batch_tokens);
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let stats = trainer.gradient(loss, groups, batching).unwrap();
        losses.push(loss_of(&stats));
        gradients.push(trainer.gradients.buf().as_slice().to_vec());
        let norm = trainer.gradient_norm().unwrap();
        let settings = AdamW {
            learning_rate: 5e-6,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step: 0,
            gradient_scale: 1.0,
        };
        trainer.apply(settings, norm, 1.0).unwrap();
    }
    Trained { losses, gradients, parameters: numbers_of(&trainer.model) }
}

/// ‖a − b‖ / ‖b‖.
fn relative(a: &[f32], b: &[f32]) -> f64 {
    let norm = |it: &mut dyn Iterator<Item = f64>| it.map(|it| it * it).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut b.iter().map(|it| f64::from(*it)))
}

fn assert_same(got: &Trained, expected: &Trained, what: &str) {
    for (got, expected) in got.losses.iter().zip(&expected.losses) {
        let error = (got - expected).abs() / expected.abs();
        assert!(error < 1e-6, "{what}: loss {got} {expected}");
    }
    for (step, (got, expected)) in got.gradients.iter().zip(&expected.gradients).enumerate() {
        let error = relative(got, expected);
        // Weights that agree to their last bit (below) still move this gradient by up to 1e-6: from the
        // second step on that comes on top, and no smaller learning rate takes it away.
        let bound = if step == 0 { 1e-6 } else { 1.5e-6 };
        assert!(error < bound, "{what}: gradient of step {step} by {error:.2e}");
    }
    let error = relative(&got.parameters, &expected.parameters);
    assert!(error < 1e-7, "{what}: parameters by {error:.2e}");
}

fn reversed(groups: &[TokenGroup]) -> Vec<TokenGroup> {
    let mut groups = groups.to_vec();
    groups.reverse();
    for it in &mut groups {
        it.sequences.reverse();
    }
    groups
}

#[test]
fn d16_no_cut_and_no_order_changes_the_update() {
    let groups = groups();
    let mut losses = ["constant", "token-mean", "sequence-mean", "length"].map(loss);
    losses[3].entropy_over = EntropyOver::Response;
    for loss in losses {
        let normaliser = loss.normaliser;
        let whole = train(&groups, &loss, 1 << 20, 1, ActivationCheckpointing::None);
        assert!(whole.losses.iter().all(|it| it.abs() > 1e-4), "{:?}", whole.losses);
        // A budget of 1 runs every sequence alone, with its prompt.
        for budget in [1, 17, 40, 64, 100, 150] {
            let cut = train(&groups, &loss, budget, 1, ActivationCheckpointing::None);
            assert_same(&cut, &whole, &format!("{normaliser:?}, {budget} tokens"));
        }
        let other = train(&reversed(&groups), &loss, 64, 1, ActivationCheckpointing::None);
        assert_same(&other, &whole, &format!("{normaliser:?}, reversed"));
    }
}

#[test]
fn threads_change_no_bit_and_recomputation_no_number() {
    let groups = groups();
    let loss = loss("constant");
    let one = train(&groups, &loss, 100, 1, ActivationCheckpointing::None);
    let two = train(&groups, &loss, 100, 2, ActivationCheckpointing::None);
    assert_eq!(one.losses, two.losses);
    assert_eq!(one.gradients, two.gradients);
    assert_eq!(one.parameters, two.parameters);
    let again = train(&groups, &loss, 100, 2, ActivationCheckpointing::Layers);
    assert_same(&again, &one, "recompute");
}

/// A ratio that is rescored is 1 at the first update, as that of REINFORCE, and is held to the weights before it at the
/// second; what was recorded, here moved, is not looked at.
#[test]
fn a_rescored_ratio_is_taken_to_the_weights_before_the_first_update() {
    let loss = loss("constant");
    let with = |wanted: Ratio| {
        let mut groups = groups();
        for span in groups.iter_mut().flat_map(|it| &mut it.sequences).flat_map(|it| &mut it.spans)
        {
            if let Term::Policy { ratio, .. } = &mut span.term {
                *ratio = wanted;
            }
        }
        groups
    };
    let batching = batches_of(100);
    let mut rescored = with(Ratio::Rescored);
    Trainer::new(fixture(1), ActivationCheckpointing::None)
        .unwrap()
        .rescore(&mut rescored, batching)
        .unwrap();
    // What the same weights say alone, behind the same prompts.
    let mut alone = with(Ratio::Rescored);
    let mut tape = Tape::new(ActivationCheckpointing::None);
    for batch in
        pack(&alone.clone(), batches_of(1), |group, it| group.has_signal && !it.is_teacher())
    {
        let log_probs = tape.forward(&fixture(1), &batch.packed).unwrap().log_probs;
        for (g, s, targets) in batch.spans {
            alone[g].sequences[s].old_log_probs = log_probs[targets].to_vec();
        }
    }
    for (got, expected) in rescored.iter().zip(&alone).filter(|it| it.0.has_signal) {
        for (got, expected) in got.sequences.iter().zip(&expected.sequences) {
            assert_eq!(got.is_moved, !got.is_teacher());
            let pairs = got.old_log_probs.iter().zip(&expected.old_log_probs);
            assert!(pairs.clone().count() == got.old_log_probs.len());
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }
    let run = |groups: &[TokenGroup]| train(groups, &loss, 100, 1, ActivationCheckpointing::None);
    let (one, rescored, recorded) = (run(&with(Ratio::One)), run(&rescored), run(&groups()));
    assert!(relative(&rescored.gradients[0], &one.gradients[0]) < 1e-6);
    assert!(relative(&recorded.gradients[0], &one.gradients[0]) > 1e-2);
    // The second update's ratio has moved with the weights; that of REINFORCE is 1 for good.
    assert!(relative(&rescored.gradients[1], &one.gradients[1]) > 1e-6);
}

/// D20: a group without signal counts in the normaliser and is not run.
#[test]
fn d20_a_group_without_signal_counts_and_is_not_run() {
    let mut groups = groups();
    let loss = Loss { entropy_coef: 0.0, ..loss("constant") };
    for it in &mut groups[3].sequences {
        it.spans[0].term = it.spans[0].term.scaled(0.0);
    }
    let skipped = train(&groups, &loss, 100, 1, ActivationCheckpointing::None);
    groups[3].has_signal = true;
    let run = train(&groups, &loss, 100, 1, ActivationCheckpointing::None);
    assert_same(&skipped, &run, "skipped");
    groups.remove(3);
    let without = train(&groups, &loss, 100, 1, ActivationCheckpointing::None);
    // Without it the normaliser is that of three groups, not four.
    let ratio = without.losses[0] / skipped.losses[0];
    assert!((ratio - 4.0 / 3.0).abs() < 1e-6, "{ratio}");
}

const TINY: &str = "{ hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 }";

fn start(recipe: &Recipe, threads: usize) -> Run {
    Run::new(&RunPlan::settle(recipe).unwrap(), threads).unwrap()
}

/// A run with a small random decoder; the entropy bonus moves it where no answer is correct.
fn tiny(extra: &str) -> Recipe {
    recipe(&format!(
        "steps = 8\n\
         model.init = {TINY}\n\
         data = {{ prompts = 16, levels = [\"multiply:2\"], teacher_coverage = 0.5, max_prompt_tokens = 32 }}\n\
         sampling = {{ group_size = 4, prompts_per_step = 4, max_new_tokens = 48 }}\n\
         loss.entropy_coef = 0.05\noptim = {{ lr = 1e-3, mini_batch_prompts = 2 }}\n{extra}"
    ))
}

fn weights(run: &Run) -> Vec<f32> {
    numbers_of(&run.learner.model)
}

fn numbers_of(model: &Model<Cpu>) -> Vec<f32> {
    let mut all = vec![0.0; model.trained_len()];
    model.read_trained(0, &mut all);
    all
}

fn numbers(metrics: &Metrics) -> Vec<(String, u64)> {
    let wanted = metrics.iter().filter(|it| !is_clock(it.0));
    wanted.map(|(name, value)| (name.to_owned(), value.to_bits())).collect()
}

#[test]
fn a_gate_that_never_opens_is_grpo_bit_for_bit() {
    let mut bare = start(&tiny("method = \"grpo\""), 2);
    for host in ["trapo", "luffy", "srft", "hpt"] {
        let text = format!("method = \"{host}\"\n[hapo]\ngate = \"never\"");
        let mut gated = start(&tiny(&text), 1);
        let mut bare_again = start(&tiny("method = \"grpo\""), 1);
        for _ in 0..3 {
            let (a, b) = (gated.step().unwrap(), bare_again.step().unwrap());
            assert_eq!(numbers(&a), numbers(&b), "{host}");
        }
        assert_eq!(weights(&gated), weights(&bare_again), "{host}");
    }
    let before = weights(&bare);
    bare.step().unwrap();
    assert_ne!(weights(&bare), before, "the comparison must be of runs that move");
}

#[test]
fn after_extinction_every_hapo_run_is_grpo_bit_for_bit() {
    // Four steps are an epoch, so the gate of m = 0 closes at step 3 (D1, D2).
    for host in ["trapo", "luffy", "srft"] {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("method = \"{host}\"\n[hapo]\nturn_off_epoch = 0.75");
        let mut hapo = start(&tiny(&text), 2);
        let open = [hapo.step().unwrap(), hapo.step().unwrap()];
        assert!(open.iter().any(|it| it.get("gate/beta").unwrap() > 0.0));
        std::fs::create_dir(dir.path().join("checkpoints")).unwrap();
        let mut shelf = crate::checkpoint::CheckpointStore::new(dir.path(), 1, None);
        let (folder, _) = shelf.write(&hapo.contents(&hapo.state("", None))).unwrap();
        let state = crate::checkpoint::verify(&folder).unwrap();
        let mut grpo = start(&tiny("method = \"grpo\""), 2);
        grpo.restore(&state, &folder).unwrap();
        for _ in 0..3 {
            let (a, b) = (hapo.step().unwrap(), grpo.step().unwrap());
            assert_eq!(a.get("gate/success_limit"), Some(-1.0));
            let of_policy = |it: &Metrics| {
                let all = numbers(it);
                // The threshold is a log of the gate and decides nothing (D1).
                all.into_iter().filter(|it| it.0 != "gate/threshold").collect::<Vec<_>>()
            };
            assert_eq!(of_policy(&a), of_policy(&b), "{host}");
        }
        assert_eq!(weights(&hapo), weights(&grpo), "{host}");
    }
}

/// D18: the KL to the initial policy is 0 before the first update and positive after, and measuring it
/// changes nothing.
#[test]
fn d18_kl_is_a_metric_and_no_term() {
    let text = |extra: &str| format!("method = \"trapo\"\n{extra}");
    let mut measured = start(&tiny(&text("metrics.kl_every = 1")), 2);
    let mut plain = start(&tiny(&text("")), 2);
    let kl: Vec<f64> = (0..3)
        .map(|_| {
            plain.step().unwrap();
            measured.step().unwrap().get("policy/kl_to_initial").unwrap()
        })
        .collect();
    assert!(kl[0].abs() < 1e-9, "{kl:?}");
    assert!(kl[1] > 1e-7 && kl[2] > kl[1], "{kl:?}");
    assert_eq!(weights(&measured), weights(&plain));
}

/// Dynamic sampling: groups of prompts that gave no signal give way to fresh ones, a bounded number
/// of times.
#[test]
fn refilling_is_bounded_and_keeps_the_size_of_the_batch() {
    let more = Overrides::set(["sampling.dynamic_sampling=2"]);
    let recipe = tiny("method = \"grpo\"").with(&more).unwrap();
    let mut run = start(&recipe, 2);
    let metrics = run.step().unwrap();
    // A random decoder answers nothing: every round replaces all four groups by fresh prompts. All are counted, and
    // four are trained on.
    assert_eq!(metrics.get("groups/refilled"), Some(8.0));
    assert_eq!(metrics.get("groups/all_fail"), Some(12.0));
    assert_eq!(metrics.get("selected/without_signal"), Some(4.0));
}

/// Where the objective gives a failed group a gradient, as SRFT's entropy weights do, it is not replaced.
#[test]
fn dynamic_sampling_asks_the_objective_for_a_signal() {
    let text = "method = \"srft\"\nsrft.weights = \"entropy\"\nhapo.gate = \"never\"";
    let more = Overrides::set(["loss.entropy_coef=0", "sampling.dynamic_sampling=2"]);
    let recipe = tiny(text).with(&more).unwrap();
    let metrics = start(&recipe, 2).step().unwrap();
    assert_eq!(metrics.get("groups/all_fail"), Some(4.0));
    assert_eq!(metrics.get("groups/refilled"), Some(0.0));
    assert_eq!(metrics.get("groups/without_signal"), Some(0.0));
    assert!(metrics.get("grad_norm").unwrap() > 0.0);
}

/// What was measured on no token is absent, and the sampler's gap is there only for all groups that are trained on.
#[test]
fn what_was_not_measured_is_absent() {
    let recipe = tiny("method = \"grpo\"\nmetrics.gap_every = 2");
    let mut run = start(&recipe, 2);
    let gaps = [0; 4].map(|_| {
        let metrics = run.step().unwrap();
        assert_eq!(metrics.get("teacher/mean_prob"), None);
        assert_eq!(metrics.get("teacher/grad_norm"), Some(0.0));
        assert!(metrics.get("policy/ratio_mean").is_some());
        metrics.get("sampler/logprob_gap_max")
    });
    assert_eq!(gaps, [Some(0.0), None, Some(0.0), None]);
    let without_bonus = recipe.with(&Overrides::set(["loss.entropy_coef=0"])).unwrap();
    let metrics = start(&without_bonus, 2).step().unwrap();
    assert_eq!(metrics.get("groups/without_signal"), Some(4.0));
    for name in ["policy/ratio_mean", "policy/clip_fraction", "sampler/logprob_gap_max"] {
        assert_eq!(metrics.get(name), None, "{name} of a step in which nothing was run");
    }
}

/// HPT: a failed group is its demonstration alone.
#[test]
fn hpt_drops_the_rollouts_of_a_failed_group() {
    let mut run = start(&recipe_without_bonus("hpt"), 2);
    let metrics = run.step().unwrap();
    assert!(metrics.get("gate/beta").unwrap() > 0.0);
    assert!(metrics.get("teacher/token_share").unwrap() > 0.0);
    assert!(metrics.get("teacher/grad_norm").unwrap() > 0.0);
    assert_eq!(
        metrics.get("grad_norm").unwrap().to_bits(),
        metrics.get("teacher/grad_norm").unwrap().to_bits(),
        "nothing but the demonstrations has a gradient"
    );
}

fn recipe_without_bonus(method: &str) -> Recipe {
    let it = tiny(&format!("method = \"{method}\""));
    it.with(&Overrides::set(["loss.entropy_coef=0"])).unwrap()
}

/// Every host, bare and gated, makes a step that moves the weights.
#[test]
fn every_method_trains() {
    for spec in METHODS {
        let method = spec.build(&MethodSettings::default()).unwrap();
        let mut texts = vec![vec![format!("method={}", spec.name)]];
        if method.needs().reference {
            texts[0].push("reference.path=builtin:base".to_owned());
        }
        if method.needs().hints {
            texts[0].push("data.max_prompt_tokens=96".to_owned());
        }
        if spec.name == "sdpo" {
            // Without a success there is nothing to distil.
            texts[0].push("data.verdict_noise=0.3".to_owned());
        }
        if method.plan.can_be_gated {
            let gate = "hapo.turn_off_epoch=1.5".to_owned();
            texts.push(vec![texts[0][0].clone(), gate]);
        }
        for text in texts {
            let recipe = tiny("method = \"grpo\"").with(&Overrides::set(&text));
            let text = text.join(" ");
            let mut run = start(&recipe.unwrap(), 2);
            let before = weights(&run);
            for _ in 0..2 {
                let metrics = run.step().unwrap();
                for (name, value) in metrics.iter().filter(|it| !is_clock(it.0)) {
                    assert!(value.is_finite(), "{text}: {name} is {value}");
                }
            }
            assert_ne!(weights(&run), before, "{text}");
        }
    }
}

/// Every CPU-sized recipe makes its first steps, with a decoder and a batch small enough for a test.
#[test]
fn every_mini_recipe_runs() {
    if hapo_testing::slow() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mini");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        for recipe in Recipe::load_stages(&path, &Overrides::default()).unwrap() {
            let mini_batch = recipe.optim.mini_batch_prompts.min(2);
            let mut keys = vec![
                format!("model.init={TINY}"),
                "data.prompts=32".to_owned(),
                "sampling.prompts_per_step=4".to_owned(),
                format!("optim.mini_batch_prompts={mini_batch}"),
            ];
            if recipe.needs().reference {
                keys.push("reference.path=builtin:base".to_owned());
            }
            let unset = vec!["model.path".to_owned()];
            let small = Overrides { unset, ..Overrides::set(keys) };
            let mut run = start(&recipe.with(&small).unwrap(), 2);
            let metrics = run.step().unwrap();
            assert!(metrics.get("loss").unwrap().is_finite(), "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 26, "{seen} stages");
}

#[test]
fn a_prefix_is_the_teachers_and_the_rest_the_policys() {
    let (prompt, prefix) = (vec![5, 9, 2, 7], vec![3, 4, 8]);
    let rest = vec![11, 12, 13, 14, 15];
    let old = vec![-4.0, -5.0, -4.5, -5.5, -4.2];
    let policy = Term::policy(0.6);
    let group = |prompt: &[u32], sequence| TokenGroup {
        prompts: vec![prompt.to_vec()],
        sequences: vec![sequence],
        has_signal: true,
    };
    let begun = [prompt.as_slice(), &prefix].concat();
    let whole = [prefix.as_slice(), &rest].concat();
    let mut as_one = sequence(&whole, old.clone(), policy.clone());
    as_one.spans = vec![Span::new(0..3, teacher(0.7)), Span::new(3..8, policy.clone())];
    let prefixed = [group(&prompt, as_one)];
    let apart = [
        group(&prompt, sequence(&prefix, Vec::new(), teacher(0.7))),
        group(&begun, sequence(&rest, old, policy)),
    ];
    let loss = loss("token-mean");
    let of = |groups: &[TokenGroup]| {
        let mut trainer = Trainer::new(fixture(1), ActivationCheckpointing::None).unwrap();
        // Another temperature than 1 for the ratio, so that a prefix read at it would show (D25).
        let batching = Batching { micro_batch_tokens: 64, inverse_temperature: 0.8 };
        let stats = trainer.gradient(&loss, groups, batching).unwrap();
        (stats, trainer.gradients.buf().as_slice().to_vec())
    };
    let ((one, one_gradient), (two, two_gradient)) = (of(&prefixed), of(&apart));
    assert!((loss_of(&one) - loss_of(&two)).abs() < 1e-6 * loss_of(&two).abs());
    assert_eq!(one.count("policy/ratio_mean"), 5);
    assert_eq!(one.count("teacher/mean_prob"), 3);
    assert!(relative(&one_gradient, &two_gradient) < 1e-6);
}
