//! Sampling in this process, on the weights that are being trained.

use std::collections::VecDeque;

use hapo_core::{Place, PromptId, Purpose, Rollout, SampledGroup, uniform};
use hapo_kernels::Device;
use hapo_model::{KvCache, Model, PromptSlot, SeqSlot};
use rayon::prelude::*;

use crate::{Decoding, Drawn, Error, draw};

/// A prompt and how many completions of it are wanted.
#[derive(Clone, Copy, Debug)]
pub struct GroupRequest<'a> {
    /// Identity of the prompt: part of the key of every draw.
    pub prompt: PromptId,
    /// The rendered prompt.
    pub tokens: &'a [u32],
    /// N: completions wanted.
    pub completions: usize,
}

/// How to sample.
#[derive(Clone, Debug)]
pub struct SampleSettings<'a> {
    /// How a token is chosen.
    pub decoding: Decoding,
    /// Tokens that end a completion; the one that did is its last token.
    pub stop: &'a [u32],
    /// Longest completion in tokens, the end token included.
    pub max_new_tokens: usize,
    /// Sequences decoded at once.
    pub max_sequences: usize,
    /// Ids below this may be drawn; the model's vocabulary may be padded beyond it.
    pub usable_vocab: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// What the draws are for.
    pub purpose: Purpose,
    /// Training step, or 0.
    pub step: u64,
}

/// One completion with both of its log-probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The completion, with its end token if it ended.
    pub tokens: Vec<u32>,
    /// Log-probability of each token at the sampling temperature.
    pub log_probs: Vec<f32>,
    /// Log-probability of each token at temperature 1.
    pub log_probs_t1: Vec<f32>,
    /// Entropy in nats, at temperature 1, of the distribution each token was drawn from.
    pub entropies: Vec<f32>,
    /// Whether a stop token ended it.
    pub ended: bool,
}

