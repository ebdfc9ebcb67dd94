//! D22: groups sampled in micro-groups with hints.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_run::{Role, RolloutLine, RunFolder, read_rollouts};
use hapo_train::{Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan, replay_run, train};

struct Silent;

impl Observer for Silent {
    fn step(&mut self, _: u64, _: &Metrics) {}
}

fn run(folder: &Path) {
    run_with(folder, &[]);
}

fn run_with(folder: &Path, more: &[&str]) {
    let recipe =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mini/trapo-original.toml");
    let sets = [
        "steps=2",
        "data.prompts=12",
        "data.teacher_coverage=0.7",
        "sampling.prompts_per_step=6",
        "optim.mini_batch_prompts=3",
        "metrics.kl_every=1",
        "metrics.preflight=0",
    ];
    let recipe = Recipe::load_stages(&recipe, &Overrides::set([&sets, more].concat())).unwrap();
    let plan = RunPlan::settle(&recipe[0]).unwrap();
    train(&plan, folder, ResumePolicy::Fresh, 2, &mut Silent).unwrap();
}

/// The share of verdicts that an unreliable grader turns around, and that the answers themselves show.
#[test]
fn an_unreliable_grader_turns_verdicts_around() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    run_with(&run_dir, &["data.verdict_noise=0.3"]);
    let (mut flipped, mut all) = (0, 0);
    for step in 1..=2 {
        for it in read_rollouts(&RunFolder(&run_dir).rollouts_of(step)).unwrap() {
            if it.role != Role::Teacher {
                let boxed = format!("\\boxed{{{}}}", it.answer);
                flipped += usize::from(it.completion.ends_with(&boxed) != it.verdict.is_correct());
                all += 1;
            }
        }
    }
    let share = flipped as f64 / f64::from(all);
    assert!(all >= 84 && (0.15..0.45).contains(&share), "{flipped} of {all}");
}

#[test]
fn d22_hints_follow_the_successes_before_them() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    run(&run_dir);
    let mut with_teacher = 0;
    for step in 1..=2 {
        let mut groups: BTreeMap<u64, Vec<RolloutLine>> = BTreeMap::new();
        for it in read_rollouts(&RunFolder(&run_dir).rollouts_of(step)).unwrap() {
            groups.entry(it.prompt_id).or_default().push(it);
        }
        assert_eq!(groups.len(), 6);
        for group in groups.values() {
            assert_eq!(group.len(), 8, "a group has eight members");
            let teacher = group.iter().find(|it| it.role == Role::Teacher);
            let sampled: Vec<&RolloutLine> =
                group.iter().filter(|it| it.role == Role::Policy).collect();
            let successes = |n: usize| {
                let first = sampled[..n].iter();
                first.filter(|it| it.verdict.is_correct()).count()
            };
            for it in &sampled {
                assert_eq!(it.log_probs.len(), it.tokens.len() - it.prefix);
            }
            let Some(teacher) = teacher else {
                assert!(sampled.iter().all(|it| it.prefix == 0));
                continue;
            };
            with_teacher += 1;
            let hint = |percent, before, below| {
                let helped = successes(before) < below;
                if helped { teacher.tokens.len() * percent / 100 } else { 0 }
            };
            let expected = [0, 0, 0, 0, hint(25, 4, 2), hint(25, 4, 2), hint(50, 6, 4)];
            let hints: Vec<usize> = sampled.iter().map(|it| it.prefix).collect();
            assert_eq!(hints, expected);
            for it in &sampled {
                assert_eq!(it.tokens[..it.prefix], teacher.tokens[..it.prefix]);
            }
            assert!(successes(7) < 7);
        }
    }
    assert!(with_teacher > 3, "the test looks at hints");
    // The second step is computed again from what was kept, hints included.
    let replayed = replay_run::replay_run(&run_dir, 2, 1).unwrap();
    assert!(replayed.agrees(), "{replayed:?}");
}
