//! One decoder layer, forward and backward, and its buffers.

mod pass;
mod saved;

pub(crate) use pass::{AttentionArgs, BackwardPass, LayerPass};
pub(crate) use saved::{LayerActivations, LayerGradients, Scratch};
