//! Sampling in this process, on the weights that are being trained.

use std::collections::HashMap;

use hapo_core::{PromptId, Refusal, RngStream, Rollout, SampledGroup};
use hapo_kernels::Device;
use hapo_model::{KvCache, Model, Tokenizer};

use crate::{
    Decoding, Engine, EngineLimits, EventKind, FinishReason, KvMemory, Longest, NewToken, Request,
    RngKey, engine::MAX_PREFILL_PROMPTS,
};

#[derive(Clone, Copy, Debug)]
pub struct GroupRequest<'a> {
    /// Identity of the prompt: part of the key of every draw.
    pub prompt: PromptId,
    pub tokens: &'a [u32],
    /// N: completions to sample.
    pub completions: usize,
    /// The last tokens of `tokens` that begin the response and count against its limit (D36).
    pub given: usize,
}

impl<'a> GroupRequest<'a> {
    pub fn new(prompt: PromptId, tokens: &'a [u32], completions: usize) -> Self {
        Self { prompt, tokens, completions, given: 0 }
    }

    fn limit(&self, settings: &SampleSettings<'_>) -> usize {
        settings.max_new_tokens.saturating_sub(self.given)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("request {index}: {source}")]
pub struct InGroup {
    pub index: usize,
    pub source: Refusal,
}

impl InGroup {
    fn wrap(index: usize, source: Refusal) -> Refusal {
        let fault = source.fault();
        Refusal::because(Self { index, source }).with_fault(fault)
    }
}

#[derive(Clone, Debug)]
pub struct SampleSettings<'a> {
    pub decoding: Decoding,
    /// Tokens that end a completion; the one that did is its last token.
    pub stop: &'a [u32],
    /// Longest response in tokens, the end token included.
    pub max_new_tokens: usize,
    pub max_sequences: usize,
    /// Memory of keys and values. No completion depends on it.
    pub kv_memory: KvMemory,
    /// Ids below this may be drawn; the model's vocabulary may be padded beyond it.
    pub usable_vocab: usize,
    pub seed: u64,
    pub rng_stream: RngStream,
    /// Training step, or 0.
    pub step: u64,
}

/// A sampled group, and details of its rollouts that the algorithm does not need.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub group: SampledGroup,
    pub details: Vec<Details>,
}

impl Sampled {
    pub fn completions(&self) -> impl Iterator<Item = (&Rollout, &Details)> {
        self.group.rollouts.iter().zip(&self.details)
    }
}

/// Details of a rollout for reports, besides its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Log-probability of each token at temperature 1.
    pub log_probs_t1: Vec<f32>,
    /// Entropy in nats, at temperature 1, of the distribution each token was drawn from.
    pub entropies: Vec<f32>,
    pub finish: FinishReason,
}

/// The texts of completions while they are sampled.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    pub tokenizer: &'a Tokenizer,
    pub stop_strings: &'a [String],
    /// Called after every token with the share that is done, of the longest completions that there can be; one that
    /// ends early counts as whole.
    pub progress: &'a dyn Fn(f64),
}

