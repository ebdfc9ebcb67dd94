//! The reference models on the CPU.

use hapo_kernels::{Compute, Cpu, multiplies_bf16};
use hapo_model::Model;
use hapo_testing::reference::load;

pub(crate) const MODELS: [&str; 4] =
    ["tiny-qwen2", "tiny-qwen2-bf16-sharded", "tiny-qwen3", "tiny-llama3"];

pub(crate) fn model(name: &str, threads: usize) -> Model<Cpu> {
    computing(name, threads, Compute::F32)
}

pub(crate) fn computing(name: &str, threads: usize, compute: Compute) -> Model<Cpu> {
    load(name, Cpu::computing(threads, compute).unwrap())
}

/// The roundings that this CPU has.
pub(crate) fn computes() -> impl Iterator<Item = Compute> {
    [Some(Compute::F32), multiplies_bf16().then_some(Compute::Bf16)].into_iter().flatten()
}
