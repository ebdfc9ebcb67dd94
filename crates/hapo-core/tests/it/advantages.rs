//! Advantages and teacher weights: the numbers.

use crate::support::{injected, kept, scored, slot, success_limit, teacher};
use hapo_core::AdvantageGroup::{Mixed, PolicyOnly, Sampled};
use hapo_core::*;

fn of(group: &MixedGroup, reference: AdvantageGroup, std: bool) -> Vec<f64> {
    advantages(group, AdvantageRule { group: reference, std })
}

fn close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (it, other) in got.iter().zip(expected) {
        assert!((it - other).abs() < 1e-12, "{got:?} {expected:?}");
    }
}

#[test]
fn d13_seven_failures_beside_a_teacher_get_minus_an_eighth() {
    let group = injected("wwwwwwww");
    let advantages = of(&group, Mixed, false);
    assert_eq!(advantages[7], 0.875);
    assert_eq!(advantages[..7], [-0.125; 7]);
    assert_eq!(AdvantageRule::default(), AdvantageRule { group: Mixed, std: false });
}

#[test]
fn d13_the_sampled_group_gives_the_appendix_s_decomposition() {
    // S = 0: the rollouts carry nothing, the teacher its own reward.
    let advantages = of(&injected("wwww"), Sampled, false);
    assert_eq!(advantages, [0.0, 0.0, 0.0, 1.0]);
    // S = 1 of 4, rollout 3 replaced: the mean is that before injection.
    assert_eq!(of(&injected("cwww"), Sampled, false), [0.75, -0.25, -0.25, 0.75]);
}

