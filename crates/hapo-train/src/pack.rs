//! From mixed groups to packed micro-batches.
//!
//! A group's prompt is packed once and its sequences attend to it, so N rollouts cost one prompt.
//! A micro-batch holds whole groups while they fit the token budget; a group that does not fit
//! alone is cut between sequences and its prompt packed again. How a batch is cut never changes the
//! loss, because the normaliser is fixed before (D16).

use std::ops::Range;

use hapo_core::{Member, MixedGroup, Objective, OnInjection, Weights, advantages, teacher_weight};
use hapo_model::PackedBatch;

/// One sequence to train on: a response and what its tokens are worth.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The response, end token included.
    pub response: Vec<u32>,
    /// Whose response it is.
    pub role: Role,
}

/// Whose response a sequence is.
#[derive(Clone, Debug)]
pub enum Role {
    /// A rollout of the policy.
    Policy {
        /// Its first tokens, if it went on from a part of the teacher's trajectory (D22).
        prefix: Option<TeacherPrefix>,
        /// Recorded log-probabilities of the tokens after the prefix, at the sampling temperature (D19).
        old_log_probs: Vec<f32>,
        /// A.
        advantage: f64,
        /// Whether its verdict is Correct.
        correct: bool,
    },
    /// The teacher's trajectory.
    Teacher {
        /// λ.
        weight: f64,
    },
}

/// The part of a rollout that the teacher wrote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TeacherPrefix {
    /// Its tokens.
    pub tokens: usize,
    /// λ.
    pub weight: f64,
}

/// The sequences of one prompt.
#[derive(Clone, Debug)]
pub struct TokenGroup {
    /// The rendered prompt; never empty.
    pub prompt: Vec<u32>,
    /// Its sequences.
    pub sequences: Vec<Sequence>,
    /// False when no gradient comes from it (D20): it counts in the normaliser and is not run.
    pub has_signal: bool,
}

/// Sequences that are run together.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    /// Tokens, segments and targets for the decoder.
    pub packed: PackedBatch,
    /// Which sequence each range of targets belongs to: (group, sequence, targets).
    pub spans: Vec<(usize, usize, Range<usize>)>,
}

/// What a mixed group is worth in tokens: advantages, and λ for the teacher.
pub fn token_group(
    group: &MixedGroup,
    prompt: Vec<u32>,
    objective: &Objective,
    initial_threshold: f64,
) -> TokenGroup {
    let advantages = advantages(group, objective.advantage);
    let weight = |advantage| {
        teacher_weight(
            objective.teacher_weight,
            group,
            initial_threshold,
            advantage,
        )
    };
    let sequences = group
        .members()
        .iter()
        .zip(advantages)
        .map(|(member, advantage)| match member {
            Member::Policy(it) => Sequence {
                response: it.rollout.tokens.clone(),
                role: Role::Policy {
                    prefix: (it.rollout.prefix > 0).then(|| TeacherPrefix {
                        tokens: it.rollout.prefix,
                        weight: weight(advantage),
                    }),
                    old_log_probs: it.rollout.log_probs.clone(),
                    advantage,
                    correct: it.verdict.is_correct(),
                },
            },
            Member::Teacher { trajectory, .. } => Sequence {
                response: trajectory.tokens().to_vec(),
                role: Role::Teacher {
                    weight: weight(advantage),
                },
            },
        })
        .filter(|it: &Sequence| {
            let dropped = group.injected() && objective.on_injection == OnInjection::DropRollouts;
            !dropped || matches!(it.role, Role::Teacher { .. })
        })
        .collect();
    // The entropy bonus and SRFT's weights reach every on-policy token, those of constant groups
    // included (D20, D21).
    let has_signal =
        group.has_signal() || objective.entropy_coef > 0.0 || objective.weights == Weights::Entropy;
    TokenGroup {
        prompt,
        sequences,
        has_signal,
    }
}

/// Packs the sequences that `wanted` picks into micro-batches of at most `budget` tokens (one
/// sequence with its prompt may exceed it alone).
pub fn pack(
    groups: &[TokenGroup],
    budget: usize,
    inverse_temperature: f32,
    wanted: impl Fn(&TokenGroup, &Sequence) -> bool,
) -> Vec<MicroBatch> {
    let mut done = Vec::new();
    let mut open = Packer::default();
    for (g, group) in groups.iter().enumerate() {
        let wanted = |it: &(usize, &Sequence)| wanted(group, it.1);
        let picked: Vec<(usize, &Sequence)> =
            group.sequences.iter().enumerate().filter(wanted).collect();
        if picked.is_empty() {
            continue;
        }
        let whole = group.prompt.len() + picked.iter().map(|it| fed_tokens(it.1)).sum::<usize>();
        if !open.is_empty() && open.tokens() + whole > budget {
            done.push(open.close());
        }
        open.begin_group(&group.prompt);
        let mut in_this_batch = 0;
        for (s, sequence) in picked {
            if in_this_batch > 0 && open.tokens() + fed_tokens(sequence) > budget {
                done.push(open.close());
                open.begin_group(&group.prompt);
                in_this_batch = 0;
            }
            open.push(g, s, sequence, inverse_temperature);
            in_this_batch += 1;
        }
    }
    if !open.is_empty() {
        done.push(open.close());
    }
    done
}

