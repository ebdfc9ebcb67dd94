//! The numbers of `transformers` for the four reference models: logits, log-probabilities, entropies,
//! greedy continuations, and the same through the cache.

use crate::support::{MODELS, computes, computing, model};
use hapo_kernels::{log_prob, row_stats};
use hapo_model::{ActivationCheckpointing, KvCache, PackedBatch, Tape, Target};
use hapo_testing::reference::decode;
use hapo_testing::reference::{assert_greedy, assert_logits, assert_outputs, expected};

#[test]
fn logits_are_those_of_transformers() {
    for name in MODELS {
        let mut tape = Tape::new(ActivationCheckpointing::None);
        assert_logits(&model(name, 2), name, &mut tape, 1e-4);
    }
}

#[test]
fn log_probs_and_entropies_are_those_of_transformers() {
    for name in MODELS {
        let model = model(name, 2);
        for checkpointing in [ActivationCheckpointing::None, ActivationCheckpointing::Layers] {
            // Small chunks of logits, so that the chunked head is the one that is checked.
            let mut tape = Tape::new(checkpointing).with_logit_bytes(384 * 4 * 50);
            for outputs in assert_outputs(&model, name, &mut tape, 1e-5) {
                assert_eq!(outputs.log_probs, outputs.log_probs_t1);
            }
        }
    }
}

#[test]
fn greedy_continuations_are_those_of_transformers() {
    for name in MODELS {
        assert_greedy(&model(name, 2), name);
    }
}

/// The log-probability of a sampled token, as the sampler records it, has the trainer's bits, whether
/// the trainer packs the prompt with the response or shares it as a prefix.
#[test]
fn decoding_has_the_bits_of_training() {
    let all = computes().flat_map(|it| MODELS.map(|name| (name, it)));
    for (name, compute) in all {
        for threads in [1, 2, 3] {
            let model = computing(name, threads, compute);
            let vocabulary = model.config().vocab_size;
            let e = &expected(name)[1];
            let inverse_temperature = 1.0 / 0.7_f32;
            let response: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 380).collect();
            let mut cache = KvCache::new(&model, 2048).unwrap();
            let prefill = cache.prefill(&model, &[&e.tokens, &e.tokens[..3]]).unwrap();
            let others: Vec<_> =
                (0..26).map(|_| cache.fork(prefill.slots[1], 64).unwrap()).collect();
            let own = cache.fork(prefill.slots[0], 64).unwrap();
            let recorded = |row: &[f32], token: u32| {
                let stats = row_stats(row, inverse_temperature);
                log_prob(stats, inverse_temperature, row[token as usize])
            };
            let mut sampled = vec![recorded(&prefill.logits[..vocabulary], response[0])];
            let mut logits = Vec::new();
            for (i, pair) in response.windows(2).enumerate() {
                // The number of other rows changes from step to step.
                let mut rows: Vec<_> = others.iter().take(i % 27).map(|&s| (s, 5)).collect();
                let at = i % (rows.len() + 1);
                rows.insert(at, (own, pair[0]));
                decode(&mut cache, &model, &rows, &mut logits).unwrap();
                let row = &logits[at * vocabulary..(at + 1) * vocabulary];
                sampled.push(recorded(row, pair[1]));
            }
            let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
            let mut shared = PackedBatch::default();
            let prompt = shared.push(&e.tokens, None);
            shared.push_response(prompt, &[1, 2, 3], 1.0);
            shared.push_response(prompt, &response, inverse_temperature);
            let trained = tape.forward(&model, &shared).unwrap().log_probs;
            assert_eq!(trained[3..], sampled, "{name}, {threads} threads, shared prompt");

            let mut whole = PackedBatch::default();
            let tokens = [&e.tokens[..], &response[..]].concat();
            whole.push(&tokens, None);
            whole.targets = (e.tokens.len()..tokens.len())
                .map(|i| Target { row: i - 1, token: tokens[i], inverse_temperature })
                .collect();
            let trained = tape.forward(&model, &whole).unwrap().log_probs;
            assert_eq!(trained, sampled, "{name}, {threads} threads, packed whole");
        }
    }
}
