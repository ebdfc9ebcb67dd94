//! The reference models on the CPU.

#![allow(
    dead_code,
    reason = "every test binary uses its own part, so no expectation holds in all"
)]

use hapo_kernels::Cpu;
use hapo_model::{Model, rope_frequencies};
use hapo_testing::reference::load;

pub(crate) const MODELS: [&str; 4] = [
    "tiny-qwen2",
    "tiny-qwen2-bf16-sharded",
    "tiny-qwen3",
    "tiny-llama3",
];

pub(crate) fn model(name: &str, threads: usize) -> Model<Cpu> {
    let mut model = load(name, Cpu::new(threads).unwrap());
    if name.contains("bf16") {
        // The reference model was cast with its buffers, `model.to(bfloat16).float()`, which rounds the
        // rotary frequencies along with the weights.
        let rounded: Vec<f32> = rope_frequencies(model.config())
            .into_iter()
            .map(|f| half::bf16::from_f32(f).to_f32())
            .collect();
        model.set_rope_frequencies(&rounded).unwrap();
    }
    model
}
