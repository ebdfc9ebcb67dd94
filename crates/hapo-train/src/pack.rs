//! From mixed groups to packed micro-batches.
//!
//! A group's prompt is packed once and its sequences attend to it, so N rollouts cost one prompt. A micro-batch holds
//! whole groups while they fit the token budget; a group that does not fit alone is cut between sequences and its
//! prompt packed again. How a batch is cut never changes the loss, because the normaliser is fixed before (D16).

use std::ops::Range;

use hapo_core::{Loss, Member, Ratio, Span, TrainPrompt, has_terms};
use hapo_model::PackedBatch;

/// One sequence to train on: a response and what its tokens are worth.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The response, end token included.
    pub response: Vec<u32>,
    /// Log-probabilities recorded while sampling, at the sampling temperature, of the last tokens of the response:
    /// those that the policy wrote (D19).
    pub old_log_probs: Vec<f32>,
    pub spans: Vec<Span>,
    /// Index of the prompt that it is read behind, in its group's.
    pub prompt: usize,
    /// True if the log-probabilities were recorded behind another prompt, or by the weights of another step: the
    /// sampler's gap and the KL leave it out (D36).
    pub is_moved: bool,
}

impl Sequence {
    /// A sequence behind the plain prompt.
    pub fn new(response: Vec<u32>, old_log_probs: Vec<f32>, spans: Vec<Span>) -> Self {
        Self { response, old_log_probs, spans, prompt: 0, is_moved: false }
    }

    pub fn is_teacher(&self) -> bool {
        self.spans.iter().all(Span::is_teacher)
    }

    /// True if a ratio is taken to the weights before the step's first update.
    pub(crate) fn is_rescored(&self) -> bool {
        self.spans.iter().any(|it| it.ratio() == Some(Ratio::Rescored))
    }

    /// The recorded log-probabilities of these tokens of the response; empty where none were recorded.
    pub(crate) fn old_log_probs(&self, tokens: Range<usize>) -> &[f32] {
        let first = self.response.len() - self.old_log_probs.len();
        let Some(start) = tokens.start.checked_sub(first) else { return &[] };
        &self.old_log_probs[start..][..tokens.len()]
    }
}

#[derive(Clone, Debug, Default)]
pub struct TokenGroup {
    /// The rendered prompts, the plain one first; none is empty.
    pub prompts: Vec<Vec<u32>>,
    pub sequences: Vec<Sequence>,
    /// False when no gradient comes from it (D20): it counts in the normaliser and is not run.
    pub has_signal: bool,
}

impl TokenGroup {
    /// Where a prompt is among the group's, which it joins if it is new.
    fn index_of_prompt(&mut self, tokens: &[u32]) -> usize {
        self.prompts.iter().position(|it| it == tokens).unwrap_or_else(|| {
            self.prompts.push(tokens.to_vec());
            self.prompts.len() - 1
        })
    }

    /// True if a term of the objective has a factor other than 0: more than an entropy bonus comes from the group.
    pub(crate) fn has_terms(&self) -> bool {
        has_terms(self.sequences.iter().flat_map(|it| &it.spans))
    }
}

#[derive(Clone, Debug, Default)]
pub struct MicroBatch {
    pub packed: PackedBatch,
    /// Which sequence each range of targets belongs to: (group, sequence, targets).
    pub spans: Vec<(usize, usize, Range<usize>)>,
    /// Segments of the last group's prompts, where they are in the batch.
    prompts: Vec<Option<usize>>,
}

/// Members of a group in tokens, each with its credit, behind the prompt that `behind` names. Those without credit count
/// in the normaliser alone.
pub fn token_group<'a>(
    members: impl IntoIterator<Item = (&'a Member, Vec<Span>)>,
    prompt: Vec<u32>,
    behind: impl Fn(&Member) -> TrainPrompt,
    loss: &Loss,
) -> TokenGroup {
    let mut it = TokenGroup { prompts: vec![prompt], ..TokenGroup::default() };
    for (member, spans) in members {
        let behind = behind(member);
        let prompt =
            privileged_prompt(member, behind).map_or(0, |tokens| it.index_of_prompt(tokens));
        it.sequences.push(Sequence {
            response: member.tokens().to_vec(),
            old_log_probs: member.log_probs().to_vec(),
            spans,
            prompt,
            is_moved: is_moved(member, behind),
        });
    }
    // The entropy bonus reaches every token of the policy (D17, D20).
    let mut spans = it.sequences.iter().flat_map(|it| &it.spans);
    let has_kl = spans.any(|it| loss.kl_of(it).is_some());
    it.has_signal = it.has_terms() || has_kl || loss.entropy_coef > 0.0;
    it
}

/// The prompt that a member is trained on behind, if that is not the plain one (D36).
pub(crate) fn privileged_prompt(member: &Member, behind: TrainPrompt) -> Option<&[u32]> {
    let sampled_behind = member.sampled().map(|it| it.rollout.privileged.as_slice());
    sampled_behind.filter(|it| behind == TrainPrompt::Sampled && !it.is_empty())
}

