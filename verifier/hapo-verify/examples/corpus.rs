//! Grades a corpus of labelled answers and reports where the labels differ: a tool for developing the rules.
//!
//! `cargo run --release --example corpus -- [--show mv|oat|expected] [--grader math|oat] [--extraction any] FILE.jsonl …`
//! Each line: `gold` or `gold_parts`, `pred` or `pred_parts` (`[[string, repeat], …]`), `form`, `labels`, `expected`,
//! `tier`, `kind`, `budget_ms`.
#![expect(clippy::print_stdout, reason = "a command-line tool")]

use hapo_verify::{Extracting, Extraction, Gold, Verdict, grader};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut show = String::new();
    let mut slow_ms = 2.0;
    let mut grader_name = String::from("math");
    let mut extraction = Extraction::Any;
    let mut files = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--show" => show = args.next().unwrap_or_default(),
            "--slow" => slow_ms = args.next().unwrap_or_default().parse()?,
            "--extraction" => {
                let name = args.next().unwrap_or_default();
                let named = Extraction::named(&name);
                extraction = named.ok_or("--extraction: boxed, announced or any")?;
            }
            "--grader" => grader_name = args.next().unwrap_or_default(),
            _ => files.push(arg),
        }
    }
    let grader = Extracting::new(grader(&grader_name)?, extraction);
    for file in files {
        let mut agree: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut times = Vec::new();
        for line in std::fs::read_to_string(&file)?.lines() {
            let case: Value = serde_json::from_str(line)?;
            let gold = text(&case, "gold");
            let answer = text(&case, "pred");
            let boxed = case["form"].as_str().is_some_and(|it| it != "completion");
            let completion = if boxed { format!("\\boxed{{{answer}}}") } else { answer.clone() };
            let start = Instant::now();
            let result = Gold::new(&grader, &gold).map(|it| it.judge(&completion));
            let ms = start.elapsed().as_secs_f64() * 1e3;
            times.push(ms);
            if show == "extracted" {
                let extracted = result.as_ref().ok().and_then(|it| it.extracted.clone());
                println!("{}", serde_json::json!({"id": case["id"], "extracted": extracted}));
            }
            let correct = result.as_ref().is_ok_and(|it| it.verdict == Verdict::Correct);
            let labels = [
                ("mv", &case["labels"]["mv"]),
                ("oat", &case["labels"]["oat"]),
                ("oat_fast", &case["labels"]["oat_fast"]),
                ("expected", &case["expected"]),
                ("intended", &case["intended"]),
                ("adv_mv", &case["graders"]["mv"]["label"]),
            ];
            let tier = case["tier"].as_str().unwrap_or("-");
            for (name, label) in labels {
                let Some(label) = label.as_bool() else {
                    continue;
                };
                for key in [name.to_owned(), format!("{name} [{tier}]")] {
                    let slot = agree.entry(key).or_default();
                    slot.0 += usize::from(label == correct);
                    slot.1 += 1;
                }
                if show == name && label != correct {
                    let shown = case["answer"].as_str().unwrap_or(&answer);
                    println!(
                        "{tier} {} want {label} | {gold} | {} | {} | {}",
                        case["kind"].as_str().unwrap_or(""),
                        shown.chars().take(160).collect::<String>().replace('\n', "\\n"),
                        case["wrap"].as_str().unwrap_or(""),
                        result.as_ref().map_or_else(ToString::to_string, |it| format!(
                            "{} | gold answer {} | answer {} from {:?} | {}",
                            it.verdict.name(),
                            it.gold_read,
                            it.answer_read,
                            it.extracted
                                .as_deref()
                                .map(|it| it.chars().take(80).collect::<String>()),
                            it.reason
                        ))
                    );
                }
            }
            let budget = case["budget_ms"].as_f64().unwrap_or(50.0);
            if ms > budget.min(slow_ms) {
                println!("SLOW {ms:.1} ms (budget {budget}) {} {}", case["kind"], case["id"]);
                println!("   {gold:.60} | {answer:.100}");
            }
        }
        for (name, (n, of)) in &agree {
            println!("{name}: {n}/{of} = {:.2} %", 100.0 * *n as f64 / *of as f64);
        }
        times.sort_by(f64::total_cmp);
        let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize] * 1e3;
        let mean = times.iter().sum::<f64>() / times.len() as f64 * 1e3;
        println!(
            "{file}: mean {mean:.1} µs, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} µs\n",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
    Ok(())
}

fn text(case: &Value, key: &str) -> String {
    if let Some(it) = case[key].as_str() {
        return it.to_owned();
    }
    let parts = case[format!("{key}_parts")].as_array();
    let part = |it: &Value| {
        it[0].as_str().unwrap_or_default().repeat(it[1].as_u64().unwrap_or(1) as usize)
    };
    parts.map(|it| it.iter().map(part).collect()).unwrap_or_default()
}
