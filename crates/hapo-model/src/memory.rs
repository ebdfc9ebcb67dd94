//! How much memory a decoder takes, from its shape alone.
//!
//! The formulas follow the buffers one by one; a test holds them against what a tape really holds.

use crate::config::Config;
use crate::params::ParamLayout;
use crate::tape::{ActivationCheckpointing, KEEP_LOGITS, STATS, chunk_rows};

const F32: u64 = size_of::<f32>() as u64;

/// Bytes of the buffers of a forward and a backward pass, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapeBytes {
    /// Activations: inputs of all layers and what the layers keep.
    pub activations: u64,
    /// Gradients by activations, of one layer.
    pub gradients: u64,
    /// Hidden states that reach the head, their gradients, and numbers per target.
    pub head: u64,
    /// Logits held at once.
    pub logits: u64,
}

impl TapeBytes {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.activations + self.gradients + self.head + self.logits
    }
}

/// Bytes of one copy of the parameters in f32: that of the weights, of their gradient, and of each of
/// the two moments.
pub fn parameter_bytes(config: &Config) -> u64 {
    ParamLayout::of(config).len() as u64 * F32
}

/// Bytes of the tape of a batch of `rows` packed tokens, of which `head_rows` predict `targets`
/// tokens.
pub fn tape_bytes(
    config: &Config,
    rows: usize,
    head_rows: usize,
    targets: usize,
    recompute: ActivationCheckpointing,
) -> TapeBytes {
    let tokens = rows.next_multiple_of(16) as u64;
    let hidden = config.hidden as u64;
    let (wide, narrow) = widths(config);
    let kept = match recompute {
        ActivationCheckpointing::None => config.layers as u64,
        ActivationCheckpointing::Layers => 1,
    };
    let logit_rows = chunk_rows(config.vocab_size, KEEP_LOGITS).min(head_rows.max(1)) as u64;
    let (head_rows, targets) = (
        head_rows.next_multiple_of(16) as u64,
        targets.next_multiple_of(16) as u64,
    );
    let inputs = (config.layers as u64 + 1) * hidden;
    TapeBytes {
        activations: F32 * tokens * (inputs + kept * layer_width(config) + config.ffn as u64),
        gradients: F32 * tokens * (2 * hidden + 2 * wide + 2 * narrow),
        head: F32 * (head_rows * (4 * hidden + 1) + targets * (STATS as u64 + 2)),
        logits: F32 * logit_rows * config.vocab_size as u64,
    }
}

/// Bytes of the keys and values of one token, all layers.
pub fn kv_bytes_per_token(config: &Config) -> u64 {
    2 * F32 * config.layers as u64 * widths(config).1
}

/// Floating-point operations of a forward pass: products with the weights and with the `context`
/// tokens that each of the `rows` tokens attends to on average; `head_rows` of them reach the head. A
/// multiplication and an addition count as two. The backward pass takes twice as many.
pub fn forward_flops(config: &Config, rows: f64, head_rows: f64, context: f64) -> f64 {
    let (wide, narrow) = widths(config);
    let hidden = config.hidden as f64;
    let per_layer = hidden * (2.0 * wide as f64 + 2.0 * narrow as f64 + 3.0 * config.ffn as f64);
    let layers = config.layers as f64;
    2.0 * rows * layers * per_layer
        + 4.0 * rows * layers * wide as f64 * context
        + 2.0 * head_rows * hidden * config.vocab_size as f64
}

/// Widths of all query heads and of all key/value heads.
fn widths(config: &Config) -> (u64, u64) {
    (
        (config.heads * config.head_dim) as u64,
        (config.kv_heads * config.head_dim) as u64,
    )
}

/// Numbers that a layer keeps for each token.
pub(crate) fn layer_width(config: &Config) -> u64 {
    let (wide, narrow) = widths(config);
    let (heads, kv_heads) = (config.heads as u64, config.kv_heads as u64);
    let raw = if config.qk_norm {
        wide + narrow + heads + kv_heads
    } else {
        0
    };
    3 * config.hidden as u64 + 2 + raw + 2 * wide + 2 * narrow + heads + 2 * config.ffn as u64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hapo_kernels::{Buffer, Cpu};

    use super::*;
    use crate::batch::PackedBatch;
    use crate::tape::{Gradients, Tape};

    #[test]
    fn the_formulas_are_what_the_tape_holds() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/models");
        for name in ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"] {
            let loaded = crate::load(&fixtures.join(name), Cpu::new(1).unwrap(), |_| 128).unwrap();
            let model = loaded.model;
            let mut gradients = Gradients::new(&model).unwrap();
            assert_eq!(
                parameter_bytes(model.config()),
                F32 * gradients.buf().len() as u64
            );
            for recompute in [
                ActivationCheckpointing::None,
                ActivationCheckpointing::Layers,
            ] {
                let mut tape = Tape::new(recompute);
                let mut batch = PackedBatch::default();
                let prompt = batch.push(&[1, 2, 3, 4, 5], None);
                for response in [&[6, 7, 8][..], &[9; 20]] {
                    batch.push_response(prompt, response, 1.0);
                }
                let outputs = model.forward(&batch, &mut tape).unwrap();
                let slopes = vec![1.0; outputs.log_probs.len()];
                model
                    .backward(&mut tape, &slopes, &slopes, &mut gradients)
                    .unwrap();
                // The prompt's last row predicts the first token of both responses.
                let (rows, targets) = (5 + 2 + 19, 3 + 20);
                let predicted = tape_bytes(model.config(), rows, targets - 1, targets, recompute);
                assert_eq!(predicted, tape.bytes(), "{name} {recompute:?}");
            }
        }
    }

    #[test]
    fn flops_are_six_per_parameter_and_token_where_the_context_is_short() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/models");
        let model = crate::load(&fixtures.join("tiny-qwen2"), Cpu::new(1).unwrap(), |_| 128)
            .unwrap()
            .model;
        let config = model.config();
        let matrices: usize = config
            .tensors()
            .iter()
            .filter(|it| it.shape.len() == 2)
            .map(|it| it.shape.iter().product::<usize>())
            .sum();
        // An embedding that is not the head too is looked up, not multiplied.
        let lookup = if config.tied {
            0
        } else {
            config.vocab_size * config.hidden
        };
        assert_eq!(
            forward_flops(config, 10.0, 10.0, 0.0),
            2.0 * 10.0 * (matrices - lookup) as f64
        );
        let by_attention =
            forward_flops(config, 10.0, 10.0, 7.0) - forward_flops(config, 10.0, 10.0, 0.0);
        let wide = config.heads * config.head_dim;
        assert_eq!(by_attention, (4 * 10 * config.layers * wide * 7) as f64);
    }
}
