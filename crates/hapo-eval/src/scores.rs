//! The scores of an evaluation, and its record: the settings, then one line for each problem with all its completions.
//!
//! The price: the text of every completion stays in memory until the scores are computed.

use std::{collections::BTreeMap, path::Path};

use hapo_core::{Refusal, RngStream, Verdict};
use hapo_data::Dataset;
use hapo_run::{Journal, JournalFormat, OpenMode, Span};
use hapo_verify::Grader;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::completions::{Completions, OTHER_DATA, OTHER_SETTINGS, Piece, Progress, Summarise};
use crate::grading::{GradedCompletion, Judge, ProblemResult, RawCompletion, average};
use crate::plan::{Plan, ProblemSet};
use crate::statistics::{Estimate, estimate, majority, pass_at_k};

pub struct Scores<'a> {
    sets: &'a [ProblemSet],
    /// Of each set, by the problem's index.
    results: Vec<BTreeMap<usize, ProblemResult>>,
}

#[derive(Serialize, Deserialize)]
pub struct Line {
    benchmark: String,
    problem: usize,
    #[serde(rename = "answers")]
    result: ProblemResult,
}

impl Summarise for Scores<'_> {
    type Line = Line;
    const FORMAT: JournalFormat = JournalFormat {
        name: "hapo_eval",
        version: 1,
        settings: "settings",
        first_line: "the settings of an evaluation",
        line: "the completions of one problem",
        if_other: "name a file that `hapo eval --out` wrote, or a new one for --out",
        if_changed: OTHER_SETTINGS,
    };
    const STREAM: RngStream = RngStream::Evaluate;
    /// Leaving a completion out would change the score.
    const TAKES_FAILURES: bool = false;

    fn settings(plan: &Plan) -> Value {
        let of_sets = |value: fn(&Dataset) -> Value| -> Map<String, Value> {
            plan.sets.iter().map(|set| (set.name.clone(), value(&set.dataset))).collect()
        };
        let sampling = &plan.sampling;
        let mut settings = json!({
            "texts": of_sets(|problems| crate::benchmark::text_checksum(problems).into()),
            "problems": of_sets(|problems| problems.examples.len().into()),
            "model": sampling.model, "endpoint": sampling.endpoint.as_deref().map(hapo_net::http::shown),
            "k": plan.completions, "temperature": sampling.sent("temperature"), "top_p": sampling.sent("top_p"),
            "max_tokens": sampling.sent("max_tokens"), "grader": plan.grader.name(),
            "extraction": plan.grader.extraction(), "truncated": plan.truncated,
            "prompt": sampling.prompt.name(), "seed": sampling.seed,
        });
        plan.local.record_in(&mut settings);
        if !sampling.extra.is_empty() {
            settings["extra"] = json!(sampling.extra);
        }
        let is_dialogue = |problem: &hapo_data::Example| !problem.messages.is_empty();
        let has_dialogue = |set: &ProblemSet| set.dataset.examples.iter().any(is_dialogue);
        // A record without it has answers to the last turns of dialogues alone.
        if sampling.endpoint.is_some() && plan.sets.iter().any(has_dialogue) {
            settings["turns"] = json!("all");
        }
        settings
    }

    fn read(&mut self, _: &[Judge<'_>], line: Line, _: Span) -> Result<(), Refusal> {
        let Some(set) = self.sets.iter().position(|set| set.name == line.benchmark) else {
            return Ok(());
        };
        let (index, result) = (line.problem, &line.result);
        let same = self.sets[set].dataset.examples.get(index).is_some_and(|example| {
            example.id == result.id
                && example.answer == result.gold
                && result.completions.len() == self.sets[set].completions
        });
        if !same {
            let other = format!("answers to other problems of {}", line.benchmark);
            return Err(Refusal::input(format!("{other}: number {index} is {}", result.id))
                .hint(OTHER_DATA));
        }
        self.results[set].insert(index, line.result);
        Ok(())
    }

    fn missing(&self, plan: &Plan) -> Vec<Piece> {
        let sets = plan.sets.iter().zip(&self.results).enumerate();
        sets.flat_map(|(set, (problems, results))| {
            let missing = (0..problems.dataset.examples.len())
                .filter(|problem| !results.contains_key(problem));
            let count = problems.completions as u32;
            missing.map(move |problem| Piece { set, problem, first: 0, count })
        })
        .collect()
    }

    fn progress(&self) -> Progress {
        let results = || self.results.iter().flat_map(BTreeMap::values);
        Progress {
            completions: results().map(|result| result.completions.len()).sum(),
            correct: results().map(ProblemResult::correct).sum(),
            failed: 0,
        }
    }

    fn add(
        &mut self,
        judges: &[Judge<'_>],
        journal: Option<&mut Journal>,
        piece: Piece,
        completions: Vec<RawCompletion>,
    ) -> Result<(Progress, Option<Piece>), Refusal> {
        let Piece { set, problem, .. } = piece;
        let result = judges[set].grade(problem, completions)?;
        let line = Line { benchmark: self.sets[set].name.clone(), problem, result };
        if let Some(journal) = journal {
            journal.append(&line)?;
        }
        let (completions, correct) = (line.result.completions.len(), line.result.correct());
        self.results[set].insert(problem, line.result);
        Ok((Progress { completions, correct, failed: 0 }, None))
    }
}

impl<'a> Completions<'a, Scores<'a>> {
    /// An evaluation, with the results of its record if there is one.
    pub fn of_evaluation(plan: &'a Plan, record: Option<&Path>) -> Result<Self, Refusal> {
        let scores = Scores { sets: &plan.sets, results: vec![BTreeMap::new(); plan.sets.len()] };
        Self::begin(plan, scores, record.map(|path| (path, OpenMode::ResumeOrStart)))
    }

    pub fn results(self) -> Vec<Vec<ProblemResult>> {
        self.summary.results.into_iter().map(|set| set.into_values().collect()).collect()
    }

    pub fn scores(self) -> Vec<Score> {
        let plan = self.plan;
        let sets = plan.sets.iter().zip(self.results());
        sets.filter_map(|(set, results)| score(&set.name, &results, plan.sampling.seed)).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    pub settings: Value,
    /// The benchmarks in the order in which they were begun, each with its results by the problem's index.
    pub benchmarks: Vec<(String, BTreeMap<usize, ProblemResult>)>,
}

impl Recorded {
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let mut benchmarks: Vec<(String, BTreeMap<_, _>)> = Vec::new();
        let settings = Journal::read(path, &Scores::FORMAT, |line: Line, _| {
            let index = benchmarks.iter().position(|known| known.0 == line.benchmark);
            let index = index.unwrap_or_else(|| {
                benchmarks.push((line.benchmark, BTreeMap::new()));
                benchmarks.len() - 1
            });
            benchmarks[index].1.insert(line.problem, line.result);
            Ok(())
        });
        Ok(Self { settings: settings?, benchmarks })
    }

    pub fn benchmark(&self, name: &str) -> Option<&BTreeMap<usize, ProblemResult>> {
        let recorded = self.benchmarks.iter().find(|recorded| recorded.0 == name);
        recorded.map(|recorded| &recorded.1)
    }
}