#[test]
fn d13_policy_only_leaves_the_teacher_out_of_the_mean() {
    close(
        &of(&injected("cwww"), PolicyOnly, false),
        &[2.0 / 3.0, -1.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0],
    );
    close(&of(&injected("wwww"), PolicyOnly, false), &[0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn d13_the_three_agree_where_nobody_is_injected() {
    for verdicts in ["cwww", "ccwu", "wwww", "cccc"] {
        for std in [false, true] {
            let group = kept(verdicts);
            let mixed = of(&group, Mixed, std);
            assert_eq!(mixed, of(&group, Sampled, std));
            assert_eq!(mixed, of(&group, PolicyOnly, std));
        }
    }
}

#[test]
fn d12_the_standard_deviation_is_bessel_s_plus_a_millionth() {
    // Rewards 1 0 0 0: mean 1/4, variance (9 + 3)/16/3 = 1/4.
    let scale = 0.5 + 1e-6;
    close(
        &of(&kept("cwww"), Mixed, true),
        &[0.75 / scale, -0.25 / scale, -0.25 / scale, -0.25 / scale],
    );
    close(
        &of(&injected("wwww"), Mixed, true),
        &[-0.25 / scale, -0.25 / scale, -0.25 / scale, 0.75 / scale],
    );
    // Sampled 1 0 0 0, the teacher in the last place.
    close(
        &of(&injected("cwww"), Sampled, true),
        &[0.75 / scale, -0.25 / scale, -0.25 / scale, 0.75 / scale],
    );
    // Policy only: 1 0 0, variance 1/3.
    let scale = (1.0_f64 / 3.0).sqrt() + 1e-6;
    let (up, down) = (2.0 / 3.0 / scale, -1.0 / 3.0 / scale);
    close(&of(&injected("cwww"), PolicyOnly, true), &[up, down, down, up]);
}

#[test]
fn d12_a_constant_group_has_zero_advantages_and_no_nan() {
    for group in [kept("wwww"), kept("cccc"), kept("w"), kept("c")] {
        for reference in [Mixed, Sampled, PolicyOnly] {
            for std in [false, true] {
                assert!(of(&group, reference, std).iter().all(|it| *it == 0.0));
            }
        }
    }
    assert_eq!(of(&injected("wwww"), Sampled, true), [0.0; 4]);
    assert_eq!(of(&injected("wwww"), PolicyOnly, true), [0.0; 4]);
}

#[test]
fn advantages_of_the_reference_group_sum_to_zero() {
    for mask in 0..256_u32 {
        let verdicts: String =
            (0..8).map(|it| if mask >> it & 1 == 1 { 'c' } else { 'w' }).collect();
        for group in [kept(&verdicts), injected(&verdicts)] {
            for std in [false, true] {
                assert!(of(&group, Mixed, std).iter().sum::<f64>().abs() < 1e-12, "{verdicts}");
            }
        }
    }
}

#[test]
fn d15_the_weights_have_these_values() {
    let group = injected("cwwwwwww");
    assert_eq!(teacher_weight(TeacherWeight::One, &group, 0.35, 9.0), 1.0);
    assert_eq!(teacher_weight(TeacherWeight::OneMinusConfidence, &group, 0.35, 9.0), 0.8);
    // (0.35 − 0.2)/(0.35 − 0.1).
    assert!((teacher_weight(TeacherWeight::Relative, &group, 0.35, 9.0) - 0.6).abs() < 1e-15);
    assert_eq!(teacher_weight(TeacherWeight::Constant(0.3), &group, 0.35, 9.0), 0.3);
    let own = of(&group, Mixed, false)[group.teacher_index().unwrap()];
    assert_eq!(teacher_weight(TeacherWeight::Advantage, &group, 0.35, own), 0.75);
    assert_eq!(TeacherWeight::default(), TeacherWeight::One);
}

#[test]
fn d34_a_teacher_s_weight_is_never_negative() {
    let group = injected("cwwwwwww");
    for (own, weight) in [(-0.75, 0.0), (-f64::MIN_POSITIVE, 0.0), (0.0, 0.0), (0.125, 0.125)] {
        let got = teacher_weight(TeacherWeight::Advantage, &group, 0.35, own);
        assert_eq!(got.to_bits(), f64::to_bits(weight), "{own}");
    }
    // Rollouts that are worth more than the verified solution: it is not pushed down, and counted.
    let sampled =
        SampledGroup::new(PromptId(1), 3, vec![Rollout { ended: true, ..Rollout::default() }; 3]);
    let graded = vec![(3.0, Verdict::Correct); 3];
    let scored = sampled.score_with_rewards(graded, 1.0);
    let mixed = apply_gate(scored, Some(&teacher()), success_limit(64), slot(SlotRule::Fixed));
    let settings = r#"{ "group_size": 4, "teacher": { "weight": "advantage" } }"#;
    let settings: MethodSettings = serde_json::from_str(settings).unwrap();
    let luffy = method("luffy").unwrap().build(&settings).unwrap();
    let at = StepContext { step: Step(1), initial_threshold: 0.15 };
    let credit = luffy.credit(&mixed, at, Scores::NONE);
    let Term::Teacher { weight, .. } = credit[0][0].term else { panic!("the teacher is first") };
    assert_eq!(weight, 0.0);
    let statistics = BatchStatistics::of([(&mixed, &credit)], 0);
    assert!(statistics.entries().any(|it| it == ("teacher/weightless", 1.0)));
}

#[test]
fn d15_the_weights_never_rise_with_the_confidence() {
    let rules = [
        TeacherWeight::One,
        TeacherWeight::OneMinusConfidence,
        TeacherWeight::Relative,
        TeacherWeight::Constant(0.3),
    ];
    for n in 1..=32_usize {
        for gamma0 in [0.01, 0.15, 0.35, 0.5, 0.95, 1.0] {
            for rule in rules {
                let weights: Vec<f64> = (0..=n)
                    .map(|s| {
                        let group = injected(&("c".repeat(s) + &"w".repeat(n - s)));
                        teacher_weight(rule, &group, gamma0, 0.0)
                    })
                    .collect();
                assert!(
                    weights.is_sorted_by(|a, b| a >= b),
                    "{rule:?} N {n} γ0 {gamma0}: {weights:?}"
                );
                assert!(weights.iter().all(|it| (0.0..=1.0).contains(it)), "{rule:?} {weights:?}");
            }
        }
    }
}

#[test]
fn d8_a_fixed_slot_counts_the_teacher_in_the_mean() {
    let group =
        apply_gate(scored("wwwwwww"), Some(&teacher()), success_limit(64), slot(SlotRule::Fixed));
    assert_eq!(
        of(&group, Mixed, false),
        [0.875, -0.125, -0.125, -0.125, -0.125, -0.125, -0.125, -0.125]
    );
}

#[test]
fn rules_are_written_as_in_a_recipe() {
    let rule: AdvantageRule =
        serde_json::from_str(r#"{"group": "policy-only", "std": true}"#).unwrap();
    assert_eq!(rule, AdvantageRule { group: PolicyOnly, std: true });
    assert!(serde_json::from_str::<AdvantageRule>(r#"{"grup": "mixed"}"#).is_err());
    assert_eq!(serde_json::to_string(&SlotRule::LowestReward).unwrap(), r#""lowest-reward""#);
    assert_eq!(serde_json::to_string(&TeacherWeight::Constant(0.5)).unwrap(), "0.5");
    let verdict = Verdict::Unparsable("no box".into());
    assert_eq!(
        serde_json::to_string(&verdict).unwrap(),
        r#"{"verdict":"unparsable","reason":"no box"}"#
    );
}
