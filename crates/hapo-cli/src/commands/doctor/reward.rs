//! A reward function, program or server, asked about answers whose verdict is known.

use std::time::{Duration, Instant};

use anyhow::Result;
use hapo_core::{Refusal, excerpt};
use hapo_net::reward::{OnFailure, OwnReward, RewardSettings, is_own};
use hapo_verify::{Gold, Problem, Reason, Verdict};
use serde_json::{Map, Value};

use super::Diagnosis;
use super::record::{GOLDS, range, rows};

/// Kind, gold answer, verdict and completion.
const PAIRS: &str = include_str!("pairs.tsv");
const CALL: Duration = Duration::from_secs(1);
const IN_ALL: Duration = Duration::from_mins(1);

struct Pair {
    kind: &'static str,
    gold: &'static str,
    right: bool,
    completion: String,
}

pub(super) fn examine(target: &str) -> Result<Diagnosis> {
    let name = if is_own(target) { target.to_owned() } else { format!("python:{target}") };
    let pairs = pairs();
    let mut found = Diagnosis { at: target.to_owned(), ..Diagnosis::default() };
    let until = Instant::now() + IN_ALL;
    let mut asked = Asked { name, talks: false, beside: &[], until };
    let mut paid = ask(&asked, pairs.iter())?;
    if paid.iter().all(Result::is_err) {
        asked.talks = true;
        let again = ask(&asked, pairs.iter())?;
        asked.talks = again.iter().any(Result::is_ok);
        paid = if asked.talks { again } else { paid };
    }
    judge(&pairs, &paid, &mut found);
    if paid.iter().all(Result::is_err) {
        return Ok(found);
    }
    let mut turned = ask(&asked, pairs.iter().rev())?;
    turned.reverse();
    asked.beside = &["\\boxed{0}", ""];
    let beside = ask(&asked, pairs.iter())?;
    let (reached, all) = (paid.len().min(turned.len()).min(beside.len()), pairs.len());
    let differs = |(one, other): (&Paid, &Paid)| one.as_ref().ok() != other.as_ref().ok();
    let first = |others: &[Paid]| paid.iter().zip(others).position(differs);
    // Asked from the end on, its first are missing where the time was over.
    let turned_first = first(&turned).filter(|_| turned.len() == paid.len());
    let depends = turned_first.map(|at| (at, "what was asked before"));
    let depends = depends.or(first(&beside).map(|at| (at, "what else is in its batch")));
    if let Some((at, on)) = depends {
        let completion = excerpt(&pairs[at].completion, 40);
        found.add("reward-fails", format!("The reward of `{completion}` depends on {on}."));
    } else if reached < all {
        found.skip(format!("{} of {all} answers: the minute was over", all - reached));
    } else {
        found.held.push(format!("neither order nor batch of {all} answers changes a reward"));
    }
    asked.beside = &[];
    let answered = pairs.iter().zip(&paid).filter(|it| it.1.is_ok()).map(|it| it.0).collect();
    look_at_memory(&asked, answered, &mut found)?;
    Ok(found)
}

fn pairs() -> Vec<Pair> {
    let pair = |row: Vec<&'static str>| Pair {
        kind: row[0],
        gold: row[1],
        right: row[2] == "right",
        completion: row[3].replace("\\n", "\n"),
    };
    rows(PAIRS).map(pair).collect()
}

type Paid = Result<f64, String>;

struct Asked {
    name: String,
    /// About conversations, not texts.
    talks: bool,
    /// Completions in the same call, as TRL gives a function many.
    beside: &'static [&'static str],
    until: Instant,
}

impl Asked {
    /// The reward as a grader; a process of its own.
    fn start(&self) -> Result<OwnReward> {
        let settings = RewardSettings {
            timeout: CALL,
            start_timeout: IN_ALL / 3,
            workers: 1,
            on_failure: OnFailure::Wrong,
            ..RewardSettings::default()
        };
        let failed = |it: Refusal| Refusal::machine(it.to_string());
        Ok(OwnReward::new(&self.name, settings).map_err(failed)?)
    }

    fn pay(&self, reward: &OwnReward, gold: &str, completion: &str) -> Paid {
        let golds = GOLDS.iter().map(|it| ((*it).to_owned(), gold.into()));
        let mut row: Map<String, Value> = golds.collect();
        row.insert("hapo.conversation".to_owned(), self.talks.into());
        if !self.beside.is_empty() {
            row.insert("hapo.beside".to_owned(), self.beside.into());
        }
        let row = Value::from(row).to_string();
        let problem = Problem { text: "What is asked?", golds: &[gold], row: Some(&row) };
        let gold = Gold::of(reward, &problem).expect("a reward reads every gold answer");
        let judgement = gold.judge(completion);
        let failed = judgement.verdict == Verdict::Unparsable(Reason::Grader);
        let reward = judgement.reward.filter(|_| !failed);
        reward.ok_or_else(|| judgement.reason.to_string())
    }
}

