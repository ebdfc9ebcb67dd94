//! Records, journals and traces that commit 18650b35 wrote are read and resumed byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_core::Truncated;
use hapo_data::{Columns, Dataset, Reading, load_rows, open_all};
use hapo_eval::{
    Completions, Leaked, LocalSampling, OpenMode, Plan, Prices, ProblemSet, PromptForm, Recorded,
    Rule, Rules, Sampling,
};
use hapo_verify::{Extracting, Extraction, MATH};
use serde_json::{Map, json};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/eval").join(name)
}

fn prompts() -> Dataset {
    let named = "id=id,problem=problem,answer=answer,teacher=teacher,level=level";
    let reading = Reading { columns: Some(Columns::parse(named).unwrap()), ..Reading::default() };
    load_rows(open_all(&[file("prompts.jsonl")], &reading).unwrap()).unwrap().dataset
}

fn plan(completions: usize, sampling: Sampling) -> Plan {
    let name = "prompts.jsonl".to_owned();
    Plan {
        sets: vec![ProblemSet { name, dataset: prompts(), completions, draws: 0 }],
        sampling,
        local: LocalSampling::default(),
        completions: Some(completions),
        grader: Extracting::new(&MATH, Extraction::Announced),
        other: None,
        truncated: Truncated::Wrong,
    }
}

#[test]
fn a_teachers_journal_gives_the_same_traces() {
    let sampling = Sampling {
        model: "m".to_owned(),
        endpoint: Some("http://127.0.0.1:18778/v1/chat/completions".to_owned()),
        prompt: PromptForm::Conditioned,
        system: Some("Be brief.".to_owned()),
        temperature: 0.9,
        top_p: 0.95,
        max_tokens: Some(60),
        seed: 0,
        extra: Map::from_iter([("min_p".to_owned(), json!(0.1))]),
    };
    let plan = plan(5, sampling);
    let folder = tempfile::tempdir().unwrap();
    let (output, journal) =
        (folder.path().join("traces.jsonl"), folder.path().join("traces.jsonl.journal"));
    fs::copy(file("traces.jsonl.journal"), &journal).unwrap();
    let rules = Rules {
        rule: Rule::ShortestCorrect,
        leaked: Leaked::Last,
        length: None,
        prices: Some(Prices { input: 1.0, output: 2.0 }),
    };
    let mut session = Completions::of_teacher(&plan, &output, rules, OpenMode::Resume).unwrap();
    let sum = session.summary();
    assert_eq!(
        (sum.resumed, sum.correct, sum.leaked, sum.truncated, sum.retries),
        (15, 8, 2, 2, 1)
    );
    session.write(true).unwrap();
    drop(session);
    assert_eq!(fs::read(output).unwrap(), fs::read(file("traces.jsonl")).unwrap());
    assert_eq!(fs::read(journal).unwrap(), fs::read(file("traces.jsonl.journal")).unwrap());
}

#[test]
fn a_record_resumes_wherever_it_was_cut() {
    let instruction = "Please reason step by step, and put your final answer within \\boxed{}.";
    let sampling = Sampling {
        model: "m".to_owned(),
        endpoint: Some("http://127.0.0.1:18778/v1".to_owned()),
        prompt: PromptForm::Instruction(instruction.to_owned()),
        system: None,
        temperature: f64::from(0.6_f32),
        top_p: f64::from(0.9_f32),
        max_tokens: Some(12),
        seed: 0,
        extra: Map::new(),
    };
    let plan = plan(3, sampling);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let whole = fs::read(file("record.jsonl")).unwrap();
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        drop(Completions::of_evaluation(&plan, Some(&path)).unwrap());
        // The first line, and every complete one after it.
        let lines = whole[..cut].split(|byte| *byte == b'\n').count().saturating_sub(1).max(1);
        let kept = whole.split_inclusive(|byte| *byte == b'\n').take(lines).flatten();
        assert!(kept.eq(&fs::read(&path).unwrap()), "{cut}");
    }
    let scores = Completions::of_evaluation(&plan, Some(&path)).unwrap().scores();
    assert_eq!((scores[0].problems, scores[0].k, scores[0].average.mean), (3, 3, 2.0 / 3.0));
    assert_eq!(scores[0].no_answer, 2.0 / 9.0);
    assert_eq!(Recorded::read(&path).unwrap().benchmarks[0].1.len(), 3);
}
