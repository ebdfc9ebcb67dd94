//! Tests of `hapo-model` as its users see it, in one program.

mod bf16;
mod families;
mod folder;
mod folder_config;
mod gguf;
mod lora;
mod losses;
mod memory;
mod packed;
mod reference;
mod support;
mod threads;
mod tokenizer;