/// The rewards of as many pairs as the time allows; of the first eight where it answers none of them.
fn ask<'a>(asked: &Asked, pairs: impl Iterator<Item = &'a Pair>) -> Result<Vec<Paid>> {
    let reward = asked.start()?;
    let mut paid = Vec::new();
    for it in pairs.take_while(|_| Instant::now() < asked.until) {
        paid.push(asked.pay(&reward, it.gold, &it.completion));
        if paid.len() == 8 && paid.iter().all(Result::is_err) {
            break;
        }
    }
    Ok(paid)
}

/// Asks about long answers that never come twice. The first half fills what is kept of the latest few.
fn look_at_memory(asked: &Asked, pairs: Vec<&Pair>, found: &mut Diagnosis) -> Result<()> {
    const HALF: usize = 400;
    const LONG: usize = 8 << 10;
    let reward = asked.start()?;
    if reward.resident_bytes().is_none() {
        found.skip("memory: it is not a program of this machine");
        return Ok(());
    }
    let steps = "so we go on, ".repeat(LONG / 13);
    let mut held = [0; 2];
    let mut endless = pairs.into_iter().cycle().enumerate();
    for half in &mut held {
        for (number, pair) in endless.by_ref().take(HALF) {
            let completion = format!("{number} {steps}\n{}", pair.completion);
            if Instant::now() > asked.until || asked.pay(&reward, pair.gold, &completion).is_err() {
                found.skip(format!("memory: it does not answer {} long answers in time", 2 * HALF));
                return Ok(());
            }
        }
        *half = reward.resident_bytes().unwrap_or_default();
    }
    let (grown, said) = (held[1].saturating_sub(held[0]), (HALF * LONG) as u64);
    let what = format!("memory grew by {} MB", grown / 1_000_000);
    let asked = format!("{HALF} answers of 8 kB, after {HALF} others");
    if grown > said / 2 {
        found.add("reward-grows", format!("Its {what} in {asked}: it keeps what it is given."));
    } else {
        found.held.push(format!("{what} in {asked}"));
    }
    Ok(())
}

fn judge(pairs: &[Pair], paid: &[Paid], found: &mut Diagnosis) {
    let shown = |it: &Pair| format!("`{}` for {}", excerpt(&it.completion, 60), it.gold);
    if let Some((pair, Err(why))) = pairs.iter().zip(paid).find(|it| it.1.is_err()) {
        let n = paid.iter().filter(|it| it.is_err()).count();
        let (all, first, why) = (paid.len(), shown(pair), excerpt(why, 200));
        let what = format!("No reward for {n} of {all} answers: {first}: {why}.");
        found.add("reward-fails", what);
    }
    let known = pairs.iter().zip(paid).filter_map(|(pair, it)| Some((pair, *it.as_ref().ok()?)));
    let known: Vec<(&Pair, f64)> = known.collect();
    if known.is_empty() {
        return;
    }
    let (low, high) = range(known.iter().map(|it| it.1));
    if low >= high {
        let what = format!("It pays {low} for every answer, right or wrong.");
        return found.add("nothing-learned", what);
    }
    for (name, right) in [("right-unpaid", true), ("wrong-paid", false)] {
        let is_bad =
            |it: &&(&Pair, f64)| it.0.right == right && (it.1 > f64::midpoint(low, high)) != right;
        let bad: Vec<&Pair> = known.iter().filter(is_bad).map(|it| it.0).collect();
        let all = known.iter().filter(|it| it.0.right == right).count();
        let words = if right { "right answers are paid nothing" } else { "wrong answers are paid" };
        let said = format!("{} of {all} {words}", bad.len());
        let mut kinds: Vec<&str> = bad.iter().map(|it| it.kind).collect();
        kinds.dedup();
        let examples: Vec<String> = bad.iter().take(3).map(|it| shown(it)).collect();
        if bad.is_empty() {
            found.held.push(said);
        } else {
            found.add(name, format!("{said} ({}): {}.", kinds.join(", "), examples.join("; ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use hapo_verify::{Extracting, Extraction, TRAINING, grade};

    use super::*;

    #[test]
    fn the_verdicts_of_the_answers_are_those_of_the_default_grader() {
        let grader = Extracting::new(&TRAINING, Extraction::Announced);
        for it in pairs() {
            let verdict = grade(&grader, it.gold, &it.completion).verdict;
            assert_eq!(verdict.is_correct(), it.right, "{} for {}", it.completion, it.gold);
        }
    }
}
