//! Whatever is written is read back.

use super::samples;
use crate::{
    Container, Dataset, Example, Format, Message, Reading, Row, Writer, Written, load, open_all,
};
use proptest::prelude::*;
use std::path::Path;

fn write(path: &Path, format: Format, examples: &[Example]) -> Result<Written, hapo_core::Refusal> {
    let mut writer = Writer::create(path, format)?;
    for it in examples {
        writer.write(it)?;
    }
    writer.finish()
}

/// Everything that a layout keeps.
fn content(dataset: &Dataset) -> Vec<Example> {
    let examples = dataset.examples.iter().cloned();
    examples.map(|it| Example { row: 0, ..it }).collect()
}

fn examples() -> Vec<Example> {
    let text = |it: &str| Some(it.to_owned());
    vec![
        Example {
            id: "a".into(),
            problem: "1+1?\n½😀".into(),
            answer: "2".into(),
            teachers: vec!["<think>\nwell\n</think>\n\\boxed{2}".into()],
            source: text("s"),
            level: text("3"),
            subject: text("arithmetic"),
            ..Example::default()
        },
        Example {
            id: "b".into(),
            problem: "2+2?".into(),
            answer: "025".into(),
            source: text("s"),
            subject: text("arithmetic"),
            ..Example::default()
        },
        Example {
            id: "c".into(),
            problem: "3+3?".into(),
            answer: "\\frac{1}{2}".into(),
            teachers: vec!["one".into()],
            source: text("s"),
            subject: text("arithmetic"),
            ..Example::default()
        },
    ]
}

#[test]
fn several_gold_answers_of_the_native_layout_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    std::fs::write(&path, r#"{"id":"a","problem":"1+1?","answer":["2",3]}"#).unwrap();
    let read = content(&load(&path).unwrap().dataset);
    assert_eq!((&*read[0].answer, &*read[0].other_answers), ("2", &["3".to_owned()][..]));
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_a_pipe_a_pipe() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    symlink("real.jsonl", at("link.jsonl")).unwrap();
    std::fs::write(at("real.jsonl"), "before").unwrap();
    write(&at("link.jsonl"), Format::Own, &examples()).unwrap();
    assert!(at("link.jsonl").is_symlink());
    assert_eq!(load(&at("real.jsonl")).unwrap().dataset.examples.len(), 3);

    let pipe = at("pipe.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    write(&pipe, Format::Own, &examples()).unwrap();
    assert_eq!(reader.join().unwrap().lines().count(), 3);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

fn check(format: Format, layout: &str, examples: &[Example]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let written = write(&path, format, examples).unwrap();
    assert_eq!(written.rows, examples.len() as u64);
    let loaded = load(&path).unwrap();
    assert_eq!((loaded.layout, &loaded.bad_rows[..]), (layout, &[][..]));
    assert_eq!(content(&loaded.dataset), examples);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "nothing else is left beside the file");
}

#[test]
fn every_format_comes_back() {
    let mut examples = examples();
    check(Format::Own, "own", &examples);
    check(Format::Verl { teachers: 1, tokens: false }, "luffy", &examples);
    for it in &mut examples {
        it.system = Some("Think.".into());
    }
    check(Format::Verl { teachers: 1, tokens: false }, "luffy", &examples);
    check(Format::Trl, "trl-sft", &examples[..1]);
    check(Format::Trl, "trl-grpo", &examples[1..2]);
    examples[1].teachers = vec!["one".into(), "two".into()];
    check(Format::Verl { teachers: 2, tokens: false }, "luffy", &examples);
    for it in &mut examples {
        it.teachers.clear();
    }
    check(Format::Verl { teachers: 0, tokens: false }, "verl", &examples);
    examples[0].system = None;
    examples[0].messages = ["user", "assistant", "user"]
        .map(|role| Message { role: role.into(), content: format!("{role} speaks") })
        .into();
    examples[0].problem = "user speaks".into();
    check(Format::Verl { teachers: 0, tokens: false }, "verl", &examples);
    check(Format::Trl, "trl-grpo", &examples);
}

#[test]
fn every_sample_can_be_converted() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for sample in samples::all() {
        std::fs::write(&from, &sample.bytes).unwrap();
        let examples: Vec<Example> = open_all(std::slice::from_ref(&from), &Reading::default())
            .unwrap()
            .map(|row| match row.unwrap() {
                Row::Good(it) => it,
                Row::Bad(it) => panic!("{it}"),
            })
            // Documents without a problem, golds that are several or missing have no place in every layout.
            .filter(|it| !it.problem.is_empty() && !it.answer.is_empty())
            .map(|it| Example { other_answers: vec![], ..it })
            .collect();
        let teachers = examples.iter().map(|it| it.teachers.len()).max().unwrap_or(0);
        for format in [Format::Own, Format::Verl { teachers, tokens: false }] {
            write(&to, format, &examples).unwrap();
            let loaded = load(&to).unwrap();
            assert_eq!(loaded.bad_row_count, 0);
            let key = |it: &Example| {
                (it.id.clone(), it.problem.clone(), it.answer.clone(), it.teachers.clone())
            };
            let back: Vec<_> = loaded.dataset.examples.iter().map(key).collect();
            let mut expected: Vec<_> = examples.iter().map(key).collect();
            if format != Format::Own {
                // Copies are one example again.
                expected.dedup_by(|a, b| a.1 == b.1 && a.2 == b.2);
            }
            assert_eq!(back, expected, "{} as {format:?}", sample.layout);
        }
    }
}

