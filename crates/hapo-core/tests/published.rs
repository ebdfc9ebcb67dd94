//! What methods make of a group, against the formulas of their authors' code in `PyTorch`
//! (`testdata/methods/make_reference.py`): the loss and its derivative by every log-probability. Random groups with
//! responses that are cut off are among the cases.

use std::path::Path;

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
    /// log π of the second model, where there is one.
    #[serde(default)]
    reference: Vec<f32>,
    gradient: Vec<f64>,
    /// The derivative by each entropy, where there is a bonus over all tokens.
    #[serde(default)]
    entropy_gradient: Vec<f64>,
}

impl Group {
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
        let most = self.groups.iter().map(|it| it.rollouts.len()).max().unwrap();
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
        let method = (method(&self.method).unwrap().build)(&settings).unwrap();
        Gated::bare(method, settings.group_size).unwrap()
    }

    fn loss(&self, gated: &Gated) -> Loss {
        let [low, high] = &self.clip;
        let number = |it: &Value| it.as_f64().unwrap_or(f64::INFINITY);
        Loss {
            clip: Clip { low: number(low), high: number(high) },
            teacher_apart: gated.teacher_apart(),
            kl: self.kl.map(|it| Kl { coef: it.coef, estimator: it.estimator }),
            entropy_coef: self.entropy_coef,
            entropy_over: EntropyOver::Response,
            ..Loss::new(self.normaliser.of(self.max_response))
        }
    }

    fn mixed(&self, gated: &Gated, (id, group): (usize, &Group)) -> MixedGroup {
        let rollout = |it: &Member| Rollout {
            tokens: vec![1; it.log_probs.len()],
            prefix: it.prefix,
            log_probs: it.old_log_probs.clone(),
            ended: it.ended,
            ..Rollout::default()
        };
        let rollouts: Vec<_> = group.rollouts.iter().map(rollout).collect();
        let graded = group.rollouts.iter().map(|it| (it.reward, Verdict::Wrong)).collect();
        let teacher = group.teacher.as_ref().map(|it| {
            let tokens = vec![1; it.log_probs.len() - 1];
            admit_teacher(tokens, &[END], &Verdict::Correct, self.max_response).unwrap()
        });
        let sampled = SampledGroup::new(PromptId(id as u64), rollouts.len(), rollouts);
        let scored = sampled.score_with_rewards(graded, self.success_at);
        let scored = scored.paying_unjudged(self.truncated, self.wrong);
        let step = Step(self.step);
        let slot = Slot { rule: gated.slot(), seed: 0, step };
        let is_open = gated.success_limit(slot.step).is_open(scored.successes());
        let offer = Offer { teachers: teacher.as_slice(), stored: &[], scores: &[], slot };
        gated.mix(scored, &offer, is_open)
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_published_formulas() {
    let cases = cases();
    assert_eq!(cases.len(), 20);
    for case in &cases {
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
            for (member, spans) in mixed.members().iter().zip(credit) {
                let recorded = match member {
                    hapo_core::Member::Policy(it) => &group.rollouts[it.index],
                    _ => group.teacher.as_ref().unwrap(),
                };
                let n = recorded.log_probs.len();
                let (mut slopes, mut by_entropy) = (vec![0.0; n], vec![0.0; n]);
                for span in spans.iter().filter(|_| counts(member)) {
                    let at = span.tokens.clone();
                    let old = at.start.checked_sub(recorded.prefix).filter(|_| !span.is_teacher());
                    let of = SpanTokens {
                        log_probs: &recorded.log_probs[at.clone()],
                        old_log_probs: old
                            .map_or(&[][..], |it| &recorded.old_log_probs[it..][..at.len()]),
                        reference: recorded.reference.get(at.clone()).unwrap_or_default(),
                        entropies: &recorded.entropies[at.clone()],
                    };
                    let divisor = loss.divisor_of(span, n, divisors);
                    let (slopes, by_entropy) = (&mut slopes[at.clone()], &mut by_entropy[at]);
                    total -= loss.span(span, of, divisor, slopes, by_entropy).objective;
                }
                let expected = recorded.gradient.iter().chain(&recorded.entropy_gradient);
                let got = slopes.iter().chain(&by_entropy);
                for (i, (got, expected)) in got.zip(expected).enumerate() {
                    let gap = (f64::from(*got) - expected).abs();
                    let name = &case.name;
                    assert!(gap <= 1e-6 * expected.abs() + 1e-9, "{name}: {got} {expected} at {i}");
                }
            }
        }
        if let Some(expected) = case.loss {
            let gap = (total - expected).abs();
            assert!(gap < 1e-6 * expected.abs(), "{}: {total} {expected}", case.name);
        }
    }
}
