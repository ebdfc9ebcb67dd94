//! The engine: a request's results do not depend on the others, and its reservations are freed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hapo_core::{PromptId, RngStream};
use hapo_kernels::{Cpu, DrawnToken, NumberFormat};
use hapo_model::{KvCache, Model, Tokenizer};
use hapo_sampler::{
    Decoding, Engine, EngineLimits, EventKind, FinishReason, GroupRequest, KvMemory, Request,
    RequestId, RngKey, SampleSettings, SpecialTokens, Truncation, sample,
};

const STOP: [u32; 12] = [3, 19, 35, 51, 67, 83, 99, 115, 131, 147, 163, 179];
const LARGE: EngineLimits =
    EngineLimits { max_sequences: 64, cache_tokens: 8192, prefill_tokens: 1024, usable_vocab: 381 };

fn folder() -> PathBuf {
    hapo_testing::model_dir("tiny-qwen2")
}

fn model(threads: usize) -> Model<Cpu> {
    let cpu = Cpu::new(threads).unwrap();
    hapo_model::load(&folder(), cpu, |_| 128).unwrap().model
}

/// The model, open for sequences of several pages.
fn long_model(threads: usize, keys_and_values: NumberFormat) -> Model<Cpu> {
    let cpu = Cpu::new(threads).unwrap();
    let mut model = hapo_model::load(&folder(), cpu, |_| 400).unwrap().model;
    model.round_keys_and_values_to(keys_and_values);
    model
}

fn request(i: u64) -> Request {
    Request {
        prompt: (0..3 + 11 * i as u32).map(|j| (i as u32 * 37 + j * 11) % 380).collect(),
        completions: 1 + (i as usize * 2) % 5,
        decoding: Decoding::Sample {
            temperature: 0.5 + i as f32 / 4.0,
            truncation: Truncation { min_p: 0.001 * i as f32, ..Truncation::NONE },
        },
        max_tokens: 8 + 3 * i as usize,
        stop_tokens: STOP.to_vec(),
        stop_strings: Vec::new(),
        text: None,
        top_log_probs: 0,
        rng: RngKey { seed: 5 + i, rng_stream: RngStream::Generate, step: 2, prompt: PromptId(i) },
    }
}

type Completions = BTreeMap<(u64, usize), (Vec<DrawnToken>, FinishReason)>;

/// Serves requests that come at the steps of `arrivals`, by number.
fn serve(model: &Model<Cpu>, limits: EngineLimits, arrivals: &[(usize, u64)]) -> Completions {
    serve_some(model, limits, arrivals, request).0
}

/// As [`serve`], with requests of another kind; how often a sequence lost its pages, too.
fn serve_some(
    model: &Model<Cpu>,
    limits: EngineLimits,
    arrivals: &[(usize, u64)],
    request: impl Fn(u64) -> Request,
) -> (Completions, u64) {
    let mut engine = Engine::new(model, None, limits).unwrap();
    let (mut ids, mut tokens, mut served) = (BTreeMap::new(), BTreeMap::new(), Completions::new());
    let mut step = 0;
    while step <= arrivals.iter().map(|it| it.0).max().unwrap() || !engine.is_idle() {
        for (_, number) in arrivals.iter().filter(|it| it.0 == step) {
            ids.insert(engine.submit(request(*number)).unwrap(), *number);
        }
        for it in engine.step().unwrap() {
            let key = (ids[&it.request], it.completion);
            match it.kind {
                EventKind::Token(token) => {
                    let so_far: &mut Vec<DrawnToken> = tokens.entry(key).or_default();
                    so_far.push(token.drawn);
                }
                EventKind::Finished { reason, .. } => {
                    let all = tokens.remove(&key).unwrap();
                    assert!(served.insert(key, (all, reason)).is_none());
                }
            }
        }
        step += 1;
        assert!(step < 10_000, "the engine makes progress");
    }
    assert_eq!(engine.free_tokens(), limits.cache_tokens);
    assert!(tokens.is_empty() && engine.is_idle());
    (served, engine.preemptions())
}

/// Requests whose completions grow over several pages; half of them begin with the same 70 tokens.
fn long_request(i: u64) -> Request {
    let mut prompt: Vec<u32> = (0..70).map(|j| (j * 11) % 380).collect();
    if i.is_multiple_of(2) {
        prompt.clear();
    }
    prompt.extend((0..5 + 7 * i as u32).map(|j| (i as u32 * 37 + j * 13) % 380));
    Request { prompt, max_tokens: 160 + 8 * i as usize, completions: 4, ..request(i) }
}

