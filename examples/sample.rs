//! Samples a model, grades what it says, and tells how sure one can be of the score.
//!
//! `cargo run --release --example sample [FOLDER OF A MODEL]`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::data::find_template;
use hapo::eval::{
    Completions, LocalModel, Plan, ProblemSet, PromptForm, Sampling, average, benchmark,
};
use hapo::sampler::ChatFormat;
use hapo::train::{BUILTIN_BASE, open_model};
use hapo::verify::{Extracting, Extraction, MATH};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| BUILTIN_BASE.to_owned());
    let loaded = open_model(&path, 256, 2)?;
    let eos = loaded.model.config().eos.clone();
    let chat_format = ChatFormat::new(loaded.tokenizer, find_template("chatml")?, &eos)?;

    let dataset = benchmark("multiply-6").ok_or("no such benchmark")?.problems(25)?;
    let set = ProblemSet { name: "multiply-6".to_owned(), dataset, completions: 4, draws: 0 };
    let sampling = Sampling::new(path, PromptForm::Template("chatml".to_owned()));
    let plan = Plan::new(vec![set], sampling, Extracting::new(&MATH, Extraction::Announced));
    let mut completions = Completions::of_evaluation(&plan, None)?;
    completions.sample(LocalModel { model: &loaded.model, chat_format: &chat_format })?;
    let results = completions.results().remove(0);
    for result in results.iter().take(3) {
        println!("{}: {} of {} right", result.id, result.correct(), result.completions.len());
        println!("  {}", result.completions[0].text);
    }
    println!("avg@4 {:?}", average(&results, 0));
    Ok(())
}
