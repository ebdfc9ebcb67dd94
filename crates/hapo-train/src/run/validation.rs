//! Evaluation while a run trains, on problems that it does not learn from.
//!
//! Every evaluation draws the same random numbers, of a stream of their own: two of them differ by the weights alone,
//! and a run's bits are those of the run without it. The price is the time of sampling.

use std::{path::Path, time::Instant};

use hapo_core::{PromptId, Refusal, RngStream, ScoredGroup, Step, counted};
use hapo_data::Reading;
use hapo_kernels::Device;
use hapo_run::{Metrics, metric_of_set};
use hapo_sampler::{ChatFormat, SampleSettings};
use hapo_verify::Grader;

use crate::grading::{AnswerCounts, Verifier};
use crate::problems::prompts::{Prompt, PromptLimits, PromptTable, load_file};
use crate::step::{requests, sample_settings, score};
use crate::{
    Result, engine::Engines, plan::run_plan::RunPlan, problems::duplicates::Texts,
    problems::inputs::Inputs, recipe::EvalSet,
};

pub(crate) struct Validation {
    sets: Vec<(String, PromptTable)>,
}

impl Validation {
    /// The sets of `[eval]`, rendered and read as the run's own problems are. `None` without `[eval]`.
    pub(crate) fn load(
        plan: &RunPlan,
        chat_format: &ChatFormat,
        grader: &dyn Grader,
    ) -> Result<Option<Self>> {
        let recipe = plan.recipe();
        let Some(eval) = recipe.eval.as_ref() else { return Ok(None) };
        let limits = PromptLimits {
            prompt_tokens: recipe.data.max_prompt_tokens,
            response_tokens: recipe.eval_max_tokens(),
            success_at: recipe.reward.success_at,
            overlong: recipe.data.overlong,
            hints: None,
            traces: 0,
            grades: true,
        };
        let mut sets = Vec::new();
        let found = match (plan.sources.eval.as_deref(), &eval.data, &eval.suite) {
            (Some(sets), ..) => sets.to_vec(),
            (None, Some(file), None) => {
                let path = Path::new(file);
                let keeps_fields = recipe.keeps_fields();
                let dataset = load_file(path, &Reading { keeps_fields, ..Reading::default() })?;
                let name = path.file_stem().map_or(file.into(), |it| it.to_string_lossy());
                vec![EvalSet { name: name.into_owned(), dataset }]
            }
            _ => {
                let problem = "eval.suite: the problems of the suite were not given";
                return Err(Refusal::input(problem).hint("give them as Sources::eval"));
            }
        };
        for (number, EvalSet { name, mut dataset }) in found.into_iter().enumerate() {
            dataset.examples.truncate(eval.problems);
            for it in &mut dataset.examples {
                it.teachers.clear();
            }
            let origin = format!("eval, {name}");
            let mut table = PromptTable::new(&dataset, &origin, chat_format, grader, limits)?;
            // The draws of one set are not those of another.
            for it in &mut table.prompts {
                it.id = PromptId(it.id.0 + ((number as u64) << 32));
            }
            sets.push((name, table));
        }
        if let Some((_, table)) = sets.iter().find(|it| it.1.prompts.is_empty()) {
            let none = "eval: expected at least 1 problem, got 0";
            return Err(match table.overlong.len() {
                0 => Refusal::input(none).hint("name a file with problems"),
                n => Refusal::input(format!("{none}; longer than data.max_prompt_tokens: {n}"))
                    .hint("raise data.max_prompt_tokens"),
            });
        }
        Ok(Some(Self { sets }))
    }

    pub(crate) fn inputs(&self) -> Inputs {
        Inputs::of_evaluation(self.sets.iter().map(|it| &it.1.inputs))
    }

    pub(crate) fn warnings(&self, trained: &PromptTable) -> Vec<String> {
        let (known, mut warnings) = (Texts::of(trained), Vec::new());
        for (name, table) in &self.sets {
            if let Some(first) = table.overlong.first() {
                let n = counted(table.overlong.len(), "problem is", "problems are");
                warnings.push(format!("{name}: {n} left out, the first: {first}"));
            }
            if let Some((n, first, trained)) = known.shared(table, |_, _| true) {
                let of = counted(table.prompts.len(), "problem", "problems");
                warnings.push(format!(
                    "the run trains on {n} of {of} of {name} too, the first: {first}, which is {trained} of the data"
                ));
            }
        }
        warnings
    }

