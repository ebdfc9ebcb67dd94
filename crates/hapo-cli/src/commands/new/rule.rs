//! What counts as correct: the graders there are, tried on the file's own solutions.

use anyhow::Result;
use hapo_data::{Dataset, Example, Reading};
use hapo_eval::{are_numbers_with_words, beside_mathematics, gold_of, is_literal};
use hapo_net::reward::{OwnReward, RewardSettings, is_own};
use hapo_verify::{DEFAULT_GRADER, Extracting, Extraction, Grader, in_order};

use super::Args;
use crate::{failure::bad_input, support::arguments::named_grader};

/// Solutions that are tried, of a custom reward's as many as it judges in seconds.
const MOST: usize = 2000;
const MOST_OF_OWN: usize = 100;

pub(super) struct Rule {
    pub(super) grader: String,
    pub(super) extraction: Extraction,
    pub(super) said: String,
    /// Solutions that count, of those that were tried.
    pub(super) correct: usize,
    pub(super) tried: usize,
    /// Why the first solution that does not count does not.
    pub(super) first_wrong: Option<String>,
    /// What most gold answers are, where they are no mathematics.
    pub(super) kind: Option<&'static str>,
}

impl Rule {
    pub(super) fn find(args: &Args, dataset: &Dataset) -> Result<Self> {
        let examples = &dataset.examples;
        let kind = kind_of(examples);
        let own = args.grader.as_deref().filter(|it| is_own(it));
        let most = if own.is_some() { MOST_OF_OWN } else { MOST };
        let solved = examples.iter().filter(|it| !it.teachers.is_empty());
        let solved: Vec<&Example> = solved.take(most).collect();
        let mut all = Vec::new();
        for (name, extraction) in candidates(args, kind) {
            all.push(tried(name, extraction, &solved, kind)?);
            // An earlier rule is the stricter one.
            if all.last().is_some_and(Self::is_exact) || solved.is_empty() {
                break;
            }
        }
        let most = all.iter().map(|it| it.correct).max().unwrap_or(0);
        let best = all.iter().position(|it| it.correct == most);
        let mut rule = all.swap_remove(best.expect("there is a candidate"));
        let counts = format!("{}: {} of {} solutions count", rule.name(), rule.correct, rule.tried);
        let others = all.iter().map(|it| format!("{} {}", it.name(), it.correct));
        let (others, name): (Vec<String>, String) = (others.collect(), rule.name());
        let most = kind.map_or_else(String::new, |it| format!("; most answers are {it}"));
        rule.said = match solved.is_empty() {
            true if own.is_some() => format!("{name}: no row has a solution to try it on"),
            true => format!(
                "assumed, as no row has a solution to try: {name}{most}; --grader and --extraction name others"
            ),
            false if others.is_empty() => counts,
            false => format!("{counts}; by {}", others.join(", by ")),
        };
        Ok(rule)
    }

    /// Refuses a gold answer that the grader does not read: no run would start.
    pub(super) fn check(&self, examples: &[Example], file: &std::path::Path) -> Result<()> {
        if is_own(&self.grader) {
            return Ok(());
        }
        let grader = named_grader(&self.grader)?;
        let hint = match self.grader.as_str() {
            "exact" => "correct or remove the row",
            _ => "correct or remove the row, or compare texts: --grader exact",
        };
        let unread = |it: &Example| gold_of(grader, it).err().map(|why| (it.row, why));
        examples.iter().find_map(unread).map_or(Ok(()), |(row, why)| {
            Err(bad_input(format!("{}: row {row}: {why}", file.display()), hint))
        })
    }

    /// The same for the rows that an evaluation of the run reads.
    pub(super) fn check_test(&self, file: &std::path::Path) -> Result<()> {
        let examples = hapo_train::load_file(file, &Reading::default())?.examples;
        let most = hapo_train::recipe::EvalSection::default().problems;
        self.check(&examples[..examples.len().min(most)], file)
    }

    fn name(&self) -> String {
        if is_own(&self.grader) {
            return format!("grader {}", self.grader);
        }
        format!("`{}` with `{}`", self.grader, self.extraction.name())
    }

    /// True if an answer counts only in a box or behind words that announce it.
    pub(super) fn seeks_boxes(&self) -> bool {
        let is_marked = matches!(self.extraction, Extraction::Boxed | Extraction::Announced);
        is_marked && !is_own(&self.grader)
    }

