//! What is remembered between steps, and distillation at the gate (D38, D39).

use std::collections::BTreeMap;
use std::path::Path;

use hapo_run::{Role, RolloutLine, RunFolder, read_rollouts};
use hapo_train::{Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan, replay_run, train};

const STEPS: u64 = 6;

/// Keeps the metrics, and stops after so many steps.
struct Until(u64, Vec<Metrics>);

impl Observer for Until {
    fn step(&mut self, _: u64, metrics: &Metrics) {
        self.1.push(metrics.clone());
    }

    fn stop_requested(&self) -> bool {
        self.1.len() as u64 >= self.0
    }
}

impl Until {
    fn sum(&self, name: &str) -> f64 {
        self.1.iter().filter_map(|it| it.get(name)).sum()
    }
}

fn recipe(more: &[&str]) -> Recipe {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
    let sets = [
        "steps=6",
        "data.prompts=8",
        "data.levels=[\"multiply:5\"]",
        "sampling.group_size=4",
        "sampling.prompts_per_step=8",
        "sampling.max_new_tokens=64",
        "optim.lr=1e-3",
        "checkpoint.every=2",
        "metrics.preflight=0",
        "hapo.annealing=\"off\"",
    ];
    let set = Overrides::set([&sets, more].concat());
    let overrides = Overrides { unset: vec!["hapo.turn_off_epoch".to_owned()], ..set };
    Recipe::load_stages(&path, &overrides).unwrap().remove(0)
}

fn run(recipe: &Recipe, run_dir: &Path, policy: ResumePolicy, steps: u64) -> Result<Until, String> {
    let plan = RunPlan::settle_in(run_dir, recipe, hapo_train::Sources::default()).unwrap();
    let mut log = Until(steps, Vec::new());
    train(&plan, run_dir, policy, 2, &mut log).map_err(|it| it.to_string())?;
    Ok(log)
}

fn lines(run_dir: &Path) -> Vec<RolloutLine> {
    let file = |step| RunFolder(run_dir).rollouts_of(step);
    (1..=STEPS).flat_map(|it| read_rollouts(&file(it)).unwrap()).collect()
}

#[test]
fn d39_an_earlier_success_enters_and_a_resumed_run_remembers_it() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let recipe = recipe(&["hapo.injection=\"replay\""]);
    let log = run(&recipe, &run_dir, ResumePolicy::Fresh, STEPS).unwrap();

    // What is replayed is the first of the prompt's latest successes, and enters failed groups alone.
    let mut latest: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let (mut replayed, mut failed) = (0, 0);
    let lines = lines(&run_dir);
    let steps = lines.chunk_by(|a, b| a.step == b.step);
    for step in steps {
        for group in step.chunk_by(|a, b| a.prompt_id == b.prompt_id) {
            let own = |it: &&RolloutLine| matches!(it.role, Role::Policy | Role::Replaced);
            let is_failed = group.iter().filter(own).all(|it| !it.verdict.is_correct());
            let remembered = latest.get(&group[0].prompt_id);
            let entered = group.iter().find(|it| it.role == Role::Replayed);
            assert_eq!(entered.map(|it| &it.tokens), remembered.filter(|_| is_failed));
            assert!(entered.is_none_or(|it| it.advantage.unwrap() == 0.75));
            replayed += usize::from(entered.is_some());
            failed += usize::from(is_failed);
        }
        let solved = |it: &&RolloutLine| it.role == Role::Policy && it.verdict.is_correct();
        for it in step.iter().filter(solved).rev() {
            latest.insert(it.prompt_id, it.tokens.clone());
        }
    }
    assert!(replayed > 2 && replayed < failed, "{replayed} of {failed} failed groups");
    assert_eq!(8.0 * log.sum("gate/beta"), replayed as f64);
    assert_eq!(8.0 * log.sum("groups/all_fail"), 8.0 * failed as f64);
    assert_eq!(
        log.sum("sampler/logprob_gap_max"),
        0.0,
        "older weights are no fault of the sampler"
    );

    // Replay advances the memory from the checkpoint before, and from the first step.
    for step in [3, 6] {
        let again = replay_run::replay_run(&run_dir, step, 1).unwrap();
        assert!(again.agrees(), "{again:?}");
    }
    std::fs::rename(run_dir.join("checkpoints"), folder.path().join("aside")).unwrap();
    let again = replay_run::replay_run(&run_dir, 4, 1).unwrap();
    assert!(again.agrees() && again.from_step == 0, "{again:?}");
    std::fs::rename(folder.path().join("aside"), run_dir.join("checkpoints")).unwrap();

    // A run that was stopped goes on with the same bits.
    let broken = folder.path().join("broken");
    run(&recipe, &broken, ResumePolicy::Fresh, 3).unwrap();
    run(&recipe, &broken, ResumePolicy::Resume, STEPS).unwrap();
    for file in ["model.safetensors", "trainer_state/memory.json"] {
        let of = |run_dir: &Path| std::fs::read(RunFolder(run_dir).checkpoint_of(STEPS).join(file));
        assert!(of(&broken).unwrap() == of(&run_dir).unwrap(), "{file}");
    }

    // A checkpoint without its memory is refused, whether its checksums name it or not.
    let checkpoint = RunFolder(&broken).checkpoint_of(4);
    std::fs::remove_dir_all(RunFolder(&broken).checkpoint_of(6)).unwrap();
    std::fs::remove_file(checkpoint.join("trainer_state/memory.json")).unwrap();
    let checksums = checkpoint.join("checksums.json");
    let mut names: BTreeMap<String, String> =
        serde_json::from_slice(&std::fs::read(&checksums).unwrap()).unwrap();
    names.remove("trainer_state/memory.json").unwrap();
    std::fs::write(&checksums, serde_json::to_vec(&names).unwrap()).unwrap();
    let problem = run(&recipe, &broken, ResumePolicy::Resume, STEPS).err().unwrap();
    assert!(
        problem.contains("step-000004") && problem.contains("trainer_state/memory.json"),
        "{problem}"
    );
}

