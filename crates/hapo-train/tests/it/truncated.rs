//! D26, D27, D31 in training: what counts as an answer, and a response without its end token.

use hapo_kernels::Cpu;
use hapo_model::Model;
use hapo_sampler::{GroupRequest, SampleSettings, Sampled};
use hapo_train::{Metrics, Overrides, Recipe, Result, Run, RunPlan, Sampler, Weights};

/// Takes the end from the responses whose number `cut` picks.
struct Cutting {
    inner: Box<dyn Sampler<Model<Cpu>>>,
    cut: fn(usize) -> bool,
}

impl Sampler<Model<Cpu>> for Cutting {
    fn sample(
        &mut self,
        weights: Weights<'_, Model<Cpu>>,
        requests: &[GroupRequest<'_>],
        settings: &SampleSettings<'_>,
    ) -> Result<Vec<Sampled>> {
        let mut sampled = self.inner.sample(weights, requests, settings)?;
        for it in &mut sampled {
            let mut rollouts = it.group.rollouts.clone();
            for (number, rollout) in rollouts.iter_mut().enumerate() {
                rollout.ended &= !(self.cut)(number);
            }
            let (prompt, asked) = (it.group.prompt, rollouts.len());
            it.group = hapo_core::SampledGroup::new(prompt, asked, rollouts);
        }
        Ok(sampled)
    }
}

/// One step of four prompts by GRPO, in groups of four.
fn step(data: &str, cut: fn(usize) -> bool) -> Metrics {
    step_of("", data, cut)
}

fn step_of(keys: &str, data: &str, cut: fn(usize) -> bool) -> Metrics {
    let text = format!(
        "method = \"grpo\"\n{keys}\nsteps = 1\nmodel.path = \"builtin:base\"\n\
         data = {{ train = \"builtin\", prompts = 8, levels = [\"multiply:2\"], max_prompt_tokens = 32{data} }}\n\
         sampling = {{ group_size = 4, prompts_per_step = 4, max_new_tokens = 48 }}\n\
         loss.entropy_coef = 0.01\noptim.lr = 1e-4\n"
    );
    let recipe = Recipe::parse(&text, "test", &Overrides::default()).unwrap();
    let run = Run::new(&RunPlan::settle(&recipe).unwrap(), 1).unwrap();
    run.with_sampler(|inner| Cutting { inner, cut }).step().unwrap()
}

fn of(it: &Metrics, names: &[&str]) -> Vec<f64> {
    names.iter().map(|name| it.get(name).unwrap()).collect()
}

const VERDICTS: &[&str] = &["verify/correct", "verify/wrong", "verify/unparsable", "reward/mean"];

#[test]
fn d27_a_response_without_its_end_token_has_no_reward_and_stays() {
    let whole = step("", |_| false);
    let correct = whole.get("verify/correct").unwrap();
    assert!(correct > 0.0);
    let cut = step("", |_| true);
    assert_eq!(of(&cut, VERDICTS), [0.0, 0.0, 16.0, 0.0]);
    assert_eq!(of(&cut, &["groups/all_fail", "groups/dropped"]), [4.0, 0.0]);
    // It is still told that the answers are there.
    assert_eq!(cut.get("verify/boxed"), whole.get("verify/boxed"));
    let graded = step(", truncated = \"grade\"", |_| true);
    assert_eq!(of(&graded, VERDICTS), of(&whole, VERDICTS));
    assert_eq!(of(&graded, &["loss", "grad_norm"]), of(&whole, &["loss", "grad_norm"]));
}

#[test]
fn d27_a_masked_response_leaves_the_loss_and_its_reward_stays() {
    let half = |number: usize| number.is_multiple_of(2);
    let (wrong, mask) = (step("", half), step(", truncated = \"mask\"", half));
    assert_eq!(of(&mask, VERDICTS), of(&wrong, VERDICTS));
    assert_ne!(mask.get("grad_norm"), wrong.get("grad_norm"));
    // The entropy bonus reaches every token that is in the loss.
    let all = (step("", |_| true), step(", truncated = \"mask\"", |_| true));
    assert!(all.0.get("grad_norm").unwrap() > 0.0);
    assert_eq!(of(&all.1, &["loss", "grad_norm"]), [0.0, 0.0]);
}

/// A program that gives -1 to every answer.
const NEGATIVE: &str = ", grader = \"command:while read -r line; do echo -1; done\"";

#[test]
fn d31_to_be_cut_off_never_pays_better_than_to_be_wrong() {
    let half = |number: usize| number.is_multiple_of(2);
    // All of a group is worth -1, cut off or not: there is nothing to learn, above all not to be cut off.
    let it = step_of("", NEGATIVE, half);
    let names = ["reward/mean", "groups/without_signal", "reward/below_wrong"];
    assert_eq!(of(&it, &names), [-1.0, 4.0, 8.0]);
    let lower = step_of("reward.wrong = -3.0", NEGATIVE, half);
    assert_eq!(of(&lower, &names[..2]), [-2.0, 0.0]);
    assert_eq!(lower.get("reward/below_wrong"), None);
    // A cut response is no success, whatever counts as one.
    let low = step_of("reward = { success_at = -1.0, wrong = -2.0 }", NEGATIVE, half);
    assert_eq!(of(&low, &["verify/correct", "groups/partially_solved"]), [8.0, 4.0]);
    // An answer that cannot be read has no verdict either.
    let unread = step_of("reward.wrong = -1.0", ", extraction = \"boxed\"", |_| true);
    assert_eq!(unread.get("reward/mean"), Some(-1.0));
}

#[test]
fn d31_wrong_is_below_success_and_pays_no_more_than_a_wrong_answer() {
    let parse = |grader: &str, keys: &str| {
        let text = format!("method = \"grpo\"\nmodel.path = \"m\"\n{grader}{keys}\n");
        Recipe::parse(&text, "r", &Overrides::default()).err().map(|it| it.to_string())
    };
    let own = "data.grader = \"command:x\"\n";
    assert_eq!(parse(own, "reward = { wrong = 0.9 }"), None);
    assert_eq!(parse("", "reward = { wrong = -1.0 }"), None);
    for (grader, keys) in [
        (own, "reward = { wrong = 1.0 }"),
        (own, "reward = { success_at = 0.0 }"),
        (own, "reward = { wrong = nan }"),
        ("", "reward = { wrong = 0.1 }"),
        ("", "reward = { wrong = -inf }"),
    ] {
        let error = parse(grader, keys).expect(keys);
        assert!(error.contains("expected ") && error.contains("reward.wrong"), "{error}");
    }
}
