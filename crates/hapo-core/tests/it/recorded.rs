//! What methods make of a group, against the recorded cases of `conformance/`: from rewards to the loss and its derivative
//! by every log-probability.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const END: TokenId = 0;

/// A method by its settings, and the case that has its numbers.
struct Case {
    id: &'static str,
    method: &'static str,
    own: Value,
    std: bool,
    teacher_weight: TeacherWeight,
}

/// The cases; `own` are the method's settings.
fn cases() -> Vec<Case> {
    let case = |id, method, own, std| Case {
        id,
        method,
        own,
        std,
        teacher_weight: TeacherWeight::default(),
    };
    vec![
        case("agg/token-mean/ppo", "grpo", json!({}), true),
        case("agg/token-mean/clip-higher", "grpo", json!({}), true),
        case("agg/seq-mean-token-mean/ppo", "grpo", json!({}), true),
        Case {
            teacher_weight: TeacherWeight::Advantage,
            ..case("teacher/luffy/groups", "luffy", json!({}), true)
        },
        case("teacher/srft/groups", "srft", json!({ "weights": "entropy" }), false),
        case("teacher/hpt/switch", "hpt", json!({}), false),
        case("teacher/chord-mu/groups", "chord-mu", json!({ "peak": 0.2, "valley": 0.2 }), true),
        case("teacher/chord-phi/groups", "chord-phi", json!({}), true),
        case("teacher/trapo/micro-groups", "trapo", json!({ "prefixes": "micro-groups" }), false),
    ]
}

fn read(path: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    serde_json::from_slice(&std::fs::read(folder.join(path)).unwrap()).unwrap()
}

/// A sequence of a recorded batch.
#[derive(Clone)]
struct Row {
    log_probs: Vec<f32>,
    old_log_probs: Vec<f32>,
    entropies: Vec<f32>,
    reward: f64,
    prefix: usize,
    is_teacher: bool,
    gradient: Vec<f64>,
}

/// The settings that a case's loss has.
#[derive(Deserialize)]
struct Hyper {
    aggregate: Option<String>,
    clip_low: Option<f64>,
    clip_high: Option<f64>,
    length: Option<usize>,
}

/// A case with its groups.
struct Recorded {
    loss: Option<f64>,
    hyper: Hyper,
    groups: Vec<Vec<Row>>,
}

fn recorded(id: &str) -> Recorded {
    let case = read(&format!("cases/{id}.json"));
    let mut batch = read(&format!("batches/{}.json", case["batch"].as_str().unwrap()));
    for (name, value) in case["with"].as_object().into_iter().flatten() {
        batch[name] = value.clone();
    }
    let mut groups: BTreeMap<u64, Vec<Row>> = BTreeMap::new();
    for (row, group) in of::<Vec<u64>>(&batch["group"]).into_iter().enumerate() {
        groups.entry(group).or_default().push(Row {
            log_probs: of(&batch["logp"][row]),
            old_log_probs: of(&batch["old_logp"][row]),
            entropies: of(&batch["entropy"][row]),
            reward: of(&batch["reward"][row]),
            prefix: batch["prefix"].get(row).map_or(0, of),
            is_teacher: batch["source"].get(row).is_some_and(|source| source == "teacher"),
            gradient: of(&case["expect"]["grad"][row]),
        });
    }
    Recorded {
        loss: case["expect"]["loss"].as_f64(),
        hyper: of(&case["hyper"]),
        groups: groups.into_values().collect(),
    }
}

fn of<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

impl Hyper {
    fn loss(&self, gated: &Gated) -> Loss {
        let max_response = self.length.unwrap_or(12);
        let normaliser = match self.aggregate.as_deref() {
            Some("seq-mean-token-mean") => NormaliserKind::SequenceMean.of(0),
            Some("seq-mean-token-sum-norm") => NormaliserKind::Constant.of(max_response),
            None if self.length.is_some() => NormaliserKind::Length.of(max_response),
            _ => Normaliser::TOKEN_MEAN,
        };
        let bound = |clip: Option<f64>| clip.unwrap_or(f64::INFINITY);
        Loss {
            clip: Clip { low: bound(self.clip_low), high: bound(self.clip_high) },
            teacher_apart: gated.method.plan.teacher_apart,
            ..Loss::new(normaliser)
        }
    }
}

impl Case {
    fn gated(&self, groups: &[Vec<Row>]) -> Gated {
        let most = groups.iter().map(|group| rollouts(group).count()).max().unwrap();
        let is_prefixed = groups.iter().flatten().any(|row| row.prefix > 0);
        let grows = is_prefixed && self.method == "trapo";
        let mut settings = json!({
            "group_size": most + usize::from(grows),
            "advantage": { "std": self.std },
            "teacher": { "weight": self.teacher_weight },
        });
        if self.own.as_object().is_some_and(|table| !table.is_empty()) {
            settings[self.method] = self.own.clone();
        }
        let settings: MethodSettings = serde_json::from_value(settings).unwrap();
        let method = method(self.method).unwrap().build(&settings).unwrap();
        Gated::bare(method, settings.group_size).unwrap()
    }
}

fn rollouts(group: &[Row]) -> impl Iterator<Item = &Row> {
    group.iter().filter(|row| !row.is_teacher)
}

