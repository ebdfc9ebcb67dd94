//! How groups grow, and what enters them: D35, D36, D37.

use crate::support::{END, derived, rollout, scored_with, slot, verdicts_of};
use hapo_core::*;

/// A trajectory of `tokens` tokens, the end token included.
fn trajectory(tokens: usize) -> TeacherTrajectory {
    let before_end = (10..10 + tokens as TokenId - 1).collect();
    admit_teacher(before_end, &[END], &Verdict::Correct, tokens).unwrap()
}

fn build(name: &str, own: &str) -> Method {
    let tables = if own == "{}" { own.to_owned() } else { format!("{{\"{name}\":{own}}}") };
    let settings: MethodSettings = serde_json::from_str(&tables).unwrap();
    method(name).unwrap().build(&settings).unwrap()
}

fn hapo(injection: &str) -> Gated {
    let injection = hapo_core::injection(injection).unwrap();
    let gate = HapoGate { injection, ..HapoGate::of(derived(0)) };
    Gated::hapo(build("luffy", "{}"), gate, 4, 62).unwrap()
}

fn factor(term: &Term) -> f64 {
    match term {
        Term::Policy { advantage, .. } => advantage.mean(),
        Term::Teacher { weight, .. } => *weight,
    }
}

/// A prompt's group that a sampler without a model answers: one verdict for each rollout.
struct World<'a> {
    gated: &'a Gated,
    teachers: &'a [TeacherTrajectory],
    hints: usize,
    group_size: usize,
    step: u64,
}

impl World<'_> {
    /// The parts that are asked for while the answers come in, and the group.
    fn grow(&self, answers: &[&str]) -> (Vec<Part>, ScoredGroup) {
        let mut group = ScoredGroup::empty(PromptId(412));
        let mut parts = Vec::new();
        for part in 0..self.gated.help.needs.parts {
            let growing = GroupSoFar {
                group: &group,
                part,
                size: rollouts_to_sample(self.gated.slot, self.group_size, self.teachers.first()),
                teachers: self.teachers,
                hints: self.hints,
                frontier: None,
                is_open: self.gated.success_limit(Step(self.step)).is_open(group.successes()),
                at: self.gated.moment(Step(self.step)),
                seed: 7,
                ends_paragraph: &|_| false,
            };
            let Growth::Sample(wanted) = (self.gated.help.grow)(&growing) else { break };
            let (prefix, known) = growing.given(wanted.prefix, 64);
            assert!(known.is_empty(), "the teacher's tokens have no recorded log-probabilities");
            let answers = answers[part];
            assert_eq!(answers.len(), wanted.rollouts, "part {part}");
            let rollouts = (0..wanted.rollouts).map(|n| Rollout {
                tokens: [prefix, &vec![9; n + 1]].concat(),
                prefix: prefix.len(),
                log_probs: vec![-0.5; n + 1],
                ended: true,
                part,
                context: wanted.context,
                ..Rollout::default()
            });
            group.join(scored_with(rollouts.collect(), answers));
            parts.push(wanted);
        }
        (parts, group)
    }

    fn mix(&self, group: ScoredGroup) -> MixedGroup {
        let slot = Slot { step: Step(self.step), ..slot(self.gated.slot) };
        let is_open = self.gated.success_limit(slot.step).is_open(group.successes());
        let teachers = self.teachers;
        self.gated.mix(group, &Candidate { teachers, stored: &[], scores: &[], slot }, is_open)
    }
}

fn world<'a>(gated: &'a Gated, teachers: &'a [TeacherTrajectory]) -> World<'a> {
    World { gated, teachers, hints: 0, group_size: 4, step: 1 }
}

