//! Samples a model, grades what it says, and tells how sure one can be of the score.
//!
//! `cargo run --release --example sample [FOLDER OF A MODEL]`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::core::Truncated;
use hapo::data::find_template;
use hapo::eval::{
    Completions, LocalModel, LocalSampling, Plan, ProblemSet, PromptForm, Sampling, average,
    benchmark, draws_of,
};
use hapo::sampler::ChatFormat;
use hapo::train::{BUILTIN_BASE, open_model};
use hapo::verify::{Extracting, Extraction, MATH};

const BENCHMARK: &str = "multiply-6";

#[expect(
    clippy::default_trait_access,
    reason = "no field beside the usual ones: the type is the JSON crate's"
)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| BUILTIN_BASE.to_owned());
    let loaded = open_model(&path, 256, 2)?;
    let eos = loaded.model.config().eos.clone();
    let chat_format = ChatFormat::new(loaded.tokenizer, find_template("chatml")?, &eos)?;

    let dataset = benchmark(BENCHMARK).ok_or("no such benchmark")?.problems(25)?;
    let draws = draws_of(BENCHMARK);
    let plan = Plan {
        sets: vec![ProblemSet { name: BENCHMARK.to_owned(), dataset, completions: 4, draws }],
        sampling: Sampling {
            model: path,
            endpoint: None,
            prompt: PromptForm::Template("chatml".to_owned()),
            system: None,
            temperature: 0.6,
            top_p: 1.0,
            max_tokens: Some(96),
            seed: 0,
            extra: Default::default(),
        },
        local: LocalSampling::default(),
        completions: Some(4),
        grader: Extracting::new(&MATH, Extraction::Announced),
        other: None,
        truncated: Truncated::default(),
    };
    let mut completions = Completions::of_evaluation(&plan, None)?;
    completions.sample(LocalModel { model: &loaded.model, chat_format: &chat_format })?;
    let results = completions.results().remove(0);
    for it in results.iter().take(3) {
        println!("{}: {} of {} right", it.id, it.correct(), it.completions.len());
        println!("  {}", it.completions[0].text);
    }
    println!("avg@4 {:?}", average(&results, plan.sampling.seed));
    Ok(())
}
