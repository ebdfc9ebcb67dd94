//! Matrix products: of f32 factors, with weights held in bf16, of bf16 factors.

pub(super) mod bf16;
pub(super) mod f32;
pub(super) mod kernel;
mod pack;
mod tile;