    /// Samples and grades every problem, and logs the means over problems, then over sets.
    pub(crate) fn evaluate<D: Device>(
        &self,
        plan: &RunPlan,
        engines: &mut Engines<'_, D>,
        verifier: &Verifier,
        metrics: &mut Metrics,
    ) -> Result<()> {
        let started = Instant::now();
        let verifier = verifier.reliable();
        let recipe = plan.recipe();
        let settings = SampleSettings {
            decoding: recipe.eval_decoding(),
            max_new_tokens: recipe.eval_max_tokens(),
            ..sample_settings(recipe, &verifier, RngStream::Validate, Step(0))
        };
        let completions = recipe.eval.as_ref().map_or(1, |eval| eval.k);
        let mut scores = Vec::with_capacity(self.sets.len());
        for (_, table) in &self.sets {
            let prompts: Vec<&Prompt> = table.prompts.iter().collect();
            let sampled = engines.sample(&requests(&prompts, completions), &settings)?;
            let mut answers = AnswerCounts::default();
            scores.push(Shares::of(&score(&prompts, sampled, &verifier, Step(0), &mut answers)?));
        }
        // An evaluation that fails leaves the metrics of its step as they are.
        let mean =
            |of: fn(&Shares) -> f64| scores.iter().map(of).sum::<f64>() / scores.len() as f64;
        metrics.set("eval/avg@k", mean(|it| it.average));
        metrics.set("eval/pass@k", mean(|it| it.pass));
        metrics.set("eval/truncated", mean(|it| it.truncated));
        if recipe.keeps_fields() || recipe.reward.wrong != 0.0 {
            metrics.set("eval/reward", mean(|it| it.reward));
        }
        if scores.len() > 1 {
            for ((name, _), it) in self.sets.iter().zip(&scores) {
                metrics.set(metric_of_set("eval/avg@k", name), it.average);
                metrics.set(metric_of_set("eval/pass@k", name), it.pass);
            }
        }
        metrics.set("time/eval", started.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Shares of one set, from 0 to 1.
struct Shares {
    /// Mean over problems of the share of correct completions.
    average: f64,
    /// Problems with a correct completion.
    pass: f64,
    truncated: f64,
    reward: f64,
}

impl Shares {
    fn of(groups: &[ScoredGroup]) -> Self {
        fn share(part: usize, group: &ScoredGroup) -> f64 {
            part as f64 / group.n_eff().max(1) as f64
        }
        let mean = |of: fn(&ScoredGroup) -> f64| {
            groups.iter().map(of).sum::<f64>() / groups.len().max(1) as f64
        };
        let cut = |group: &ScoredGroup| {
            share(group.members().iter().filter(|member| !member.rollout.ended).count(), group)
        };
        Self {
            average: mean(|group| share(group.successes(), group)),
            pass: mean(|group| f64::from(u8::from(!group.all_fail()))),
            truncated: mean(cut),
            reward: mean(|group| group.rewards().iter().sum::<f64>() / group.n_eff().max(1) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use hapo_core::{Rollout, SampledGroup, Verdict};

    use super::*;

    /// One letter for each rollout: `c` correct, `w` wrong, `t` wrong and cut off.
    fn group(rollouts: &str) -> ScoredGroup {
        let rollout = |it| Rollout {
            tokens: vec![1],
            log_probs: vec![0.0],
            ended: it != 't',
            ..Rollout::default()
        };
        let verdict = |it| if it == 'c' { Verdict::Correct } else { Verdict::Wrong };
        let n = rollouts.len();
        let sampled = SampledGroup::new(PromptId(0), n, rollouts.chars().map(rollout).collect());
        let graded = rollouts.chars().map(verdict).map(|it| (it.reward(), it)).collect();
        sampled.score_with_rewards(graded, 1.0)
    }

    #[test]
    fn shares_are_means_over_problems() {
        let it = Shares::of(&[group("ccww"), group("wwwt"), group("cccc"), group("tttw")]);
        assert_eq!((it.average, it.pass, it.truncated), (0.375, 0.5, 0.25));
    }
}
