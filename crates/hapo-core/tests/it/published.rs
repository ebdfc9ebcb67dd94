//! What methods make of a group, against the formulas of their authors' code in `PyTorch`
//! (`testdata/methods/make_reference.py`): the loss and its derivative by every log-probability, which is held to finite
//! differences as well. Random groups with responses that are cut off are among the cases, and groups that grew.

use std::path::Path;

use crate::support::{assert_slopes, price};
use hapo_core::*;
use serde::Deserialize;
use serde_json::{Value, json};

const END: TokenId = 0;

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    method: String,
    max_response: usize,
    loss: Option<f64>,
    groups: Vec<Group>,
    step: u64,
    own: Value,
    std: bool,
    clip: [Value; 2],
    normaliser: NormaliserKind,
    #[serde(default)]
    teacher_weight: TeacherWeight,
    kl: Option<KlTerm>,
    /// Weight of a bonus over all tokens.
    #[serde(default)]
    entropy_coef: f64,
    #[serde(default)]
    truncated: Truncated,
    #[serde(default)]
    wrong: f64,
    #[serde(default = "one")]
    success_at: f64,
}

fn one() -> f64 {
    1.0
}

#[derive(Clone, Copy, Deserialize)]
struct KlTerm {
    coef: f64,
    estimator: KlEstimator,
}

#[derive(Deserialize)]
struct Group {
    rollouts: Vec<Member>,
    teacher: Option<Member>,
}

#[derive(Deserialize)]
struct Member {
    log_probs: Vec<f32>,
    old_log_probs: Vec<f32>,
    entropies: Vec<f32>,
    reward: f64,
    prefix: usize,
    ended: bool,
    /// The part of its group that it was sampled in.
    #[serde(default)]
    part: usize,
    /// The hint that it was sampled under.
    hint: Option<usize>,
    /// The log-probabilities before the step's first update, where it is trained on behind another prompt than its own.
    #[serde(default)]
    rescored: Vec<f32>,
    /// log π of the second model, where there is one.
    #[serde(default)]
    reference: Vec<f32>,
    gradient: Vec<f64>,
    /// The derivative by each entropy, where there is a bonus over all tokens.
    #[serde(default)]
    entropy_gradient: Vec<f64>,
}

impl Member {
    fn rollout(&self) -> Rollout {
        Rollout {
            tokens: vec![1; self.log_probs.len()],
            prefix: self.prefix,
            log_probs: self.old_log_probs.clone(),
            ended: self.ended,
            part: self.part,
            context: self.hint.map_or(Context::Plain, Context::Hint),
            ..Rollout::default()
        }
    }

    /// Below the line of the ratio; no number where nothing was recorded.
    fn old(&self, spans: &[Span]) -> Vec<f32> {
        let is_rescored = spans.iter().any(|it| it.ratio() == Some(Ratio::Rescored));
        let known = if is_rescored { &self.rescored } else { &self.old_log_probs };
        let given = self.log_probs.len() - known.len();
        [&vec![f32::NAN; given], &known[..]].concat()
    }
}

impl Group {
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.rollouts.iter().chain(&self.teacher)
    }

    fn scores(&self) -> Scores {
        let of =
            |it: &Member| TokenScores { log_probs: it.reference.clone(), ..TokenScores::default() };
        Scores { reference: self.rollouts.iter().map(of).collect(), ..Scores::default() }
    }
}

fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/methods/cases.json");
    let recorded: Recorded = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    recorded.cases
}

impl Case {
    fn gated(&self) -> Gated {
        let plain = |it: &Group| it.rollouts.iter().filter(|it| it.part == 0).count();
        let most = self.groups.iter().map(plain).max().unwrap();
        let prefixed = self.groups.iter().flat_map(|it| &it.rollouts).any(|it| it.prefix > 0);
        let mut settings = json!({
            "group_size": most + usize::from(prefixed),
            "advantage": { "std": self.std },
            "teacher": { "weight": self.teacher_weight },
        });
        if self.own.as_object().is_some_and(|table| !table.is_empty()) {
            settings[&self.method] = self.own.clone();
        }
        let settings: MethodSettings = serde_json::from_value(settings).unwrap();
        let method = method(&self.method).unwrap().build(&settings).unwrap();
        Gated::bare(method, settings.group_size).unwrap()
    }

    fn loss(&self, gated: &Gated) -> Loss {
        let [low, high] = &self.clip;
        let number = |it: &Value| it.as_f64().unwrap_or(f64::INFINITY);
        Loss {
            clip: Clip { low: number(low), high: number(high) },
            teacher_apart: gated.method.plan.teacher_apart,
            kl: self.kl.map(|it| Kl { coef: it.coef, estimator: it.estimator }),
            entropy_coef: self.entropy_coef,
            entropy_over: EntropyOver::Response,
            ..Loss::new(self.normaliser.of(self.max_response))
        }
    }

