use super::*;
use crate::judgement::{Length, Prices};
use crate::prompt_kind::PromptKind;
use hapo_data::Example;

fn dataset() -> Dataset {
    let example = |id: &str, answer: &str| Example {
        id: id.into(),
        problem: format!("What is {id}?"),
        answer: answer.into(),
        ..Example::default()
    };
    Dataset { examples: vec![example("a", "4"), example("b", "7")] }
}

fn origin(temperature: f64) -> Origin {
    Origin {
        endpoint: "http://h/v1/chat/completions".into(),
        model: "m".into(),
        prompt: PromptKind::Conditioned,
        system: None,
        temperature,
        top_p: 1.0,
        max_tokens: None,
        seed: 0,
        extra: serde_json::Map::new(),
        input: String::new(),
    }
}

fn rules(rule: Rule, leaked: Leaked) -> Rules<'static> {
    Rules {
        attempts: 3,
        rule,
        leaked,
        grader: &hapo_verify::MATH,
        length: None,
        prices: Some(Prices { input: 1.0, output: 10.0 }),
    }
}

fn completed(text: &str) -> Attempt {
    Attempt {
        text: Some(text.into()),
        failed: None,
        finish_reason: Some("stop".into()),
        served_by: None,
        prompt_tokens: Some(100),
        completion_tokens: Some(10),
        requests: 2,
        milliseconds: 5,
        at: 1,
    }
}

fn open<'a>(dataset: &'a Dataset, output: &Path, rules: Rules<'a>) -> Result<Session<'a>, Error> {
    Session::open(dataset, output, origin(0.5), rules, OpenMode::ResumeOrStart)
}

/// Attempts 0, 1, 2 at prompt 0, then the choice of each rule from the same journal.
fn check(texts: [&str; 3], rule: Rule, leaked: Leaked, expected: &[u32]) {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (dataset(), folder.path().join("out.jsonl"));
    let mut session = open(&data, &output, rules(rule, leaked)).unwrap();
    for (attempt, text) in (0..).zip(texts) {
        session.record(0, attempt, &completed(text)).unwrap();
    }
    assert_eq!(session.chosen(0), expected, "{texts:?} {rule:?} {leaked:?}");
}

#[test]
fn rules_choose_among_correct_traces_and_leaked_ones_come_last() {
    let texts = ["long way to \\boxed{4}", "the given answer \\boxed{4}", "so \\boxed{4}"];
    check(texts, Rule::ShortestCorrect, Leaked::Last, &[2]);
    check(texts, Rule::FirstCorrect, Leaked::Last, &[0]);
    check(texts, Rule::AllCorrect, Leaked::Last, &[0, 2]);
    check(texts, Rule::AllCorrect, Leaked::Any, &[0, 1, 2]);
    let only_leaked = ["as provided \\boxed{4}", "\\boxed{5}", "none"];
    check(only_leaked, Rule::ShortestCorrect, Leaked::Last, &[0]);
    check(only_leaked, Rule::ShortestCorrect, Leaked::Any, &[0]);
    check(only_leaked, Rule::ShortestCorrect, Leaked::Never, &[]);
    let equal = ["\\boxed{4} a", "\\boxed{4} b", "\\boxed{4} c"];
    check(equal, Rule::ShortestCorrect, Leaked::Last, &[0]);
}

#[test]
fn first_correct_asks_one_at_a_time_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (dataset(), folder.path().join("out.jsonl"));
    let mut session = open(&data, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
    assert_eq!(session.wanted(0), [0]);
    session.record(0, 0, &completed("as provided \\boxed{4}")).unwrap();
    assert_eq!(session.wanted(0), [1]);
    session.record(0, 1, &completed("\\boxed{4}")).unwrap();
    assert_eq!(session.wanted(0), [0_u32; 0]);
    assert_eq!(session.wanted(1), [0]);
    drop(session);
    // The same journal under another rule lacks the third attempt.
    let session = open(&data, &output, rules(Rule::ShortestCorrect, Leaked::Last)).unwrap();
    assert_eq!(session.wanted(0), [2]);
    assert_eq!(session.wanted(1), [0, 1, 2]);
}