#[test]
fn d38_failed_groups_are_distilled_and_the_others_keep_their_rewards() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let sets = ["hapo.injection=\"distill\"", "reference.path=\"builtin:base\""];
    let log = run(&recipe(&sets), &run_dir, ResumePolicy::Fresh, STEPS).unwrap();
    let lines = lines(&run_dir);
    let mut distilled = 0;
    for group in lines.chunk_by(|a, b| (a.step, a.prompt_id) == (b.step, b.prompt_id)) {
        let is_failed = group.iter().all(|it| !it.verdict.is_correct());
        assert_eq!((group.len(), group[0].injected), (4, is_failed));
        assert!(group.iter().all(|it| it.role == Role::Policy));
        distilled += usize::from(is_failed);
        // The weights are the reference's in the first step; a failed group has no advantage but the gap after it.
        let gaps = group.iter().filter(|it| it.advantage.unwrap().abs() > 1e-5).count();
        assert!(!is_failed || (gaps == 0) == (group[0].step == 1), "{group:?}");
    }
    assert!(distilled > 2, "{distilled} groups");
    assert_eq!(8.0 * log.sum("gate/beta"), distilled as f64);
    let again = replay_run::replay_run(&run_dir, 6, 1).unwrap();
    assert!(again.agrees(), "{again:?}");
}

#[test]
fn replay_and_distill_say_what_they_cannot_do() {
    let problem = |more: &[&str]| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
        let overrides = Overrides::set(more.iter().copied());
        Recipe::load_stages(&path, &overrides).unwrap_err().to_string()
    };
    let distill = "hapo.injection=\"distill\"";
    let alone = problem(&[distill]);
    assert!(alone.contains("hapo.injection = \"distill\" needs a second model"), "{alone}");
    let with = |more| problem(&[distill, "reference.path=\"builtin:base\"", more]);
    let level = with("loss.importance_ratio_level=\"sequence\"");
    assert!(level.contains("no token to be weighted"), "{level}");
    let slot = with("hapo.slot=\"first\"");
    assert!(slot.contains("takes no slot"), "{slot}");
    let tokens = problem(&["sampling.remembered_tokens=9"]);
    assert!(tokens.contains("nothing is remembered between steps"), "{tokens}");
    let gate = ["hapo.gate=\"always\"", "hapo.injection=\"replay\"", "hapo.slot=\"fixed\""];
    let fixed = problem(&gate);
    assert!(fixed.contains("may leave a fixed slot empty"), "{fixed}");
}