/// Scores of one benchmark; shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    pub benchmark: String,
    pub problems: usize,
    /// k: completions of each problem (the fewest, should they differ).
    pub k: usize,
    /// avg@k with its 95 % interval over problems.
    pub average: Estimate,
    /// Unbiased pass@j for j = 1, 2, 4, … up to k, and k.
    pub pass_at: Vec<(usize, f64)>,
    pub majority: Estimate,
    pub truncated: f64,
    /// Share of completions without a readable answer.
    pub no_answer: f64,
    /// Mean length in tokens, where it was counted.
    pub length: Option<f64>,
    /// Mean reward with its interval, where one other than 0 and 1 occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<Estimate>,
    pub other: Option<Other>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Other {
    /// avg@k by it.
    pub average: f64,
    /// Completions that only the first grader calls correct.
    pub only_first: usize,
    /// Completions that only the other one calls correct.
    pub only_other: usize,
}

/// Scores of a benchmark; `None` without problems or completions.
pub fn score(benchmark: &str, results: &[ProblemResult], seed: u64) -> Option<Score> {
    let k = results.iter().map(|it| it.completions.len()).min().filter(|k| *k > 0)?;
    let all = || results.iter().flat_map(|it| &it.completions);
    let n = all().count();
    let share =
        |is: fn(&GradedCompletion) -> bool| all().filter(|it| is(it)).count() as f64 / n as f64;
    let won: Vec<f64> = results.iter().map(won).collect();
    let is_graded = results.iter().any(ProblemResult::is_graded);
    let rewards: Vec<f64> = results.iter().map(ProblemResult::reward).collect();
    let lengths: Vec<usize> = all().filter_map(|it| it.tokens).collect();
    Some(Score {
        benchmark: benchmark.to_owned(),
        problems: results.len(),
        k,
        average: average(results, seed)?,
        pass_at: pass_at(results, k),
        majority: estimate(&won, seed)?,
        truncated: share(|it| !it.ended),
        no_answer: share(|it| matches!(it.verdict, Verdict::Unparsable(_))),
        length: (!lengths.is_empty())
            .then(|| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64),
        reward: if is_graded { estimate(&rewards, seed) } else { None },
        other: all().all(|it| it.other.is_some()).then(|| other(results)),
    })
}

