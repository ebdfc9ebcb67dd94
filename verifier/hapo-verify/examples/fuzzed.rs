//! Times judgements of mutated pairs under every policy, and the memory that they take.
//!
//! `cargo run --release -p hapo-verify --example fuzzed -- [N] [SEED]`. The pairs are the rows of `tests/tables`, in which
//! tokens are doubled, deleted, swapped, nested and taken from one another. Prints quantiles of the CPU time of a call,
//! the twelve slowest pairs, and the highest memory of the process, where Linux tells it.
#![expect(clippy::print_stdout, reason = "a command-line tool")]

use hapo_verify::{BENCHMARK, Grader, MATH, TRAINING, grade};
use std::time::Instant;

const TABLES: [&str; 4] = [
    include_str!("../tests/it/tables/formulas.md"),
    include_str!("../tests/it/tables/numbers.md"),
    include_str!("../tests/it/tables/meaning.md"),
    include_str!("../tests/it/tables/policies.md"),
];
const HARD: [&str; 14] = [
    "\\sum_{k=1}^{2000}",
    "\\prod_{k=1}^{999}",
    "\\sum_{n=1}^{\\infty}\\frac{1}{n^2}",
    "\\lim_{x\\to 0}\\frac{\\sin x}{x}",
    "\\frac{1}{",
    "}",
    "^{9}",
    "!",
    "\\int_0^1 ",
    "\\sqrt{",
    "\\binom{5000}{2500}",
    "\\lim_{n\\to\\infty}",
    "10^{10}",
    "(a+b+c)^{40}",
];

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Commands, numbers and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| {
            if first.is_ascii_digit() { c.is_ascii_digit() } else { c.is_ascii_alphabetic() }
        };
        let tail = &rest[first.len_utf8()..];
        let run = if first == '\\' || first.is_ascii_digit() {
            tail.find(|c| !word(c)).unwrap_or(tail.len())
        } else {
            0
        };
        let (token, after) = rest.split_at(first.len_utf8() + run);
        found.push(token);
        rest = after;
    }
    found
}

fn mutated(seeds: &[&str], random: &mut Random) -> String {
    let mut text = tokens(seeds[random.below(seeds.len())]);
    for _ in 0..random.below(6) {
        let at = random.below(text.len());
        let other = tokens(seeds[random.below(seeds.len())]);
        match random.below(6) {
            0 if !text.is_empty() => drop(text.remove(at)),
            1 => text.insert(at, HARD[random.below(HARD.len())]),
            2 => drop(text.splice(at..at, other)),
            3 if !text.is_empty() => text.insert(at, text[random.below(text.len())]),
            4 if text.len() < 2_000 => text.extend_from_within(..),
            _ if !text.is_empty() => {
                let to = random.below(text.len());
                text.swap(at, to);
            }
            _ => {}
        }
    }
    text.concat()
}

/// Slowest pairs that are printed.
const SHOWN: usize = 12;

/// Seconds between two updates of that clock.
const TICK: f64 = 0.004;

/// Nanoseconds of CPU time of this thread, where Linux tells it.
fn cpu_time() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let n: usize = args.next().map_or(Ok(1_000_000), |it| it.parse())?;
    let mut random = Random(args.next().map_or(Ok(7), |it| it.parse())?);
    let rows = TABLES.iter().flat_map(|it| it.lines()).filter(|it| it.starts_with("| `"));
    let seeds: Vec<&str> = rows.flat_map(|it| it.split('`').skip(1).step_by(2)).collect();
    let (mut times, mut slowest) = (Vec::with_capacity(n), Vec::new());
    for index in 0..n {
        let grader = [&MATH, &BENCHMARK, &TRAINING][index % 3];
        let (gold, answer) = (mutated(&seeds, &mut random), mutated(&seeds, &mut random));
        let completion = format!("so \\boxed{{{answer}}}");
        let (before, begun) = (cpu_time(), Instant::now());
        let judgement = grade(grader, &gold, &completion);
        let wall = begun.elapsed().as_secs_f64();
        // The clock of a thread ticks; a call within a tick is timed by the wall.
        let spent = match cpu_time().zip(before) {
            Some((now, then)) if wall > TICK => wall.min((now - then) as f64 * 1e-9 + TICK),
            _ => wall,
        };
        times.push(spent);
        if spent > slowest.last().map_or(0.0, |(seconds, _)| *seconds) || slowest.len() < SHOWN {
            let name = grader.name();
            slowest.push((spent, format!("{name} {gold:?} {answer:?}: {}", judgement.reason)));
            slowest.sort_by(|(a, _), (b, _)| f64::total_cmp(b, a));
            slowest.truncate(SHOWN);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |q: f64| 1e3 * times[((times.len() - 1) as f64 * q) as usize];
    println!(
        "{n} pairs, ms: p50 {:.3}, p99 {:.3}, p99.9 {:.3}, p99.99 {:.3}, maximum {:.3}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0)
    );
    for (seconds, pair) in &slowest {
        println!("{:.1} ms: {pair}", 1e3 * seconds);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(line) = status.lines().find(|it| it.starts_with("VmHWM")) {
        println!("memory: {line}; of it {} kB for the times", n * 8 / 1024);
    }
    Ok(())
}
