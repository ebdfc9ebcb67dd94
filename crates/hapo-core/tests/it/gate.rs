//! The gate's settings, its table and what it prints.

use expect_test::{Expect, expect};
use hapo_core::*;

fn sigmoid(turn_off_epoch: &str, steepness: &str) -> Annealing {
    Annealing::Sigmoid { turn_off_epoch: decimal(turn_off_epoch), steepness: decimal(steepness) }
}

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn derived(success_limit: usize, annealing: Annealing) -> Gate {
    Gate::Confidence { threshold: Threshold::Derived { success_limit }, annealing }
}

fn manual(gamma0: &str, annealing: Annealing) -> Gate {
    Gate::Confidence { threshold: Threshold::Manual { gamma0: decimal(gamma0) }, annealing }
}

fn open_at(schedule: &Schedule, step: u64) -> i32 {
    schedule.success_limit(Step(step)).get()
}

#[test]
fn d1_the_gate_is_closed_where_the_epoch_equals_the_turn_off_epoch() {
    let schedule = Schedule::new(&derived(0, sigmoid("1.5", "10")), 8, 20).unwrap();
    // γ_30 = 1/10 = c, and the line of Algorithm 1 in f32 says open.
    let (floor, gamma0) = (1.0_f32 / 20.0, 1.5_f32 / 10.0);
    assert!(1.0_f32 / 10.0 < floor + (gamma0 - floor) * 0.5);
    assert_eq!((open_at(&schedule, 29), open_at(&schedule, 30)), (0, -1));
    assert_eq!(schedule.extinct_at_step(), Some(Step(30)));
}

#[test]
fn d2_the_default_level_is_a_hard_cut_whatever_the_steepness() {
    for steepness in ["0.001", "1", "10", "999999"] {
        let schedule = Schedule::new(&derived(0, sigmoid("1.5", steepness)), 8, 20).unwrap();
        for step in 1..200 {
            assert_eq!(
                open_at(&schedule, step),
                if step < 30 { 0 } else { -1 },
                "k {steepness} step {step}"
            );
        }
    }
}

#[test]
fn d3_the_paper_s_manual_thresholds_are_levels_1_3_and_5() {
    for (gamma0, level) in
        [("0.3", 1), ("0.5", 3), ("0.7", 5), ("0.100000000001", 0), ("0.2", 0), ("0.9", 7)]
    {
        let schedule = Schedule::new(&manual(gamma0, Annealing::Off), 8, 62).unwrap();
        assert_eq!(schedule.table(0).success_limit, Some(level), "{gamma0}");
        assert_eq!(open_at(&schedule, 1_000_000), level as i32, "{gamma0}");
        assert_eq!(schedule.threshold(Step(7)), gamma0.parse::<f64>().unwrap());
    }
}

#[test]
fn d3_annealed_manual_rungs_close_at_the_closed_form() {
    // 2(2+N)γ0 − 2 = 4 and e_1 = e_off + ln(2/3)/k: at 62 steps per epoch 101.59… and 90.48….
    let table = Schedule::new(&manual("0.3", sigmoid("1.5", "10")), 8, 62).unwrap().table(0);
    let rungs: Vec<_> =
        table.rungs.iter().map(|it| (it.closes_at_epoch, it.first_closed_step)).collect();
    assert_eq!(rungs, [(1.5 + 4.0_f64.ln() / 10.0, 102), (1.5 + (2.0_f64 / 3.0).ln() / 10.0, 91)]);
    assert_eq!(table.extinct_at_step, Some(Step(102)));
}

