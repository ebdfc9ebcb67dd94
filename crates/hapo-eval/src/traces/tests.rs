use super::*;
use hapo_data::{Columns, Example, Loaded, Message, Reading, load_rows, open_all};
use hapo_verify::{Extracting, Extraction, MATH};
use serde_json::Value;

use crate::plan::{ProblemSet, Sampling};

fn dataset() -> Dataset {
    let example = |id: &str, answer: &str| Example {
        id: id.into(),
        problem: format!("What is {id}?"),
        answer: answer.into(),
        ..Example::default()
    };
    Dataset { examples: vec![example("a", "4"), example("b", "7")] }
}

fn plan_of(dataset: Dataset) -> Plan {
    let set = ProblemSet { name: "prompts".into(), dataset, completions: 3, draws: 0 };
    let sampling = Sampling {
        endpoint: Some("http://h/v1/chat/completions".into()),
        temperature: 0.5,
        ..Sampling::new("m", PromptForm::Conditioned)
    };
    Plan::new(vec![set], sampling, Extracting::new(&MATH, Extraction::Announced))
}

fn plan() -> Plan {
    plan_of(dataset())
}

fn rules(rule: Rule, leaked: Leaked) -> Rules<'static> {
    Rules { rule, leaked, length: None, prices: Some(Prices { input: 1.0, output: 10.0 }) }
}

fn completed(text: &str) -> RawCompletion {
    RawCompletion {
        text: Some(text.into()),
        finish_reason: Some("stop".into()),
        prompt_tokens: Some(100),
        completion_tokens: Some(10),
        requests: 2,
        milliseconds: 5,
        at: 1,
        ..RawCompletion::default()
    }
}

type Session<'a> = Completions<'a, Traces<'a>>;

fn open<'a>(plan: &'a Plan, output: &Path, rules: Rules<'a>) -> Result<Session<'a>, Refusal> {
    Completions::of_teacher(plan, output, rules, OpenMode::ResumeOrStart)
}

impl Session<'_> {
    fn record(&mut self, prompt: usize, attempt: u32, completion: &RawCompletion) -> Outcome {
        let piece = Piece { set: 0, problem: prompt, first: attempt, count: 1 };
        self.add(piece, vec![completion.clone()]).unwrap();
        self.summary.done[prompt][&attempt].outcome
    }

    fn has(&self, prompt: usize, attempt: u32) -> bool {
        self.summary.done[prompt].contains_key(&attempt)
    }

    fn wanted(&self, prompt: usize) -> Vec<u32> {
        self.summary.wanted(prompt).iter().map(|piece| piece.first).collect()
    }

    fn chosen(&self, prompt: usize) -> Vec<u32> {
        self.summary.chosen(prompt)
    }
}

