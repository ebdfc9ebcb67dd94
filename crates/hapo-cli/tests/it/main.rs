//! Tests of `hapo-cli` as its users see it, in one program.

mod bad_input;
mod chat;
mod data;
mod determinism;
mod device;
mod docs;
mod doctor;
mod documented_commands;
mod eval;
mod faults;
mod grade;
mod handed_on;
mod lora;
mod names_and_templates;
mod new;
mod own_reward;
mod plan;
mod progress;
mod push;
mod reference;
mod robust;
mod rollouts;
mod seeing;
mod support;
mod teacher;
mod training_resume;

#[path = "../../../hapo-eval/tests/it/support.rs"]
mod server;