#[test]
fn d35_a_method_asks_for_its_whole_group_unless_it_says_otherwise() {
    let teacher = [trajectory(9)];
    let otherwise = ["sft", "uft", "prefix-rft"];
    for entry in METHODS.iter().filter(|it| !otherwise.contains(&it.name)) {
        let gated = Gated::bare(build(entry.name, "{}"), 4).unwrap();
        let fixed = usize::from(gated.slot == SlotRule::Fixed);
        let answers = &"wwww"[fixed..];
        let (parts, group) = world(&gated, &teacher).grow(&[answers]);
        let plain = Part { rollouts: 4 - fixed, prefix: Prefix::None, context: Context::Plain };
        assert_eq!(parts, [plain], "{}", entry.name);
        assert_eq!(group.requested(), 4 - fixed);
        let without_teacher = world(&gated, &[]).grow(&["wwww"]).0;
        assert_eq!(without_teacher[0].rollouts, 4, "{}", entry.name);
    }
}

/// D22: 4 + 2 + 1 + 1, by the successes so far, and S of the first four.
#[test]
fn d22_trapo_grows_by_the_successes_before_each_part() {
    let gated = Gated::bare(build("trapo", r#"{"prefixes":"micro-groups"}"#), 8).unwrap();
    let teacher = [trajectory(9)];
    let lengths = |answers: &[&str]| {
        let world = World { group_size: 8, ..world(&gated, &teacher) };
        let (parts, group) = world.grow(answers);
        let prefixes: Vec<Prefix> = parts.iter().map(|it| it.prefix).collect();
        let mixed = world.mix(group);
        (prefixes, mixed.teacher_index(), mixed.successes(), mixed.n_eff())
    };
    let behind = |tokens: [usize; 3]| tokens.map(Prefix::Teacher).to_vec();
    assert_eq!(lengths(&["wwww", "ww", "w"]), (behind([0, 2, 4]), Some(0), 0, 4));
    assert_eq!(lengths(&["cwww", "cc", "w"]), (behind([0, 2, 4]), Some(0), 1, 4));
    assert_eq!(lengths(&["ccww", "cc", "c"]), (behind([0, 0, 0]), Some(0), 2, 4));
    let all = lengths(&["cccc", "cc", "c", "w"]);
    assert_eq!(all, ([behind([0, 0, 0]), vec![Prefix::None]].concat(), None, 4, 4));
    let alone = World { group_size: 8, ..world(&gated, &[]) };
    assert_eq!(alone.grow(&["wwww", "ww", "w", "w"]).0.len(), 4);
}

#[test]
fn d35_s_and_n_eff_count_unaided_rollouts_of_the_first_part() {
    let with_prefix = |part, prefix| Rollout { part, prefix, ..rollout(5, true) };
    let mut group = ScoredGroup::empty(PromptId(1));
    let first = vec![with_prefix(0, 0), with_prefix(0, 2), with_prefix(0, 0)];
    group.join(SampledGroup::new(PromptId(1), 4, first).score(verdicts_of("ccw")));
    group.join(scored_with(vec![with_prefix(1, 0), with_prefix(1, 3)], "cc"));
    assert_eq!((group.successes(), group.n_eff()), (1, 2));
    assert_eq!((group.all_successes(), group.requested(), group.asked()), (4, 4, 6));
    assert!((group.confidence() - 0.5).abs() < 1e-15);
    let numbers: Vec<usize> = group.members().iter().map(|it| it.index).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

/// D36: the shortest prefix that succeeds enters, in the slot that the first part gives; the others are thrown away.
#[test]
fn d36_the_shortest_prefix_that_succeeds_enters() {
    let (gated, teacher) = (hapo("prefix"), [trajectory(9)]);
    let world = world(&gated, &teacher);
    let (parts, group) = world.grow(&["wwww", "w", "c"]);
    let prefixes: Vec<Prefix> = parts.iter().map(|it| it.prefix).collect();
    assert_eq!(prefixes, [Prefix::None, Prefix::Teacher(2), Prefix::Teacher(4)]);
    let mixed = world.mix(group);
    assert_eq!(mixed.rewards(), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!((mixed.successes(), mixed.n_eff(), mixed.discarded().len()), (0, 4, 1));
    let Member::Helped { member, replaced: Some(replaced) } = &mixed.members()[3] else {
        panic!("the longest failure gives its slot");
    };
    assert_eq!((member.rollout.part, member.index, replaced.index), (2, 5, 3));

    // Its prefix has the host's teacher term, the rest the policy's; the thrown away one is in no mean.
    let credit = gated.credit(&mixed, Step(1), Scores::NONE);
    let terms: Vec<_> = credit[3].iter().map(|it| (it.tokens.clone(), it.term.clone())).collect();
    let Term::Teacher { weight, operator, .. } = &terms[0].1 else { panic!("the teacher's term") };
    assert_eq!((terms[0].0.clone(), *weight, operator.name), (0..4, 1.0, "luffy"));
    assert_eq!((terms[1].0.clone(), factor(&terms[1].1)), (4..5, 0.75));
    assert_eq!(factor(&credit[0][0].term), -0.25);

    // No success: the group stays as it was sampled.
    let (_, group) = world.grow(&["wwww", "w", "w", "w"]);
    let mixed = world.mix(group);
    assert_eq!(mixed.intervention(), Intervention::HelpFailed);
    assert_eq!((mixed.members().len(), mixed.discarded().len()), (4, 3));
    let credit = gated.credit(&mixed, Step(1), Scores::NONE);
    let statistics = BatchStatistics::of([(&mixed, &credit)], 0);
    assert_eq!((statistics.helped, statistics.discarded, statistics.help_failed), (3, 3, 1));
    // Tokens 2 + 1, 4 + 1 and 6 + 1.
    assert_eq!((statistics.discarded_tokens, statistics.all_fail), (15, 1));

    // A closed gate and a prompt without a teacher ask for nothing.
    assert_eq!(world.grow(&["cwww"]).0.len(), 1);
    let alone = World { teachers: &[], ..world };
    let (parts, group) = alone.grow(&["wwww"]);
    assert_eq!(parts.len(), 1);
    assert_eq!(alone.mix(group).intervention(), Intervention::OpenWithoutTeacher);
}

#[test]
fn d36_a_hint_enters_at_the_weakest_level_that_succeeds_and_is_trained_on_without_it() {
    let gated = hapo("hint");
    let world = World { hints: 3, ..world(&gated, &[]) };
    let (parts, group) = world.grow(&["wwww", "w", "c"]);
    let contexts: Vec<Context> = parts.iter().map(|it| it.context).collect();
    assert_eq!(contexts, [Context::Plain, Context::Hint(0), Context::Hint(1)]);
    let mixed = world.mix(group);
    assert!(mixed.injected());
    let helped = mixed.foreign().next().unwrap();
    assert_eq!(helped.sampled().unwrap().rollout.context, Context::Hint(1));
    assert_eq!(gated.trained_behind(helped), TrainPrompt::Plain);
    let credit = gated.credit(&mixed, Step(1), Scores::NONE);
    let ratios: Vec<_> = credit.iter().map(|it| it[0].ratio().unwrap()).collect();
    assert_eq!(ratios, [Ratio::Recorded, Ratio::Recorded, Ratio::Recorded, Ratio::One]);
    assert_eq!(gated.trained_behind(&mixed.members()[0]), TrainPrompt::Sampled);
    let without_hints = World { hints: 0, ..world };
    let (parts, group) = without_hints.grow(&["wwww"]);
    assert_eq!(parts.len(), 1);
    assert_eq!(without_hints.mix(group).intervention(), Intervention::OpenWithoutTeacher);
}

/// D37: two members that are not the policy's own, and means over one source (RLEP's form: one success of one foreign
/// rollout, and AMPO's: two trajectories in a failed group of eight).
#[test]
fn d37_a_group_may_hold_several_foreign_members() {
    let teachers = [trajectory(3), trajectory(4)];
    let enter = |group: MixedGroup, n: usize, slot: usize| {
        let trajectory = teachers[n].clone();
        group.with(|replaced| Member::Teacher { trajectory, replaced }, Some(slot))
    };
    let failed = scored_with(vec![rollout(3, true); 8], "wwwwwwww");
    let kept = apply_gate(failed, None, SuccessLimit::CLOSED, slot(SlotRule::First));
    let mixed = enter(enter(kept, 0, 1), 1, 6);
    assert_eq!(mixed.foreign().count(), 2);
    let expected = [-0.25, 0.75, -0.25, -0.25, -0.25, -0.25, 0.75, -0.25];
    assert_eq!(advantages(&mixed, AdvantageRule::default()), expected);
    let among_own = advantages_among(&mixed, false, Member::is_own);
    assert_eq!(among_own, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(mixed.sampled().count(), 8);
}

/// Going on from an own rollout: its recorded log-probabilities come along, and a token of the limit is left.
#[test]
fn d36_an_own_prefix_keeps_its_log_probabilities() {
    let gated = Gated::bare(build("grpo", "{}"), 4).unwrap();
    let mut group = ScoredGroup::empty(PromptId(1));
    group.join(scored_with(vec![rollout(5, true)], "w"));
    let growing = GroupSoFar {
        group: &group,
        part: 1,
        size: 4,
        teachers: &[],
        hints: 0,
        frontier: None,
        is_open: false,
        at: gated.moment(Step(1)),
        seed: 0,
        ends_paragraph: &|_| false,
    };
    let own = |tokens| Prefix::Own { rollout: 0, tokens };
    assert_eq!(growing.given(own(3), 64), (&[9; 3][..], &[-0.25; 3][..]));
    assert_eq!(growing.given(own(9), 4).0.len(), 3);
    assert_eq!(growing.given(Prefix::Teacher(3), 64), (&[][..], &[][..]));
}

/// UFT: one prefix for all rollouts, drawn by (seed, step, prompt), imitated once; its own tokens are GRPO's.
#[test]
fn uft_shows_a_prefix_that_shrinks_and_imitates_it_once() {
    let gated = Gated::bare(build("uft", r#"{"steps":100,"weight":0.25}"#), 4).unwrap();
    let teacher = [trajectory(13)];
    let shown = |step| {
        let (parts, _) = World { step, ..world(&gated, &teacher) }.grow(&["wwww"]);
        match parts[0].prefix {
            Prefix::Teacher(tokens) => Some(tokens),
            _ => None,
        }
    };
    let mean = |steps: std::ops::Range<u64>| {
        let n = steps.end - steps.start;
        steps.map(|it| shown(it).unwrap()).sum::<usize>() as f64 / n as f64
    };
    // Of 12 tokens: a share of 0.95 at the start, 0.5 in the middle, 0.05 at the end.
    assert!(mean(1..11) > 10.5, "{}", mean(1..11));
    assert!((mean(40..61) - 6.0).abs() < 1.5, "{}", mean(40..61));
    assert!(mean(91..101) < 1.5, "{}", mean(91..101));
    assert_eq!(shown(101), None);
    assert!((1..=100).all(|it| [0, 2, 5, 7, 10, 12].contains(&shown(it).unwrap())));
    assert_eq!(shown(50), shown(50));

    let world = World { step: 3, ..world(&gated, &teacher) };
    let (_, group) = world.grow(&["cwww"]);
    let prefix = group.members()[0].rollout.prefix;
    assert!(prefix > 0);
    assert_eq!((group.n_eff(), group.is_short()), (0, false));
    let mixed = world.mix(group);
    let credit = gated.credit(&mixed, Step(3), Scores::NONE);
    let kinds: Vec<Vec<bool>> =
        credit.iter().map(|it| it.iter().map(Span::is_teacher).collect()).collect();
    assert_eq!(kinds, [vec![true, false], vec![false], vec![false], vec![false]]);
    assert_eq!((credit[0][0].tokens.clone(), factor(&credit[0][0].term)), (0..prefix, 0.25));
    let factors: Vec<f64> = credit.iter().map(|it| factor(&it.last().unwrap().term)).collect();
    assert_eq!(factors, [0.75, -0.25, -0.25, -0.25]);
    assert_eq!(credit[1][0].tokens, prefix..prefix + 2);
    // No group of such a step is counted as failed, and no mean of unaided rewards exists.
    let statistics = BatchStatistics::of([(&mixed, &credit)], 0);
    assert_eq!((statistics.all_fail, statistics.reward_policy_only), (0, None));
}

/// Scaf-GRPO: the weakest hint that succeeds replaces the first rollout, after the warm-up.
#[test]
fn scaf_grpo_lets_the_weakest_hint_that_succeeds_in() {
    let gated = Gated::bare(build("scaf-grpo", r#"{"warmup":50}"#), 4).unwrap();
    let after = World { hints: 3, step: 51, ..world(&gated, &[]) };
    let (parts, group) = after.grow(&["wwww", "w", "c"]);
    let contexts: Vec<Context> = parts.iter().map(|it| it.context).collect();
    assert_eq!(contexts, [Context::Plain, Context::Hint(0), Context::Hint(1)]);
    let mixed = after.mix(group);
    assert_eq!((mixed.successes(), mixed.discarded().len()), (0, 1));
    let credit = gated.credit(&mixed, Step(51), Scores::NONE);
    let factors: Vec<f64> = credit.iter().map(|it| factor(&it[0].term)).collect();
    assert_eq!(factors, [0.75, -0.25, -0.25, -0.25]);
    assert_eq!(credit[0][0].ratio(), Some(Ratio::Recorded));
    let helped = mixed.foreign().next().unwrap();
    assert_eq!(helped.replaced().unwrap().index, 0);
    assert_eq!(gated.trained_behind(helped), TrainPrompt::Sampled);

    let plain = Gated::bare(build("scaf-grpo", r#"{"warmup":50,"plain":true}"#), 4).unwrap();
    assert_eq!(plain.trained_behind(helped), TrainPrompt::Plain);
    assert_eq!(plain.credit(&mixed, Step(51), Scores::NONE)[0][0].ratio(), Some(Ratio::Rescored));

    for (step, answers, parts) in [(50, "wwww", 1), (51, "cwww", 1)] {
        let world = World { step, ..after };
        let (asked, group) = world.grow(&[answers]);
        assert_eq!(asked.len(), parts);
        assert_eq!(world.mix(group).intervention(), Intervention::GateClosed);
    }
    let (_, group) = after.grow(&["wwww", "w", "w", "w"]);
    let failed = after.mix(group);
    assert_eq!((failed.intervention(), failed.members().len()), (Intervention::HelpFailed, 4));
}

/// GHPO: the whole group again under the next hint while all fail; the last one alone is trained on.
#[test]
fn ghpo_trains_on_the_last_group_alone() {
    let gated = Gated::bare(build("ghpo", "{}"), 8).unwrap();
    let world = World { hints: 3, group_size: 8, ..world(&gated, &[]) };
    let (parts, group) = world.grow(&["wwwwwwww", "wwwwwwww", "cwwwwwwc"]);
    assert_eq!(parts.iter().map(|it| it.rollouts).collect::<Vec<_>>(), [8, 8, 8]);
    assert_eq!(parts[2].context, Context::Hint(1));
    let mixed = world.mix(group);
    assert_eq!((mixed.members().len(), mixed.discarded().len()), (8, 16));
    assert_eq!((mixed.successes(), mixed.n_eff(), mixed.injected()), (0, 8, true));
    let credit = gated.credit(&mixed, Step(1), Scores::NONE);
    let factors: Vec<f64> = credit.iter().map(|it| factor(&it[0].term)).collect();
    assert_eq!(factors, [0.75, -0.25, -0.25, -0.25, -0.25, -0.25, -0.25, 0.75]);
    assert!(mixed.members().iter().all(|it| gated.trained_behind(it) == TrainPrompt::Sampled));

    let (parts, group) = world.grow(&["wwwwwwww"; 4]);
    assert_eq!(parts.len(), 4);
    assert_eq!(world.mix(group).intervention(), Intervention::HelpFailed);
    let (parts, group) = world.grow(&["wwwwwwwc"]);
    assert_eq!(parts.len(), 1);
    assert_eq!(world.mix(group).intervention(), Intervention::GateClosed);
}
