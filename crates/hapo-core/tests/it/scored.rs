//! Methods whose members the weights of the step or a second model score, against numbers in closed form
//! (`testdata/methods/make_scored.py`): behind which prompt a member is scored, its part of the loss, and its derivative,
//! which is held to finite differences as well.

use std::path::Path;

use crate::support::{assert_slopes, loss_of};
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
    max_response: usize,
    /// Verified traces of the prompt.
    #[serde(default)]
    traces: usize,
    rollouts: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    reward: f64,
    prefix: usize,
    log_probs: Vec<f32>,
    /// The log-probabilities that the ratio is taken to.
    old: Vec<f32>,
    /// `plain`, or the number of the rollout that is shown.
    behind: Value,
    scored: Vec<f32>,
    entropies: Vec<f32>,
    value: f64,
    gradient: Vec<f64>,
}

impl Case {
    fn gated(&self) -> Gated {
        let n = self.rollouts.len();
        let mut settings = json!({ "group_size": n, "advantage": { "std": self.std } });
        settings[&self.method] = self.own.clone();
        let settings: MethodSettings = serde_json::from_value(settings).unwrap();
        Gated::bare(method(&self.method).unwrap().build(&settings).unwrap(), n).unwrap()
    }

    fn mixed(&self, gated: &Gated) -> MixedGroup {
        let rollout = |it: &Sequence| Rollout {
            tokens: vec![9; it.log_probs.len()],
            prefix: it.prefix,
            log_probs: it.old[it.prefix..].to_vec(),
            ended: true,
            part: usize::from(it.prefix > 0),
            ..Rollout::default()
        };
        let rollouts: Vec<_> = self.rollouts.iter().map(rollout).collect();
        let graded = self.rollouts.iter().map(|it| (it.reward, Verdict::Wrong)).collect();
        let sampled = SampledGroup::new(PromptId(1), rollouts.len(), rollouts);
        let slot = Slot { rule: gated.slot, seed: 0, step: Step(1) };
        let trace = admit_teacher(vec![7; 3], &[0], &Verdict::Correct, 9).unwrap();
        let traces = vec![trace; self.traces];
        let offer = Candidate { teachers: &traces, stored: &[], scores: &[], slot };
        gated.mix(sampled.score_with_rewards(graded, 1.0), &offer, false)
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_closed_forms() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/methods/scored.json");
    let recorded: Recorded = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(recorded.cases.len(), 14);
    for case in &recorded.cases {
        let (gated, name) = (case.gated(), &case.name);
        let mixed = case.mixed(&gated);
        let scores = |(index, it): (usize, &Sequence)| {
            let behind = (gated.method.scored_behind)(&mixed, index);
            let expected = match (&it.behind, it.behind.as_u64()) {
                (Value::Null, _) => None,
                (_, Some(rollout)) => Some(Context::Response(rollout as usize)),
                _ => Some(Context::Plain),
            };
            assert_eq!(behind, expected, "{name}: rollout {index}");
            let scored = TokenScores {
                log_probs: it.scored.clone(),
                entropies: it.entropies.clone(),
                ..TokenScores::default()
            };
            behind.map_or_else(TokenScores::default, |_| scored)
        };
        let own: Vec<_> = case.rollouts.iter().enumerate().map(scores).collect();
        assert!(gated.help.needs.scores_members || own.iter().all(|it| it.log_probs.is_empty()));
        // A prompt that is not trusted is not scored.
        let is_scored = gated.reads_scores(&mixed);
        let reference =
            |it: &Sequence| TokenScores { log_probs: it.scored.clone(), ..TokenScores::default() };
        let reference = case.rollouts.iter().filter(|_| is_scored).map(reference).collect();
        let credit = gated.credit(&mixed, Step(1), &Scores { own, reference });
        let clip = Clip { low: 0.2, high: 0.2 };
        let loss = Loss { clip, ..Loss::new(NormaliserKind::Length.of(case.max_response)) };
        for (it, spans) in case.rollouts.iter().zip(&credit) {
            let divisors = loss.divisors([(it.log_probs.len(), spans.as_slice())].into_iter());
            let of = (&loss, divisors);
            let (value, slopes) = loss_of(of, spans, &it.log_probs, &it.old);
            assert!((value - it.value).abs() < 1e-6, "{name}: {value} {}", it.value);
            for (at, (got, expected)) in slopes.iter().zip(&it.gradient).enumerate() {
                let got = f64::from(*got);
                assert!((got - expected).abs() < 1e-6, "{name}: {got} {expected} at {at}");
            }
            let value_at = |log_probs: &[f32]| loss_of(of, spans, log_probs, &it.old).0;
            assert_slopes(name, value_at, &it.log_probs, &it.gradient, (2e-6, 1e-4));
        }
    }
}

/// `QuestA`: the whole group behind one hint, the plain prompt where there is none; nothing is tested at run time.
/// Prefix-RFT: N − 1 rollouts, and one behind a prefix whose length belongs to seed, step and prompt.
#[test]
fn groups_grow_as_the_papers_say() {
    let gated = |name: &str, own: Value| {
        let mut settings = json!({ "group_size": 4 });
        settings[name] = own;
        let settings: MethodSettings = serde_json::from_value(settings).unwrap();
        Gated::bare(method(name).unwrap().build(&settings).unwrap(), 4).unwrap()
    };
    let teacher = admit_teacher(vec![7; 99], &[0], &Verdict::Correct, 200).unwrap();
    let group = ScoredGroup::empty(PromptId(5));
    let asked = |gated: &Gated, part: usize, hints: usize, step: u64| {
        let growing = GroupSoFar {
            group: &group,
            part,
            size: 4,
            teachers: std::slice::from_ref(&teacher),
            hints,
            frontier: None,
            is_open: false,
            at: gated.moment(Step(step)),
            seed: 3,
            ends_paragraph: &|_| false,
        };
        (gated.help.grow)(&growing)
    };
    let half = gated("questa", json!({}));
    assert_eq!(asked(&half, 0, 3, 1), Growth::under(4, Context::Hint(1)));
    assert_eq!(
        asked(&half, 0, 1, 1),
        Growth::behind(4, Prefix::None),
        "the second hint is missing"
    );
    assert_eq!(asked(&half, 1, 3, 1), Growth::Complete);
    let quarter = gated("questa", json!({ "hint": 1 }));
    assert_eq!(asked(&quarter, 0, 3, 9), Growth::under(4, Context::Hint(0)));

    let prefixes = gated("prefix-rft", json!({ "low": 0.0, "high": 0.5, "steps": 10 }));
    assert_eq!(asked(&prefixes, 0, 0, 1), Growth::behind(3, Prefix::None));
    assert_eq!(asked(&prefixes, 1, 0, 1), Growth::behind(1, Prefix::Teacher(50)), "low = high");
    assert_eq!(asked(&prefixes, 2, 0, 1), Growth::Complete);
    let drawn = |step| match asked(&prefixes, 1, 0, step) {
        Growth::Sample(Part { prefix: Prefix::Teacher(tokens), .. }) => tokens,
        other => panic!("{other:?}"),
    };
    let lengths: Vec<_> = (11..1011).map(drawn).collect();
    let mean = lengths.iter().sum::<usize>() as f64 / 1000.0;
    // Uniform in 0..50: a mean of 24.5, its deviation 0.46.
    assert!(lengths.iter().all(|it| *it < 50) && (mean - 24.5).abs() < 1.9, "{mean}");
    assert_eq!(drawn(12), lengths[1]);
}