#[test]
fn cut_long_failed_and_ended_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (dataset(), folder.path().join("out.jsonl"));
    let tokens = |text: &str| text.split_whitespace().count() + 1;
    let limited = Rules {
        length: Some(Length { limit: 4, tokens: &tokens }),
        ..rules(Rule::AllCorrect, Leaked::Last)
    };
    let mut session = open(&data, &output, limited).unwrap();
    let cut = Attempt { finish_reason: Some("length".into()), ..completed("\\boxed{4}") };
    let failed = Attempt {
        text: None,
        failed: Some("status 500".into()),
        prompt_tokens: None,
        ..completed("")
    };
    assert_eq!(session.record(0, 0, &cut).unwrap(), Outcome::Truncated);
    assert_eq!(session.record(0, 1, &failed).unwrap(), Outcome::Failed);
    // Three words and the end token fit; four do not.
    let long = completed("one two three \\boxed{4}");
    assert_eq!(session.record(0, 2, &long).unwrap(), Outcome::TooLong);
    let fits = completed(" one two \\boxed{7}<|im_end|>\n<|endoftext|> ");
    assert_eq!(session.record(1, 0, &fits).unwrap(), Outcome::Correct);
    let it = session.summary();
    assert_eq!((it.truncated, it.failed, it.too_long, it.correct, it.admitted), (1, 1, 1, 1, 1));
    assert_eq!((it.requests, it.retries, it.uncounted), (8, 4, 0));
    // Three attempts were counted: 100 tokens at 1 and 10 at 10, per million.
    assert!((it.cost.unwrap() - 3.0 * 200.0 / 1e6).abs() < 1e-15);
    session.write(true).unwrap();
    let loaded = hapo_data::load(&output).unwrap();
    assert_eq!(loaded.bad_row_count, 0);
    assert_eq!(loaded.dataset.examples[0].teachers, [""; 0]);
    assert_eq!(loaded.dataset.examples[1].teachers, ["one two \\boxed{7}"]);
    session.write(false).unwrap();
    assert_eq!(hapo_data::load(&output).unwrap().dataset.examples.len(), 1);
}

#[test]
fn traces_of_the_input_follow_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (mut data, output) = (dataset(), folder.path().join("out.jsonl"));
    data.examples[0].teachers = vec!["\\boxed{4}".into(), "old \\boxed{4}".into()];
    let mut session = open(&data, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
    session.record(0, 0, &completed("\\boxed{4}")).unwrap();
    session.write(true).unwrap();
    let teachers = &hapo_data::load(&output).unwrap().dataset.examples[0].teachers;
    assert_eq!(*teachers, ["\\boxed{4}", "old \\boxed{4}"]);
}

#[test]
fn journal_survives_an_incomplete_line_and_refuses_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (dataset(), folder.path().join("out.jsonl"));
    let mut session = open(&data, &output, rules(Rule::AllCorrect, Leaked::Last)).unwrap();
    session.record(0, 0, &completed("\\boxed{4}")).unwrap();
    session.record(1, 2, &completed("\\boxed{7}")).unwrap();
    let again = open(&data, &output, rules(Rule::AllCorrect, Leaked::Last));
    assert!(matches!(again.err(), Some(Error::Run(hapo_run::Error::Busy { .. }))));
    drop(session);
    let journal = folder.path().join("out.jsonl.journal");
    let whole = std::fs::read(&journal).unwrap();
    assert_eq!(whole.split(|it| *it == b'\n').count(), 4);
    for cut in 0..=whole.len() {
        std::fs::write(&journal, &whole[..cut]).unwrap();
        let session = open(&data, &output, rules(Rule::AllCorrect, Leaked::Last)).unwrap();
        let lines = whole[..cut].split(|it| *it == b'\n').count() - 1;
        assert_eq!(session.summary().resumed, lines.saturating_sub(1), "{cut}");
        assert_eq!(session.has(1, 2), cut == whole.len());
    }
    std::fs::write(&journal, &whole).unwrap();
    let other = |temperature, begin| {
        let rules = rules(Rule::AllCorrect, Leaked::Last);
        Session::open(&data, &output, origin(temperature), rules, begin)
    };
    let message = other(0.75, OpenMode::ResumeOrStart).err().unwrap().to_string();
    let expected = format!(
        "{} was started with other settings: temperature was 0.5, is 0.75",
        journal.display()
    );
    assert_eq!(message, expected);
    assert_eq!(other(0.5, OpenMode::Resume).unwrap().summary().resumed, 2);
    assert_eq!(other(0.75, OpenMode::Fresh).unwrap().summary().resumed, 0);
    std::fs::write(&journal, "{\"id\":1}\n").unwrap();
    let message = other(0.5, OpenMode::Resume).err().unwrap().to_string();
    assert!(
        message.ends_with(":1: expected the head of a teacher's journal, got {\"id\":1}"),
        "{message}"
    );
    std::fs::remove_file(&journal).unwrap();
    let message = other(0.5, OpenMode::Resume).err().unwrap().to_string();
    assert!(message.starts_with("nothing to resume: "), "{message}");
}

#[test]
fn failed_attempts_are_made_again_on_demand_and_the_answer_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (dataset(), folder.path().join("out.jsonl"));
    let failed = Attempt { text: None, failed: Some("status 500".into()), ..completed("") };
    let again = |retry| {
        let rules = rules(Rule::AllCorrect, Leaked::Last);
        let session = open(&data, &output, rules).unwrap();
        if retry { session.retrying_failed() } else { session }
    };
    again(false).record(0, 1, &failed).unwrap();
    assert_eq!(again(false).wanted(0), [0, 2]);
    let mut session = again(true);
    assert_eq!(session.wanted(0), [0, 1, 2]);
    session.record(0, 1, &completed("\\boxed{4}")).unwrap();
    drop(session);
    assert_eq!(again(false).chosen(0), [1]);
}
