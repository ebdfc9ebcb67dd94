//! The numbers of a decoder's shape.

use super::Fields;
use crate::error::Error;

/// What a missing field means in a family's class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent {
    /// `num_key_value_heads` is `num_attention_heads`.
    pub(crate) kv_heads: bool,
    /// `head_dim` is `hidden_size` / `num_attention_heads`.
    pub(crate) head_dim: bool,
    /// `tie_word_embeddings`.
    pub(crate) tied: bool,
}

/// The numbers of the shape.
pub(crate) struct Sizes {
    pub(crate) vocab_size: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) ffn: usize,
    pub(crate) max_positions: usize,
    pub(crate) rms_eps: f32,
}

pub(crate) fn sizes(fields: &mut Fields<'_>, absent: Absent) -> Result<Sizes, Error> {
    // Every key is taken before any is refused, so that none is left among the unknown ones.
    let vocab_size = fields.required_size("vocab_size", 1 << 24);
    let hidden = fields.required_size("hidden_size", 1 << 18);
    let layers = fields.required_size("num_hidden_layers", 1 << 10);
    let heads = fields.required_size("num_attention_heads", 1 << 12);
    let kv_heads = fields.size("num_key_value_heads", 1 << 12);
    let head_dim = fields.size("head_dim", 1 << 12);
    let ffn = fields.required_size("intermediate_size", 1 << 20);
    let max_positions = fields.required_size("max_position_embeddings", 1 << 31);
    let rms_eps = fields.number("rms_norm_eps");
    let (vocab_size, hidden, layers, heads) = (vocab_size?, hidden?, layers?, heads?);
    let kv_heads = match kv_heads? {
        Some(kv_heads) => kv_heads,
        None if absent.kv_heads => heads,
        // Its default in the class is a number of one published model.
        None => return Err(fields.missing("num_key_value_heads", "a positive integer")),
    };
    let head_dim = match head_dim? {
        Some(head_dim) => head_dim,
        None if !absent.head_dim => {
            return Err(fields.refuse(
                "head_dim",
                "a positive integer",
                "nothing",
                Some("this family has no width that follows from the others; write the one of q_norm.weight"),
            ));
        }
        None if hidden % heads == 0 => hidden / heads,
        None => {
            return Err(fields.refuse(
                "hidden_size",
                format!("a multiple of num_attention_heads ({heads}), as head_dim is not given"),
                hidden.to_string(),
                None,
            ));
        }
    };
    let (ffn, max_positions) = (ffn?, max_positions?);
    let rms_eps = match rms_eps? {
        Some(eps) => eps as f32,
        None => return Err(fields.missing("rms_norm_eps", "a small positive number")),
    };
    Ok(Sizes { vocab_size, hidden, layers, heads, kv_heads, head_dim, ffn, max_positions, rms_eps })
}