    fn mixed(&self, gated: &Gated, (id, group): (usize, &Group)) -> MixedGroup {
        let teacher = group.teacher.as_ref().map(|it| {
            let tokens = vec![1; it.log_probs.len() - 1];
            admit_teacher(tokens, &[END], &Verdict::Correct, self.max_response).unwrap()
        });
        let prompt = PromptId(id as u64);
        let mut scored = ScoredGroup::empty(prompt);
        for part in group.rollouts.chunk_by(|a, b| a.part == b.part) {
            let graded = part.iter().map(|it| (it.reward, Verdict::Wrong)).collect();
            let rollouts = part.iter().map(Member::rollout).collect();
            let sampled = SampledGroup::new(prompt, part.len(), rollouts);
            scored.join(sampled.score_with_rewards(graded, self.success_at));
        }
        let scored = scored.paying_unjudged(self.truncated, self.wrong);
        let step = Step(self.step);
        let slot = Slot { rule: gated.slot, seed: 0, step };
        let is_open = gated.success_limit(slot.step).is_open(scored.successes());
        let offer = Candidate { teachers: teacher.as_slice(), stored: &[], scores: &[], slot };
        gated.mix(scored, &offer, is_open)
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_published_formulas() {
    let cases = cases();
    assert_eq!(cases.len(), 46);
    for case in &cases {
        let name = &case.name;
        let gated = case.gated();
        let loss = case.loss(&gated);
        let mixed: Vec<MixedGroup> =
            case.groups.iter().enumerate().map(|it| case.mixed(&gated, it)).collect();
        let credits: Vec<Credit> = mixed
            .iter()
            .zip(&case.groups)
            .map(|(mixed, group)| gated.credit(mixed, Step(case.step), &group.scores()))
            .collect();
        let counts = |member: &hapo_core::Member| !member.is_masked(case.truncated);
        let members = mixed.iter().flat_map(MixedGroup::members);
        let members = members.zip(credits.iter().flatten()).filter(|it| counts(it.0));
        let divisors = loss.divisors(members.map(|it| (it.0.tokens().len(), it.1.as_slice())));
        let mut total = 0.0;
        for ((group, mixed), credit) in case.groups.iter().zip(&mixed).zip(&credits) {
            let mut left: Vec<&Member> = group.members().collect();
            let members = mixed.members().iter().zip(credit);
            for (member, spans) in members.filter(|it| counts(it.0)) {
                let recorded = match member.sampled() {
                    Some(it) => &group.rollouts[it.index],
                    None => group.teacher.as_ref().unwrap(),
                };
                left.retain(|it| !std::ptr::eq(*it, recorded));
                if recorded.hint.is_some() {
                    let is_plain = gated.trained_behind(member) == TrainPrompt::Plain;
                    assert_eq!(is_plain, !recorded.rescored.is_empty(), "{name}");
                }
                let old = recorded.old(spans);
                let price_at = |log_probs: &[f32]| {
                    let (reference, entropies) = (&recorded.reference, &recorded.entropies);
                    let tokens =
                        SpanTokens { log_probs, old_log_probs: &old, reference, entropies };
                    price((&loss, divisors), spans, tokens)
                };
                let priced = price_at(&recorded.log_probs);
                total += priced.loss;
                let expected = recorded.gradient.iter().chain(&recorded.entropy_gradient);
                let got = priced.by_log_prob.iter().chain(&priced.by_entropy);
                for (i, (got, expected)) in got.zip(expected).enumerate() {
                    let gap = (f64::from(*got) - expected).abs();
                    assert!(gap <= 1e-6 * expected.abs() + 1e-9, "{name}: {got} {expected} at {i}");
                }
                let slopes: Vec<f64> = priced.by_log_prob.iter().copied().map(f64::from).collect();
                let loss_at = |log_probs: &[f32]| price_at(log_probs).loss;
                assert_slopes(name, loss_at, &recorded.log_probs, &slopes, (1e-6, 5e-8));
            }
            // What is not trained on is in no term of the recorded loss.
            assert!(left.iter().flat_map(|it| &it.gradient).all(|it| *it == 0.0), "{name}");
        }
        if let Some(expected) = case.loss {
            let gap = (total - expected).abs();
            assert!(gap < 1e-6 * expected.abs(), "{name}: {total} {expected}");
        }
    }
}
