//! Scores of the traces that may enter a group, by the weights of the step, before one is chosen.

use std::ops::Range;

use hapo_core::{Scored, ScoredGroup, TokenScores};
use hapo_sampler::ChatFormat;
use hapo_verify::{Extraction, find_answer};

use super::scores::by_weights;
use super::task::Task;
use crate::Result;
use crate::engine::engines::Learner;

/// The scores of what may enter each group, the teachers' traces first; none where the method asks for none or there is
/// no choice.
pub(super) fn scores_of_offers<L: Learner>(
    task: Task<'_>,
    learner: &mut L,
    groups: &[ScoredGroup],
    open: &[bool],
) -> Result<Vec<Vec<TokenScores>>> {
    let wanted = task.plan.recipe().needs().scored;
    if wanted == Scored::Nothing {
        return Ok(vec![Vec::new(); groups.len()]);
    }
    let mut read = Vec::new();
    let mut counts = Vec::with_capacity(groups.len());
    for (group, is_open) in groups.iter().zip(open) {
        let prompt = task.table.prompt(group.prompt());
        let teachers = prompt.teachers.iter().map(hapo_core::TeacherTrajectory::tokens);
        let stored = task.memory.traces(prompt.id).iter().map(|it| it.tokens.as_slice());
        let traces: Vec<&[u32]> = teachers.chain(stored).collect();
        let is_scored = traces.len() > 1 && *is_open;
        counts.push(if is_scored { traces.len() } else { 0 });
        for trace in traces.into_iter().filter(|_| is_scored) {
            let scored = match wanted {
                Scored::Answers => answer_in(&task.verifier.chat_format, trace)?,
                _ => 0..trace.len(),
            };
            read.push(([&prompt.tokens, &trace[..scored.start]].concat(), &trace[scored]));
        }
    }
    let mut scores = by_weights(task, learner, read.iter())?.into_iter();
    Ok(counts.into_iter().map(|count| scores.by_ref().take(count).collect()).collect())
}

/// The tokens of a trace with a part of its final answer; all where it states none.
fn answer_in(chat_format: &ChatFormat, trace: &[u32]) -> Result<Range<usize>> {
    let text = chat_format.text(trace)?;
    let answer = find_answer(&text, Extraction::Announced).ok().map(|it| it.answer.into_owned());
    let found = answer.filter(|it| !it.is_empty());
    let Some((start, answer)) = found.and_then(|it| Some((text.rfind(&it)?, it))) else {
        return Ok(0..trace.len());
    };
    // The least tokens whose text reaches a byte.
    let reaching = |byte: usize| -> Result<usize> {
        let (mut low, mut high) = (0, trace.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let short = chat_format.text(&trace[..middle])?.len() < byte;
            (low, high) = if short { (middle + 1, high) } else { (low, middle) };
        }
        Ok(low)
    };
    Ok(reaching(start + 1)? - 1..reaching(start + answer.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::{Overrides, Recipe, RunPlan};

    #[test]
    fn the_answer_of_a_trace_is_found_among_its_tokens() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
        let overrides = Overrides::set(["model.path=builtin:base", "data.prompts=16"]);
        let recipe = Recipe::load_stages(&path, &overrides).unwrap().remove(0);
        let mut run = Run::new(&RunPlan::settle(&recipe).unwrap(), 1).unwrap();
        let (task, _) = run.task().unwrap();
        let format = &task.verifier.chat_format;
        let of = |text: &str| {
            let trace = format.tokenizer.encode(text).unwrap();
            let found = answer_in(format, &trace).unwrap();
            (format.text(&trace[found.clone()]).unwrap(), found.end, trace.len())
        };
        let (answer, end, n) = of("12+30=42\nThe answer is \\boxed{42}");
        assert!(answer.contains("42") && answer.len() < 5 && end <= n, "{answer} {end} {n}");
        let (whole, ..) = of("12+30=42");
        assert_eq!(whole, "12+30=42");
    }
}
