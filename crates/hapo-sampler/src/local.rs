//! Sampling in this process, on the weights that are being trained.

use std::collections::VecDeque;

use hapo_core::{Place, PromptId, Purpose, Rollout, SampledGroup, uniform};
use hapo_kernels::Device;
use hapo_model::{EngineError, KvCache, Model, PromptSlot, SeqSlot};
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
                    hint: 0,
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
    /// tokens. What finds no room waits for a sequence under way to end.
    fn admit(&mut self) -> Result<(), Error> {
        while self.active.len() < self.settings.max_sequences && !self.waiting.is_empty() {
            let free = self.settings.max_sequences - self.active.len();
            let wanted = self.waiting.drain(..free.min(self.waiting.len())).collect();
            let begun = self.reserve(wanted)?;
            if begun.is_empty() {
                return Ok(());
            }
            let drawn: Vec<Drawn> = self.on_threads(|| {
                begun
                    .par_iter()
                    .map(|it| {
                        let prompt = self.prompts[it.group]
                            .as_ref()
                            .expect("its prompt was just read");
                        self.draw(&prompt.logits, it.group, it.rollout, 0)
                    })
                    .collect()
            });
            for (mut it, drawn) in begun.into_iter().zip(drawn) {
                self.push(&mut it.completion, drawn);
                let prompt = self.prompts[it.group]
                    .as_mut()
                    .expect("its prompt was just read");
                prompt.to_begin -= 1;
                if prompt.to_begin == 0 {
                    self.cache.release_prompt(prompt.slot)?;
                    self.prompts[it.group] = None;
                }
                self.keep_or_finish(it)?;
            }
        }
        Ok(())
    }

    /// Room for completions about to begin, as far as there is any; the rest goes back to wait.
    fn reserve(&mut self, wanted: VecDeque<(usize, usize)>) -> Result<Vec<Active>, Error> {
        let mut begun = Vec::with_capacity(wanted.len());
        let mut wanted = wanted;
        while let Some((group, rollout)) = wanted.pop_front() {
            let slot = match self.read_prompt_ahead(group, &wanted) {
                Ok(prompt) => self.cache.fork(prompt, self.settings.max_new_tokens),
                Err(it) => Err(it),
            };
            match slot {
                Ok(slot) => begun.push(Active {
                    group,
                    rollout,
                    slot,
                    completion: Completion::default(),
                }),
                Err(EngineError::CacheFull { .. })
                    if !(begun.is_empty() && self.active.is_empty()) =>
                {
                    wanted.push_front((group, rollout));
                    break;
                }
                Err(it) => return Err(it.into()),
            }
        }
        while let Some(it) = wanted.pop_back() {
            self.waiting.push_front(it);
        }
        Ok(begun)
    }

    /// The prompt of a group, read if it was not, together with those of the groups that come next.
    fn read_prompt_ahead(
        &mut self,
        group: usize,
        next: &VecDeque<(usize, usize)>,
    ) -> Result<PromptSlot, EngineError> {
        if let Some(it) = &self.prompts[group] {
            return Ok(it.slot);
        }
        let mut groups = vec![group];
        groups.extend(
            next.iter()
                .map(|it| it.0)
                .filter(|it| self.prompts[*it].is_none()),
        );
        groups.dedup();
        groups.truncate(PROMPTS_AT_ONCE);
        let tokens: Vec<&[u32]> = groups.iter().map(|it| self.requests[*it].tokens).collect();
        let (groups, read) = match self.model.prefill(&mut self.cache, &tokens) {
            // Room for this prompt alone is enough to go on.
            Err(EngineError::CacheFull { .. }) => (
                &groups[..1],
                self.model.prefill(&mut self.cache, &tokens[..1])?,
            ),
            read => (&groups[..], read?),
        };
        let vocab = self.model.config().vocab_size;
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
        Ok(self.prompts[group]
            .as_ref()
            .expect("its prompt was just read")
            .slot)
    }

    /// Puts a completion among those under way, or away if it is over.
    fn keep_or_finish(&mut self, it: Active) -> Result<(), Error> {
        if self.is_over(&it.completion) {
            self.cache.release(it.slot)?;
            self.done[it.group][it.rollout] = it.completion;
        } else {
            self.active.push(it);
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
        for (mut it, drawn) in std::mem::take(&mut self.active).into_iter().zip(drawn) {
            self.push(&mut it.completion, drawn);
            self.keep_or_finish(it)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncation;
    use hapo_kernels::Cpu;
    use hapo_model::{PackedBatch, Recompute, Tape};
    use std::path::Path;

    fn model(threads: usize) -> Model<Cpu> {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/models/tiny-qwen2");
        hapo_model::load(&folder, Cpu::new(threads).unwrap(), |_| 256)
            .unwrap()
            .model
    }

    fn prompts() -> Vec<Vec<u32>> {
        (0_u32..7)
            .map(|i| (0..3 + 5 * i).map(|j| (i * 37 + j * 11) % 380).collect())
            .collect()
    }

    fn settings(max_sequences: usize, temperature: f32) -> SampleSettings<'static> {
        SampleSettings {
            decoding: Decoding::Sample {
                temperature,
                truncation: Truncation::NONE,
            },
            // One id in eight ends a completion, so lengths differ.
            stop: &[
                3, 11, 19, 27, 35, 43, 51, 59, 67, 75, 83, 91, 99, 107, 115, 123, 131, 139, 147,
                155,
            ],
            max_new_tokens: 24,
            max_sequences,
            usable_vocab: 381,
            seed: 5,
            purpose: Purpose::Sample,
            step: 3,
        }
    }

    fn run(threads: usize, max_sequences: usize, temperature: f32) -> Vec<Vec<Completion>> {
        let prompts = prompts();
        let requests: Vec<GroupRequest<'_>> = prompts
            .iter()
            .zip(0..)
            .map(|(tokens, id)| GroupRequest {
                prompt: PromptId(id),
                tokens,
                completions: 5,
            })
            .collect();
        sample(
            &model(threads),
            &requests,
            &settings(max_sequences, temperature),
        )
        .unwrap()
    }

    #[test]
    fn completions_do_not_depend_on_places_or_threads() {
        let all_at_once = run(1, 64, 1.0);
        for (threads, places) in [(2, 64), (1, 1), (2, 3), (1, 8)] {
            assert!(
                run(threads, places, 1.0) == all_at_once,
                "{threads} threads, {places} places"
            );
        }
        let lengths: Vec<usize> = all_at_once
            .iter()
            .flatten()
            .map(|it| it.tokens.len())
            .collect();
        assert!(
            lengths.iter().any(|it| *it < 24) && lengths.contains(&24),
            "{lengths:?}"
        );
        for it in all_at_once.iter().flatten() {
            assert_eq!(
                it.ended,
                settings(1, 1.0).stop.contains(it.tokens.last().unwrap())
            );
            assert!(it.tokens.iter().all(|token| *token < 381));
        }
    }

    #[test]
    fn recorded_log_probs_are_the_trainers_bit_for_bit() {
        for temperature in [1.0, 0.7] {
            let prompts = prompts();
            let model = model(2);
            for (prompt, group) in prompts.iter().zip(run(2, 6, temperature)) {
                let mut batch = PackedBatch::default();
                let segment = batch.push(prompt, None);
                for it in &group {
                    batch.push_response(segment, &it.tokens, 1.0 / temperature);
                }
                let outputs = model
                    .forward(&batch, &mut Tape::new(Recompute::None))
                    .unwrap();
                let join = |part: fn(&Completion) -> &Vec<f32>| -> Vec<f32> {
                    group.iter().flat_map(|it| part(it).clone()).collect()
                };
                assert_eq!(
                    outputs.log_probs,
                    join(|it| &it.log_probs),
                    "at temperature {temperature}"
                );
                assert_eq!(outputs.log_probs_t1, join(|it| &it.log_probs_t1));
                assert_eq!(outputs.entropies, join(|it| &it.entropies));
            }
        }
    }

    #[test]
    fn a_request_that_cannot_be_served_is_an_error() {
        let request = GroupRequest {
            prompt: PromptId(0),
            tokens: &[],
            completions: 1,
        };
        assert!(matches!(
            sample(&model(1), &[request], &settings(1, 1.0)),
            Err(Error::Request { index: 0, .. })
        ));
        let request = GroupRequest {
            prompt: PromptId(0),
            tokens: &[9999],
            completions: 1,
        };
        assert!(matches!(
            sample(&model(1), &[request], &settings(1, 1.0)),
            Err(Error::Engine(EngineError::Token { .. }))
        ));
        assert_eq!(
            sample(&model(1), &[], &settings(1, 1.0)).unwrap(),
            Vec::<Vec<Completion>>::new()
        );
    }
}
