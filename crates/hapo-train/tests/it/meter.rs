//! A step tells how far it is.

use std::sync::{Arc, Mutex};

use hapo_train::{Meter, Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan};

type Meterings = Arc<Mutex<Vec<(&'static str, f64)>>>;

struct Listener {
    told: Meterings,
    /// The reports of each step.
    steps: Vec<Vec<(&'static str, f64)>>,
}

impl Observer for Listener {
    fn step(&mut self, _: u64, _: &Metrics) {
        self.steps.push(std::mem::take(&mut self.told.lock().unwrap()));
    }

    fn meter(&self) -> Meter {
        let told = self.told.clone();
        Meter::new(move |doing, share| told.lock().unwrap().push((doing, share)))
    }
}

#[test]
fn a_step_tells_how_much_is_sampled_and_trained() {
    let dir = tempfile::tempdir().unwrap();
    let sets = [
        "model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }",
        "data.prompts=8",
        "steps=2",
        "sampling.group_size=4",
        "sampling.prompts_per_step=4",
        "sampling.max_new_tokens=96",
        "optim.mini_batch_prompts=2",
        "optim.micro_batch_tokens=64",
        "data.teacher_coverage=1.0",
    ];
    let recipe = hapo_testing::repository("recipes/smoke.toml");
    let recipe = Recipe::load_stages(&recipe, &Overrides::set(sets)).unwrap();
    let mut listener = Listener { told: Meterings::default(), steps: Vec::new() };
    let plan = RunPlan::settle(&recipe[0]).unwrap();
    let (run, policy) = (dir.path().join("run"), ResumePolicy::Measure);
    let outcome = hapo_train::train(&plan, &run, policy, 1, &mut listener).unwrap();
    assert_eq!((listener.steps.len(), outcome.finished), (2, true));
    let checkpoints = std::fs::read_dir(run.join("checkpoints")).unwrap().count();
    assert_eq!((outcome.checkpoint, checkpoints), (None, 0), "a measurement saves nothing");
    for told in &listener.steps {
        let of = |wanted: &str| -> Vec<f64> {
            told.iter().filter(|it| it.0 == wanted).map(|it| it.1).collect()
        };
        let sampling = of("sampling");
        assert!(sampling.len() >= 8, "{sampling:?}");
        assert!(sampling.is_sorted() && sampling[0] > 0.0);
        assert_eq!(sampling.last(), Some(&1.0));
        let training = of("training");
        // Two mini-batches, each of groups with a teacher: the first ends at a half.
        assert!(training.is_sorted() && training[0] > 0.0, "{training:?}");
        assert!(training.contains(&0.5), "{training:?}");
        assert_eq!(training.last(), Some(&1.0));
    }
}
