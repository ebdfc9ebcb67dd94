//! Each method's credit of a group's tokens, by hand.

use crate::support::{injected, kept, rollout, scored_with, slot, success_limit, teacher};
use hapo_core::*;

/// The settings with the table of a method; `{}` for none.
fn settings(name: &str, own: &str) -> MethodSettings {
    read(name, own).unwrap()
}

fn read(name: &str, own: &str) -> Result<MethodSettings, serde_json::Error> {
    let tables = if own == "{}" { own.to_owned() } else { format!("{{\"{name}\":{own}}}") };
    serde_json::from_str(&tables)
}

fn build(name: &str, own: &str) -> Method {
    method(name).unwrap().build(&settings(name, own)).unwrap()
}

fn refused(name: &str, settings: &MethodSettings) -> Refusal {
    method(name).unwrap().build(settings).unwrap_err()
}

fn at(step: u64) -> StepContext {
    StepContext { step: Step(step), initial_threshold: 0.15 }
}

/// (policy or the operator's name, A or λ, entropy exponent) of each span of each member.
fn terms(credit: &Credit) -> Vec<Vec<(&'static str, f64, f64)>> {
    let term = |it: &Span| match &it.term {
        Term::Policy { advantage, .. } => ("policy", advantage.mean(), it.entropy_exponent),
        Term::Teacher { weight, operator, .. } => (operator.name, *weight, it.entropy_exponent),
    };
    let members = credit.iter();
    members.map(|it| it.iter().map(term).collect()).collect()
}

#[test]
fn an_injected_group_of_four_has_the_operator_of_its_method() {
    // Lengths 1, 2, 3, 4; the longest failure gives its slot, and the mean reward is 1/4.
    let failed = build("superrl", "{}").credit(&injected("wwww"), at(1), Scores::NONE);
    assert_eq!(terms(&failed), [vec![], vec![], vec![], vec![("srft", 1.0, 0.0)]]);
    for (name, operator) in [("luffy", "luffy"), ("srft", "srft"), ("trapo", "trapo")] {
        let credit = build(name, "{}").credit(&injected("wwww"), at(1), Scores::NONE);
        let failure = vec![("policy", -0.25, 0.0)];
        let expected = [failure.clone(), failure.clone(), failure, vec![(operator, 1.0, 0.0)]];
        assert_eq!(terms(&credit), expected, "{name}");
        let lengths: Vec<_> = credit.iter().map(|it| it[0].tokens.clone()).collect();
        assert_eq!(lengths, [0..1, 0..2, 0..3, 0..4], "{name}: END is the fourth");
    }
}