/// True if a member's log-probabilities are of other weights, or of another prompt than the one that it is trained on behind.
pub(crate) fn is_moved(member: &Member, behind: TrainPrompt) -> bool {
    let has_privileged = member.sampled().is_some_and(|it| !it.rollout.privileged.is_empty());
    matches!(member, Member::Replayed { .. }) || (behind == TrainPrompt::Plain && has_privileged)
}

/// How a mini-batch is run. None of it changes the loss.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// Most tokens of a micro-batch; one sequence with its prompt may exceed it alone.
    pub micro_batch_tokens: usize,
    /// 1 ÷ sampling temperature: that of the ratio's log-probabilities (D25).
    pub inverse_temperature: f32,
}

pub fn pack(
    groups: &[TokenGroup],
    Batching { micro_batch_tokens: budget, inverse_temperature }: Batching,
    wanted: impl Fn(&TokenGroup, &Sequence) -> bool,
) -> Vec<MicroBatch> {
    let mut done = Vec::new();
    let mut open = MicroBatch::default();
    for (g, group) in groups.iter().enumerate() {
        let wanted = |it: &(usize, &Sequence)| wanted(group, it.1);
        let picked: Vec<_> = group.sequences.iter().enumerate().filter(wanted).collect();
        if picked.is_empty() {
            continue;
        }
        let read = (0..group.prompts.len()).filter(|p| picked.iter().any(|it| it.1.prompt == *p));
        let prompts: usize = read.map(|it| group.prompts[it].len()).sum();
        let whole = prompts + picked.iter().map(|it| fed_tokens(it.1)).sum::<usize>();
        if !open.spans.is_empty() && open.packed.tokens.len() + whole > budget {
            done.push(std::mem::take(&mut open));
        }
        open.prompts = vec![None; group.prompts.len()];
        for (s, sequence) in picked {
            let prompt = group.prompts[sequence.prompt].len();
            // A prompt that is in the batch already takes no tokens.
            let more = open.prompts[sequence.prompt].map_or(prompt, |_| 0) + fed_tokens(sequence);
            let is_begun = open.spans.last().is_some_and(|it| it.0 == g);
            if is_begun && open.packed.tokens.len() + more > budget {
                done.push(std::mem::take(&mut open));
                open.prompts = vec![None; group.prompts.len()];
            }
            open.push((g, group), s, inverse_temperature);
        }
    }
    if !open.spans.is_empty() {
        done.push(open);
    }
    done
}

/// The last token of a response is predicted but predicts nothing, so it is not fed.
fn fed_tokens(sequence: &Sequence) -> usize {
    sequence.response.len().saturating_sub(1)
}

impl MicroBatch {
    fn push(&mut self, (g, group): (usize, &TokenGroup), index: usize, inverse_temperature: f32) {
        let sequence = &group.sequences[index];
        let tokens = &group.prompts[sequence.prompt];
        let prompt = &mut self.prompts[sequence.prompt];
        let prompt = *prompt.get_or_insert_with(|| self.packed.push(tokens, None));
        let first_target = self.packed.targets.len();
        self.packed.push_response(prompt, &sequence.response, inverse_temperature);
        // The teacher's operator reads π at temperature 1, the ratio at the sampling one (D25).
        for span in sequence.spans.iter().filter(|it| it.is_teacher()) {
            for it in &mut self.packed.targets[first_target..][span.tokens.clone()] {
                it.inverse_temperature = 1.0;
            }
        }
        self.spans.push((g, index, first_target..self.packed.targets.len()));
    }
}

#[cfg(test)]
mod tests {
    use hapo_core::Term;

    use super::*;
    use crate::tests::batches_of;

    fn group(prompt: &[u32], responses: &[&[u32]]) -> TokenGroup {
        let sequences = responses
            .iter()
            .map(|it| {
                let spans = vec![Span::new(0..it.len(), Term::policy(1.0))];
                Sequence::new(it.to_vec(), vec![0.0; it.len()], spans)
            })
            .collect();
        TokenGroup { prompts: vec![prompt.to_vec()], sequences, has_signal: true }
    }

    /// The prediction of each target: the tokens before it, by segments, and the token itself.
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
                    let prompt = group.prompts[sequence.prompt].as_slice();
                    all.push(([prompt, &sequence.response[..i]].concat(), *token));
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
        // Two of a group's sequences are read behind another rendering of its prompt.
        groups[2].prompts.push(vec![7, 8, 9]);
        groups[2].sequences[1].prompt = 1;
        groups[0].prompts.push(vec![5, 5]);
        groups[0].sequences[0].prompt = 1;
        for budget in 1..40 {
            let batches = pack(&groups, batches_of(budget), |group, _| group.has_signal);
            let all: Vec<_> = batches.iter().flat_map(predictions).collect();
            assert_eq!(all, expected(&groups), "budget {budget}");
            for it in &batches {
                assert!(it.packed.tokens.len() <= budget || it.spans.len() == 1, "budget {budget}");
            }
        }
        assert_eq!(pack(&groups, batches_of(1000), |group, _| group.has_signal).len(), 1);
    }
}
