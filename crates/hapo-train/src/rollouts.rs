//! The groups of a step as the lines that are stored of them.

use hapo_core::{Member, MixedGroup, PolicyMember, Verdict};
use hapo_run::{Role, RolloutLine};

use crate::error::Result;
use crate::prompts::Prompt;

/// The lines of one group; `text` decodes a response.
pub(crate) fn lines_of(
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
            prefix: 0,
            log_probs: Vec::new(),
            ended: true,
            verdict: Verdict::Correct,
        })
    };
    let sampled = |role, slot: usize, member: &PolicyMember| -> Result<RolloutLine> {
        let rollout = &member.rollout;
        Ok(RolloutLine {
            prefix: rollout.prefix,
            log_probs: rollout.log_probs.clone(),
            ended: rollout.ended,
            verdict: member.verdict.clone(),
            ..line(role, slot, &rollout.tokens)?
        })
    };
    let mut lines = Vec::with_capacity(group.members().len() + 1);
    for (slot, member) in group.members().iter().enumerate() {
        match member {
            Member::Policy(it) => lines.push(sampled(Role::Policy, slot, it)?),
            Member::Teacher {
                trajectory,
                replaced,
            } => {
                if let Some(it) = replaced {
                    lines.push(sampled(Role::Replaced, slot, it)?);
                }
                lines.push(line(Role::Teacher, slot, trajectory.tokens())?);
            }
        }
    }
    Ok(lines)
}
