//! D6 in training: a sampler on another machine may lose rollouts.

use hapo_core::SampledGroup;
use hapo_kernels::Cpu;
use hapo_model::Model;
use hapo_sampler::{GroupRequest, SampleSettings, Sampled};
use hapo_train::{Metrics, Recipe, Result, Run, RunPlan, Sampler, Weights, is_clock};

/// Keeps so many of the first rollouts of each group, by the group's position in the step.
struct Lossy {
    inner: Box<dyn Sampler<Model<Cpu>>>,
    kept: [usize; 4],
}

impl Sampler<Model<Cpu>> for Lossy {
    fn sample(
        &mut self,
        weights: Weights<'_, Model<Cpu>>,
        requests: &[GroupRequest<'_>],
        settings: &SampleSettings<'_>,
    ) -> Result<Vec<Sampled>> {
        let sampled = self.inner.sample(weights, requests, settings)?;
        let groups = requests.iter().zip(sampled).zip(self.kept);
        let lose = |((request, it), kept): ((&GroupRequest<'_>, Sampled), usize)| {
            let kept = kept.min(request.completions);
            let rollouts = it.group.rollouts[..kept].to_vec();
            Sampled {
                group: SampledGroup::new(request.prompt, request.completions, rollouts),
                details: it.details[..kept].to_vec(),
            }
        };
        Ok(groups.map(lose).collect())
    }
}

/// Two steps of four prompts by GRPO, with groups of `group_size` of which only `kept` come back.
fn train(group_size: usize, kept: [usize; 4]) -> Vec<Metrics> {
    let text = format!(
        "method = \"grpo\"\nsteps = 2\nmodel.path = \"builtin:base\"\n\
         data = {{ train = \"builtin\", prompts = 8, levels = [\"multiply:2\"], max_prompt_tokens = 32 }}\n\
         sampling = {{ group_size = {group_size}, prompts_per_step = 4, max_new_tokens = 48 }}\n\
         loss.entropy_coef = 0.01\noptim.lr = 1e-4\n"
    );
    let recipe =
        Recipe::parse_stages(&text, "test", "test", &hapo_train::Overrides::default()).unwrap();
    let run = Run::new(&RunPlan::settle(&recipe[0]).unwrap(), 1).unwrap();
    let mut run = run.with_sampler(|inner| Lossy { inner, kept });
    (0..2).map(|_| run.step().unwrap()).collect()
}

fn numbers(steps: &[Metrics]) -> Vec<(&str, u64)> {
    let all = steps.iter().flat_map(Metrics::iter);
    let all = all.filter(|it| !is_clock(it.0));
    all.map(|it| (it.0, it.1.to_bits())).collect()
}

/// Rollouts are drawn by their number, so the first three of five are those of a group of three: a group that lost
/// two is in every number of both steps the group in which three were asked for.
#[test]
fn d6_a_group_that_lost_rollouts_counts_those_that_came_back() {
    assert_eq!(numbers(&train(5, [3; 4])), numbers(&train(3, [3; 4])));
}

#[test]
fn d6_groups_of_fewer_than_two_are_dropped_and_counted() {
    for (step, it) in train(4, [1, 2, 0, 4]).iter().enumerate() {
        let of = |name| it.get(name).unwrap();
        assert_eq!(of("groups/dropped"), 2.0, "step {step}");
        let groups = ["groups/all_fail", "groups/all_solved", "groups/partially_solved"];
        assert_eq!(groups.map(of).iter().sum::<f64>(), 2.0, "step {step}");
        let verdicts = ["verify/correct", "verify/wrong", "verify/unparsable"];
        let judged: f64 = verdicts.map(of).iter().sum();
        assert_eq!(judged, 6.0, "2 and 4 rollouts in step {step}");
        assert_eq!(of("reward/policy_only"), of("verify/correct") / 6.0);
    }
}

/// Nothing to learn from is no reason to stop.
#[test]
fn d6_a_step_that_lost_everything_moves_nothing() {
    let steps = train(4, [0; 4]);
    for it in &steps {
        assert_eq!(it.get("groups/dropped"), Some(4.0));
        assert_eq!((it.get("loss"), it.get("grad_norm")), (Some(0.0), None));
    }
}
