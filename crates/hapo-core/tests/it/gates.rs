//! The gates that are no tables, against their closed forms (`testdata/gates/make_reference.py`).

use std::path::Path;

use crate::support::{derived, kept, rollout, scored, slot};
use hapo_core::*;
use serde::Deserialize;

const N: usize = 8;

#[derive(Deserialize)]
struct Cases {
    posterior: Vec<OfPosterior>,
    thompson: Vec<Draw>,
    budget: Vec<Budget>,
}

#[derive(Deserialize)]
struct OfPosterior {
    discount: f64,
    success_limit: i32,
    visits: Vec<usize>,
    means: Vec<f64>,
    open: Vec<bool>,
}

#[derive(Deserialize)]
struct Draw {
    success_limit: usize,
    successes: usize,
    probability: f64,
}

#[derive(Deserialize)]
struct Budget {
    exposures: u64,
    steps: u64,
    success_limit: usize,
    discount: f64,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    successes: Vec<usize>,
    open: Vec<bool>,
}

fn cases() -> Cases {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gates/cases.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn gated(rule: &str, gate: Gate, settings: GateSettings) -> Gated {
    let host = method("luffy").unwrap().build(&MethodSettings::default()).unwrap();
    let hapo = HapoGate { rule: gate_rule(rule).unwrap(), settings, ..HapoGate::of(gate) };
    Gated::hapo(host, hapo, N, 1).unwrap()
}

fn at(seed: u64, step: u64) -> Slot {
    Slot { rule: SlotRule::LowestReward, seed, step: Step(step) }
}

fn glance(prompt: u64, successes: usize) -> GroupStats {
    let prompt = PromptId(prompt);
    GroupStats { prompt, successes, n_eff: N, is_constant: false, can_help: true }
}

/// A group of a prompt, with the trace in it or without.
fn group(prompt: u64, successes: usize, injected: bool) -> MixedGroup {
    let verdicts: String = (0..N).map(|it| if it < successes { 'c' } else { 'w' }).collect();
    let sampled = SampledGroup::new(PromptId(prompt), N, vec![rollout(2, true); N]);
    let teacher = injected.then(crate::support::teacher);
    let scored = sampled.score(crate::support::verdicts_of(&verdicts));
    apply_gate(scored, teacher.as_ref(), crate::support::success_limit(N), slot(SlotRule::First))
}

#[test]
fn confidence_over_visits_is_that_of_the_closed_form() {
    for case in cases().posterior {
        let gate = usize::try_from(case.success_limit).map_or(Gate::Never, derived);
        let settings = GateSettings { discount: case.discount, ..GateSettings::default() };
        let gated = gated("posterior", gate, settings);
        assert!(gated.remembers() && gated.schedule().is_none());
        let mut memory = Memory::default();
        for (visit, successes) in case.visits.iter().enumerate() {
            let glance = glance(3, *successes);
            let open = gated.open(&[glance], at(0, 1), &memory);
            assert_eq!(open, [case.open[visit]], "visit {visit} of {:?}", case.visits);
            memory = gated.remember(memory, &[group(3, *successes, false)], Step(1));
        }
        // What is remembered gives the mean of the last visit.
        let text = serde_json::to_value(&memory.gate).unwrap();
        let count = |index: usize| text["visits"]["3"][index].as_f64().unwrap();
        let mean = (1.0 + count(0)) / (2.0 + count(1));
        assert_eq!(mean, *case.means.last().unwrap(), "{:?}", case.visits);
    }
}

/// Without memory a group counts alone: the integers of the paper's gate decide, for every m and S.
#[test]
fn d1_a_posterior_without_discounted_visits_is_the_papers_gate() {
    let mut memory = Memory::default();
    memory.gate = memory.gate.after(&[group(3, 8, false)], 0.5);
    for limit in 0..N {
        let gated = gated("posterior", derived(limit), GateSettings::default());
        let glances: Vec<_> = (0..=N).map(|it| glance(3, it)).collect();
        let expected: Vec<_> = (0..=N).map(|it| it <= limit).collect();
        assert_eq!(gated.open(&glances, at(0, 1), &memory), expected, "m = {limit}");
    }
}

#[test]
fn a_drawn_rate_opens_as_often_as_the_closed_form_says() {
    const DRAWS: u64 = 20_000;
    for case in cases().thompson {
        let gated = gated("thompson", derived(case.success_limit), GateSettings::default());
        assert!(!gated.remembers());
        let glances: Vec<_> = (0..DRAWS).map(|it| glance(it, case.successes)).collect();
        let open = gated.open(&glances, at(5, 9), &Memory::default());
        let share = open.iter().filter(|it| **it).count() as f64 / DRAWS as f64;
        let deviation = (case.probability * (1.0 - case.probability) / DRAWS as f64).sqrt();
        let gap = (share - case.probability).abs();
        assert!(gap <= 4.0 * deviation, "{share} {} at S = {}", case.probability, case.successes);
        // A draw belongs to seed, step and prompt, and to nothing else.
        let alone = gated.open(&glances[7..8], at(5, 9), &Memory::default());
        assert_eq!(alone, open[7..8]);
        if (0.1..0.9).contains(&case.probability) {
            for other in [at(6, 9), at(5, 10)] {
                assert_ne!(gated.open(&glances, other, &Memory::default()), open);
            }
        }
    }
    // A closed gate stays closed (Prop. 2).
    let closed = gated("thompson", Gate::Never, GateSettings::default());
    let glances: Vec<_> = (0..1000).map(|it| glance(it, 0)).collect();
    assert!(!closed.open(&glances, at(5, 9), &Memory::default()).contains(&true));
}

#[test]
fn exposures_go_to_the_lowest_posteriors_until_they_are_spent() {
    for case in cases().budget {
        let Budget { exposures, steps, discount, .. } = case;
        let settings = GateSettings { discount, exposures, steps, ..GateSettings::default() };
        let gated = gated("budget", derived(case.success_limit), settings);
        let mut memory = Memory::default();
        for (row, step) in case.rows.iter().zip(1..) {
            let of_prompt = |(prompt, successes): (usize, &usize)| GroupStats {
                can_help: prompt < 5,
                ..glance(prompt as u64, *successes)
            };
            let glances: Vec<_> = row.successes.iter().enumerate().map(of_prompt).collect();
            let open = gated.open(&glances, at(1, step), &memory);
            assert_eq!(open, row.open, "step {step} of {exposures} exposures");
            let groups = row.successes.iter().zip(&open).enumerate();
            let groups: Vec<_> =
                groups.map(|(prompt, (s, open))| group(prompt as u64, *s, *open)).collect();
            memory = gated.remember(memory, &groups, Step(step));
        }
        let opened = case.rows.iter().flat_map(|it| &it.open).filter(|it| **it).count() as u64;
        assert_eq!((memory.gate.exposures, opened <= exposures), (opened, true));
    }
}

/// 3 of 10 groups, the one that nothing can help never: each of the 9 others in a third of the steps.
#[test]
fn a_yoked_gate_opens_as_often_as_the_record_at_random() {
    let record = (1..=9000).map(|step| if step % 2 == 0 { 3 } else { 0 }).collect();
    let settings = GateSettings { record, ..GateSettings::default() };
    let gated = gated("yoked", derived(0), settings);
    let glances: Vec<_> =
        (0..10).map(|it| GroupStats { can_help: it > 0, ..glance(it, it as usize % 9) }).collect();
    let mut opened = [0_u32; 10];
    for step in 1..=9000 {
        let open = gated.open(&glances, at(2, step), &Memory::default());
        let count = open.iter().filter(|it| **it).count();
        assert_eq!(count, if step % 2 == 0 { 3 } else { 0 });
        opened.iter_mut().zip(open).for_each(|(sum, open)| *sum += u32::from(open));
    }
    // 4500 draws of p = 1/3: a deviation of 31.6.
    assert!(
        opened[0] == 0 && opened[1..].iter().all(|it| (1373..=1627).contains(it)),
        "{opened:?}"
    );
    assert!(!gated.open(&glances, at(2, 9001), &Memory::default()).contains(&true));
}

/// D31: what is not judged is paid the lower of `wrong` and the lowest reward that was graded.
#[test]
fn a_group_without_a_signal_has_equal_rewards_and_no_success() {
    let gated = gated("no-signal", derived(0), GateSettings::default());
    let is_open = |rewards: &[(f64, bool)], wrong| {
        let rollouts = rewards.iter().map(|it| rollout(3, it.1)).collect();
        let graded = rewards.iter().map(|it| (it.0, Verdict::Wrong)).collect();
        let sampled = SampledGroup::new(PromptId(1), rewards.len(), rollouts);
        let group = sampled.score_with_rewards(graded, 1.0);
        let before = GroupStats::of(&group, Truncated::Wrong, wrong, true);
        let paid = group.paying_unjudged(Truncated::Wrong, wrong);
        assert_eq!(GroupStats::of(&paid, Truncated::Wrong, wrong, true), before);
        let rewards = paid.rewards();
        assert_eq!(before.is_constant, rewards.iter().all(|it| *it == rewards[0]));
        gated.open(&[before], at(0, 1), &Memory::default())[0]
    };
    assert!(is_open(&[(0.0, true), (0.0, true)], 0.0));
    assert!(is_open(&[(0.25, true), (0.25, true)], 0.0));
    assert!(is_open(&[(-1.0, true), (0.0, false)], 0.0), "a cut response is paid -1 too");
    assert!(is_open(&[(0.0, false), (0.0, false)], 0.0));
    assert!(!is_open(&[(0.25, true), (0.0, false)], 0.0));
    assert!(!is_open(&[(0.25, true), (0.5, true)], 0.0));
    assert!(!is_open(&[(1.0, true), (1.0, true)], 0.0));
}

/// Only tables are tables, and each gate reads its own keys.
#[test]
fn tables_are_the_papers_three_gates() {
    let tables: Vec<_> = GATES.iter().filter(|it| it.is_table).map(|it| it.name).collect();
    assert_eq!((tables.as_slice(), GATES.len()), (&["confidence", "always", "never"][..], 8));
    for rule in GATES {
        let refusal = refused_as_table(rule);
        assert_eq!(refusal.is_none(), rule.is_table);
        assert!(refusal.is_none_or(|it| it.contains(rule.name) && it.contains("`hapo train`")));
        assert_eq!(gate_rule(rule.name).unwrap().summary, rule.summary);
    }
    // A table decides by S alone, with what could enter or without.
    let gated = gated("confidence", derived(1), GateSettings::default());
    let blind = GroupStats { can_help: false, ..glance(1, 1) };
    assert_eq!(gated.open(&[blind, glance(2, 2)], at(0, 1), &Memory::default()), [true, false]);
    assert_eq!(gated.mix(scored("cw"), &offer(), false).intervention(), Intervention::GateClosed);
    assert!(kept("w").members().len() == 1);
}

fn offer() -> Candidate<'static> {
    Candidate { teachers: &[], stored: &[], scores: &[], slot: slot(SlotRule::First) }
}