/// With pages for a tenth of the batch, sequences are preempted and read again, also in pieces; every token and
/// log-probability equals that of a run without preemption.
#[test]
fn completions_do_not_depend_on_memory_or_preemption() {
    let f32 = do_not_depend_on_memory(NumberFormat::F32);
    let bf16 = do_not_depend_on_memory(NumberFormat::Bf16);
    // As far as both drew the same tokens, they were drawn from nearly the same distribution.
    let (mut compared, mut largest) = (0, 0.0_f32);
    for (key, (of_f32, _)) in &f32 {
        let both = of_f32.iter().zip(&bf16[key].0).take_while(|(a, b)| a.token == b.token);
        for (a, b) in both {
            compared += 1;
            largest = largest.max((a.log_prob_t1 - b.log_prob_t1).abs());
        }
    }
    assert!(compared > 1000, "{compared}");
    assert!(0.0 < largest && largest < 0.1, "{largest}");
}

fn do_not_depend_on_memory(format: NumberFormat) -> Completions {
    let all: Vec<(usize, u64)> = (0..8).map(|i| (0, i)).collect();
    // A page and a half of each prompt, and four of each completion.
    let most = 8 * 128 + 32 * 256;
    let ample = EngineLimits { cache_tokens: most, prefill_tokens: usize::MAX, ..LARGE };
    let never_ends = |i| Request { stop_tokens: vec![3], ..long_request(i) };
    let (expected, none) = serve_some(&long_model(1, format), ample, &all, never_ends);
    assert_eq!((expected.len(), none), (32, 0));
    let lengths = expected.values().map(|it| it.0.len());
    assert!(lengths.clone().max().unwrap() > 128 && lengths.sum::<usize>() > 32 * 64);
    let late: Vec<(usize, u64)> = (0..8).map(|i| (i as usize * 5, 7 - i)).collect();
    let tenth = EngineLimits { cache_tokens: 896, ..ample };
    let pieces = EngineLimits { prefill_tokens: 23, ..tenth };
    let few = EngineLimits { cache_tokens: 512, prefill_tokens: 300, ..ample };
    for (threads, limits, arrivals) in
        [(2, tenth, &all), (1, tenth, &late), (2, pieces, &all), (1, pieces, &late), (2, few, &all)]
    {
        let (got, preemptions) =
            serve_some(&long_model(threads, format), limits, arrivals, never_ends);
        assert!(got == expected, "{threads} threads, {limits:?}, {arrivals:?}");
        assert!(preemptions > 0, "{limits:?}, {arrivals:?}");
    }
    expected
}

/// A request that is cancelled while its completion waits for pages, or is read again, leaves nothing behind.
#[test]
fn a_preempted_request_can_be_cancelled() {
    let model = long_model(1, NumberFormat::F32);
    for (prefill_tokens, is_read) in [(9, false), (9, true), (1024, false)] {
        // Two prompts of a page, and five pages: the second completion loses the two it has.
        let limits = EngineLimits { cache_tokens: 448, prefill_tokens, ..LARGE };
        let mut engine = Engine::new(&model, None, limits).unwrap();
        let long = |i: u64| {
            let prompt = vec![i as u32; 10];
            Request { prompt, completions: 1, max_tokens: 200, stop_tokens: vec![], ..request(i) }
        };
        let ids = [3, 5].map(|i| engine.submit(long(i)).unwrap());
        let mut steps = 0;
        while engine.preemptions() == 0 || (is_read && engine.running() > 0) {
            engine.step().unwrap();
            steps += 1;
            assert!(steps < 300);
        }
        assert_eq!(engine.preemptions(), 1);
        if is_read {
            engine.step().unwrap();
            assert_eq!((engine.running(), engine.waiting()), (0, 1));
        }
        assert!(engine.cancel(ids[1]).unwrap());
        while !engine.is_idle() {
            assert!(engine.step().unwrap().iter().all(|it| it.request == ids[0]));
        }
        assert_eq!(engine.free_tokens(), limits.cache_tokens);
    }
}

/// Four completions of one prompt of 70 tokens and two of another that begins alike hold three pages of prompts;
/// each takes one of its own with its second token.
#[test]
fn pages_are_taken_as_sequences_grow_and_prompts_are_shared() {
    let model = model(1);
    let mut engine = Engine::new(&model, None, LARGE).unwrap();
    let begin: Vec<u32> = (0..70).collect();
    for (last, completions) in [(7, 4), (8, 2)] {
        let prompt = [&begin[..], &[last]].concat();
        engine
            .submit(Request {
                prompt,
                completions,
                max_tokens: 50,
                stop_tokens: vec![],
                ..request(1)
            })
            .unwrap();
    }
    engine.step().unwrap();
    assert_eq!(engine.free_tokens(), LARGE.cache_tokens - (3 + 6) * 64);
    while !engine.is_idle() {
        engine.step().unwrap();
    }
    assert_eq!(engine.free_tokens(), LARGE.cache_tokens);
}

