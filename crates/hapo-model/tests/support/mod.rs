//! The reference models on the CPU.

#![allow(dead_code, reason = "every test binary uses its own part, so no expectation holds in all")]

use hapo_kernels::Cpu;
use hapo_model::Model;
use hapo_testing::reference::load;

pub(crate) const MODELS: [&str; 4] =
    ["tiny-qwen2", "tiny-qwen2-bf16-sharded", "tiny-qwen3", "tiny-llama3"];

pub(crate) fn model(name: &str, threads: usize) -> Model<Cpu> {
    load(name, Cpu::new(threads).unwrap())
}
