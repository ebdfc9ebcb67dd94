//! The completions that a run kept, graded again by ours.

use std::collections::BTreeMap;

use hapo_core::{counted, excerpt};
use hapo_verify::{
    AnswerForm, CHOICE, EXACT, Extracting, Extraction, Gold, Grader, MATH, TRAINING, Verdict,
    find_answer,
};

use super::Diagnosis;
use super::record::{Answer, Framework, Record, range};

/// Disagreements below this share of the answers in question, or fewer, are differences of taste.
const SHARE: f64 = 0.02;
const FEWEST: usize = 3;
/// Share of problems whose most frequent answer goes on behind the gold answer.
const CUT: f64 = 0.3;

struct Graded<'a> {
    answer: &'a Answer,
    verdict: Verdict,
    /// What stands in a box or behind an announcement.
    found: Option<(AnswerForm, String)>,
    paid: Option<bool>,
}

pub(super) fn examine(record: &mut Record, found: &mut Diagnosis) {
    let (answers, run) = (std::mem::take(&mut record.answers), found.at.clone());
    let missing: Vec<&Answer> =
        answers.iter().filter(|it| it.reward.is_some_and(f64::is_nan)).collect();
    if let Some(first) = missing.first() {
        let all = counted(answers.len(), "completion has", "completions have");
        let what = format!("{} of {all} no reward (None or NaN).", missing.len());
        found.at.clone_from(&first.place);
        found.add("reward-missing", what);
    }
    let graded = grade(&answers);
    if !graded.is_empty() {
        // The graders of our own runs are ours, or were told by their user what is right.
        if record.framework != Framework::Hapo {
            disagreements(&graded, found);
        }
        cut_golds(&graded, found);
    } else if !answers.is_empty() {
        found.skip("grading again: no gold answers that are mathematics beside the completions (--data names their file)");
    }
    if record.framework != Framework::Hapo {
        count(&mut record.columns, &answers, &graded);
    }
    record.answers = answers;
    found.at = run;
}

/// The verdicts on the answers whose gold answer is mathematics.
fn grade(answers: &[Answer]) -> Vec<Graded<'_>> {
    let announced = Extracting::new(&TRAINING, Extraction::Announced);
    let finite = answers.iter().filter_map(|it| it.reward).filter(|it| it.is_finite());
    let (low, high) = range(finite);
    // Where one reward alone occurs, what is above nothing is paid; half a reward is neither.
    let is_paid = |it: f64| match it {
        _ if low >= high => Some(it > 0.0),
        _ if it >= high => Some(true),
        _ => (it <= f64::midpoint(low, high)).then_some(false),
    };
    let others: [&dyn Grader; 3] = [&MATH, &CHOICE, &EXACT];
    let mut golds: BTreeMap<&str, Option<(Gold, Vec<Gold>)>> = BTreeMap::new();
    let mut all = Vec::new();
    for answer in answers {
        let Some(text) = answer.gold.as_deref() else { continue };
        let read = || {
            // A column may hold whole solutions.
            let solution = find_answer(text, Extraction::Announced).ok();
            let gold = solution.as_ref().map_or(text, |it| &it.answer);
            let others = others.iter().filter_map(|it| Gold::new(*it, gold).ok());
            Some((Gold::new(&announced, gold).ok()?, others.collect()))
        };
        let Some((by_rule, others)) = golds.entry(text).or_insert_with(read) else { continue };
        let said = &*answer.completion;
        let found = find_answer(said, Extraction::Announced).ok();
        let found = found.map(|it| (it.form, it.answer.into_owned()));
        let paid = answer.reward.filter(|it| it.is_finite()).and_then(is_paid);
        let mut verdict = by_rule.judge(said).verdict;
        // What the run paid may be no mathematics, or stand unmarked at the end.
        if paid == Some(true) && !verdict.is_correct() {
            let answered = found.as_ref().map_or(said, |it| &it.1).trim_end().trim_end_matches('.');
            let before = answered.strip_suffix(text.trim());
            let is_text = before.is_some_and(|it| {
                it.is_empty() || found.is_none() && !it.ends_with(char::is_alphanumeric)
            });
            if is_text || others.iter().any(|it| it.judge(said).verdict.is_correct()) {
                verdict = Verdict::Correct;
            }
        }
        all.push(Graded { answer, verdict, found, paid });
    }
    all
}

