//! Times the grader on one file of (gold, completion) pairs, one call at a time on one core.
//!
//! `cargo run --release --example bench -- FILE.jsonl [--repeat N]`; each line has `gold`, `completion` and `class`.
//! Prints one JSON object: per class the number of calls and mean, p50, p99, p99.9 and maximum in microseconds; and the
//! best of five rates of 100,000 pairs in one call, on one thread with `RAYON_NUM_THREADS=1`.
#![expect(clippy::print_stdout, reason = "a command-line tool")]

use hapo_verify::{MATH, grade, grade_batch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut file = String::new();
    let mut n_repeats = 1;
    while let Some(arg) = args.next() {
        if arg == "--repeat" {
            n_repeats = args.next().unwrap_or_default().parse()?;
        } else {
            file = arg;
        }
    }
    let mut cases = Vec::new();
    for line in std::fs::read_to_string(&file)?.lines() {
        let it: Value = serde_json::from_str(line)?;
        let field = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
        cases.push((field("gold"), field("completion"), field("class")));
    }
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut n_correct = 0;
    for _ in 0..n_repeats {
        for (gold, completion, class) in &cases {
            let start = Instant::now();
            let judgement = grade(&MATH, gold, completion);
            times.entry(class).or_default().push(start.elapsed().as_secs_f64() * 1e6);
            n_correct += usize::from(judgement.verdict.is_correct());
        }
    }
    let mut out = serde_json::Map::new();
    for (class, mut all) in times {
        all.sort_by(f64::total_cmp);
        let at = |q: f64| all[((all.len() - 1) as f64 * q) as usize];
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        out.insert(
            class.to_owned(),
            json!({"n": all.len(), "mean_us": mean, "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": at(1.0)}),
        );
    }
    let many = cases.iter().map(|it| (&*it.0, &*it.1)).cycle().take(100_000);
    let many: Vec<(&str, &str)> = many.collect();
    let rate = (0..5).map(|_| {
        let start = Instant::now();
        assert_eq!(grade_batch(&MATH, &many).len(), many.len());
        many.len() as f64 / start.elapsed().as_secs_f64()
    });
    out.insert("batch_per_second".to_owned(), json!(rate.fold(0.0, f64::max).round()));
    out.insert("correct".to_owned(), json!(n_correct / n_repeats));
    println!("{}", Value::Object(out));
    Ok(())
}