/// Groups of completions as the training step takes them.
pub fn into_groups(
    requests: &[GroupRequest<'_>],
    completions: Vec<Vec<Completion>>,
) -> Vec<SampledGroup> {
    requests
        .iter()
        .zip(completions)
        .map(|(request, group)| {
            let rollouts = group
                .into_iter()
                .map(|it| Rollout {
                    tokens: it.tokens,
                    log_probs: it.log_probs,
                    ended: it.ended,
                })
                .collect();
            SampledGroup::new(request.prompt, request.completions, rollouts)
        })
        .collect()
}

/// Samples every request's completions; the result is in the order of the requests.
pub fn sample<D: Device>(
    model: &Model<D>,
    requests: &[GroupRequest<'_>],
    settings: &SampleSettings<'_>,
) -> Result<Vec<Vec<Completion>>, Error> {
    check(requests, settings)?;
    let mut batch = Batch::new(model, requests, settings)?;
    while !batch.is_done() {
        batch.admit()?;
        batch.advance()?;
    }
    Ok(batch.done)
}

fn check(requests: &[GroupRequest<'_>], settings: &SampleSettings<'_>) -> Result<(), Error> {
    let bad = |index, expected, got: String| {
        Err(Error::Request {
            index,
            expected,
            got,
        })
    };
    for (index, it) in requests.iter().enumerate() {
        if it.tokens.is_empty() {
            return bad(
                index,
                "a prompt of at least one token",
                "an empty one".to_owned(),
            );
        }
    }
    if settings.max_new_tokens == 0 || settings.max_sequences == 0 || settings.usable_vocab == 0 {
        return bad(
            0,
            "room for at least one token, sequence and id",
            "none".to_owned(),
        );
    }
    if let Decoding::Sample { temperature, .. } = settings.decoding
        && !(temperature.is_finite() && temperature > 0.0)
    {
        return bad(0, "a temperature above 0", temperature.to_string());
    }
    Ok(())
}

/// Completions under way and those that wait for a place.
struct Batch<'a, D: Device> {
    model: &'a Model<D>,
    requests: &'a [GroupRequest<'a>],
    settings: &'a SampleSettings<'a>,
    cache: KvCache<D>,
    /// Completions not begun, in order.
    waiting: VecDeque<(usize, usize)>,
    /// Prompts that were read and still have completions to begin, with the logits after them.
    prompts: Vec<Option<ReadPrompt>>,
    active: Vec<Active>,
    done: Vec<Vec<Completion>>,
    logits: Vec<f32>,
}

struct ReadPrompt {
    slot: PromptSlot,
    logits: Vec<f32>,
    to_begin: usize,
}

/// A completion under way; it has at least its first token.
struct Active {
    group: usize,
    rollout: usize,
    slot: SeqSlot,
    completion: Completion,
}

/// Prompts read together when places are free.
const PROMPTS_AT_ONCE: usize = 64;

impl<'a, D: Device> Batch<'a, D> {
    fn new(
        model: &'a Model<D>,
        requests: &'a [GroupRequest<'a>],
        settings: &'a SampleSettings<'a>,
    ) -> Result<Self, Error> {
        let waiting: VecDeque<(usize, usize)> = requests
            .iter()
            .enumerate()
            .flat_map(|(group, it)| (0..it.completions).map(move |rollout| (group, rollout)))
            .collect();
        let longest = requests.iter().map(|it| it.tokens.len()).max().unwrap_or(1);
        let sequences = settings.max_sequences.min(waiting.len()).max(1);
        // Every sequence under way may have a prompt of its own, and as many may be read ahead.
        let prompts = sequences + PROMPTS_AT_ONCE.min(requests.len());
        let tokens = sequences * KvCache::<D>::cost(settings.max_new_tokens)
            + prompts * KvCache::<D>::cost(longest);
        Ok(Self {
            model,
            requests,
            settings,
            cache: KvCache::new(model, tokens)?,
            waiting,
            prompts: requests.iter().map(|_| None).collect(),
            active: Vec::new(),
            done: requests
                .iter()
                .map(|it| vec![Completion::default(); it.completions])
                .collect(),
            logits: Vec::new(),
        })
    }

    fn is_done(&self) -> bool {
        self.active.is_empty() && self.waiting.is_empty()
    }

    /// Begins waiting completions while places are free: reads their prompts, draws their first
    /// tokens.
    fn admit(&mut self) -> Result<(), Error> {
        while self.active.len() < self.settings.max_sequences && !self.waiting.is_empty() {
            let free = self.settings.max_sequences - self.active.len();
            let next: Vec<(usize, usize)> =
                self.waiting.drain(..free.min(self.waiting.len())).collect();
            self.read_prompts(&next)?;
            let drawn: Vec<Drawn> = self.on_threads(|| {
                next.par_iter()
                    .map(|(group, rollout)| {
                        let prompt = self.prompts[*group]
                            .as_ref()
                            .expect("its prompt was just read");
                        self.draw(&prompt.logits, *group, *rollout, 0)
                    })
                    .collect()
            });
            for ((group, rollout), drawn) in next.into_iter().zip(drawn) {
                let mut completion = Completion::default();
                self.push(&mut completion, drawn);
                let prompt = self.prompts[group]
                    .as_mut()
                    .expect("its prompt was just read");
                prompt.to_begin -= 1;
                let (slot, last) = (prompt.slot, prompt.to_begin == 0);
                if self.is_over(&completion) {
                    self.done[group][rollout] = completion;
                } else {
                    let slot = self.cache.fork(slot, self.settings.max_new_tokens)?;
                    self.active.push(Active {
                        group,
                        rollout,
                        slot,
                        completion,
                    });
                }
                if last {
                    self.cache.release_prompt(slot)?;
                    self.prompts[group] = None;
                }
            }
        }
        Ok(())
    }

    /// Reads the prompts of completions about to begin, each once.
    fn read_prompts(&mut self, next: &[(usize, usize)]) -> Result<(), Error> {
        let mut unread: Vec<usize> = next
            .iter()
            .map(|it| it.0)
            .filter(|it| self.prompts[*it].is_none())
            .collect();
        unread.dedup();
        let vocab = self.model.config().vocab_size;
        for groups in unread.chunks(PROMPTS_AT_ONCE) {
            let tokens: Vec<&[u32]> = groups.iter().map(|it| self.requests[*it].tokens).collect();
            let read = self.model.prefill(&mut self.cache, &tokens)?;
            for ((group, slot), logits) in groups
                .iter()
                .zip(read.slots)
                .zip(read.logits.chunks_exact(vocab))
            {
                let to_begin = self.requests[*group].completions;
                self.prompts[*group] = Some(ReadPrompt {
                    slot,
                    logits: logits.to_vec(),
                    to_begin,
                });
            }
        }
        Ok(())
    }

    /// One more token for every completion under way; those that end free their places.
    fn advance(&mut self) -> Result<(), Error> {
        if self.active.is_empty() {
            return Ok(());
        }
        let step: Vec<(SeqSlot, u32)> = self
            .active
            .iter()
            .map(|it| {
                (
                    it.slot,
                    *it.completion.tokens.last().expect("it has its first token"),
                )
            })
            .collect();
        let mut logits = std::mem::take(&mut self.logits);
        self.model.decode(&mut self.cache, &step, &mut logits)?;
        let drawn: Vec<Drawn> = self.on_threads(|| {
            self.active
                .par_iter()
                .zip(logits.par_chunks_exact(self.model.config().vocab_size))
                .map(|(it, row)| self.draw(row, it.group, it.rollout, it.completion.tokens.len()))
                .collect()
        });
        self.logits = logits;
        let mut still_active = Vec::with_capacity(self.active.len());
        for (mut it, drawn) in std::mem::take(&mut self.active).into_iter().zip(drawn) {
            self.push(&mut it.completion, drawn);
            if self.is_over(&it.completion) {
                self.cache.release(it.slot)?;
                self.done[it.group][it.rollout] = it.completion;
            } else {
                still_active.push(it);
            }
        }
        self.active = still_active;
        Ok(())
    }

    fn on_threads<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.model.device().enter(work)
    }

    /// The next token of a completion that has `position` tokens.
    fn draw(&self, logits: &[f32], group: usize, rollout: usize, position: usize) -> Drawn {
        let it = self.settings;
        let place = Place {
            step: it.step,
            prompt: self.requests[group].prompt.0,
            rollout: rollout as u64,
            position: position as u64,
        };
        draw(
            logits,
            it.decoding,
            uniform(it.seed, it.purpose, place),
            it.usable_vocab,
        )
    }

    fn push(&self, completion: &mut Completion, drawn: Drawn) {
        completion.tokens.push(drawn.token);
        completion.log_probs.push(drawn.log_prob);
        completion.log_probs_t1.push(drawn.log_prob_t1);
        completion.entropies.push(drawn.entropy);
        completion.ended = self.settings.stop.contains(&drawn.token);
    }

    fn is_over(&self, completion: &Completion) -> bool {
        completion.ended || completion.tokens.len() >= self.settings.max_new_tokens
    }
}
