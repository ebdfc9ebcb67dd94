//! Matrix products, a file for each form of the weights.

pub(super) mod bf16;
pub(super) mod f32;
pub(super) mod panels;
