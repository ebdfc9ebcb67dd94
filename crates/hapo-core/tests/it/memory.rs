//! What is kept between steps, and the two injections without a teacher's trajectory: D38, D39.

use crate::support::{derived, kept, rollout, scored, scored_with, slot};
use hapo_core::*;

fn hapo(host: &str, injection: &str) -> Gated {
    let host = method(host).unwrap().build(&MethodSettings::default()).unwrap();
    let injection = hapo_core::injection(injection).unwrap();
    let gate = HapoGate { injection, ..HapoGate::of(derived(0)) };
    Gated::hapo(host, gate, 4, 62).unwrap()
}

fn mix(gated: &Gated, group: ScoredGroup, memory: &Memory) -> MixedGroup {
    let stored = memory.traces(group.prompt());
    let is_open = gated.success_limit(Step(1)).is_open(group.successes());
    let slot = slot(SlotRule::LowestReward);
    gated.mix(group, &Candidate { teachers: &[], stored, scores: &[], slot }, is_open)
}

fn of_prompt(prompt: u64, lengths: &[usize], verdicts: &str) -> MixedGroup {
    let rollouts: Vec<_> = lengths.iter().map(|it| rollout(*it, true)).collect();
    let sampled = SampledGroup::new(PromptId(prompt), rollouts.len(), rollouts);
    let slot = slot(SlotRule::LowestReward);
    apply_gate(
        sampled.score(crate::support::verdicts_of(verdicts)),
        None,
        SuccessLimit::CLOSED,
        slot,
    )
}

fn steps(memory: &Memory, prompt: u64) -> Vec<(u64, usize)> {
    let kept = memory.traces(PromptId(prompt)).iter();
    kept.map(|it| (it.step.0, it.tokens.len())).collect()
}

#[test]
fn d39_the_latest_successes_stay_and_the_oldest_leave_first() {
    let remember = |memory: Memory, step: u64, groups: &[MixedGroup]| {
        memory.with_successes(groups, Step(step), 2)
    };
    let start = Memory::default().limited_to(12);
    let first = remember(start, 1, &[of_prompt(4, &[3, 5, 2], "cwc"), of_prompt(2, &[4], "w")]);
    assert_eq!((steps(&first, 4), steps(&first, 2)), (vec![(1, 3), (1, 2)], vec![]));
    // The same step from the same memory is the same memory, byte for byte, in any order of groups.
    let groups = [of_prompt(2, &[4], "c"), of_prompt(4, &[1], "c")];
    let second = remember(first.clone(), 2, &groups);
    let [two, four] = groups;
    let again = remember(first, 2, &[four, two]);
    let text = |memory: &Memory| serde_json::to_string(memory).unwrap();
    assert_eq!(text(&second), text(&again));
    assert_eq!((steps(&second, 4), steps(&second, 2)), (vec![(2, 1), (1, 3)], vec![(2, 4)]));
    // 8 tokens are kept and 6 come: two of step 1 and none of step 2 leave.
    let third = remember(second.clone(), 3, &[of_prompt(9, &[6], "c")]);
    assert_eq!(third.tokens(), 11);
    assert_eq!((steps(&third, 4), steps(&third, 9)), (vec![(2, 1)], vec![(3, 6)]));
    // It is read as it was written, but for the limit, which is the recipe's.
    let read: Memory = serde_json::from_str(&text(&second)).unwrap();
    assert_eq!(read.clone().limited_to(12), second);
    assert_eq!(steps(&read.limited_to(5), 4), [(2, 1)]);
}

/// A response that was cut, or had help, is no success of the policy's.
#[test]
fn d39_only_whole_and_unaided_successes_are_kept() {
    let cut = rollout(3, false);
    let helped = Rollout { prefix: 1, ..rollout(4, true) };
    let hinted = Rollout { context: Context::Hint(0), ..rollout(5, true) };
    let group = scored_with(vec![cut, helped, hinted, rollout(6, true)], "cccc");
    let mixed = apply_gate(group, None, SuccessLimit::CLOSED, slot(SlotRule::LowestReward));
    let memory = Memory::default().limited_to(99).with_successes(&[mixed], Step(1), 9);
    assert_eq!(steps(&memory, 412), [(1, 6)]);
}