#[test]
fn a_request_gets_the_same_whatever_else_is_running() {
    let all_at_once: Vec<(usize, u64)> = (0..7).map(|i| (0, i)).collect();
    let expected = serve(&model(1), LARGE, &all_at_once);
    assert_eq!(expected.len(), (0..7).map(|i| request(i).completions).sum::<usize>());
    let reasons: Vec<FinishReason> = expected.values().map(|it| it.1).collect();
    assert!(reasons.contains(&FinishReason::EndToken) && reasons.contains(&FinishReason::Length));
    let backwards: Vec<(usize, u64)> = (0..7).rev().map(|i| (0, i)).collect();
    let late: Vec<(usize, u64)> = (0..7).map(|i| (i as usize * 3, 6 - i)).collect();
    let tight = EngineLimits { max_sequences: 3, cache_tokens: 256, prefill_tokens: 5, ..LARGE };
    let pieces = EngineLimits { prefill_tokens: 7, ..LARGE };
    for (threads, limits, arrivals) in [
        (2, LARGE, &backwards),
        (1, tight, &backwards),
        (2, tight, &late),
        (1, pieces, &all_at_once),
        (2, pieces, &late),
    ] {
        let got = serve(&model(threads), limits, arrivals);
        assert!(got == expected, "{threads} threads, {limits:?}, {arrivals:?}");
    }
}

#[test]
fn the_loop_over_known_requests_gives_the_same() {
    let model = model(2);
    let served = serve(&model, LARGE, &[(0, 4)]);
    let it = request(4);
    let settings = SampleSettings {
        decoding: it.decoding,
        stop: &STOP,
        max_new_tokens: it.max_tokens,
        max_sequences: 2,
        kv_memory: KvMemory::Auto,
        usable_vocab: 381,
        seed: it.rng.seed,
        rng_stream: it.rng.rng_stream,
        step: it.rng.step,
    };
    let group = GroupRequest::new(it.rng.prompt, &it.prompt, it.completions);
    let sampled = sample(&model, &[group], &settings, None).unwrap();
    for (index, (completion, details)) in sampled[0].completions().enumerate() {
        let (drawn, reason) = &served[&(4, index)];
        let tokens: Vec<u32> = drawn.iter().map(|it| it.token).collect();
        assert_eq!((&completion.tokens, details.finish), (&tokens, *reason));
        assert!(drawn.iter().map(|it| it.log_prob).eq(completion.log_probs.clone()));
    }
}

#[test]
fn a_long_prompt_does_not_hold_up_the_others() {
    let model = model(1);
    let limits = EngineLimits { prefill_tokens: 10, ..LARGE };
    let mut engine = Engine::new(&model, None, limits).unwrap();
    let first = engine
        .submit(Request { stop_tokens: Vec::new(), completions: 1, max_tokens: 20, ..request(0) })
        .unwrap();
    engine.step().unwrap();
    let long = engine.submit(request(6)).unwrap();
    let mut steps = 0;
    loop {
        let events = engine.step().unwrap();
        let of = |id| events.iter().filter(|it| it.request == id).count();
        assert_eq!(of(first), 1);
        steps += 1;
        if of(long) > 0 {
            break;
        }
    }
    assert_eq!(steps, request(6).prompt.len().div_ceil(10));
}

#[test]
fn a_cancelled_request_frees_its_cache_tokens() {
    let model = model(1);
    for prefill_tokens in [4, 1024] {
        let limits = EngineLimits { max_sequences: 4, prefill_tokens, ..LARGE };
        let mut engine = Engine::new(&model, None, limits).unwrap();
        let ids: Vec<RequestId> = [6, 4, 2].map(|i| engine.submit(request(i)).unwrap()).to_vec();
        engine.step().unwrap();
        assert!(engine.cancel(ids[0]).unwrap());
        assert!(!engine.cancel(ids[0]).unwrap());
        assert!(engine.cancel(ids[2]).unwrap());
        while !engine.is_idle() {
            let events = engine.step().unwrap();
            assert!(events.iter().all(|it| it.request == ids[1]));
        }
        assert!(!engine.cancel(ids[1]).unwrap());
        assert_eq!(engine.free_tokens(), limits.cache_tokens);
    }
}

