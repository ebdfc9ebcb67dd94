//! Who is taught, and in whose place.

use crate::support::{
    END, injected, kept, rollout, scored, scored_with, slot, success_limit, teacher, verdicts_of,
};
use hapo_core::*;

fn replaced(group: ScoredGroup, rule: SlotRule) -> usize {
    let mixed = apply_gate(group, Some(&teacher()), success_limit(64), slot(rule));
    let at = mixed.teacher_index().expect("the gate is open");
    match &mixed.members()[at] {
        Member::Teacher { replaced: Some(member), .. } => {
            assert_eq!(member.index, at);
            at
        }
        _ => panic!("no rollout gave way"),
    }
}

#[test]
fn d1_the_gate_decides_on_the_successes_of_the_sampled_rollouts() {
    for successes in 0..=8 {
        let verdicts: String = (0..8).map(|it| if it < successes { 'c' } else { 'w' }).collect();
        for level in 0..8 {
            let mixed = apply_gate(
                scored(&verdicts),
                Some(&teacher()),
                success_limit(level),
                slot(SlotRule::LowestReward),
            );
            assert_eq!(mixed.injected(), successes <= level, "S {successes} m {level}");
            assert_eq!(mixed.successes(), successes);
            assert_eq!(mixed.confidence(), (1 + successes) as f64 / 10.0);
            assert_eq!(mixed.members().len(), 8);
        }
    }
}