#[test]
fn d39_an_earlier_success_takes_the_slot_in_a_failed_group() {
    let gated = hapo("luffy", "replay");
    assert!(gated.help.needs.memory && gated.help.needs.parts == 1);
    let empty = Memory::default().limited_to(1000);
    let nothing = mix(&gated, scored("wwww"), &empty);
    assert_eq!(nothing.intervention(), Intervention::OpenWithoutTeacher);
    assert_eq!(gated.remember(empty.clone(), &[nothing], Step(1)), empty);

    let memory = gated.remember(empty, &[kept("wcwc")], Step(3));
    assert_eq!(steps(&memory, 412), [(3, 2)]);
    let mixed = mix(&gated, scored("wwww"), &memory);
    let Member::Replayed { trace, replaced: Some(replaced) } = &mixed.members()[3] else {
        panic!("the longest failure gives its slot");
    };
    assert_eq!((trace.tokens.len(), trace.step, replaced.index), (2, Step(3), 3));
    assert_eq!(mixed.members()[3].log_probs(), [-0.25; 2]);
    assert_eq!((mixed.rewards(), mixed.successes()), (vec![0.0, 0.0, 0.0, 1.0], 0));
    assert_eq!((mixed.sampled().count(), mixed.all_sampled().count()), (4, 4));
    // What was replayed is no success of this step.
    assert_eq!(
        steps(&gated.remember(memory.clone(), std::slice::from_ref(&mixed), Step(4)), 412),
        [(3, 2)]
    );
    let statistics = BatchStatistics::of([(&mixed, &Credit::default())], 0);
    assert_eq!((statistics.injected, statistics.helped, statistics.correct), (1, 0, 0));
    assert_eq!(statistics.reward_policy_only, Some(0.0));

    // A group that is not all wrong stays as it is.
    let closed = mix(&gated, scored("wwwc"), &memory);
    assert!(closed.members().iter().all(Member::is_own));
}

/// A = 1 − 1/4 under the policy's term and every host, its ratio taken to the weights of the step's start.
#[test]
fn a_replayed_success_has_the_policys_term_under_every_host() {
    for host in METHODS.iter().filter(|it| it.name != "srft") {
        let built = host.build(&MethodSettings::default()).unwrap();
        if !built.plan.can_be_gated && !built.is_plain_host() {
            continue;
        }
        let gated = hapo(host.name, "replay");
        let memory = Memory::default().limited_to(9).with_successes(&[kept("wc")], Step(1), 1);
        let mixed = mix(&gated, scored("wwww"), &memory);
        let credit = gated.credit(&mixed, Step(1), Scores::NONE);
        let [span] = credit[3].as_slice() else { panic!("{}: {:?}", host.name, credit[3]) };
        let Term::Policy { advantage, ratio } = &span.term else { panic!("{}", host.name) };
        assert_eq!((span.tokens.clone(), *ratio), (0..2, Ratio::Rescored), "{}", host.name);
        assert!(advantage.mean() > 0.0, "{}: {advantage:?}", host.name);
        let own = credit[..3].iter().flatten();
        assert!(own.clone().all(|it| it.ratio() == Some(Ratio::Recorded)), "{}", host.name);
    }
    let gated = hapo("luffy", "replay");
    let memory = Memory::default().limited_to(9).with_successes(&[kept("wc")], Step(1), 1);
    let mixed = mix(&gated, scored("wwww"), &memory);
    assert_eq!(advantages(&mixed, AdvantageRule::default()), [-0.25, -0.25, -0.25, 0.75]);
}