/// Attempts 0, 1, 2 at prompt 0, then the choice of each rule from the same journal.
fn check(texts: [&str; 3], rule: Rule, leaked: Leaked, expected: &[u32]) {
    let folder = tempfile::tempdir().unwrap();
    let (plan, output) = (plan(), folder.path().join("out.jsonl"));
    let mut session = open(&plan, &output, rules(rule, leaked)).unwrap();
    for (attempt, text) in (0..).zip(texts) {
        session.record(0, attempt, &completed(text));
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
    let (plan, output) = (plan(), folder.path().join("out.jsonl"));
    let mut session = open(&plan, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
    assert_eq!(session.wanted(0), [0]);
    session.record(0, 0, &completed("as provided \\boxed{4}"));
    assert_eq!(session.wanted(0), [1]);
    session.record(0, 1, &completed("\\boxed{4}"));
    assert_eq!(session.wanted(0), [0_u32; 0]);
    assert_eq!(session.wanted(1), [0]);
    drop(session);
    // The same journal under another rule lacks the third attempt.
    let session = open(&plan, &output, rules(Rule::ShortestCorrect, Leaked::Last)).unwrap();
    assert_eq!(session.wanted(0), [2]);
    assert_eq!(session.wanted(1), [0, 1, 2]);
}

#[test]
fn cut_long_failed_and_ended_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, output) = (plan(), folder.path().join("out.jsonl"));
    let tokens = |text: &str| Ok(text.split_whitespace().count() + 1);
    let limited = Rules {
        length: Some(Length { limit: 4, tokens: &tokens }),
        ..rules(Rule::AllCorrect, Leaked::Last)
    };
    let mut session = open(&plan, &output, limited).unwrap();
    let cut = RawCompletion { finish_reason: Some("length".into()), ..completed("\\boxed{4}") };
    let failed = RawCompletion {
        text: None,
        failed: Some("status 500".into()),
        prompt_tokens: None,
        ..completed("")
    };
    assert_eq!(session.record(0, 0, &cut), Outcome::Truncated);
    assert_eq!(session.record(0, 1, &failed), Outcome::Failed);
    // Three words and the end token fit; four do not.
    let long = completed("one two three \\boxed{4}");
    assert_eq!(session.record(0, 2, &long), Outcome::TooLong);
    let fits = completed(" one two \\boxed{7}<|im_end|>\n<|endoftext|> ");
    assert_eq!(session.record(1, 0, &fits), Outcome::Correct);
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
    let (mut plan, output) = (plan(), folder.path().join("out.jsonl"));
    plan.sets[0].dataset.examples[0].teachers = vec!["\\boxed{4}".into(), "old \\boxed{4}".into()];
    let mut session = open(&plan, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
    session.record(0, 0, &completed("\\boxed{4}"));
    session.write(true).unwrap();
    let teachers = &hapo_data::load(&output).unwrap().dataset.examples[0].teachers;
    assert_eq!(*teachers, ["\\boxed{4}", "old \\boxed{4}"]);
}

#[test]
fn what_the_teacher_was_asked_is_no_part_of_the_question() {
    let folder = tempfile::tempdir().unwrap();
    let (mut plan, output) = (plan(), folder.path().join("out.jsonl"));
    plan.sampling.system = Some("Work it out in one line.".to_owned());
    let mut session = open(&plan, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
    session.record(0, 0, &completed("\\boxed{4}"));
    session.write(false).unwrap();
    assert!(std::fs::read_to_string(&output).unwrap().contains(r#""system":"Work it out"#));
    let loaded = read(&output, None);
    assert!(loaded.unread.not_whole("out.jsonl").is_none(), "{:?}", loaded.unread);
    assert!(loaded.unread.ignored_fields.is_empty(), "{:?}", loaded.unread);
    // Somebody else's field of this name is read as any other.
    std::fs::write(
        &output,
        r#"{"problem":"3+4?","answer":"7","provenance":{"context":"A is 3."}}"#,
    )
    .unwrap();
    assert!(read(&output, None).unread.not_whole("out.jsonl").is_some());
}

/// A file with every field of its rows, read by named columns where there are some.
fn read(path: &Path, columns: Option<&str>) -> Loaded {
    let columns = columns.map(|it| Columns::parse(it).unwrap());
    let reading = Reading { columns, keeps_fields: true, ..Reading::default() };
    let rows = open_all(&[path.to_owned()], &reading).unwrap();
    let loaded = load_rows(rows).unwrap();
    assert!(loaded.bad_rows.is_empty(), "{:?}", loaded.bad_rows);
    loaded
}

/// The output of a session with a trace for the first of these rows, and the input as it was read.
fn taught(folder: &Path, rows: &[&str], columns: Option<&str>) -> (Dataset, PathBuf) {
    let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
    std::fs::write(&input, rows.join("\n")).unwrap();
    let plan = plan_of(read(&input, columns).dataset);
    let mut session = open(&plan, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
    session.record(0, 0, &completed("so \\boxed{4}"));
    session.write(true).unwrap();
    drop(session);
    (plan.sets[0].dataset.clone(), output)
}

/// The fields of a row but for those that a session adds.
fn fields(example: &Example, added: &[&str]) -> Value {
    let mut fields: Value = serde_json::from_str(example.fields.as_ref().unwrap()).unwrap();
    for name in added {
        fields.as_object_mut().unwrap().remove(*name);
    }
    fields
}

/// Without its fields: these have the session's beside them.
fn but_fields(example: &Example) -> Example {
    Example { fields: None, ..example.clone() }
}

#[test]
fn rows_keep_every_field_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        r#"{"id":7,"problem":"What is a?","answer":4,"level":2.5,"source":"s","subject":"t","tests":["x"],"prompt":{"a":1},"provenance":"old"}"#,
        r#"{"id":"b","problem":"What is b?","answer":"7","solution":"7","tests":[2,null]}"#,
        r#"{"id":"c","problem":"What is c?","answer":"8","solution":"It is \\boxed{8}.","level":"hard"}"#,
    ];
    let (data, output) = taught(folder.path(), &rows, None);
    let loaded = read(&output, None);
    assert_eq!(loaded.layout, "own");
    for (index, (before, after)) in data.examples.iter().zip(&loaded.dataset.examples).enumerate() {
        let mut expected = but_fields(before);
        if index == 0 {
            expected.teachers.insert(0, "so \\boxed{4}".to_owned());
        }
        assert_eq!(but_fields(after), expected);
        let added = ["teacher", "provenance"];
        assert_eq!(fields(after, &added), fields(before, &added));
    }
    // An earlier session's provenance is replaced.
    let written = std::fs::read_to_string(&output).unwrap();
    assert_eq!(written.matches(r#""provenance":"#).count(), 3);
}

#[test]
fn hints_and_several_gold_answers_come_back_by_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        r#"{"q":"What is a?","golds":["4","four"],"h1":"Add.","h2":["Add 2.","Add 2 twice."],"n":1}"#,
        r#"{"q":"What is b?","golds":"7","h1":"Count.","h2":[],"n":2}"#,
    ];
    let named = "problem=q,answer=golds,hint=h1,hint=h2";
    let (data, output) = taught(folder.path(), &rows, Some(named));
    assert_eq!((data.examples[0].hints.len(), data.examples[0].other_answers.len()), (3, 1));
    for columns in [
        "id=id,problem=problem,answer=answer,teacher=teacher,hint=hints",
        // The input's own names still do.
        "id=id,problem=q,answer=golds,teacher=teacher,hint=h1,hint=h2",
    ] {
        let loaded = read(&output, Some(columns));
        let mut expected: Vec<Example> = data.examples.iter().map(but_fields).collect();
        expected[0].teachers = vec!["so \\boxed{4}".to_owned()];
        let back: Vec<Example> = loaded.dataset.examples.iter().map(but_fields).collect();
        assert_eq!(back, expected, "{columns}");
    }
}

#[test]
fn rows_of_other_layouts_become_native_ones_with_what_else_they_had() {
    let folder = tempfile::tempdir().unwrap();
    let row = r#"{"data_source":"d","prompt":[{"role":"user","content":"What is a?"}],"target":null,"reward_model":{"ground_truth":"4","style":"rule"},"extra_info":{"id":"a","answer_list":["4"],"tests":["x"]}}"#;
    let (data, output) = taught(folder.path(), &[row], None);
    let loaded = read(&output, None);
    assert_eq!(loaded.layout, "own");
    let after = &loaded.dataset.examples[0];
    assert_eq!((&after.id, &after.answer), (&data.examples[0].id, &"4".to_owned()));
    assert_eq!(after.teachers[0], "so \\boxed{4}");
    let kept = fields(after, &[]);
    assert_eq!(kept["extra_info"], fields(&data.examples[0], &[])["extra_info"]);
    assert_eq!(kept["data_source"], "d");
}

#[test]
fn a_dialogue_is_refused_before_anything_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut data = dataset();
    data.examples[1].messages =
        ["user", "assistant", "user"].map(|role| Message::new(role, "What is b?")).to_vec();
    let output = folder.path().join("out.jsonl");
    let error = open(&plan_of(data), &output, rules(Rule::AllCorrect, Leaked::Last)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "a dialogue of several turns has no place in the output (row 2, id b)"
    );
}

#[test]
fn journal_survives_an_incomplete_line_and_refuses_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, output) = (plan(), folder.path().join("out.jsonl"));
    let mut session = open(&plan, &output, rules(Rule::AllCorrect, Leaked::Last)).unwrap();
    session.record(0, 0, &completed("\\boxed{4}"));
    session.record(1, 2, &completed("\\boxed{7}"));
    let again = open(&plan, &output, rules(Rule::AllCorrect, Leaked::Last));
    let busy = again.err().unwrap().to_string();
    assert!(busy.ends_with("is in use by another process"), "{busy}");
    drop(session);
    let journal = folder.path().join("out.jsonl.journal");
    let whole = std::fs::read(&journal).unwrap();
    assert_eq!(whole.split(|it| *it == b'\n').count(), 4);
    for cut in 0..=whole.len() {
        std::fs::write(&journal, &whole[..cut]).unwrap();
        let session = open(&plan, &output, rules(Rule::AllCorrect, Leaked::Last)).unwrap();
        let lines = whole[..cut].split(|it| *it == b'\n').count() - 1;
        assert_eq!(session.summary().resumed, lines.saturating_sub(1), "{cut}");
        assert_eq!(session.has(1, 2), cut == whole.len());
    }
    std::fs::write(&journal, &whole).unwrap();
    let mut warmer = plan.clone();
    warmer.sampling.temperature = 0.75;
    let other = |temperature, mode| {
        let plan = if temperature == 0.5 { &plan } else { &warmer };
        let rules = rules(Rule::AllCorrect, Leaked::Last);
        Completions::of_teacher(plan, &output, rules, mode)
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
    let (plan, output) = (plan(), folder.path().join("out.jsonl"));
    let failed = RawCompletion { text: None, failed: Some("status 500".into()), ..completed("") };
    let again = |retry| {
        let rules = rules(Rule::AllCorrect, Leaked::Last);
        let session = open(&plan, &output, rules).unwrap();
        if retry { session.retrying_failed() } else { session }
    };
    again(false).record(0, 1, &failed);
    assert_eq!(again(false).wanted(0), [0, 2]);
    let mut session = again(true);
    assert_eq!(session.wanted(0), [0, 1, 2]);
    session.record(0, 1, &completed("\\boxed{4}"));
    drop(session);
    assert_eq!(again(false).chosen(0), [1]);
}
