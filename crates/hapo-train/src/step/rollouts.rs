//! Which rollouts of a run are kept, and the lines that are stored of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hapo_core::{Context, Credit, Member, MixedGroup, PolicyMember, Step, Term, Verdict};
use hapo_run::{Role, RolloutLine, RolloutWriter, RunFolder, create_folder};
use hapo_sampler::ChatFormat;

use crate::Result;
use crate::problems::prompts::{Prompt, PromptTable};

pub(crate) struct RolloutLog {
    chat_format: Arc<ChatFormat>,
    /// Steps from one that is kept to the next; 0 for none.
    every: u64,
    /// Is `None` outside [`train`](crate::train).
    run_dir: Option<PathBuf>,
    pub(crate) writer: RolloutWriter,
    /// The first response of the last step that was kept, for readers.
    pub(crate) sampled: Option<String>,
}

impl RolloutLog {
    pub(crate) fn new(chat_format: Arc<ChatFormat>, every: u64) -> Self {
        Self { chat_format, every, run_dir: None, writer: RolloutWriter::default(), sampled: None }
    }

    pub(crate) fn keep_in(&mut self, run_dir: &Path) -> Result<()> {
        if self.every > 0 {
            create_folder(&RunFolder(run_dir).rollouts())?;
            self.run_dir = Some(run_dir.to_owned());
        }
        Ok(())
    }

    /// Starts to write the groups of a step, if they are kept.
    pub(crate) fn keep<'a>(
        &mut self,
        groups: impl Iterator<Item = (&'a MixedGroup, &'a Credit)>,
        table: &PromptTable,
        step: Step,
    ) -> Result<()> {
        let Some(run_dir) = &self.run_dir else { return Ok(()) };
        if !step.0.is_multiple_of(self.every) {
            return Ok(());
        }
        let text = |tokens: &[u32]| self.chat_format.text(tokens);
        let mut lines = Vec::new();
        for (group, credit) in groups {
            let prompt = table.prompt(group.prompt());
            let mut of_group = lines_of(group, prompt, step.0, &text)?;
            let trained = |it: &&mut RolloutLine| {
                matches!(it.role, Role::Policy | Role::Helped | Role::Replayed)
            };
            for line in of_group.iter_mut().filter(trained) {
                // A of the first span with one, the mean over its tokens.
                line.advantage = credit[line.slot].iter().find_map(|it| match &it.term {
                    Term::Policy { advantage, .. } => Some(advantage.mean()),
                    Term::Teacher { .. } => None,
                });
            }
            if let Some(first) = of_group.first_mut() {
                first.rendered = text(&prompt.tokens)?;
            }
            lines.extend(of_group);
        }
        self.sampled = lines.iter().find(|it| it.role == Role::Policy).map(markdown);
        self.writer.write(RunFolder(run_dir).rollouts_of(step.0), lines)
    }
}

fn markdown(line: &RolloutLine) -> String {
    let block = |text: &str| format!("    {}", text.replace('\n', "\n    "));
    let verdict = match &line.verdict {
        Verdict::Correct => "correct",
        Verdict::Wrong => "wrong",
        Verdict::Unparsable(_) => "unparsable",
    };
    format!(
        "**Problem**\n\n{}\n\n**Response**, {} tokens, {}\n\n{}\n\n**Gold answer**\n\n{}\n",
        block(&line.problem),
        line.tokens.len(),
        verdict,
        block(&line.completion),
        block(&line.answer)
    )
}

/// A reward that does not follow from its verdict.
fn graded_reward(reward: f64, verdict: &Verdict) -> Option<f64> {
    (reward != verdict.reward()).then_some(reward)
}

/// The lines of one group; `text` decodes a response.
fn lines_of(
    group: &MixedGroup,
    prompt: &Prompt,
    step: u64,
    text: &dyn Fn(&[u32]) -> Result<String>,
) -> Result<Vec<RolloutLine>> {
    let line = |role, slot: usize, tokens: &[u32]| -> Result<RolloutLine> {
        Ok(RolloutLine {
            step,
            prompt_id: prompt.id.0,
            id: prompt.name.clone(),
            problem: prompt.problem.clone(),
            prompt_tokens: prompt.tokens.clone(),
            answer: prompt.answer.clone(),
            role,
            slot,
            injected: group.injected(),
            completion: text(tokens)?,
            tokens: tokens.to_vec(),
            ended: true,
            verdict: Verdict::Correct,
            ..RolloutLine::default()
        })
    };
    let returned = group.all_sampled().filter(|it| it.rollout.part == 0).count();
    let requested = (returned < group.requested()).then_some(group.requested());
    let sampled = |role, slot: usize, member: &PolicyMember| -> Result<RolloutLine> {
        let rollout = &member.rollout;
        let is_plain = rollout.context == Context::Plain;
        let has_own_slot = matches!(role, Role::Policy | Role::Replaced);
        Ok(RolloutLine {
            prefix: rollout.prefix,
            part: rollout.part,
            context: (!is_plain).then_some(rollout.context),
            context_tokens: rollout.privileged.clone(),
            index: (!has_own_slot).then_some(member.index),
            requested,
            log_probs: rollout.log_probs.clone(),
            sampler_log_probs: rollout.sampler_log_probs.clone(),
            ended: rollout.ended,
            verdict: member.verdict.clone(),
            reward: graded_reward(member.reward, &member.verdict),
            ..line(role, slot, &rollout.tokens)?
        })
    };
    let mut lines = Vec::with_capacity(group.members().len() + 1);
    for (slot, member) in group.members().iter().enumerate() {
        if let Some(it) = member.replaced() {
            lines.push(sampled(Role::Replaced, slot, it)?);
        }
        match member {
            Member::Policy(it) => lines.push(sampled(Role::Policy, slot, it)?),
            Member::Helped { member, .. } => lines.push(sampled(Role::Helped, slot, member)?),
            Member::Teacher { trajectory, .. } => {
                let teacher = line(Role::Teacher, slot, trajectory.tokens())?;
                let reward = graded_reward(trajectory.reward(), &teacher.verdict);
                lines.push(RolloutLine { reward, ..teacher });
            }
            Member::Replayed { trace, .. } => {
                let replayed = line(Role::Replayed, slot, &trace.tokens)?;
                let reward = graded_reward(trace.reward, &replayed.verdict);
                lines.push(RolloutLine { reward, log_probs: trace.log_probs.clone(), ..replayed });
            }
        }
    }
    for (slot, it) in (group.members().len()..).zip(group.discarded()) {
        lines.push(sampled(Role::Discarded, slot, it)?);
    }
    Ok(lines)
}