fn disagreements(graded: &[Graded<'_>], found: &mut Diagnosis) {
    let among = |paid: bool, correct: bool| -> Vec<&Graded<'_>> {
        let is_it = |it: &&Graded<'_>| it.paid == Some(paid) && it.verdict.is_correct() == correct;
        graded.iter().filter(is_it).collect()
    };
    let (both, unpaid, wrong) = (among(true, true).len(), among(false, true), among(true, false));
    let said = [
        ("right-unpaid", unpaid, "right answers were paid nothing"),
        ("wrong-paid", wrong, "paid answers are wrong"),
    ];
    let before = found.findings.len();
    for (name, which, what) in said {
        let (n, all) = (which.len(), both + which.len());
        if n >= FEWEST && n as f64 >= SHARE * all as f64 {
            let examples: Vec<String> = which.iter().take(3).map(|it| example(it)).collect();
            let text = format!("{n} of {all} {what}, such as {}.", examples.join("; "));
            found.at.clone_from(&which[0].answer.place);
            found.add(name, text);
        }
    }
    let paid = graded.iter().filter(|it| it.paid.is_some()).count();
    if found.findings.len() == before && paid > 0 {
        let all = counted(paid, "completion", "completions");
        found.held.push(format!("{all} graded again: what is right was paid, and nothing else"));
    }
}

fn example(it: &Graded<'_>) -> String {
    let said = it.found.as_ref().map_or(&*it.answer.completion, |found| &found.1);
    let gold = it.answer.gold.as_deref().unwrap_or_default();
    format!("`{}` for {}", excerpt(said, 40), excerpt(gold, 40))
}

/// Gold answers that are the beginnings of what is answered most.
fn cut_golds(graded: &[Graded<'_>], found: &mut Diagnosis) {
    let mut votes: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for it in graded {
        if let (Some(gold), Some((_, answer))) = (it.answer.gold.as_deref(), &it.found) {
            let of_problem = votes.entry((&it.answer.prompt, gold)).or_default();
            *of_problem.entry(answer).or_default() += 1;
        }
    }
    let cut = votes.iter().filter_map(|((_, gold), votes)| {
        let answer = votes.iter().max_by_key(|it| it.1)?.0;
        let rest = answer.strip_prefix(gold)?;
        let goes_on = !gold.is_empty() && !rest.is_empty() && !rest.starts_with('.');
        goes_on.then(|| format!("{gold} where `{answer}` is answered"))
    });
    let cut: Vec<String> = cut.collect();
    if cut.len() >= FEWEST && cut.len() as f64 >= CUT * votes.len() as f64 {
        let (n, all, first) = (cut.len(), votes.len(), cut[..2].join("; "));
        let text = format!("{n} of {all} gold answers look cut: {first}.");
        found.add("gold-cut", text);
    }
}

/// Adds the counts that a run of ours logs, of the steps whose completions were kept.
fn count(columns: &mut hapo_run::Columns, answers: &[Answer], graded: &[Graded<'_>]) {
    let mut counts: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
    let mut count = |name, step, is_one| {
        *counts.entry(name).or_default().entry(step).or_default() += f64::from(u8::from(is_one));
    };
    for it in graded {
        let (step, form) = (it.answer.step, it.found.as_ref().map(|it| it.0));
        count("verify/correct", step, it.verdict.is_correct());
        count("verify/wrong", step, it.verdict == Verdict::Wrong);
        count("verify/unparsable", step, it.verdict.reason().is_some());
        count("verify/boxed", step, form == Some(AnswerForm::Boxed));
        count("verify/announced", step, form == Some(AnswerForm::Announced));
    }
    let mut groups: BTreeMap<(u64, &str), Vec<f64>> = BTreeMap::new();
    for (it, reward) in answers.iter().filter_map(|it| Some((it, it.reward?))) {
        groups.entry((it.step, &it.prompt)).or_default().push(reward);
    }
    let top = groups.values().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    for ((step, _), rewards) in &groups {
        let solved = rewards.iter().all(|it| *it >= top);
        let failed = rewards.iter().all(|it| it.is_nan() || *it <= 0.0);
        count("groups/all_solved", *step, solved);
        count("groups/all_fail", *step, failed);
        count("groups/partially_solved", *step, !solved && !failed);
        let is_equal = |pair: &[f64]| pair[0].to_bits() == pair[1].to_bits();
        count("groups/without_signal", *step, rewards.windows(2).all(is_equal));
    }
    let steps: Vec<u64> = columns.steps().iter().map(|it| *it as u64).collect();
    for (name, counts) in counts {
        // HAPO's trainers in TRL and verl log what they counted before a teacher entered.
        if columns.get(name).is_some() {
            continue;
        }
        let values = steps.iter().map(|it| counts.get(it).copied().unwrap_or(f64::NAN));
        columns.set(name, values.collect());
    }
    // Where nothing was graded again, what was paid counts as right.
    if let Some(paid) = columns.get("reward/policy_only").filter(|_| graded.is_empty()) {
        columns.set("verify/correct", paid.to_vec());
    }
}