#[test]
fn a_stop_string_ends_a_completion_and_its_text() {
    let (model, tokenizer) = (model(1), Tokenizer::open(&folder()).unwrap());
    let run = |stops: &[&str]| {
        let mut engine = Engine::new(&model, Some(&tokenizer), LARGE).unwrap();
        engine
            .submit(Request {
                completions: 1,
                decoding: Decoding::Greedy,
                max_tokens: 40,
                stop_tokens: Vec::new(),
                stop_strings: stops.iter().map(|it| (*it).to_owned()).collect(),
                text: Some(SpecialTokens::WrittenOut),
                ..request(3)
            })
            .unwrap();
        let (mut tokens, mut all, mut why) = (Vec::new(), String::new(), None);
        while !engine.is_idle() {
            for it in engine.step().unwrap() {
                match it.kind {
                    EventKind::Token(it) => {
                        tokens.push(it.drawn.token);
                        all.push_str(&it.text);
                    }
                    EventKind::Finished { reason, text } => {
                        all.push_str(&text);
                        why = Some(reason);
                    }
                }
            }
        }
        (tokens, all, why.unwrap())
    };
    let (tokens, text, why) = run(&[]);
    assert_eq!((tokens.len(), why), (40, FinishReason::Length));
    assert_eq!(text, tokenizer.decode(&tokens).unwrap());
    // Cut a piece out of the middle of the text that spans tokens.
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let (from, to) = (chars[chars.len() / 2].0, chars[chars.len() / 2 + 6].0);
    let stop = &text[from..to];
    let (short, before, why) = run(&["nowhere in it", stop]);
    assert_eq!(why, FinishReason::StopString(1));
    assert_eq!(before, text[..text.find(stop).unwrap()]);
    assert_eq!(short, tokens[..short.len()]);
    assert!(tokenizer.decode(&short).unwrap().contains(stop));
    assert!(!tokenizer.decode(&short[..short.len() - 1]).unwrap().contains(stop));
}

#[test]
fn the_most_likely_tokens_are_reported() {
    let model = model(1);
    let mut engine = Engine::new(&model, None, LARGE).unwrap();
    engine
        .submit(Request {
            completions: 1,
            decoding: Decoding::Greedy,
            top_log_probs: 5,
            ..request(1)
        })
        .unwrap();
    let events = engine.step().unwrap();
    let EventKind::Token(it) = &events[0].kind else {
        panic!("a token comes first");
    };
    assert_eq!(it.top.len(), 5);
    assert_eq!(it.top[0], (it.drawn.token, it.drawn.log_prob_t1));
    assert!(it.top.is_sorted_by(|a, b| a.1 >= b.1));
}

#[test]
fn what_could_never_be_served_is_refused_by_field() {
    let model = model(1);
    let limits = EngineLimits { cache_tokens: 128, ..LARGE };
    let mut engine = Engine::new(&model, None, limits).unwrap();
    let good = Request { max_tokens: 8, ..request(1) };
    let mut refused = |it: Request| engine.submit(it).unwrap_err().to_string();
    let check = |got: String, expected: &str| assert_eq!(got, expected);
    let sampled = |temperature, top_p, min_p| Decoding::Sample {
        temperature,
        truncation: Truncation { top_k: 0, top_p, min_p },
    };
    check(
        refused(Request { prompt: Vec::new(), ..good.clone() }),
        "prompt: expected at least one token, got none",
    );
    check(
        refused(Request { prompt: vec![1, 9999], ..good.clone() }),
        "prompt: expected tokens below 384, the size of the vocabulary, got 9999 at position 1",
    );
    check(
        refused(Request { max_tokens: 116, ..good.clone() }),
        "max_tokens: expected prompt and completion within 128 tokens, got a prompt of 14 and 116 more",
    );
    check(
        refused(Request { max_tokens: 65, ..good.clone() }),
        "max_tokens: expected a cache of at least 192 tokens, got one of 128",
    );
    check(
        refused(Request { decoding: sampled(0.0, 1.0, 0.0), ..good.clone() }),
        "temperature: expected a number above 0, got 0",
    );
    check(
        refused(Request { decoding: sampled(1.0, f32::NAN, 0.0), ..good.clone() }),
        "top_p: expected a number in (0, 1], got NaN",
    );
    check(
        refused(Request { decoding: sampled(1.0, 1.0, 1.5), ..good.clone() }),
        "min_p: expected a number in [0, 1], got 1.5",
    );
    check(
        refused(Request { text: Some(SpecialTokens::WrittenOut), ..good.clone() }),
        "stop: expected an engine with a tokenizer, got one without",
    );
    assert!(engine.submit(good).is_ok());
}

#[test]
fn the_stated_memory_covers_the_cache_and_the_logits() {
    let model = model(1);
    let bytes = Engine::memory_bytes(&model, LARGE);
    let cache = KvCache::<Cpu>::bytes(model.config(), model.kv_format(), LARGE.cache_tokens);
    let logits = 2 * 64 * model.config().vocab_size * size_of::<f32>();
    assert!(bytes > cache + logits);
    let more = EngineLimits { cache_tokens: LARGE.cache_tokens + 1600, ..LARGE };
    let per_token = cache / LARGE.cache_tokens;
    assert_eq!(Engine::memory_bytes(&model, more) - bytes, 1600 * per_token);
}
