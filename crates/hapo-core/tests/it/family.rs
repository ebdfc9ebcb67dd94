//! Methods that let several foreign sequences into a group, against numbers in closed form
//! (`testdata/methods/make_family.py`): who enters, each member's part of the loss, and its derivative, which is held to
//! finite differences as well.

use std::path::Path;

use crate::support::{END, assert_slopes, loss_of};
use hapo_core::*;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    method: String,
    own: Value,
    std: bool,
    clip: [Option<f64>; 2],
    max_response: usize,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    fresh: Vec<Sequence>,
    #[serde(default)]
    traces: Vec<Sequence>,
    #[serde(default)]
    stored: Vec<Sequence>,
    /// Who enters, by their ids.
    foreign: Vec<TokenId>,
    members: usize,
}

#[derive(Deserialize)]
struct Sequence {
    /// Its tokens but the last.
    id: TokenId,
    reward: f64,
    log_probs: Vec<f32>,
    /// The log-probabilities that its ratio is taken to.
    old: Vec<f32>,
    /// log π of the tokens that are scored before it may enter.
    #[serde(default)]
    score: Vec<f32>,
    /// S of the group that sampled it.
    #[serde(default)]
    successes: usize,
    /// Its entropies under the weights of the step, where they are scored.
    #[serde(default)]
    entropies: Vec<f32>,
    #[serde(default)]
    value: f64,
    #[serde(default)]
    gradient: Vec<f64>,
}

impl Sequence {
    fn tokens(&self) -> Vec<TokenId> {
        let mut tokens = vec![self.id; self.log_probs.len()];
        *tokens.last_mut().unwrap() = END;
        tokens
    }

    fn scores(&self) -> TokenScores {
        let (log_probs, entropies) = (self.score.clone(), self.entropies.clone());
        TokenScores { log_probs, entropies, ..TokenScores::default() }
    }
}

impl Case {
    fn gated(&self) -> Gated {
        let group_size = self.groups.iter().map(|it| it.fresh.len()).max().unwrap();
        let mut settings = json!({ "group_size": group_size, "advantage": { "std": self.std } });
        if self.own.as_object().is_some_and(|table| !table.is_empty()) {
            settings[&self.method] = self.own.clone();
        }
        let settings: MethodSettings = serde_json::from_value(settings).unwrap();
        let method = method(&self.method).unwrap().build(&settings).unwrap();
        Gated::bare(method, group_size).unwrap()
    }

    fn loss(&self, gated: &Gated) -> Loss {
        let [low, high] = self.clip.map(|it| it.unwrap_or(f64::INFINITY));
        Loss {
            clip: Clip { low, high },
            teacher_apart: gated.method.plan.teacher_apart,
            ..Loss::new(NormaliserKind::Length.of(self.max_response))
        }
    }

    fn mixed(&self, gated: &Gated, number: usize, group: &Group) -> MixedGroup {
        let rollout = |it: &Sequence| Rollout {
            tokens: it.tokens(),
            log_probs: it.old.clone(),
            ended: true,
            ..Rollout::default()
        };
        let rollouts: Vec<_> = group.fresh.iter().map(rollout).collect();
        let graded = group.fresh.iter().map(|it| (it.reward, Verdict::Wrong)).collect();
        let sampled = SampledGroup::new(PromptId(number as u64), rollouts.len(), rollouts);
        let admitted = |it: &Sequence| {
            admit_teacher(it.tokens(), &[END], &Verdict::Correct, self.max_response).unwrap()
        };
        let teachers: Vec<_> = group.traces.iter().map(admitted).collect();
        let stored = |it: &Sequence| StoredTrace {
            tokens: it.tokens(),
            log_probs: it.old.clone(),
            reward: it.reward,
            successes: it.successes,
            step: Step(1),
        };
        let stored: Vec<_> = group.stored.iter().map(stored).collect();
        let scores: Vec<_> =
            group.traces.iter().chain(&group.stored).map(Sequence::scores).collect();
        let slot = Slot { rule: gated.slot, seed: 0, step: Step(2) };
        let offer = Candidate { teachers: &teachers, stored: &stored, scores: &scores, slot };
        let scored = sampled.score_with_rewards(graded, 1.0);
        let is_open = gated.success_limit(offer.slot.step).is_open(scored.successes());
        gated.mix(scored, &offer, is_open)
    }
}

#[test]
fn members_losses_and_gradients_are_those_of_the_closed_forms() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/methods/family.json");
    let recorded: Recorded = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(!recorded.cases.is_empty());
    for case in &recorded.cases {
        let (gated, name) = (case.gated(), &case.name);
        let loss = case.loss(&gated);
        for (number, group) in case.groups.iter().enumerate() {
            let mixed = case.mixed(&gated, number, group);
            assert_eq!(mixed.members().len(), group.members, "{name}");
            let mut foreign: Vec<_> = mixed.foreign().map(|it| it.tokens()[0]).collect();
            foreign.sort_unstable();
            assert_eq!(foreign, group.foreign, "{name}");
            let credit = gated.credit(&mixed, Step(2), Scores::NONE);
            let spans = mixed.members().iter().zip(&credit);
            let lengths = spans.clone().map(|it| (it.0.tokens().len(), it.1.as_slice()));
            let of = (&loss, loss.divisors(lengths));
            for (member, spans) in spans {
                let id = member.tokens()[0];
                let known = group.fresh.iter().chain(&group.traces).chain(&group.stored);
                let known = known.into_iter().find(|it| it.id == id).unwrap();
                let (value, slopes) = loss_of(of, spans, &known.log_probs, &known.old);
                assert!((value - known.value).abs() < 1e-6, "{name}: {value} {}", known.value);
                for (got, expected) in slopes.iter().zip(&known.gradient) {
                    let got = f64::from(*got);
                    assert!((got - expected).abs() < 1e-7, "{name}, {id}: {got} {expected}");
                }
                let value_at = |log_probs: &[f32]| loss_of(of, spans, log_probs, &known.old).0;
                assert_slopes(name, value_at, &known.log_probs, &known.gradient, (1e-6, 1e-5));
            }
        }
    }
}
