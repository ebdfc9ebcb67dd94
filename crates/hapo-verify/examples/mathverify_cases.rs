//! Runs Math-Verify's own test cases, each under its configuration: a tool for developing the rules.
//!
//! `cargo run --release --example mathverify_cases -- FILE.jsonl …`; each line has `gold`, `pred`, `expected` (or
//! `actual`) and `config`.
#![expect(clippy::print_stdout, reason = "a command-line tool")]

use hapo_verify::{Fallback, Math, MathOptions, Search, Targets, Tries, Variables};
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in std::env::args().skip(1) {
        let (mut n_right, mut n_all) = (0_u32, 0_u32);
        for line in std::fs::read_to_string(&file)?.lines() {
            let case: Value = serde_json::from_str(line)?;
            let Some(expected) = case["expected"].as_bool() else {
                continue;
            };
            let (Some(gold), Some(answer)) = (case["gold"].as_str(), case["pred"].as_str()) else {
                continue;
            };
            let grader = Math::new(options(&case["config"]));
            let result = grader.prepare_text(gold).map(|it| it.judge(answer));
            let correct = result.as_ref().is_ok_and(|it| it.verdict.is_correct());
            n_all += 1;
            n_right += u32::from(correct == expected);
            if correct != expected {
                println!(
                    "want {expected} | {gold:.300} | {answer:.500}\n   {result:?}\n   {}",
                    case["config"]
                );
            }
        }
        println!(
            "{file}: {n_right}/{n_all} = {:.2} %",
            100.0 * f64::from(n_right) / f64::from(n_all)
        );
    }
    Ok(())
}

fn options(config: &Value) -> MathOptions {
    let mut targets = Targets {
        latex: Search::Off,
        expressions: Search::Off,
        boxed_priority: None,
        ..Targets::default()
    };
    for target in config["targets"].as_array().into_iter().flatten() {
        let anywhere = target["try_extract_without_anchor"].as_bool().unwrap_or(true);
        let search = if anywhere { Search::Anywhere } else { Search::AfterAnchor };
        match target["type"].as_str() {
            Some("latex") => {
                targets.latex = search;
                let priority = target["boxed_match_priority"].as_i64().unwrap_or(50);
                targets.boxed_priority = u32::try_from(priority).ok();
            }
            Some("expr") => {
                targets.expressions = search;
            }
            Some("string") => {
                targets.strings = match target["strings"].as_array() {
                    Some(all) => {
                        all.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect()
                    }
                    None => ["A", "B", "C", "D"].map(str::to_owned).to_vec(),
                };
            }
            _ => {}
        }
    }
    let mut options =
        MathOptions { gold_targets: targets.clone(), targets, ..MathOptions::default() };
    if let Some(places) = config["float_rounding"].as_u64() {
        options.float_rounding = places as u32;
    }
    if config["strict"] == false {
        options.variables = Variables::ByPosition;
    }
    options.allow_set_relation = config["allow_set_relation_comp"] == true;
    if config["fallback_mode"] == "no_fallback" {
        options.fallback = Fallback::Nothing;
    }
    if config["extraction_mode"] == "first_match" {
        options.tries = Tries::First;
    }
    options
}