#[test]
fn d4_levels_beyond_the_group_are_refused_and_the_largest_is_accepted() {
    for n in 1..=64 {
        assert_eq!(
            Schedule::new(&derived(n - 1, Annealing::Off), n, 1).unwrap().table(0).success_limit,
            Some(n - 1)
        );
        let error = Schedule::new(&derived(n, Annealing::Off), n, 1).unwrap_err();
        let expected = format!("success limit for groups of {n}: expected 0 to {}, got {n}", n - 1);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn d4_an_eroded_first_step_warns() {
    let warnings = |turn_off, m| {
        Schedule::new(&derived(m, sigmoid(turn_off, "10")), 8, 62).unwrap().warnings()
    };
    assert!(warnings("1.5", 3).is_empty());
    let closed = warnings("0.01", 0);
    assert_eq!((closed.len(), warnings("0.1", 3).len()), (1, 1));
    expect!["the gate is closed at the first step already, with success limit 0: the turn-off epoch is too small for it"]
        .assert_eq(&closed[0]);
    expect!["the gate is open up to 2 successes at the first step, not up to the success limit 3: the turn-off epoch is too small for it"]
        .assert_eq(&warnings("0.1", 3)[0]);
}

#[test]
fn d5_without_annealing_the_level_stands() {
    let schedule = Schedule::new(&derived(2, Annealing::Off), 8, 62).unwrap();
    for step in [1, 93, 94, 1_000_000, u64::MAX] {
        assert_eq!(open_at(&schedule, step), 2);
        assert_eq!(schedule.threshold(Step(step)), 0.35);
    }
    assert_eq!(schedule.extinct_at_step(), None);
    assert!(schedule.warnings().is_empty());
}

#[test]
fn d4_never_and_always_are_modes_of_their_own() {
    let never = Schedule::new(&Gate::Never, 8, 62).unwrap();
    let always = Schedule::new(&Gate::Always, 8, 62).unwrap();
    for step in [1, 500, u64::MAX] {
        for successes in 0..=8 {
            assert!(!never.success_limit(Step(step)).is_open(successes));
            assert!(always.success_limit(Step(step)).is_open(successes));
        }
        assert_eq!((never.threshold(Step(step)), always.threshold(Step(step))), (0.0, 1.0));
    }
    assert_eq!((never.extinct_at_step(), always.extinct_at_step()), (Some(Step(1)), None));
    assert_eq!((never.table(0).success_limit, always.table(0).success_limit), (None, None));
}

#[test]
fn d8_the_fixed_slot_needs_the_gate_that_is_always_open() {
    assert!(check_slot_rule(&Gate::Always, SlotRule::Fixed).is_ok());
    assert!(check_slot_rule(&Gate::Never, SlotRule::Fixed).is_err());
    let gated = derived(0, Annealing::Off);
    assert!(check_slot_rule(&gated, SlotRule::Fixed).is_err());
    for rule in [SlotRule::LowestReward, SlotRule::First, SlotRule::Random, SlotRule::Longest] {
        assert!(check_slot_rule(&gated, rule).is_ok());
    }
}

#[test]
fn the_threshold_is_the_paper_s_sigmoid() {
    // m = 3, N = 8: γ0 = 0.45, γ∞ = 0.05; at e_off it is their mean.
    let schedule = Schedule::new(&derived(3, sigmoid("1.5", "10")), 8, 20).unwrap();
    for (step, expected) in [
        (1, 0.449_999_798_265_8),
        (20, 0.447_322_859_7),
        (30, 0.25),
        (32, 0.157_576_568_5),
        (60, 0.050_000_122_361),
    ] {
        let got = schedule.threshold(Step(step));
        assert!((got - expected).abs() < 1e-9, "step {step}: {got}");
    }
    assert_eq!(schedule.threshold(Step(u64::MAX)), 0.05);
}

#[test]
fn a_refused_setting_names_what_was_expected_and_what_came() {
    check(
        &derived(8, Annealing::Off),
        8,
        62,
        &expect![[
            r#"success limit for groups of 8: expected 0 to 7, got 8; hint: to inject into every group use gate = "always""#
        ]],
    );
    check(
        &manual("0.1", Annealing::Off),
        8,
        62,
        &expect![
            "threshold gamma0 for groups of 8: expected more than 1/10, got 0.1, which never opens the gate"
        ],
    );
    check(
        &manual("0", Annealing::Off),
        8,
        62,
        &expect![
            "threshold gamma0 for groups of 8: expected more than 1/10, got 0, which never opens the gate"
        ],
    );
    check(
        &manual("0.900000000001", Annealing::Off),
        8,
        62,
        &expect![[
            r#"threshold gamma0 for groups of 8: expected at most 9/10, got 0.900000000001; hint: to inject into every group use gate = "always""#
        ]],
    );
    check(
        &derived(0, sigmoid("0", "10")),
        8,
        62,
        &expect!["turn-off epoch: expected more than 0 and at most 1000000, got 0"],
    );
    check(
        &derived(0, sigmoid("1000000.5", "10")),
        8,
        62,
        &expect!["turn-off epoch: expected more than 0 and at most 1000000, got 1000000.5"],
    );
    check(
        &derived(0, sigmoid("1.5", "0")),
        8,
        62,
        &expect!["steepness: expected 0.001 to 1000000, got 0"],
    );
    check(
        &derived(0, sigmoid("1.5", "0.000999")),
        8,
        62,
        &expect!["steepness: expected 0.001 to 1000000, got 0.000999"],
    );
    check(&Gate::Never, 0, 62, &expect!["group size: expected 1 to 65535, got 0"]);
    check(&Gate::Never, 65_536, 62, &expect!["group size: expected 1 to 65535, got 65536"]);
    check(&Gate::Never, 8, 0, &expect!["steps per epoch: expected 1 to 1000000000, got 0"]);
    expect![[r#"slot "fixed" leaves a slot free in every group: expected gate = "always""#]]
        .assert_eq(&check_slot_rule(&Gate::Never, SlotRule::Fixed).unwrap_err().to_string());
}

fn check(gate: &Gate, group_size: usize, steps_per_epoch: u64, expected: &Expect) {
    let refused = Schedule::new(gate, group_size, steps_per_epoch).unwrap_err();
    let hint = refused.how_to_mend().map_or(String::new(), |hint| format!("; hint: {hint}"));
    expected.assert_eq(&format!("{refused}{hint}"));
}

#[test]
fn the_table_prints_as_other_trainers_read_it() {
    let table = Schedule::new(&derived(1, sigmoid("0.5", "4")), 2, 2).unwrap().table(3);
    expect![[r#"
        {
          "extinct_at_step": 2,
          "gamma0": 0.625,
          "gate": "confidence",
          "group_size": 2,
          "rungs": [
            {
              "closes_at_epoch": 0.7746530722,
              "first_closed_step": 2,
              "successes": 0
            },
            {
              "closes_at_epoch": 0.2253469278,
              "first_closed_step": 1,
              "successes": 1
            }
          ],
          "steepness": 4.0,
          "steps": [
            {
              "epoch": 0.5,
              "step": 1,
              "success_limit": 0,
              "threshold": 0.375
            },
            {
              "epoch": 1.0,
              "step": 2,
              "success_limit": -1,
              "threshold": 0.184601461
            },
            {
              "epoch": 1.5,
              "step": 3,
              "success_limit": -1,
              "threshold": 0.133993105
            }
          ],
          "steps_per_epoch": 2,
          "success_limit": 1,
          "turn_off_epoch": 0.5
        }"#]]
    .assert_eq(
        &serde_json::to_string_pretty(&rounded(serde_json::to_value(&table).unwrap())).unwrap(),
    );
    let table = Schedule::new(&Gate::Always, 8, 62).unwrap().table(1);
    expect![[r#"{"gate":"always","group_size":8,"success_limit":null,"gamma0":1.0,"turn_off_epoch":null,"steepness":null,"steps_per_epoch":62,"extinct_at_step":null,"rungs":[],"steps":[{"step":1,"epoch":0.016129032258064516,"threshold":1.0,"success_limit":8}]}"#]].assert_eq(&serde_json::to_string(&table).unwrap());
}

/// Numbers to ten places: the last bits of exp and ln depend on the platform.
fn rounded(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(it) if it.is_f64() => ((it.as_f64().unwrap() * 1e10).round() / 1e10).into(),
        Value::Array(items) => items.into_iter().map(rounded).collect(),
        Value::Object(items) => items.into_iter().map(|(key, it)| (key, rounded(it))).collect(),
        other => other,
    }
}

#[test]
fn d3_decimals_are_exact_and_print_as_written() {
    for (text, printed) in [
        ("0.3", "0.3"),
        ("0.30", "0.3"),
        ("10", "10"),
        ("10.0", "10"),
        ("007.05", "7.05"),
        ("0", "0"),
        ("0.000000000001", "0.000000000001"),
        ("999.999999999999", "999.999999999999"),
    ] {
        assert_eq!(decimal(text).to_string(), printed);
        assert_eq!(decimal(text).to_f64(), text.parse::<f64>().unwrap());
        assert_eq!(Decimal::from_f64(text.parse().unwrap()).unwrap(), decimal(text));
    }
    for text in [
        "",
        ".",
        ".5",
        "5.",
        "-1",
        "+1",
        "1e3",
        "0.3 ",
        "1.2.3",
        "٣",
        "nan",
        "inf",
        "0.1234567890123",
        "1000000000000000",
        &"9".repeat(1000),
    ] {
        assert!(text.parse::<Decimal>().is_err(), "{text:?}");
    }
    assert!(Decimal::from_f64(0.1 + 0.2).is_err(), "0.30000000000000004 is nobody's setting");
    assert!(Decimal::from_f64(f64::NAN).is_err() && Decimal::from_f64(-0.0).is_err());
    expect![[r#"decimal number: expected digits such as 0.3 with at most 12 places and 15 digits, got "1e3""#]]
        .assert_eq(&"1e3".parse::<Decimal>().unwrap_err().to_string());
}

#[test]
fn settings_survive_json() {
    let gates = [
        Gate::Never,
        Gate::Always,
        derived(3, Annealing::Off),
        manual("0.3", sigmoid("1.5", "10")),
        manual("0.123456789012", sigmoid("999.999999999999", "0.001")),
    ];
    for gate in gates {
        let text = serde_json::to_string(&gate).unwrap();
        assert_eq!(serde_json::from_str::<Gate>(&text).unwrap(), gate, "{text}");
    }
    let from_text: Decimal = serde_json::from_str("\"0.3\"").unwrap();
    let from_integer: Decimal = serde_json::from_str("3").unwrap();
    assert_eq!((from_text, from_integer), (decimal("0.3"), Decimal::from(3)));
    assert!(serde_json::from_str::<Decimal>("-3").is_err());
}

/// N = 8, m = 1, `e_off` = 1.5, k = 10 at 62 steps an epoch: rung 1 closes at 62 (1.5 + ln(1/3)/10) = 86.2 and rung 0
/// at 62 (1.5 + ln(3)/10) = 99.8.
#[test]
fn a_run_stores_ranges_whatever_its_length() {
    let schedule = Schedule::new(&derived(1, sigmoid("1.5", "10")), 8, 62).unwrap();
    let ranges = |steps| {
        let ranges = schedule.table_of_ranges(steps).ranges.into_iter();
        ranges.map(|it| (it.first_step, it.last_step, it.success_limit.get())).collect::<Vec<_>>()
    };
    assert_eq!(ranges(50), [(1, 50, 1)]);
    assert_eq!(ranges(90), [(1, 86, 1), (87, 90, 0)]);
    assert_eq!(ranges(1_000_000_000_000), [(1, 86, 1), (87, 99, 0), (100, 1_000_000_000_000, -1)]);
    let old = serde_json::to_string(&schedule.table(2)).unwrap();
    assert!(!old.contains("ranges"));
    assert_eq!(serde_json::from_str::<ScheduleTable>(&old).unwrap().steps.len(), 2);
    for (gate, limit) in [(Gate::Always, 8), (Gate::Never, -1), (derived(3, Annealing::Off), 3)] {
        let it = Schedule::new(&gate, 8, 62).unwrap().ranges(7);
        assert_eq!((it.len(), it[0].last_step, it[0].success_limit.get()), (1, 7, limit));
    }
}

proptest::proptest! {
    /// Whatever is accepted gives a gate that only ever narrows, and a table that agrees with its rungs.
    #[test]
    fn any_accepted_schedule_only_narrows(
        n in 1_usize..200, level in 0_usize..200, turn_off in 1_u64..5_000, k in 1_u64..100_000,
        steps_per_epoch in 1_u64..300, steps in 1_u64..400,
    ) {
        let annealing = Annealing::Sigmoid {
            turn_off_epoch: Decimal::from_f64(turn_off as f64 / 1000.0).unwrap(),
            steepness: Decimal::from_f64(k as f64 / 1000.0).unwrap(),
        };
        let gate = derived(level % n, annealing);
        let schedule = Schedule::new(&gate, n, steps_per_epoch).unwrap();
        let table = schedule.table(steps);
        proptest::prop_assert!(table.rungs.is_sorted_by(|a, b| a.first_closed_step >= b.first_closed_step));
        proptest::prop_assert!(table.steps.is_sorted_by(|a, b| a.success_limit >= b.success_limit));
        let ranges = schedule.ranges(steps);
        proptest::prop_assert_eq!(ranges.iter().map(|it| it.last_step + 1 - it.first_step).sum::<u64>(), steps);
        proptest::prop_assert!(ranges.is_sorted_by(|a, b| a.last_step + 1 == b.first_step));
        for row in &table.steps {
            let of_step = ranges.iter().find(|it| row.step <= it.last_step).unwrap();
            proptest::prop_assert_eq!(of_step.success_limit, row.success_limit);
            for rung in &table.rungs {
                proptest::prop_assert_eq!(row.success_limit.is_open(rung.successes), row.step < rung.first_closed_step);
                // Away from a step the rounded epoch says the same.
                if (row.epoch - rung.closes_at_epoch).abs() > 1e-9 {
                    proptest::prop_assert_eq!(row.success_limit.is_open(rung.successes), row.epoch < rung.closes_at_epoch);
                }
            }
        }
    }
}