    pub(super) fn is_exact(&self) -> bool {
        self.tried > 0 && 0.95 * self.tried as f64 <= self.correct as f64
    }
}

/// Graders and extractions in the order in which they are taken, by what the command names and the gold answers are.
fn candidates<'a>(args: &'a Args, kind: Option<&'static str>) -> Vec<(&'a str, Extraction)> {
    let graders = match (&args.grader, kind) {
        (Some(name), _) => vec![name.as_str()],
        (None, None) => vec![DEFAULT_GRADER, "exact"],
        (None, Some(LETTERS)) => vec!["choice", "exact"],
        (None, Some(_)) => vec!["exact", DEFAULT_GRADER],
    };
    // Where nothing shows how an answer is marked, the answer alone is the safer guess.
    let kept: &[Extraction] = match kind {
        Some(LETTERS) => &[Extraction::Any],
        Some(_) => &[Extraction::Whole, Extraction::Announced, Extraction::Any],
        None => &[Extraction::Announced, Extraction::Whole, Extraction::Any],
    };
    let mut all = Vec::new();
    for name in graders {
        let rules = match args.extraction {
            Some(it) => vec![it],
            None if is_own(name) => vec![Extraction::default()],
            None => kept.to_vec(),
        };
        all.extend(rules.into_iter().map(|rule| (name, rule)));
    }
    if args.grader.is_none() && kind.is_none() {
        // Without words that announce an answer the paper's grader finds the most.
        all.push(("math", args.extraction.unwrap_or(Extraction::Any)));
    }
    all.dedup();
    all
}

const LETTERS: &str = "letters of a choice";

/// What at least half of the gold answers are, where they are no mathematics.
fn kind_of(examples: &[Example]) -> Option<&'static str> {
    let examples = &examples[..examples.len().min(1000)];
    let kinds: Vec<&str> = examples.iter().filter_map(|it| kind_of_one(&it.answer)).collect();
    let of = |kind: &&&str| 2 * kinds.iter().filter(|it| *it == *kind).count() >= examples.len();
    let numbered = || are_numbers_with_words(DEFAULT_GRADER, examples.iter().map(|it| &*it.answer));
    kinds.iter().find(of).copied().or_else(|| numbered().then_some("numbers with words"))
}

fn kind_of_one(answer: &str) -> Option<&'static str> {
    let letter = answer.trim().trim_matches(['(', ')', '.']);
    let is_letter = letter.len() == 1 && letter.bytes().all(|it| (b'A'..=b'J').contains(&it));
    let literal = || is_literal(DEFAULT_GRADER, answer).then_some("words");
    if is_letter { Some(LETTERS) } else { beside_mathematics(answer).or_else(literal) }
}

/// A rule with the number of solutions that count by it.
fn tried(
    name: &str,
    extraction: Extraction,
    solved: &[&Example],
    kind: Option<&'static str>,
) -> Result<Rule> {
    let mut own = None;
    if is_own(name) {
        let reward = OwnReward::new(name, RewardSettings { extraction, ..Default::default() })?;
        reward.log().keep_in(std::io::stderr());
        own = Some(reward);
    }
    let grader: &dyn Grader = if let Some(it) = &own { it } else { named_grader(name)? };
    let judged = in_order(grader.workers(), solved, |example| {
        let grader = Extracting::new(grader, extraction);
        let judgement = match gold_of(&grader, example) {
            Ok(gold) => gold.judge(&example.teachers[0]),
            Err(why) => return Ok(Some(format!("the gold answer: {why}"))),
        };
        if let Some(problem) = judgement.failure() {
            let problem = format!("--grader {name}: the reward failed: {problem}");
            return Err(bad_input(problem, "what it printed is above"));
        }
        let reward = judgement.reward.map(|it| format!("its reward is {it}"));
        let why = || reward.unwrap_or_else(|| judgement.reason.to_string());
        Ok((!judgement.verdict.is_correct()).then(why))
    })?;
    let wrong = judged.iter().zip(solved).find_map(|(why, example)| {
        let Example { id, row, teachers, .. } = example;
        let solution = hapo_core::excerpt(&teachers[0], 60);
        Some(format!("row {row}, id {id}: `{solution}`: {}", why.as_ref()?))
    });
    Ok(Rule {
        grader: name.to_owned(),
        extraction,
        said: String::new(),
        correct: judged.iter().filter(|it| it.is_none()).count(),
        tried: solved.len(),
        first_wrong: wrong,
        kind,
    })
}
