//! Every recorded answer against the second reference, and its slopes against central differences.

use std::path::{Path, PathBuf};

use lossproof_reference::{Case, Row, advantages, cases, loss, mixing_schedule, shaped_rewards};
use serde_json::Value;

const AGREE: f64 = 1e-13;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(parts) => parts.iter().flat_map(numbers).collect(),
        Value::Null => Vec::new(),
        one => vec![one.as_f64().expect("a number")],
    }
}

fn close(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: one number for each");
    let scale = expected.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= AGREE * scale, "{what}: number {i}: {a} and {b}");
    }
}

/// The recorded answer of a case, and of each registered variant with its changes of hyperparameters.
fn expectations(case: &Case) -> Vec<(Case, Value, String)> {
    let mut all = vec![(case.clone(), case.json["expect"].clone(), case.id.clone())];
    for (name, variant) in case.json["variants"].as_object().into_iter().flatten() {
        let changed = case.with_hyper(&variant["hyper"]);
        all.push((changed, variant["expect"].clone(), format!("{} ({name})", case.id)));
    }
    all
}

#[test]
fn losses_and_slopes_are_the_recorded_ones_under_every_cut() {
    let mut compared = 0;
    for case in cases(&folder()).iter().filter(|case| case.json.get("pair").is_none()) {
        if case.kind != "loss" || case.field("logits").is_some() {
            continue;
        }
        for (case, expect, what) in expectations(case) {
            let rows = case.rows();
            let at: Vec<Vec<f64>> = rows.iter().map(|row| row.logp.clone()).collect();
            for (cut, steps) in &case.cuts {
                let got = loss(&case, &rows, steps, &at);
                close(&got.grad.concat(), &numbers(&expect["grad"]), &format!("{what} [{cut}]"));
                if !expect["grad_entropy"].is_null() {
                    close(&got.by_entropy.concat(), &numbers(&expect["grad_entropy"]), &what);
                }
                let value = if expect["loss"].is_null() { "surrogate" } else { "loss" };
                close(&[got.value], &numbers(&expect[value]), &what);
                compared += 1;
            }
        }
    }
    assert!(compared > 400, "{compared} answers");
}

