//! Steps of training by a recipe, from sampling to the update, with the kernels run on the CPU,
//! compared with the same steps on the CPU device.

mod support;

use std::path::Path;

use hapo_cuda::MatmulPrecision;
use hapo_train::{Metrics, Overrides, Recipe, Run, is_clock};

#[test]
fn steps_of_a_recipe_are_those_of_the_cpu() {
    let Some(gpu) = support::gpu(MatmulPrecision::F32) else {
        return;
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
    let small = [
        "data.prompts=2",
        "data.teacher_coverage=1.0",
        "sampling.group_size=3",
        "sampling.prompts_per_step=1",
        "optim.mini_batch_prompts=1",
        "optim.micro_batch_tokens=150",
        "metrics.kl_every=1",
        "metrics.preflight=0",
    ];
    let recipe = Recipe::load(&path, &Overrides::set(small)).unwrap();
    let mut ours = Run::on(gpu, &recipe).unwrap();
    let mut theirs = Run::new(&recipe, 1).unwrap();
    for step in 1..=2 {
        let (ours, theirs) = (ours.step().unwrap(), theirs.step().unwrap());
        let names = |it: &Metrics| -> Vec<String> {
            let all = it.iter().map(|it| it.0.to_owned());
            all.filter(|it| !is_clock(it)).collect()
        };
        assert_eq!(names(&ours), names(&theirs));
        // Sampled tokens, rewards and the gate are the same; numbers differ in their last places.
        for name in names(&theirs) {
            let (a, b) = (ours.get(&name).unwrap(), theirs.get(&name).unwrap());
            let off = (a - b).abs();
            assert!(off <= 1e-4 + 1e-3 * b.abs(), "step {step}, {name}: {a}, on the CPU {b}");
        }
        assert!(theirs.get("loss").unwrap().abs() > 1e-3, "there is a signal");
    }
}
