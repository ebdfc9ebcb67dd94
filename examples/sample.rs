//! Samples a model, grades what it says, and tells how sure one can be of the score.
//!
//! `cargo run --release --example sample [FOLDER OF A MODEL]`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::data::find_template;
use hapo::eval::{EvalModel, EvalSettings, Judge, average, benchmark, evaluate};
use hapo::sampler::{ChatFormat, Decoding, KvMemory, Truncation};
use hapo::train::{BUILTIN_BASE, open_model};
use hapo::verify::MATH;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| BUILTIN_BASE.to_owned());
    let loaded = open_model(&path, 256, 2)?;
    let eos = loaded.model.config().eos.clone();
    let chat_format = ChatFormat::new(loaded.tokenizer, find_template("chatml")?, &eos)?;

    let settings = EvalSettings {
        completions: 4,
        decoding: Decoding::Sample { temperature: 0.6, truncation: Truncation::NONE },
        max_new_tokens: 96,
        max_sequences: 64,
        kv_memory: KvMemory::Auto,
        seed: 0,
        draws: 0,
    };
    let problems = benchmark("multiply-6").ok_or("no such benchmark")?.problems(25)?;
    let model = EvalModel { model: &loaded.model, chat_format: &chat_format };
    let judge = Judge::new(&problems, &MATH, None)?;
    let results = evaluate(model, &judge, settings)?;
    for it in results.iter().take(3) {
        println!("{}: {} of {} right", it.id, it.correct(), it.completions.len());
        println!("  {}", it.completions[0].text);
    }
    println!("avg@4 {:?}", average(&results, settings.seed));
    Ok(())
}