#[test]
fn slopes_are_central_differences() {
    let mut compared = 0;
    for case in cases(&folder()).iter().filter(|case| ["loss", "law"].contains(&case.kind.as_str()))
    {
        let steps = case.cuts.values().next().expect("a cut");
        if case.field("logits").is_some() {
            continue;
        }
        for (case, _, what) in expectations(case) {
            let rows = case.rows();
            let at: Vec<Vec<f64>> = rows.iter().map(|row| row.logp.clone()).collect();
            let grad = loss(&case, &rows, steps, &at).grad;
            let size = grad.concat().iter().fold(1e-3_f64, |most, x| most.max(x.abs()));
            for (i, row) in rows.iter().enumerate() {
                for t in 0..row.logp.len() {
                    let h = 1e-5;
                    let mut moved = at.clone();
                    moved[i][t] = at[i][t] + h;
                    let above = loss(&case, &rows, steps, &moved).value;
                    moved[i][t] = at[i][t] - h;
                    let below = loss(&case, &rows, steps, &moved).value;
                    let slope = (above - below) / (2.0 * h);
                    let apart = (slope - grad[i][t]).abs();
                    assert!(
                        apart < 1e-7 * size.max(1.0),
                        "{what}: {i}, {t}: {slope} {}",
                        grad[i][t]
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 4000, "{compared} slopes");
}

/// A law's two calls agree: sequences carried back to their places, each copy added.
#[test]
fn laws_hold() {
    let mut held = 0;
    for case in cases(&folder()).iter().filter(|case| case.kind == "law") {
        let rows = case.rows();
        let at =
            |rows: &[Row]| -> Vec<Vec<f64>> { rows.iter().map(|row| row.logp.clone()).collect() };
        let whole: Vec<usize> = (0..rows.len()).collect();
        let uncut = [vec![vec![whole.clone()]]];
        let first = loss(case, &rows, &uncut, &at(&rows));
        let pair = &case.json["pair"];
        let select = pair
            .get("select")
            .map_or_else(|| whole, |it| numbers(it).iter().map(|i| *i as usize).collect());
        let mut others: Vec<Row> = select.iter().map(|i| rows[*i].clone()).collect();
        if let Some(groups) = pair["with"].get("group") {
            others
                .iter_mut()
                .zip(numbers(groups))
                .for_each(|(row, group)| row.group = group as u64);
        }
        for (cut, steps) in &case.cuts {
            let all: Vec<usize> = (0..others.len()).collect();
            let steps = if pair.get("steps").is_some() { &vec![vec![vec![all]]] } else { steps };
            let second = loss(case, &others, steps, &at(&others));
            let mut back: Vec<Vec<f64>> =
                rows.iter().map(|row| vec![0.0; row.logp.len()]).collect();
            for (j, i) in select.iter().enumerate() {
                back[*i].iter_mut().zip(&second.grad[j]).for_each(|(sum, slope)| *sum += slope);
            }
            close(&back.concat(), &first.grad.concat(), &format!("{} [{cut}]", case.id));
            held += 1;
        }
    }
    assert!(held > 40, "{held} laws");
}

#[test]
fn temperature_divides_the_logits_of_both_policies() {
    let all = cases(&folder());
    let case = all.iter().find(|case| case.id == "temperature/both").expect("case 34");
    let tokens: Vec<Vec<f64>> = case.field("tokens").unwrap().iter().map(numbers).collect();
    let temperature = case.number("temperature").unwrap();
    let log_softmax = |name: &str| -> Vec<Vec<Vec<f64>>> {
        let of_token = |logits: &Value| {
            let scaled: Vec<f64> = numbers(logits).iter().map(|x| x / temperature).collect();
            let total = scaled.iter().map(|x| x.exp()).sum::<f64>().ln();
            scaled.iter().map(|x| x - total).collect::<Vec<f64>>()
        };
        let of_row = |row: &Value| row.as_array().unwrap().iter().map(of_token).collect();
        case.field(name).unwrap().iter().map(of_row).collect()
    };
    let (new, old) = (log_softmax("logits"), log_softmax("old_logits"));
    let mut rows = case.rows();
    for (i, row) in rows.iter_mut().enumerate() {
        let chosen = |of: &[Vec<f64>]| -> Vec<f64> {
            of.iter().zip(&tokens[i]).map(|(logs, token)| logs[*token as usize]).collect()
        };
        (row.logp, row.old) = (chosen(&new[i]), chosen(&old[i]));
    }
    let at: Vec<Vec<f64>> = rows.iter().map(|row| row.logp.clone()).collect();
    let got = loss(case, &rows, &case.cuts["1x4"], &at);
    let mut by_logits = Vec::new();
    for i in 0..rows.len() {
        for (t, logs) in new[i].iter().enumerate() {
            for (id, log) in logs.iter().enumerate() {
                let hit = if id as f64 == tokens[i][t] { 1.0 } else { 0.0 };
                by_logits.push(got.grad[i][t] * (hit - log.exp()) / temperature);
            }
        }
    }
    close(&by_logits, &numbers(&case.json["expect"]["grad"]), &case.id);
    close(&[got.value], &numbers(&case.json["expect"]["loss"]), &case.id);
}

#[test]
fn advantages_rewards_and_schedules_are_the_recorded_ones() {
    let mut compared = 0;
    for case in &cases(&folder()) {
        if case.json["expect"]["refused"] == true {
            assert!(
                advantages(case).unwrap_err().contains("expected a finite number"),
                "{}",
                case.id
            );
            compared += 1;
            continue;
        }
        if case.json.get("sum_to_zero").is_some() || case.json.get("pair").is_some() {
            continue;
        }
        for (case, expect, what) in expectations(case) {
            let (got, key) = match case.kind.as_str() {
                "advantage" => (advantages(&case).unwrap(), "advantage"),
                "reward" => (shaped_rewards(&case).concat(), "reward"),
                "schedule" => {
                    let steps = numbers(&case.json["steps"]);
                    (steps.iter().map(|at| mixing_schedule(&case, *at)).collect(), "value")
                }
                _ => continue,
            };
            close(&got, &numbers(&expect[key]), &what);
            if what.contains("constant-group") {
                assert!(got.iter().all(|a| *a == 0.0), "{what}: exactly 0");
            }
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared} answers");
}