fn mixed(gated: &Gated, id: usize, group: &[Row]) -> MixedGroup {
    let sampled: Vec<Rollout> = rollouts(group)
        .map(|row| Rollout {
            tokens: vec![1; row.log_probs.len()],
            prefix: row.prefix,
            log_probs: row.old_log_probs[row.prefix..].to_vec(),
            ended: true,
            ..Rollout::default()
        })
        .collect();
    let verdict = |row: &Row| if row.reward == 1.0 { Verdict::Correct } else { Verdict::Wrong };
    let verdicts = rollouts(group).map(verdict).collect();
    let teacher = group.iter().find(|row| row.is_teacher).map(|row| {
        let n = row.log_probs.len();
        admit_teacher(vec![1; n - 1], &[END], &Verdict::Correct, n).unwrap()
    });
    let scored = SampledGroup::new(PromptId(id as u64), sampled.len(), sampled).score(verdicts);
    let slot = Slot { rule: gated.slot, seed: 0, step: Step(1) };
    let is_open = gated.success_limit(slot.step).is_open(scored.successes());
    let offer = Candidate { teachers: teacher.as_slice(), stored: &[], scores: &[], slot };
    gated.mix(scored, &offer, is_open)
}

/// The loss of all groups, and the derivatives by each log-probability in the order of the rows.
fn computed(gated: &Gated, loss: &Loss, groups: &[Vec<Row>]) -> (f64, Vec<Vec<f32>>) {
    let mixed: Vec<MixedGroup> =
        groups.iter().enumerate().map(|(id, group)| mixed(gated, id, group)).collect();
    let credits: Vec<Credit> =
        mixed.iter().map(|group| gated.credit(group, Step(1), Scores::NONE)).collect();
    let lengths = mixed.iter().flat_map(MixedGroup::members).map(|member| member.tokens().len());
    let divisors = loss.divisors(lengths.zip(credits.iter().flatten().map(Vec::as_slice)));
    let (mut total, mut all) = (0.0, Vec::new());
    for ((group, mixed), credit) in groups.iter().zip(&mixed).zip(&credits) {
        let mut slopes: Vec<Vec<f32>> =
            group.iter().map(|row| vec![0.0; row.log_probs.len()]).collect();
        for (member, spans) in mixed.members().iter().zip(credit) {
            let index = match member {
                Member::Policy(rollout) => rollout.index,
                _ => group.iter().position(|row| row.is_teacher).unwrap(),
            };
            for span in spans {
                total -= add(loss, span, &group[index], divisors, &mut slopes[index]);
            }
        }
        all.extend(slopes);
    }
    (total, all)
}

/// Writes the slopes of a span and gives its objective.
fn add(loss: &Loss, span: &Span, row: &Row, divisors: Divisors, slopes: &mut [f32]) -> f64 {
    let at = span.tokens.clone();
    let tokens = SpanTokens {
        log_probs: &row.log_probs[at.clone()],
        old_log_probs: &row.old_log_probs[at.clone()],
        reference: &[],
        entropies: &row.entropies[at.clone()],
    };
    let divisor = loss.divisor_of(span, row.log_probs.len(), divisors);
    let mut ignored = vec![0.0; at.len()];
    loss.span(span, tokens, divisor, &mut slopes[at], &mut ignored).objective
}

fn assert_close(name: &str, slopes: &[Vec<f32>], expected: &[Vec<f64>]) {
    assert_eq!(slopes.len(), expected.len());
    for (row, (slopes, expected)) in slopes.iter().zip(expected).enumerate() {
        for (at, (got, expected)) in slopes.iter().zip(expected).enumerate() {
            let gap = (f64::from(*got) - expected).abs();
            assert!(gap <= 1e-6 * expected.abs() + 1e-9, "{name}: {got} {expected} at {row}, {at}");
        }
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_recorded_cases() {
    for case in cases() {
        let recorded = recorded(case.id);
        let gated = case.gated(&recorded.groups);
        let (total, slopes) = computed(&gated, &recorded.hyper.loss(&gated), &recorded.groups);
        let expected: Vec<Vec<f64>> =
            recorded.groups.iter().flatten().map(|row| row.gradient.clone()).collect();
        assert_close(case.id, &slopes, &expected);
        if let Some(expected) = recorded.loss {
            assert!((total - expected).abs() < 1e-6 * expected.abs(), "{}: {total}", case.id);
        }
    }
}

/// UFT is CHORD whose demonstration stands before every rollout of its group and is imitated once: (1 + w) times CHORD
/// with μ = w/(1 + w).
#[test]
fn uft_imitates_a_groups_prefix_once() {
    let chord = recorded("teacher/chord-mu/groups");
    let weight = 0.25;
    let mut expected = Vec::new();
    let behind = |group: &Vec<Row>| -> Vec<Row> {
        let shown = group.iter().find(|row| row.is_teacher).unwrap();
        let joined = |row: &Row| Row {
            log_probs: [&shown.log_probs[..], &row.log_probs].concat(),
            old_log_probs: [&shown.old_log_probs[..], &row.old_log_probs].concat(),
            entropies: [&shown.entropies[..], &row.entropies].concat(),
            prefix: shown.log_probs.len(),
            ..row.clone()
        };
        for (index, row) in rollouts(group).enumerate() {
            let once = if index == 0 { 1.0 + weight } else { 0.0 };
            let shown = shown.gradient.iter().map(|slope| once * slope);
            let own = row.gradient.iter().map(|slope| (1.0 + weight) * slope);
            expected.push(shown.chain(own).collect());
        }
        rollouts(group).map(joined).collect()
    };
    let groups: Vec<Vec<Row>> = chord.groups.iter().map(behind).collect();
    let uft = Case {
        id: "uft",
        method: "uft",
        own: json!({ "weight": weight }),
        std: true,
        teacher_weight: TeacherWeight::default(),
    };
    let gated = uft.gated(&groups);
    let (total, slopes) = computed(&gated, &chord.hyper.loss(&gated), &groups);
    assert_close("uft", &slopes, &expected);
    let expected = (1.0 + weight) * chord.loss.unwrap();
    assert!((total - expected).abs() < 1e-6 * expected.abs(), "{total} {expected}");
}