#[test]
fn on_policy_methods_differ_in_their_advantages() {
    let group = kept("cwww");
    let of = |name: &str| {
        let credit = build(name, "{}").credit(&group, at(1), Scores::NONE);
        terms(&credit).iter().map(|it| it[0].1).collect::<Vec<_>>()
    };
    assert_eq!(of("grpo"), [0.75, -0.25, -0.25, -0.25]);
    assert_eq!(of("maxrl"), [3.0, -1.0, -1.0, -1.0]);
    // W-REINFORCE: 0.1 for a success, −1 for a failure, and one of the two alone.
    assert_eq!(of("w-reinforce"), [0.1, -1.0, -1.0, -1.0]);
    let weighted = |own| {
        let credit = build("w-reinforce", own).credit(&group, at(1), Scores::NONE);
        terms(&credit).iter().map(|it| it[0].1).collect::<Vec<_>>()
    };
    assert_eq!(weighted(r#"{"positive":1,"negative":0}"#), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(weighted(r#"{"positive":0,"negative":1}"#), [0.0, -1.0, -1.0, -1.0]);
    let failed = build("maxrl", "{}").credit(&kept("wwww"), at(1), Scores::NONE);
    assert!(failed.iter().all(|it| it[0].term.is_zero()));
}

/// D21: 0.1·exp(H) for a correct rollout, −1 for any other, 0.5·λ·exp(−H) for the teacher.
#[test]
fn d21_srfts_entropy_weights_take_the_place_of_advantages() {
    let method = build("srft", r#"{"weights":"entropy"}"#);
    let credit = method.credit(&injected("cwu"), at(1), Scores::NONE);
    let expected =
        [vec![("policy", 0.1, 1.0)], vec![("policy", -1.0, 0.0)], vec![("srft", 0.5, -1.0)]];
    assert_eq!(terms(&credit), expected);
}

/// CHORD: (1 − μ) times the policy's term and μ times the teacher's, μ from 0.75 to 0.25 in two steps. The teacher's
/// reward is not in the rollouts' baseline.
#[test]
fn chord_mixes_by_a_falling_mu() {
    let own = r#"{"peak":0.75,"valley":0.25,"decay":2}"#;
    for (name, operator) in [("chord-mu", "srft"), ("chord-phi", "chord")] {
        let method = build(name, own);
        for (step, mu) in [(1, 0.5), (2, 0.25), (3, 0.25), (9, 0.25)] {
            let credit = method.credit(&injected("wcw"), at(step), Scores::NONE);
            let policy = |advantage: f64| vec![("policy", (1.0 - mu) * advantage, 0.0)];
            let expected = [policy(-0.5), policy(0.5), vec![(operator, mu, 0.0)]];
            assert_eq!(terms(&credit), expected, "{name}, step {step}");
        }
        assert!(method.plan.teacher_apart);
    }
    let constant = build("chord-phi", "{}").credit(&injected("ww"), at(77), Scores::NONE);
    assert_eq!(terms(&constant)[1], [("chord", 0.1, 0.0)]);
}

/// HPT: a failed group is its demonstration; any other is GRPO.
#[test]
fn hpt_drops_the_rollouts_where_the_teacher_enters() {
    let method = build("hpt", "{}");
    let credit = method.credit(&injected("www"), at(1), Scores::NONE);
    assert_eq!(terms(&credit), [vec![], vec![], vec![("srft", 1.0, 0.0)]]);
    let group = kept("cw");
    assert_eq!(
        method.credit(&group, at(1), Scores::NONE),
        build("grpo", "{}").credit(&group, at(1), Scores::NONE)
    );
    let gate = Gate::Confidence {
        threshold: Threshold::Derived { success_limit: 0 },
        annealing: Annealing::Off,
    };
    assert_eq!(method.plan.gate, gate);
}

/// D22: a prefix's tokens have the teacher's term, what follows the policy's.
#[test]
fn d22_a_rollout_behind_a_prefix_has_two_spans() {
    let mut behind = rollout(5, true);
    behind.prefix = 2;
    let group = apply_gate(
        scored_with(vec![behind, rollout(3, true)], "cw"),
        None,
        success_limit(0),
        slot(SlotRule::Fixed),
    );
    let method = build("trapo", r#"{"prefixes":"micro-groups"}"#);
    let credit = method.credit(&group, at(1), Scores::NONE);
    assert_eq!(
        terms(&credit),
        [vec![("trapo", 1.0, 0.0), ("policy", 0.5, 0.0)], vec![("policy", -0.5, 0.0)]]
    );
    assert_eq!((credit[0][0].tokens.clone(), credit[0][1].tokens.clone()), (0..2, 2..5));
    // Of the two rollouts that continue the first prefix (members 4 and 5) the second's is imitated.
    let mut behind = vec![rollout(5, true); 6];
    behind[4].prefix = 2;
    behind[5].prefix = 2;
    let group =
        apply_gate(scored_with(behind, "wwwwcw"), None, success_limit(0), slot(SlotRule::Fixed));
    let credit = method.credit(&group, at(1), Scores::NONE);
    assert_eq!((credit[4].len(), credit[4][0].tokens.clone()), (1, 2..5));
    assert_eq!((credit[5].len(), credit[5][0].tokens.clone()), (2, 0..2));
    assert_eq!(method.needs(), Needs { parts: 4, prefixes: true, ..Needs::ROLLOUTS });
}

#[test]
fn imitation_is_the_demonstration_alone() {
    let credit = build("sft", "{}").credit(&injected("ww"), at(1), Scores::NONE);
    assert_eq!(terms(&credit), [vec![], vec![("srft", 1.0, 0.0)]]);
    assert_eq!(credit[1], demonstration(teacher().tokens().len()));
}

#[test]
fn settings_of_its_own_are_refused_with_their_key() {
    for (name, own, problem) in [
        (
            "srft",
            r#"{"weights":"entrpy"}"#,
            "unknown variant `entrpy`, expected one of `plain`, `entropy`, `entropy-apart`",
        ),
        ("srft", r#"{"weight":"plain"}"#, "unknown field `weight`, expected `weights`"),
        (
            "chord-phi",
            r#"{"mu":1}"#,
            "unknown field `mu`, expected one of `peak`, `valley`, `warmup`, `decay`",
        ),
        ("teacher", r#"{"d":1}"#, "expected a probability in (0, 1), got 1"),
        ("teacher", r#"{"weight":-1}"#, "invalid value: floating point `-1.0`, expected a word"),
        ("grpo", r#"{"weights":"plain"}"#, "unknown field `grpo`, expected one of `group_size`"),
    ] {
        let error = read(name, own).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
    let error = refused("chord-mu", &settings("chord-mu", r#"{"peak":2}"#));
    assert_eq!(
        error.to_string(),
        "expected a peak and a valley in [0, 1], got 2 and 0.05 (chord-mu)"
    );
    let mut small = settings("trapo", r#"{"prefixes":"micro-groups"}"#);
    small.group_size = 4;
    assert_eq!(
        refused("trapo", &small).to_string(),
        "expected sampling.group_size = 8, got 4; groups are sampled in parts of 4 + 2 + 1 + 1 (trapo.prefixes)"
    );
    let nothing = settings("w-reinforce", r#"{"positive":0,"negative":0}"#);
    assert_eq!(refused("w-reinforce", &nothing).place(), Some("w-reinforce"));
    let rising = settings("kdrl", r#"{"coef":1e-3,"floor":2e-3}"#);
    assert_eq!(refused("kdrl", &rising).place(), Some("kdrl"));
    let more = settings("ampo", r#"{"pool":2,"replaced":3}"#);
    assert_eq!(refused("ampo", &more).place(), Some("ampo.replaced"));
    for (method, own) in [
        ("edge", r#"{"clamp":0.5}"#),
        ("sdpo", r#"{"clamp":0}"#),
        ("questa", r#"{"hint":0}"#),
        ("tgopd", r#"{"traces":0}"#),
        ("prefix-rft", r#"{"low":0.9,"high":0.5}"#),
    ] {
        let refused = refused(method, &settings(method, own));
        assert!(refused.place().unwrap().starts_with(method));
    }
    let share = settings("exgrpo", r#"{"start":2}"#);
    assert_eq!(refused("exgrpo", &share).place(), Some("exgrpo.start"));
    let few = settings("repo", r#"{"begin":17}"#);
    assert_eq!(refused("repo", &few).place(), Some("repo.begin"));
    let divided = settings("advantage", r#"{"std":true}"#);
    assert_eq!(refused("maxrl", &divided).place(), Some("advantage"));
}

#[test]
fn only_methods_with_a_teachers_term_are_gated() {
    let gate = Gate::Confidence {
        threshold: Threshold::Derived { success_limit: 0 },
        annealing: Annealing::Off,
    };
    for entry in METHODS {
        assert!(!entry.name.is_empty() && !entry.summary.is_empty());
        let method = build(entry.name, "{}");
        assert_eq!(method.name, entry.name);
        let gated = Gated::hapo(method.clone(), HapoGate::of(gate), 8, 62);
        // These decide by themselves what becomes of a failed group.
        let alone = ["ampo", "relift", "rlep", "exgrpo", "tgopd"].contains(&entry.name);
        let has_teacher = method.plan.gate != Gate::Never && !alone;
        assert_eq!(method.plan.can_be_gated, has_teacher, "{}", entry.name);
        match gated {
            Ok(it) => {
                assert_eq!(it.name(), format!("{}-hapo", entry.name));
                assert_eq!((it.help.needs, it.slot), (Needs::ROLLOUTS, SlotRule::LowestReward));
            }
            Err(error) => {
                assert!(
                    error.to_string().starts_with(&format!("method `{}`: expected", entry.name))
                );
                assert!(!has_teacher);
            }
        }
        let bare = Gated::bare(method, 8).unwrap();
        assert_eq!((bare.name().as_str(), bare.schedule()), (entry.name, None));
    }
    // With its own prefixes TRAPO decides by itself.
    let prefixes = build("trapo", r#"{"prefixes":"micro-groups"}"#);
    assert!(Gated::hapo(prefixes.clone(), HapoGate::of(gate), 8, 62).is_err());
    let bare = Gated::bare(prefixes, 8).unwrap();
    assert_eq!(bare.success_limit(Step(1)).get(), 6);
    assert_eq!(bare.slot, SlotRule::Fixed);
}