/// Samples every request's completions; the result is in the order of the requests. With `watch` progress is reported,
/// and a completion ends as well with the token after which its text contains one of the strings. All tokens are kept;
/// [`ChatFormat::text_before`](crate::ChatFormat::text_before) cuts the text.
pub fn sample<D: Device>(
    model: &Model<D>,
    requests: &[GroupRequest<'_>],
    settings: &SampleSettings<'_>,
    watch: Option<Watch<'_>>,
) -> Result<Vec<Sampled>, Refusal> {
    let mut groups: Vec<Option<Sampled>> = requests.iter().map(|_| None).collect();
    sample_each(model, requests, settings, watch, |index, it| {
        groups[index] = Some(it);
        Ok::<_, Refusal>(())
    })?;
    Ok(groups.into_iter().map(|it| it.expect("every request is finished once")).collect())
}

/// Tokens of key/value cache with which [`sample`] preempts none of `sequences` running sequences of `requests`
/// requests: the most that it reserves.
pub fn cache_tokens<D: Device>(
    sequences: usize,
    requests: usize,
    longest_prompt: usize,
    longest_completion: usize,
) -> usize {
    // Every running sequence may have a prompt of its own, and some may be read ahead: but none twice.
    let prompts = (sequences + MAX_PREFILL_PROMPTS).min(requests);
    sequences * KvCache::<D>::cost(longest_completion)
        + prompts * KvCache::<D>::cost(longest_prompt)
}

/// As [`sample`], but hands over each group, with the index of its request, as soon as its last completion has
/// ended. Memory holds the cache, the prompts, and the groups in progress.
pub fn sample_each<D: Device, E: From<Refusal>>(
    model: &Model<D>,
    requests: &[GroupRequest<'_>],
    settings: &SampleSettings<'_>,
    watch: Option<Watch<'_>>,
    mut finished: impl FnMut(usize, Sampled) -> Result<(), E>,
) -> Result<(), E> {
    for (index, it) in requests.iter().enumerate().filter(|it| it.1.completions == 0) {
        finished(index, Begun::new(it).into_group(it))?;
    }
    if requests.iter().map(|it| it.completions).sum::<usize>() == 0 {
        return Ok(());
    }
    let limits = limits(model, requests, settings)?;
    let mut engine = Engine::new(model, watch.map(|watch| watch.tokenizer), limits)?;
    let mut group_of = HashMap::new();
    for (group, it) in requests.iter().enumerate().filter(|it| it.1.completions > 0) {
        let SampleSettings { decoding, seed, rng_stream, step, .. } = *settings;
        let id = engine.submit(Request {
            prompt: it.tokens.to_vec(),
            completions: it.completions,
            decoding,
            max_tokens: it.limit(settings),
            stop_tokens: settings.stop.to_vec(),
            stop_strings: watch.map(|watch| watch.stop_strings.to_vec()).unwrap_or_default(),
            text: None,
            top_log_probs: 0,
            rng: RngKey { seed, rng_stream, step, prompt: it.prompt },
        });
        group_of.insert(id.map_err(|refusal| InGroup::wrap(group, refusal))?, group);
    }
    let mut begun: HashMap<usize, Begun> = HashMap::new();
    let most: usize = requests.iter().map(|it| it.completions * it.limit(settings)).sum();
    let mut done = 0;
    while !engine.is_idle() {
        for it in engine.step()? {
            let group = group_of[&it.request];
            let at = begun.entry(group).or_insert_with(|| Begun::new(&requests[group]));
            let (rollout, details) = &mut at.completions[it.completion];
            match it.kind {
                EventKind::Token(NewToken { drawn, .. }) => {
                    rollout.tokens.push(drawn.token);
                    rollout.log_probs.push(drawn.log_prob);
                    details.log_probs_t1.push(drawn.log_prob_t1);
                    details.entropies.push(drawn.entropy);
                    done += 1;
                }
                EventKind::Finished { reason, .. } => {
                    done += requests[group].limit(settings) - rollout.tokens.len();
                    rollout.ended = reason != FinishReason::Length;
                    details.finish = reason;
                    at.left -= 1;
                    if at.left == 0 {
                        let done = begun.remove(&group).expect("it was begun");
                        finished(group, done.into_group(&requests[group]))?;
                    }
                }
            }
        }
        if let Some(watch) = watch {
            (watch.progress)(done as f64 / most as f64);
        }
    }
    Ok(())
}

fn limits<D: Device>(
    model: &Model<D>,
    requests: &[GroupRequest<'_>],
    settings: &SampleSettings<'_>,
) -> Result<EngineLimits, Refusal> {
    let requested = requests.iter().map(|it| it.completions).sum::<usize>();
    let longest = requests.iter().map(|it| it.tokens.len()).max().unwrap_or(1);
    let new_tokens = requests.iter().map(|it| it.limit(settings)).max().unwrap_or(0);
    let whole = requests.iter().map(|it| it.tokens.len() + it.limit(settings)).max().unwrap_or(0);
    let sequences = settings.max_sequences.min(requested);
    let most = cache_tokens::<D>(sequences, requests.len(), longest, new_tokens);
    let mut limits = EngineLimits {
        max_sequences: sequences,
        cache_tokens: most,
        prefill_tokens: usize::MAX,
        usable_vocab: settings.usable_vocab,
    };
    // A prompt that is too long is refused with its own error.
    if whole <= model.positions() + 1 {
        let longest = Longest { prompt: longest, completion: new_tokens };
        limits.cache_tokens = settings.kv_memory.tokens(model, limits, longest)?;
    }
    Ok(limits)
}

struct Begun {
    completions: Vec<(Rollout, Details)>,
    left: usize,
}

impl Begun {
    fn new(request: &GroupRequest<'_>) -> Self {
        let left = request.completions;
        Self { completions: vec![Default::default(); left], left }
    }

    fn into_group(self, request: &GroupRequest<'_>) -> Sampled {
        let (rollouts, details) = self.completions.into_iter().unzip();
        Sampled { group: SampledGroup::new(request.prompt, request.completions, rollouts), details }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BadField, Truncation};
    use hapo_kernels::Cpu;
    use hapo_model::{ActivationCheckpointing, PackedBatch, Tape};

    fn model(threads: usize) -> Model<Cpu> {
        let folder = hapo_testing::model_dir("tiny-qwen2");
        hapo_model::load(&folder, Cpu::new(threads).unwrap(), |_| 256).unwrap().model
    }

    fn prompts() -> Vec<Vec<u32>> {
        (0_u32..7).map(|i| (0..3 + 5 * i).map(|j| (i * 37 + j * 11) % 380).collect()).collect()
    }

    fn settings(max_sequences: usize, temperature: f32) -> SampleSettings<'static> {
        SampleSettings {
            decoding: Decoding::Sample { temperature, truncation: Truncation::NONE },
            // One id in eight ends a completion, so lengths differ.
            stop: &[
                3, 11, 19, 27, 35, 43, 51, 59, 67, 75, 83, 91, 99, 107, 115, 123, 131, 139, 147,
                155,
            ],
            max_new_tokens: 24,
            max_sequences,
            kv_memory: KvMemory::Auto,
            usable_vocab: 381,
            seed: 5,
            rng_stream: RngStream::Sample,
            step: 3,
        }
    }

    fn run(threads: usize, max_sequences: usize, temperature: f32) -> Vec<Sampled> {
        let prompts = prompts();
        let requests: Vec<GroupRequest<'_>> = prompts
            .iter()
            .zip(0..)
            .map(|(tokens, id)| GroupRequest::new(PromptId(id), tokens, 5))
            .collect();
        sample(&model(threads), &requests, &settings(max_sequences, temperature), None).unwrap()
    }

    #[test]
    fn completions_do_not_depend_on_slots_or_threads() {
        let all_at_once = run(1, 64, 1.0);
        for (threads, slots) in [(2, 64), (1, 1), (2, 3), (1, 8)] {
            assert!(run(threads, slots, 1.0) == all_at_once, "{threads} threads, {slots} slots");
        }
        let lengths: Vec<usize> = all_at_once
            .iter()
            .flat_map(|it| &it.group.rollouts)
            .map(|it| it.tokens.len())
            .collect();
        assert!(lengths.iter().any(|it| *it < 24) && lengths.contains(&24), "{lengths:?}");
        for it in all_at_once.iter().flat_map(|it| &it.group.rollouts) {
            assert_eq!(it.ended, settings(1, 1.0).stop.contains(it.tokens.last().unwrap()));
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
                for it in &group.group.rollouts {
                    batch.push_response(segment, &it.tokens, 1.0 / temperature);
                }
                let outputs =
                    Tape::new(ActivationCheckpointing::None).forward(&model, &batch).unwrap();
                let join = |part: fn(&(&Rollout, &Details)) -> Vec<f32>| -> Vec<f32> {
                    group.completions().flat_map(|it| part(&it)).collect()
                };
                assert_eq!(
                    outputs.log_probs,
                    join(|it| it.0.log_probs.clone()),
                    "at temperature {temperature}"
                );
                assert_eq!(outputs.log_probs_t1, join(|it| it.1.log_probs_t1.clone()));
                assert_eq!(outputs.entropies, join(|it| it.1.entropies.clone()));
            }
        }
    }

    /// The response to a prompt and its first tokens is as long as one to the prompt alone.
    #[test]
    fn given_tokens_count_against_the_limit() {
        let (model, prompts) = (model(1), prompts());
        let whole = GroupRequest::new(PromptId(0), &prompts[2], 9);
        let given = GroupRequest { given: 4, ..whole };
        let settings = SampleSettings { stop: &[], ..settings(64, 1.0) };
        let sampled = sample(&model, &[whole, given], &settings, None).unwrap();
        for (whole, given) in sampled[0].group.rollouts.iter().zip(&sampled[1].group.rollouts) {
            assert_eq!((whole.tokens.len(), given.tokens.len()), (24, 20));
            assert_eq!(whole.tokens[..20], given.tokens);
            assert_eq!(whole.log_probs[..20], given.log_probs);
        }
    }

    #[test]
    fn a_request_that_cannot_be_served_is_an_error() {
        let request = GroupRequest::new(PromptId(0), &[], 1);
        let refused = sample(&model(1), &[request], &settings(1, 1.0), None).unwrap_err();
        assert_eq!(refused.cause::<InGroup>().unwrap().index, 0);
        let request = GroupRequest::new(PromptId(0), &[9999], 1);
        let refused = sample(&model(1), &[request], &settings(1, 1.0), None).unwrap_err();
        let expected = "request 0: prompt: expected tokens below 384, the size of the vocabulary, got 9999 at position 0";
        assert_eq!(refused.to_string(), expected);
        assert_eq!(refused.cause::<BadField>().unwrap().field, "prompt");
        assert_eq!(sample(&model(1), &[], &settings(1, 1.0), None).unwrap(), Vec::<Sampled>::new());
    }
}