#[test]
fn a_file_is_what_its_ending_says() {
    let folder = tempfile::tempdir().unwrap();
    for (ending, container) in [
        ("jsonl", Container::JsonLines),
        ("json", Container::JsonArray),
        ("parquet", Container::Parquet),
    ] {
        for format in [Format::Own, Format::Verl { teachers: 1, tokens: false }, Format::Trl] {
            let path = folder.path().join(format!("out.{ending}"));
            let rows = examples();
            write(&path, format, &rows).unwrap();
            let loaded = load(&path).unwrap();
            assert_eq!((loaded.container, loaded.bad_row_count), (container, 0), "{format:?}");
            assert_eq!(content(&loaded.dataset), rows, "{format:?} {ending}");
        }
    }
    write(&folder.path().join("none.json"), Format::Own, &[]).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("none.json")).unwrap(), "[]\n");
    for name in ["out.csv", "out.jsonl.gz", "out.arrow"] {
        let error = write(&folder.path().join(name), Format::Own, &examples()).unwrap_err();
        let expected = format!("{name}: expected a name that ends in .jsonl, .json or .parquet");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

/// Few rows have a teacher or most, the first or only the last.
#[test]
fn trl_gives_back_rows_with_a_teacher_and_rows_without() {
    let folder = tempfile::tempdir().unwrap();
    let with_teachers: [fn(usize) -> bool; 4] =
        [|number| number == 0, |number| number < 30, |number| number > 9, |number| number == 99];
    for has_teacher in with_teachers {
        let row = |number: usize| Example {
            id: format!("i{number}"),
            problem: format!("{number}+0?"),
            answer: number.to_string(),
            teachers: vec!["so it is".to_owned(); usize::from(has_teacher(number))],
            ..Example::default()
        };
        let rows: Vec<Example> = (0..100).map(row).collect();
        for ending in ["jsonl", "parquet"] {
            let path = folder.path().join(format!("out.{ending}"));
            write(&path, Format::Trl, &rows).unwrap();
            let loaded = load(&path).unwrap();
            assert_eq!(loaded.bad_row_count, 0, "{:?}", loaded.bad_rows.first());
            assert!(content(&loaded.dataset) == rows, "{ending}");
        }
    }
}

#[test]
fn a_row_without_a_source_gets_one_that_verl_can_score() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let rows = [Example { source: None, ..examples().swap_remove(1) }];
    let written = write(&path, Format::Verl { teachers: 0, tokens: false }, &rows).unwrap();
    assert_eq!((written.rows, written.without_source), (1, 1));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(r#""data_source":"lighteval/MATH""#), "{text}");
}

#[test]
fn rows_without_a_place_are_refused_and_nothing_appears() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    std::fs::write(&path, "before").unwrap();
    let mut rows = examples();
    rows[1].answer.clear();
    rows[1].row = 17;
    let message = write(&path, Format::Own, &rows).unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "{}: row 17: answer: a row without a gold answer has no place in this layout",
            path.display()
        )
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn teachers_beyond_the_first_are_counted_for_trl() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = examples();
    rows[0].teachers.push("two".into());
    let written = write(&folder.path().join("out"), Format::Trl, &rows).unwrap();
    assert_eq!(
        written,
        Written { rows: 3, teachers_left_out: 1, systems_left_out: 0, without_source: 0 }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn parquet_keeps_every_text(rows in proptest::collection::vec(("\\PC{1,30}", "\\PC{1,9}", proptest::collection::vec("\\PC{1,20}", 0..3)), 1..40)) {
        let rows: Vec<Example> = rows.into_iter().zip(0..).map(|((problem, answer, teachers), number)| Example {
            id: format!("i{number}"),
            problem: format!("{number}{problem}"),
            // A text that is a number in e-notation would be read as that number, `n/A` as a missing answer.
            answer: format!("x{}", answer.trim()),
            // Equal teachers of a row are one.
            teachers: teachers.into_iter().zip(0..).map(|(it, n)| format!("{it}{n}.")).collect(),
            ..Example::default()
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        write(&path, Format::Verl { teachers: 2, tokens: false }, &rows).unwrap();
        let back: Vec<Example> = content(&load(&path).unwrap().dataset)
            .into_iter()
            .map(|it| Example { subject: None, source: None, ..it })
            .collect();
        prop_assert_eq!(back, rows);
    }
}