/// At an open gate every rollout has the gap to the second model, at a closed one the host's terms.
#[test]
fn d38_the_gate_decides_which_groups_are_distilled() {
    let gated = hapo("luffy", "distill");
    assert!(gated.help.needs.reference && !gated.help.needs.memory);
    let memory = Memory::default();
    let open = mix(&gated, scored("ww"), &memory);
    assert!(open.injected() && gated.reads_scores(&open));
    let scores = |log_probs: &[&[f32]]| Scores {
        reference: log_probs
            .iter()
            .map(|it| TokenScores { log_probs: it.to_vec(), ..TokenScores::default() })
            .collect(),
        ..Scores::default()
    };
    let credit = gated.credit(&open, Step(1), &scores(&[&[-0.5], &[-0.125, -2.25]]));
    let gaps: Vec<_> = credit
        .iter()
        .map(|spans| match &spans[0].term {
            Term::Policy { advantage: Advantage::Tokens(it), ratio: Ratio::Recorded } => {
                it.to_vec()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(gaps, [vec![-0.25], vec![0.125, -2.0]]);

    let closed = mix(&gated, scored("wc"), &memory);
    assert!(!closed.injected() && !gated.reads_scores(&closed));
    let credit = gated.credit(&closed, Step(1), Scores::NONE);
    assert_eq!(credit[1][0].term, Term::policy(0.5));
    let bare = Gated::bare(method("opd").unwrap().build(&MethodSettings::default()).unwrap(), 2);
    assert!(bare.unwrap().reads_scores(&closed));
}

/// `ReLIFT`, by hand: 40 failed prompts before 100 that wait are 140; the first 128 are due, and 12 stay.
#[test]
fn d43_the_newest_of_the_queue_are_due_once_they_fill_a_batch() {
    let prompts = |range: std::ops::Range<u64>| range.map(PromptId);
    let waiting = Memory::default().with_queued(prompts(0..100), 128);
    assert_eq!((waiting.due.len(), waiting.waiting()), (0, 100));
    let after = waiting.with_queued(prompts(200..240), 128);
    let expected: Vec<_> = prompts(200..240).chain(prompts(0..88)).collect();
    assert_eq!((&after.due[..], after.waiting()), (&expected[..], 12));
    let read: Memory = serde_json::from_str(&serde_json::to_string(&after).unwrap()).unwrap();
    assert_eq!(read, after);
    assert!(after.with_queued(prompts(0..0), 128).due.is_empty());

    let method = method("relift").unwrap().build(&MethodSettings::default()).unwrap();
    let gated = Gated::bare(method, 4).unwrap();
    let teacher = [crate::support::teacher()];
    let group = |verdicts, teachers| {
        let (group, slot) = (scored(verdicts), slot(SlotRule::LowestReward));
        let is_open = gated.success_limit(slot.step).is_open(group.successes());
        gated.mix(group, &Candidate { teachers, stored: &[], scores: &[], slot }, is_open)
    };
    let step = [group("wwww", &teacher[..]), group("cwww", &teacher), group("wwww", &[])];
    let events =
        [Intervention::Injected, Intervention::GateClosed, Intervention::OpenWithoutTeacher];
    assert_eq!(step.each_ref().map(MixedGroup::intervention), events);
    assert!(step.iter().all(|it| it.members().iter().all(Member::is_own)));
    assert_eq!(gated.remember(Memory::default(), &step, Step(1)).waiting(), 1);
}

/// The authors' `batch/solved` is a share of rollouts: 100 prompts with a success of 8 each have 0.125, with three 0.375.
#[test]
fn the_store_of_exgrpo_starts_by_the_share_of_right_rollouts() {
    let settings = MethodSettings::default();
    let gated = Gated::bare(method("exgrpo").unwrap().build(&settings).unwrap(), 8).unwrap();
    let empty = Memory::default().limited_to(9999);
    let kept = |verdicts, prompts| {
        let step: Vec<_> =
            (0..prompts).map(|it| of_prompt(it, &[1, 2, 3, 4, 5, 6, 7, 8], verdicts)).collect();
        let memory = gated.remember(empty.clone(), &step, Step(1));
        (0..prompts).map(|it| memory.traces(PromptId(it)).len()).sum::<usize>()
    };
    assert_eq!(kept("cwwwwwww", 100), 0);
    assert_eq!(kept("ccwwwwww", 100), 0);
    assert_eq!(kept("cccwwwww", 100), 300);
}

/// Weights of N = 8 by hand: exp(−(S − 4)²/2) is 1 at 4, 0.6065 at 5 and 0.0111 at 1. A solved prompt leaves the store.
#[test]
fn d44_a_prompt_replays_by_the_weight_of_its_successes() {
    let settings: MethodSettings = serde_json::from_str(r#"{"exgrpo":{"start":0.0}}"#).unwrap();
    let gated = Gated::bare(method("exgrpo").unwrap().build(&settings).unwrap(), 8).unwrap();
    let start = Memory::default().limited_to(9999);
    let memory = |verdicts| {
        gated.remember(
            start.clone(),
            &[of_prompt(412, &[1, 2, 3, 4, 5, 6, 7, 8], verdicts)],
            Step(1),
        )
    };
    let replays = |memory: &Memory| {
        let at = |step| {
            let slot = Slot { rule: gated.slot, seed: 7, step: Step(step) };
            let stored = memory.traces(PromptId(412));
            let offer = Candidate { teachers: &[], stored, scores: &[], slot };
            gated.mix(scored("wwwwwwww"), &offer, true).injected()
        };
        (2..1002).filter(|step| at(*step)).count()
    };
    assert_eq!(replays(&memory("ccccwwww")), 1000);
    let five = replays(&memory("cccccwww"));
    assert!((560..650).contains(&five), "{five}");
    let one = replays(&memory("cwwwwwww"));
    assert!((2..26).contains(&one), "{one}");
    // The same response again is kept once, the latest; a solved group forgets the prompt.
    let twice = gated.remember(memory("cwwwwwww"), &[of_prompt(412, &[1; 8], "cwwwwwww")], Step(2));
    assert_eq!(steps(&twice, 412), [(2, 1)]);
    let done = gated.remember(twice, &[of_prompt(412, &[1; 8], "cccccccc")], Step(3));
    assert!(done.traces(PromptId(412)).is_empty());
}

/// MFC, by hand: g is 3 hints at first, falls to what a visit showed where half of its rollouts are right, and never
/// rises. A visit draws from 0 to g.
#[test]
fn mfc_shows_fewer_hints_after_successes() {
    let settings = MethodSettings::default();
    let gated = Gated::bare(method("mfc").unwrap().build(&settings).unwrap(), 4).unwrap();
    let visit = |before: Memory, hints: usize, verdicts: &str| {
        let context = hints.checked_sub(1).map_or(Context::Plain, Context::Hint);
        let group = scored_with(vec![Rollout { context, ..rollout(3, true) }; 4], verdicts);
        let slot = slot(SlotRule::LowestReward);
        let offer = Candidate { teachers: &[], stored: &[], scores: &[], slot };
        gated.remember(before, &[gated.mix(group, &offer, false)], Step(1))
    };
    let mut memory = Memory::default();
    let text = |memory: &Memory| serde_json::to_string(memory).unwrap();
    assert_eq!(text(&memory), r#"{"traces":{}}"#, "other methods' memories are as they were");
    for (hints, verdicts, expected) in [
        (2, "wwww", None),
        (3, "cwww", None),
        (3, "ccww", Some(3)),
        (2, "cwww", Some(3)),
        (2, "ccww", Some(2)),
        (1, "wwww", Some(2)),
        (2, "cccc", Some(2)),
        (3, "cccc", Some(2)),
        (0, "cccw", Some(0)),
        (0, "wwww", Some(0)),
        (1, "cccc", Some(0)),
    ] {
        memory = visit(memory, hints, verdicts);
        assert_eq!(memory.frontier(PromptId(412)), expected, "{hints} {verdicts}");
        // A resumed run reads what was written.
        memory = serde_json::from_str(&text(&memory)).unwrap();
    }
    assert_eq!(memory.frontier(PromptId(413)), None);

    let group = ScoredGroup::empty(PromptId(412));
    let shown = |hints: usize, frontier: Option<usize>, step: u64| {
        let growing = GroupSoFar {
            group: &group,
            part: 0,
            size: 4,
            teachers: &[],
            hints,
            frontier,
            is_open: false,
            at: gated.moment(Step(step)),
            seed: 7,
            ends_paragraph: &|_| false,
        };
        match (gated.help.grow)(&growing) {
            Growth::Sample(Part { rollouts: 4, context: Context::Plain, .. }) => 0,
            Growth::Sample(Part { rollouts: 4, context: Context::Hint(level), .. }) => level + 1,
            other => panic!("{other:?}"),
        }
    };
    for (hints, frontier, most) in [(3, None, 3), (3, Some(1), 1), (3, Some(0), 0), (0, None, 0)] {
        let mut visits = vec![0; most + 1];
        (0..1000).for_each(|step| visits[shown(hints, frontier, step)] += 1);
        // Equal shares; of four the deviation is 14.
        let share = 1000 / visits.len();
        assert!(visits.iter().all(|it| share.abs_diff(*it) < 60), "{visits:?}");
    }
    assert_eq!(shown(3, None, 5), shown(3, None, 5));
}