#[test]
fn d7_one_of_the_ties_is_replaced_and_the_others_stay() {
    let mixed = injected("wwwwwwww");
    assert_eq!(mixed.members().iter().filter(|it| matches!(it, Member::Policy(_))).count(), 7);
    assert_eq!(mixed.rewards().iter().sum::<f64>(), 1.0);
    let sampled: Vec<usize> = mixed.sampled().map(|it| it.index).collect();
    assert_eq!(sampled, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn d7_the_order_is_reward_then_truncation_then_length_then_index() {
    let of = |rollouts: &[(usize, bool)], verdicts| {
        let rollouts = rollouts.iter().map(|(length, ended)| rollout(*length, *ended)).collect();
        replaced(scored_with(rollouts, verdicts), SlotRule::LowestReward)
    };
    // Reward before all: the correct ones are longer, and one of them is truncated.
    assert_eq!(of(&[(9, false), (9, true), (1, true), (8, true)], "ccwc"), 2);
    // An answer that cannot be read has the reward of a wrong one.
    assert_eq!(of(&[(9, true), (3, true), (5, true)], "cwu"), 2);
    // Truncated before ended, though shorter.
    assert_eq!(of(&[(9, true), (4, false), (9, true)], "www"), 1);
    // Among the truncated the longest.
    assert_eq!(of(&[(9, true), (4, false), (6, false)], "www"), 2);
    // Among equals the lowest index.
    assert_eq!(of(&[(3, true), (6, true), (6, true), (6, true)], "wwww"), 1);
    assert_eq!(of(&[(5, false); 8], "wwwwwwww"), 0);
    // All correct, gate open: the same order.
    assert_eq!(of(&[(3, true), (7, true), (2, true)], "ccc"), 1);
}

#[test]
fn d7_first_and_longest_look_at_nothing_else() {
    let group = || {
        scored_with(
            vec![rollout(2, true), rollout(5, true), rollout(1, false), rollout(5, true)],
            "cwwc",
        )
    };
    assert_eq!(replaced(group(), SlotRule::First), 0);
    assert_eq!(replaced(group(), SlotRule::Longest), 1);
    assert_eq!(replaced(group(), SlotRule::LowestReward), 2);
}

#[test]
fn d7_random_is_a_function_of_seed_step_and_prompt_and_reaches_every_slot() {
    let draw = |seed, step, prompt| {
        let group = SampledGroup::new(PromptId(prompt), 8, vec![rollout(3, true); 8])
            .score(verdicts_of("wwwwwwww"));
        let slot = Slot { rule: SlotRule::Random, seed, step: Step(step) };
        apply_gate(group, Some(&teacher()), success_limit(64), slot).teacher_index().unwrap()
    };
    let mut counts = [0; 8];
    for step in 1..=8000 {
        assert_eq!(draw(3, step, 412), draw(3, step, 412));
        counts[draw(3, step, 412)] += 1;
    }
    // Expected 1000 with a deviation of 30.
    assert!(counts.iter().all(|it| (880..=1120).contains(it)), "{counts:?}");
    let by_seed: Vec<_> = (0..40).map(|it| draw(it, 1, 412)).collect();
    let by_prompt: Vec<_> = (0..40).map(|it| draw(3, 1, it)).collect();
    assert!(
        by_seed.iter().any(|it| *it != by_seed[0])
            && by_prompt.iter().any(|it| *it != by_prompt[0])
    );
}

#[test]
fn d8_the_fixed_slot_samples_one_fewer_and_puts_the_teacher_first() {
    let teacher = teacher();
    assert_eq!(rollouts_to_sample(SlotRule::Fixed, 8, Some(&teacher)), 7);
    assert_eq!(rollouts_to_sample(SlotRule::Fixed, 8, None), 8);
    assert_eq!(rollouts_to_sample(SlotRule::LowestReward, 8, Some(&teacher)), 8);

    let mixed =
        apply_gate(scored("cwwwwww"), Some(&teacher), success_limit(64), slot(SlotRule::Fixed));
    assert_eq!(mixed.members().len(), 8);
    assert_eq!(mixed.members()[0], Member::Teacher { trajectory: teacher, replaced: None });
    assert_eq!(mixed.rewards(), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!((mixed.n_eff(), mixed.successes(), mixed.sampled().count()), (7, 1, 7));
    // "+ Hindsight" is another row: a rollout of eight gives way.
    let hindsight = apply_gate(
        scored("cwwwwwww"),
        Some(&crate::support::teacher()),
        success_limit(64),
        slot(SlotRule::LowestReward),
    );
    assert_eq!(
        (hindsight.n_eff(), hindsight.members().len(), hindsight.teacher_index()),
        (8, 8, Some(7))
    );
}

/// The end token of the template or another token that ends a response, anywhere but at the end.
#[test]
fn d9_a_teacher_that_goes_on_after_its_end_is_refused_with_the_place() {
    let other = 99;
    for (tokens, position) in [(vec![7, END, 7], 1), (vec![7, 7, other], 2), (vec![END, END], 0)] {
        let refused = admit_teacher(tokens, &[END, other], &Verdict::Correct, 10).unwrap_err();
        let place = format!("got one as token {} of ", position + 1);
        assert!(refused.to_string().contains(&place), "{refused}");
    }
    let refused = admit_teacher(vec![7, END, 7], &[END], &Verdict::Correct, 10).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "teacher trajectory continues after its end: expected an end token at its end alone, got one as token 2 of 4"
    );
}

#[test]
fn d9_a_prompt_without_teacher_is_never_injected_and_is_counted() {
    let mixed = apply_gate(scored("wwww"), None, success_limit(0), slot(SlotRule::LowestReward));
    assert_eq!(mixed.intervention(), Intervention::OpenWithoutTeacher);
    assert_eq!(mixed.teacher_index(), None);
    // With the gate closed the missing teacher is not missed.
    let closed = apply_gate(scored("cwww"), None, success_limit(0), slot(SlotRule::LowestReward));
    assert_eq!(closed.intervention(), Intervention::GateClosed);
    assert_eq!(statistics(&[mixed, closed], 0).open_no_teacher, 1);
}

#[test]
fn d9_a_teacher_is_admitted_verified_and_whole_or_not_at_all() {
    let admitted = |n: usize, verdict: &Verdict| {
        let admitted = admit_teacher(vec![7; n], &[END], verdict, 10);
        admitted.map(|it| it.tokens().len()).map_err(|refused| refused.to_string())
    };
    assert_eq!(admitted(9, &Verdict::Correct), Ok(10));
    assert_eq!(
        admitted(10, &Verdict::Correct),
        Err(
            "teacher trajectory is too long: expected at most 10 tokens with the end token, got 11"
                .to_owned()
        )
    );
    assert_eq!(
        admitted(3, &Verdict::Wrong).unwrap_err(),
        "teacher trajectory is not verified: expected a correct answer, got a wrong one"
    );
    let unparsable = admitted(3, &Verdict::Unparsable("no box".into())).unwrap_err();
    assert_eq!(
        unparsable,
        "teacher trajectory is not verified: expected a correct answer, got none: no box"
    );
}

#[test]
fn d10_a_teacher_ends_with_one_end_token() {
    for tokens in [vec![7, 8], vec![7, 8, END]] {
        let teacher = admit_teacher(tokens, &[END], &Verdict::Correct, 10).unwrap();
        assert_eq!(teacher.tokens(), [7, 8, END]);
    }
}

#[test]
fn d11_the_teacher_s_reward_is_1() {
    let mixed = injected("wwww");
    assert_eq!(mixed.rewards(), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn d6_lost_rollouts_change_the_confidence_and_not_the_rule() {
    let sampled = SampledGroup::new(PromptId(1), 8, vec![rollout(2, true); 4]);
    let group = sampled.score(verdicts_of("cwww"));
    assert_eq!((group.requested(), group.n_eff(), group.confidence()), (8, 4, 2.0 / 6.0));
    assert!(!group.is_short());
    let mixed = apply_gate(group, Some(&teacher()), success_limit(1), slot(SlotRule::LowestReward));
    assert!(mixed.injected());
    assert_eq!((mixed.confidence(), mixed.members().len()), (2.0 / 6.0, 4));
}

#[test]
fn d6_groups_of_fewer_than_two_are_dropped_and_counted() {
    let group = |prompt, requested, n: usize| {
        SampledGroup::new(PromptId(prompt), requested, vec![rollout(2, true); n])
            .score(vec![Verdict::Wrong; n])
    };
    let (kept, dropped) = drop_short_groups(vec![
        group(1, 8, 8),
        group(2, 8, 1),
        group(3, 8, 2),
        group(4, 8, 0),
        group(5, 1, 1),
    ]);
    assert_eq!(dropped, 2);
    assert_eq!(kept.iter().map(|it| it.prompt().0).collect::<Vec<_>>(), [1, 3, 5]);
}

#[test]
fn d6_a_group_without_rollouts_has_nothing_to_replace() {
    let empty = || SampledGroup::new(PromptId(1), 8, vec![]).score(vec![]);
    assert!(empty().is_short() && empty().all_fail());
    let mixed =
        apply_gate(empty(), Some(&teacher()), success_limit(0), slot(SlotRule::LowestReward));
    assert_eq!(mixed.members().len(), 1);
    assert_eq!(
        advantages(&mixed, AdvantageRule { group: AdvantageGroup::PolicyOnly, std: false }),
        [0.0]
    );
}

#[test]
fn the_counts_of_a_batch_are_those_of_its_sampled_rollouts() {
    let batch = [
        injected("wwwu"),
        injected("cwww"),
        kept("cccc"),
        kept("wwww"),
        apply_gate(scored("wwww"), None, success_limit(0), slot(SlotRule::LowestReward)),
    ];
    let expected = BatchStatistics {
        groups: 5,
        all_fail: 3,
        all_solved: 1,
        partially_solved: 1,
        dropped: 2,
        without_signal: 3,
        injected: 2,
        open_no_teacher: 1,
        beta: 0.4,
        teacher_trajectories: 0.1,
        // 1 + 2 + 4 of 20 trajectories, and 1 + 4 of 20 rollouts.
        reward_mean: 0.35,
        reward_policy_only: Some(0.25),
        correct: 5,
        wrong: 14,
        unparsable: 1,
        ..BatchStatistics::default()
    };
    assert_eq!(statistics(&batch, 2), expected);
    let empty =
        BatchStatistics { dropped: 3, reward_policy_only: Some(0.0), ..BatchStatistics::default() };
    assert_eq!(statistics(&[], 3), empty);
}

#[test]
fn d20_signal_is_the_teacher_or_unequal_rewards() {
    let of = |group| statistics(&[group], 0).without_signal;
    assert_eq!((of(injected("wwww")), of(injected("cccc"))), (0, 0));
    assert_eq!((of(kept("cwww")), of(kept("wwww")), of(kept("cccc"))), (0, 1, 1));
    for verdicts in ["wwww", "cccc"] {
        assert_eq!(advantages(&kept(verdicts), AdvantageRule::default()), [0.0; 4]);
    }
}

/// The statistics of groups whose credit is LUFFY's.
fn statistics(groups: &[MixedGroup], dropped: usize) -> BatchStatistics {
    let luffy = method("luffy").unwrap().build(&MethodSettings::default()).unwrap();
    let at = StepContext { step: Step(1), initial_threshold: 0.15 };
    let credits: Vec<Credit> = groups.iter().map(|it| luffy.credit(it, at, Scores::NONE)).collect();
    BatchStatistics::of(groups.iter().zip(&credits), dropped)
}

/// Four rollouts with rewards .9, .2, .2 and .5; the third is longer than the second.
fn graded(success_at: f64) -> ScoredGroup {
    let rollouts = vec![rollout(3, true), rollout(3, true), rollout(4, true), rollout(9, false)];
    let graded = [0.9, 0.2, 0.2, 0.5].map(|it| (it, Verdict::Wrong));
    SampledGroup::new(PromptId(412), 4, rollouts).score_with_rewards(graded.to_vec(), success_at)
}

#[test]
fn d28_successes_are_rewards_that_reach_the_level() {
    for (success_at, successes) in [(1.0, 0), (0.9, 1), (0.5, 2), (0.2, 4)] {
        let group = graded(success_at);
        assert_eq!(group.successes(), successes, "success at {success_at}");
        assert_eq!(group.rewards(), [0.9, 0.2, 0.2, 0.5]);
    }
    assert!((graded(0.5).confidence() - 0.5).abs() < 1e-15);
}

#[test]
fn d28_the_lowest_reward_is_replaced_and_the_teacher_keeps_its_own() {
    let teacher = admit_graded_teacher(vec![7, 7], &[END], 0.8, 0.75, 80).unwrap();
    let mixed =
        apply_gate(graded(0.75), Some(&teacher), success_limit(1), slot(SlotRule::LowestReward));
    // Of the two rewards .2 the longer rollout gives its slot (D7), though .5 is truncated.
    assert_eq!(mixed.teacher_index(), Some(2));
    assert_eq!(mixed.rewards(), [0.9, 0.2, 0.8, 0.5]);
    let got = advantages(&mixed, AdvantageRule::default());
    for (got, expected) in got.iter().zip([0.3, -0.4, 0.2, -0.1]) {
        assert!((got - expected).abs() < 1e-12, "{got} {expected}");
    }
    let statistics = statistics(&[mixed], 0);
    assert!((statistics.reward_policy_only.unwrap() - 0.45).abs() < 1e-12);
    assert_eq!((statistics.partially_solved, statistics.injected), (1, 1));
}

/// Rollouts with these rewards, of which those of the numbers `cut` are cut off.
fn paid(rewards: &[f64], cut: &[usize], truncated: Truncated, wrong: f64) -> ScoredGroup {
    let rollouts = (0..rewards.len()).map(|it| rollout(3, !cut.contains(&it))).collect();
    let graded = rewards.iter().map(|it| (*it, Verdict::Wrong)).collect();
    let sampled = SampledGroup::new(PromptId(412), rewards.len(), rollouts);
    sampled.score_with_rewards(graded, -0.25).paying_unjudged(truncated, wrong)
}

#[test]
fn d31_a_cut_response_is_paid_no_more_than_a_wrong_one() {
    let of = |cut: &[usize], truncated, wrong| {
        let it = paid(&[-1.0, 9.0, 0.5, -0.25], cut, truncated, wrong);
        (it.rewards(), it.successes())
    };
    // The lowest graded reward, or `wrong` where that is lower; a success is graded.
    assert_eq!(of(&[1], Truncated::Wrong, -0.5), (vec![-1.0, -1.0, 0.5, -0.25], 2));
    assert_eq!(of(&[1], Truncated::Mask, -2.0), (vec![-1.0, -2.0, 0.5, -0.25], 2));
    assert_eq!(of(&[0, 1, 3], Truncated::Wrong, -0.5), (vec![-0.5, -0.5, 0.5, -0.5], 1));
    assert_eq!(of(&[0, 1, 2, 3], Truncated::Wrong, -0.5), (vec![-0.5; 4], 0));
    assert_eq!(of(&[1], Truncated::Grade, -0.5), (vec![-1.0, 9.0, 0.5, -0.25], 3));
    // Paid twice, as a replay does, nothing moves.
    let once = paid(&[-1.0, 9.0, 0.5], &[1], Truncated::Wrong, -0.5);
    assert_eq!(once.clone().paying_unjudged(Truncated::Wrong, -0.5), once);
}

#[test]
fn d28_a_teacher_below_the_level_is_refused() {
    let refused = admit_graded_teacher(vec![7, 7], &[END], 0.7, 0.75, 80).unwrap_err();
    expect_test::expect![
        "teacher trajectory is not verified: expected a reward of at least 0.75, got 0.7"
    ]
    .assert_eq(&refused.to_string());
    assert!(admit_graded_teacher(vec![7], &[END], f64::NAN, 0.0, 80).is_err());
}

#[test]
fn d28_failed_groups_with_unequal_rewards_have_a_signal() {
    let closed = |group| apply_gate(group, None, SuccessLimit::CLOSED, slot(SlotRule::First));
    let mixed = closed(graded(1.0));
    assert_eq!(mixed.successes(), 0);
    let of = |group| statistics(&[group], 0).without_signal;
    assert_eq!(of(mixed), 0);
    let constant = ["wwww", "cccc", "cwww"].map(|it| of(closed(scored(it))));
    assert_eq!(constant, [1, 1, 0]);
}

/// Three solutions of 4, 3 and 3 tokens with mean log π of −2, −1.5 and −1: by hand.
#[test]
fn one_of_several_trajectories_is_picked_by_seed_step_and_prompt() {
    let of = |tokens: &[TokenId]| {
        admit_teacher(tokens.to_vec(), &[crate::support::END], &Verdict::Correct, 80).unwrap()
    };
    let teachers = [of(&[7, 7, 7]), of(&[8, 8]), of(&[9, 9])];
    let scored =
        |log_probs: &[f32]| TokenScores { log_probs: log_probs.to_vec(), ..TokenScores::default() };
    let scores = [scored(&[-1.0, -3.0]), scored(&[-1.0, -2.0]), scored(&[-1.0])];
    let picked = |pick, at: Slot, prompt| {
        let offer = Candidate { teachers: &teachers, stored: &[], scores: &scores, slot: at };
        let left = offer.picking(pick, PromptId(prompt)).teachers;
        left.iter().map(|it| it.tokens()[0]).collect::<Vec<_>>()
    };
    let at = slot(SlotRule::First);
    assert_eq!(picked(TeacherPick::First, at, 1), [7, 8, 9], "what enters chooses");
    assert_eq!(picked(TeacherPick::Shortest, at, 1), [8]);
    assert_eq!(picked(TeacherPick::Likeliest, at, 1), [9]);
    let drawn: Vec<_> = (0..3000).map(|it| picked(TeacherPick::Random, at, it)[0]).collect();
    for token in [7, 8, 9] {
        let count = drawn.iter().filter(|it| **it == token).count();
        // 1000 ± 4 deviations of 25.8.
        assert!((897..=1103).contains(&count), "{count}");
    }
    assert_eq!(picked(TeacherPick::Random, at, 17)[0], drawn[17]);
    for other in [Slot { seed: 1, ..at }, Slot { step: Step(2), ..at }] {
        let again = (0..3000).map(|it| picked(TeacherPick::Random, other, it)[0]);
        assert!(again.ne(drawn.iter().copied()));
    }
    let none = Candidate { teachers: &[], stored: &[], scores: &[], slot: at };
    for pick in [TeacherPick::Random, TeacherPick::Shortest, TeacherPick::Likeliest] {
        assert!(none.picking(pick, PromptId(1)).teachers.is_empty());
    }
}
