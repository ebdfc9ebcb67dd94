//! Operations of a forward pass, from a decoder's shape alone.

use crate::config::Config;

/// Operations of the attention alone within [`forward_flops`].
pub fn attention_flops(config: &Config, rows: f64, context: f64) -> f64 {
    4.0 * rows * config.layers as f64 * config.attention_shape().q_dim() as f64 * context
}

/// Floating-point operations of a forward pass: products with the weights and with the `context`
/// tokens that each of the `rows` tokens attends to on average; `head_rows` of them reach the head. A
/// multiplication and an addition count as two. The backward pass takes twice as many.
pub fn forward_flops(config: &Config, rows: f64, head_rows: f64, context: f64) -> f64 {
    let shape = config.attention_shape();
    let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
    let hidden = config.hidden as f64;
    let per_layer = hidden * (2.0 * q_dim as f64 + 2.0 * kv_dim as f64 + 3.0 * config.ffn as f64);
    let layers = config.layers as f64;
    2.0 * rows * layers * per_layer
        + attention_flops(config, rows, context)
        + 2.0 * head_rows * hidden * config.vocab_size as f64
}