/// The last token of a response is predicted but predicts nothing, so it is not fed.
fn fed_tokens(sequence: &Sequence) -> usize {
    sequence.response.len().saturating_sub(1)
}

#[derive(Default)]
struct Packer {
    packed: PackedBatch,
    spans: Vec<(usize, usize, Range<usize>)>,
    prompt: usize,
}

impl Packer {
    fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn tokens(&self) -> usize {
        self.packed.tokens.len()
    }

    fn begin_group(&mut self, prompt: &[u32]) {
        self.prompt = self.packed.push(prompt, None);
    }

    fn push(&mut self, group: usize, index: usize, sequence: &Sequence, inverse_temperature: f32) {
        // The teacher's operator reads π at temperature 1, the ratio at the sampling one (D25).
        let teacher_tokens = match &sequence.role {
            Role::Policy { prefix, .. } => prefix.map_or(0, |it| it.tokens),
            Role::Teacher { .. } => sequence.response.len(),
        };
        let first_target = self.packed.targets.len();
        self.packed
            .push_response(self.prompt, &sequence.response, inverse_temperature);
        for it in &mut self.packed.targets[first_target..][..teacher_tokens] {
            it.inverse_temperature = 1.0;
        }
        self.spans
            .push((group, index, first_target..self.packed.targets.len()));
    }

    fn close(&mut self) -> MicroBatch {
        let it = std::mem::take(self);
        MicroBatch {
            packed: it.packed,
            spans: it.spans,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(prompt: &[u32], responses: &[&[u32]]) -> TokenGroup {
        let sequences = responses
            .iter()
            .map(|it| Sequence {
                response: it.to_vec(),
                role: Role::Policy {
                    prefix: None,
                    old_log_probs: vec![0.0; it.len()],
                    advantage: 1.0,
                    correct: true,
                },
            })
            .collect();
        TokenGroup {
            prompt: prompt.to_vec(),
            sequences,
            has_signal: true,
        }
    }

    /// What each target predicts: the tokens before it, read off segments, and the token itself.
    fn predictions(batch: &MicroBatch) -> Vec<(Vec<u32>, u32)> {
        let packed = &batch.packed;
        packed
            .targets
            .iter()
            .map(|target| {
                let segment = packed
                    .segments
                    .iter()
                    .find(|it| (it.start..it.start + it.len).contains(&target.row))
                    .unwrap();
                let mut seen = Vec::new();
                if let Some(prefix) = segment.prefix {
                    let prefix = &packed.segments[prefix];
                    seen.extend_from_slice(&packed.tokens[prefix.start..prefix.start + prefix.len]);
                }
                seen.extend_from_slice(&packed.tokens[segment.start..=target.row]);
                (seen, target.token)
            })
            .collect()
    }

    fn expected(groups: &[TokenGroup]) -> Vec<(Vec<u32>, u32)> {
        let mut all = Vec::new();
        for group in groups.iter().filter(|it| it.has_signal) {
            for sequence in &group.sequences {
                for (i, token) in sequence.response.iter().enumerate() {
                    all.push((
                        [group.prompt.as_slice(), &sequence.response[..i]].concat(),
                        *token,
                    ));
                }
            }
        }
        all
    }

    #[test]
    fn every_cut_predicts_the_same_tokens_from_the_same_contexts() {
        let mut groups = vec![
            group(&[1, 2, 3], &[&[10, 11, 12], &[13], &[14, 15]]),
            group(&[4], &[&[20, 21]]),
            group(&[9, 9], &[&[30, 31], &[32, 33, 34, 35]]),
        ];
        groups[1].has_signal = false;
        for budget in 1..40 {
            let batches = pack(&groups, budget, 1.0, |group, _| group.has_signal);
            let all: Vec<_> = batches.iter().flat_map(predictions).collect();
            assert_eq!(all, expected(&groups), "budget {budget}");
            for it in &batches {
                assert!(
                    it.packed.tokens.len() <= budget || it.spans.len() == 1,
                    "budget {budget}"
                );
            }
        }
        assert_eq!(
            pack(&groups, 1000, 1.0, |group, _| group.has_signal).len(),
            1
        );
    }
}
