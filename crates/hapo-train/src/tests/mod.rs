//! Tests of what is private to the crate.

mod invariance;

use crate::pack::Batching;

pub(crate) fn batches_of(micro_batch_tokens: usize) -> Batching {
    Batching { micro_batch_tokens, inverse_temperature: 1.0 }
}