/// pass@j for j = 1, 2, 4, … up to k, and k, as means over the problems.
fn pass_at(results: &[ProblemResult], k: usize) -> Vec<(usize, f64)> {
    let powers = (0..usize::BITS).map(|it| 1 << it).take_while(|it| *it < k);
    let mean = |j: usize| {
        let each = results.iter().filter_map(|it| pass_at_k(it.completions.len(), it.correct(), j));
        each.sum::<f64>() / results.len() as f64
    };
    powers.chain([k]).map(|j| (j, mean(j))).collect()
}

fn won(result: &ProblemResult) -> f64 {
    let votes: Vec<Option<usize>> = result.completions.iter().map(|it| it.vote).collect();
    let correct = result.completions.iter().find(|it| it.verdict.is_correct());
    majority(&votes, correct.and_then(|it| it.vote))
}

fn other(results: &[ProblemResult]) -> Other {
    let is_correct = |it: &GradedCompletion| it.other == Some(Verdict::Correct);
    let only = |first: bool| {
        let all = results.iter().flat_map(|it| &it.completions);
        all.filter(|it| it.verdict.is_correct() == first && is_correct(it) != first).count()
    };
    let success = |it: &ProblemResult| {
        let correct = it.completions.iter().filter(|it| is_correct(it)).count();
        correct as f64 / it.completions.len() as f64
    };
    Other {
        average: results.iter().map(success).sum::<f64>() / results.len() as f64,
        only_first: only(true),
        only_other: only(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Fingerprints, PromptForm, Sampling};
    use hapo_data::Example;
    use hapo_verify::{Extracting, Extraction, MATH};

    /// Two benchmarks of one problem.
    fn plan() -> Plan {
        let example =
            |id: &str| Example { id: id.into(), answer: "1".into(), ..Example::default() };
        let set = |name: &str| ProblemSet {
            name: name.into(),
            dataset: Dataset { examples: vec![example(name)] },
            completions: 2,
            draws: 0,
        };
        let sampling = Sampling::new("m", PromptForm::Template("chatml".into()));
        let grader = Extracting::new(&MATH, Extraction::Announced);
        let plan = Plan::new(vec![set("a"), set("b")], sampling, grader);
        Plan { completions: Some(2), ..plan }
    }

    fn finish(plan: &Plan, path: &Path, order: [usize; 2]) {
        let mut session = Completions::of_evaluation(plan, Some(path)).unwrap();
        for piece in order.map(|set| Piece { set, problem: 0, first: 0, count: 2 }) {
            let completions = vec![RawCompletion::local("\\boxed{1}".into(), 3, true); 2];
            if session.missing().contains(&piece) {
                assert_eq!(session.add(piece, completions).unwrap(), None);
            }
        }
        assert_eq!(session.progress, Progress { completions: 4, correct: 4, failed: 0 });
    }

    fn refused(plan: &Plan, path: &Path) -> Refusal {
        Completions::of_evaluation(plan, Some(path)).err().unwrap()
    }

    #[test]
    fn a_record_resumes_after_any_cut_and_refuses_other_settings() {
        let folder = tempfile::tempdir().unwrap();
        let (plan, path) = (plan(), folder.path().join("r.jsonl"));
        let session = Completions::of_evaluation(&plan, Some(&path)).unwrap();
        let busy = refused(&plan, &path).to_string();
        assert!(busy.ends_with("is in use by another process"), "{busy}");
        drop(session);
        finish(&plan, &path, [1, 0]);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            finish(&plan, &path, [1, 0]);
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{cut}");
        }
        let recorded = Recorded::read(&path).unwrap();
        let names: Vec<&str> = recorded.benchmarks.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        let other = refused(&Plan { completions: Some(4), ..plan.clone() }, &path).to_string();
        assert!(other.ends_with("other settings: k was 2, is 4"), "{other}");
        for text in ["{\"id\":1}\n", "hello"] {
            std::fs::write(&path, text).unwrap();
            let refusal = refused(&plan, &path);
            assert!(refusal.to_string().contains("expected the settings of an evaluation"));
            assert_eq!(refusal.how_to_mend(), Some(Scores::FORMAT.if_other), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn other_weights_at_the_same_path_and_other_answers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, path) = (plan(), folder.path().join("r.jsonl"));
        let fingerprints =
            |weights: &str| Some(Fingerprints { weights: weights.into(), template: "t".into() });
        one.local.fingerprints = fingerprints("a");
        finish(&one, &path, [0, 1]);
        let mut other = one.clone();
        other.local.fingerprints = fingerprints("b");
        let message = refused(&other, &path).to_string();
        assert!(message.ends_with(r#"other settings: weights was "a", is "b""#), "{message}");
        let mut renamed = one.clone();
        renamed.sets[1].dataset.examples[0].id = "c".into();
        let message = refused(&renamed, &path).to_string();
        let expected =
            format!("answers to other problems of b: number 0 is b ({})", path.display());
        assert_eq!(message, expected);
    }

    fn result(verdicts: &[(Verdict, Option<usize>, Verdict)]) -> ProblemResult {
        let completion = |it: &(Verdict, Option<usize>, Verdict)| GradedCompletion {
            text: String::new(),
            verdict: it.0.clone(),
            reward: None,
            other: Some(it.2.clone()),
            answer: None,
            vote: it.1,
            tokens: Some(10),
            ended: !matches!(it.0, Verdict::Unparsable(_)),
        };
        ProblemResult {
            id: "a".into(),
            gold: "1".into(),
            completions: verdicts.iter().map(completion).collect(),
        }
    }

    #[test]
    fn scores_are_counted_by_hand() {
        use Verdict::{Correct as C, Unparsable, Wrong as W};
        let first = [(C, Some(0), C), (C, Some(0), W), (W, Some(2), W), (W, Some(2), W)];
        let second = [
            (W, Some(0), C),
            (W, Some(0), W),
            (Unparsable(String::new()), None, Unparsable(String::new())),
            (C, Some(3), C),
        ];
        let it = score("b", &[result(&first), result(&second)], 0).unwrap();
        assert_eq!((it.problems, it.k), (2, 4));
        assert_eq!(it.average.mean, 0.375);
        // 1 − C(2,2)/C(4,2) = 5/6 and 1 − C(3,2)/C(4,2) = 1/2.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(it.pass_at[1].1, 2.0 / 3.0), "{:?}", it.pass_at);
        assert_eq!((it.pass_at[0], it.pass_at[2]), ((1, 0.375), (4, 1.0)));
        // A tie of the right with a wrong answer counts half; in the second problem the wrong one wins.
        assert_eq!(it.majority.mean, 0.25);
        assert_eq!((it.truncated, it.no_answer, it.length), (0.125, 0.125, Some(10.0)));
        let other = it.other.unwrap();
        assert_eq!((other.average, other.only_first, other.only_other), (0.375, 1, 1));
        assert_eq!((it.reward, score("b", &[], 0)), (None, None));
        let mut graded = result(&first);
        graded.completions[3].reward = Some(0.5);
        // Three verdicts of two successes, and a half.
        assert_eq!(score("b", &[graded], 0).unwrap().reward.unwrap().mean, 0.625);
    }
}
