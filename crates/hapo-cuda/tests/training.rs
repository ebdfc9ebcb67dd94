//! Steps of training by a recipe, from sampling to the update, with the kernels run on the CPU,
//! compared with the same steps on the CPU device.

mod support;

use std::path::Path;

use hapo_cuda::CudaDevice;
use hapo_kernels::{AdamW, Compute, Device};
use hapo_model::ActivationCheckpointing;
use hapo_train::plan::{DeviceSpec, Lengths, Workload, config_of, estimate};
use hapo_train::{
    Metrics, Observer, Overrides, Recipe, ResumePolicy, Run, RunPlan, Trainer, is_clock, train_on,
};
use support::Machine;

#[test]
fn steps_of_a_recipe_are_those_of_the_cpu() {
    if hapo_testing::slow() {
        return;
    }
    let Some(gpu) = support::gpu(Compute::F32) else {
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
    let plan = RunPlan::settle(&recipe).unwrap();
    let mut ours = Run::on(gpu, &plan).unwrap();
    let mut theirs = Run::new(&plan, 1).unwrap();
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

/// In bf16 a sampled token's log-probability is the trainer's, bit for bit: one kernel's order of sums for attention, and
/// products that do not depend on the rows beside. The emulator's products do, unless they are asked not to.
#[test]
fn sampled_log_probabilities_have_the_bits_of_the_trainers() {
    if hapo_testing::slow() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
    let small = [
        "compute=bf16",
        // Every group has a signal.
        "loss.entropy_coef=0.01",
        "data.prompts=2",
        "data.teacher_coverage=1.0",
        "sampling.group_size=3",
        "sampling.prompts_per_step=2",
        "sampling.max_new_tokens=40",
        "optim.mini_batch_prompts=2",
        "optim.micro_batch_tokens=150",
        "metrics.preflight=0",
    ];
    // Rows of their own, sequences that wait for another's slot, and an adapter that has moved.
    let cases: [&[&str]; 3] =
        [&[], &["sampling.max_sequences=2"], &["lora.rank=4", "optim.lr=1e-2"]];
    for more in cases {
        let Some(gpu) = support::gpu(Compute::Bf16) else {
            return;
        };
        let set = small.iter().chain(more).copied();
        let recipe = Recipe::load(&path, &Overrides::set(set)).unwrap();
        let mut run = Run::on(gpu, &RunPlan::settle(&recipe).unwrap()).unwrap();
        for step in 1..=2 {
            let metrics = run.step().unwrap();
            assert!(metrics.get("grad_norm").unwrap() > 1e-3, "{more:?}: there is a signal");
            let gap = metrics.get("sampler/logprob_gap_max");
            // On a GPU this is a measurement, not yet a promise.
            if support::is_emulator() {
                assert_eq!(gap, Some(0.0), "{more:?}, step {step}");
            }
        }
    }
}

/// Leaves a failure of the GPU behind after a step, as an operation does that fails after its call came back.
struct FailsAfterAStep(CudaDevice<Machine>);

impl Observer for FailsAfterAStep {
    fn step(&mut self, _step: u64, _metrics: &Metrics) {
        let Some(fibers) = self.0.launcher().fibers() else {
            return;
        };
        fibers.set_full(true);
        self.0.table(&[1_u32]);
        fibers.set_full(false);
    }
}

/// A checkpoint of unreadable weights would be zeros with matching checksums.
#[test]
fn no_checkpoint_is_written_after_a_failure() {
    let Some(gpu) = support::gpu(Compute::F32) else {
        return;
    };
    if gpu.launcher().fibers().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "method = \"grpo\"\nsteps = 2\n\
        model.init = { hidden = 16, layers = 1, heads = 2, kv_heads = 1, ffn = 32 }\n\
        data = { prompts = 2, levels = [\"multiply:2\"], max_prompt_tokens = 20 }\n\
        sampling = { group_size = 2, prompts_per_step = 2, max_new_tokens = 3 }\n\
        checkpoint.every = 1\n";
    let recipe = Recipe::parse(text, "r", &Overrides::default()).unwrap();
    let mut observer = FailsAfterAStep(gpu.clone());
    let plan = RunPlan::settle(&recipe).unwrap();
    let error =
        train_on(gpu, &plan, folder.path(), ResumePolicy::Fresh, &mut observer).unwrap_err();
    assert!(error.to_string().contains("fibers is out of memory"), "{error}");
    let written = std::fs::read_dir(folder.path().join("checkpoints")).unwrap().count();
    assert_eq!(written, 0, "no folder that could be taken for a checkpoint");
}

/// A run has the hash of its weights as they were published; one that was begun with the older hash resumes by that.
#[test]
fn a_run_with_the_older_hash_of_its_weights_resumes_by_it() {
    let text = "method = \"grpo\"\nsteps = 2\n\
        model.init = { hidden = 16, layers = 1, heads = 2, kv_heads = 1, ffn = 32 }\n\
        data = { prompts = 2, levels = [\"multiply:2\"], max_prompt_tokens = 20 }\n\
        sampling = { group_size = 2, prompts_per_step = 2, max_new_tokens = 3 }\n";
    let recipe = Recipe::parse(text, "r", &Overrides::default()).unwrap();
    let plan = RunPlan::settle(&recipe).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let train = |policy| {
        let gpu = support::gpu(Compute::F32)?;
        Some(train_on(gpu, &plan, folder.path(), policy, &mut Quiet))
    };
    let Some(done) = train(ResumePolicy::Fresh) else {
        return;
    };
    done.unwrap();
    // Without a checkpoint, which names the inputs too, the run goes by inputs.json.
    std::fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let path = folder.path().join("inputs.json");
    let read = || -> serde_json::Map<String, serde_json::Value> {
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
    };
    let mut inputs = read();
    assert_eq!(inputs["sampler/invariant"], "true");
    assert!(!inputs.contains_key("weights"));
    inputs.remove("weights.v2").unwrap();
    let cpu = tempfile::tempdir().unwrap();
    train_on(
        hapo_kernels::Cpu::new(1).unwrap(),
        &plan,
        cpu.path(),
        ResumePolicy::Fresh,
        &mut Quiet,
    )
    .unwrap();
    let old = std::fs::read(cpu.path().join("inputs.json")).unwrap();
    let old: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&old).unwrap();
    assert!(!old.contains_key("weights.v2"), "a CPU's runs have the older one");
    for (hash, is_taken) in [("of another model", false), (old["weights"].as_str().unwrap(), true)]
    {
        inputs.insert("weights".to_owned(), hash.into());
        std::fs::write(&path, serde_json::to_vec(&inputs).unwrap()).unwrap();
        let resumed = train(ResumePolicy::Resume).unwrap();
        assert_eq!(resumed.is_ok(), is_taken, "{resumed:?}");
        if let Err(error) = resumed {
            assert!(error.to_string().contains("the base weights (model)"), "{error}");
        }
    }
}

struct Quiet;

impl Observer for Quiet {
    fn step(&mut self, _step: u64, _metrics: &Metrics) {}
}

/// The same between backward and update: no update follows, and the failure is reported unchanged.
#[test]
fn no_update_is_made_after_a_failure() {
    let Some(gpu) = support::gpu(Compute::F32) else {
        return;
    };
    let Some(fibers) = gpu.launcher().fibers().cloned() else {
        return;
    };
    let model = hapo_testing::reference::load("tiny-qwen2", gpu.clone());
    let mut trainer = Trainer::new(model, ActivationCheckpointing::None).unwrap();
    let settings = AdamW {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        step: 0,
        gradient_scale: 1.0,
    };
    let fail = || {
        fibers.set_full(true);
        gpu.table(&[1_u32]);
        fibers.set_full(false);
    };
    fail();
    let error = trainer.gradient_norm().unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
    fail();
    assert!(trainer.apply(settings, 1.0, 1.0).is_err());
    fail();
    assert!(trainer.weights_are_finite().is_err());
    assert!(trainer.weights_are_finite().unwrap(), "with nothing wrong left behind");
}

/// A run on a GPU allocates the planned bytes, to a tenth, beside an adapter too.
#[test]
fn planned_bytes_are_the_devices() {
    if hapo_testing::slow() {
        return;
    }
    let (f32, bf16) = (Compute::F32, Compute::Bf16);
    let modes = [
        (Compute::F32, f32, "method=grpo"),
        (Compute::Bf16, bf16, "method=grpo"),
        (Compute::F32, f32, "lora.rank=16"),
        (Compute::Bf16, bf16, "lora.rank=16"),
    ];
    for (compute, products, more) in modes {
        let Some(gpu) = support::gpu(products) else {
            return;
        };
        // Six tokens seldom end; were all responses short, the test would say so.
        let text = "method = \"grpo\"\nsteps = 1\nloss.entropy_coef = 0.001\nmetrics.kl_every = 1\n\
            model.init = { hidden = 64, layers = 2, heads = 4, kv_heads = 2, ffn = 192 }\n\
            data = { prompts = 2, levels = [\"multiply:6\"], max_prompt_tokens = 20 }\n\
            sampling = { group_size = 6, prompts_per_step = 2, max_new_tokens = 6 }\n";
        let set = format!("compute={compute}");
        let recipe = Recipe::parse(text, "r", &Overrides::set([&*set, more])).unwrap();
        let config = config_of(&recipe).unwrap();
        let device = DeviceSpec::gpu("h200", compute).unwrap();
        let planned = estimate(
            Workload::new(&recipe, &config, &device),
            Lengths { prompt: 20.0, response: 6.0 },
        );
        let mut run = Run::on(gpu.clone(), &RunPlan::settle(&recipe).unwrap()).unwrap();
        for _ in 0..2 {
            run.step().unwrap();
        }
        let Some(fibers) = gpu.launcher().fibers() else {
            return;
        };
        let (most, planned) = (fibers.most_held() as u64, planned.total_bytes);
        assert!(
            most.abs_diff(planned) < most / 10,
            "{compute}, {more}: {most} held, {planned} planned"
        );
    }
}
