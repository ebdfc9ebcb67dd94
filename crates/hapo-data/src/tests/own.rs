use crate::container::{Container, Opened, lines};
use crate::layouts::OWN;
use crate::{DATASET_LAYOUTS, Dataset, Example, Row, Rows, load, write_row};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Rows of the native layout out of lines of at most 1,000 bytes.
fn read_rows<'a>(reader: impl BufRead + 'a, file: &str) -> Rows<'a> {
    let rows = lines(reader, Path::new(file), 1000);
    let opened = Opened { container: Container::JsonLines, compression: None, rows };
    Rows::new(Path::new(file), &OWN, VecDeque::new(), opened)
}

fn rows(bytes: &[u8]) -> Vec<Row> {
    read_rows(bytes, "f.jsonl").map(Result::unwrap).collect()
}

fn good(bytes: &[u8]) -> Vec<Example> {
    rows(bytes)
        .into_iter()
        .map(|row| match row {
            // These tests do not compare row numbers.
            Row::Good(example) => Example { row: 0, ..example },
            Row::Bad(bad) => panic!("{bad}"),
        })
        .collect()
}

fn check_bad(bytes: impl AsRef<[u8]>, expected: &Expect) {
    let messages: String = rows(bytes.as_ref())
        .into_iter()
        .map(|row| match row {
            Row::Good(example) => format!("good: {}\n", example.id),
            Row::Bad(bad) => format!("{bad}\n"),
        })
        .collect();
    expected.assert_eq(&messages);
}

#[test]
fn all_fields_are_read() {
    let text = r#"{"id":"a","problem":"1+1?","answer":"2","teacher":"\\boxed{2}","source":"s","level":3,"subject":"x"}
{"subject":null,"level":"Level 5","teacher":["one","two"],"answer":"½","problem":"p","id":7}
{"id":"c","problem":"p","answer":"-1","teacher":null}
"#;
    let text_of = |text: &str| Some(text.to_owned());
    let expected = [
        Example {
            id: "a".into(),
            problem: "1+1?".into(),
            answer: "2".into(),
            teachers: vec!["\\boxed{2}".into()],
            source: text_of("s"),
            level: text_of("3"),
            subject: text_of("x"),
            ..Example::default()
        },
        Example {
            id: "7".into(),
            problem: "p".into(),
            answer: "½".into(),
            teachers: vec!["one".into(), "two".into()],
            level: text_of("Level 5"),
            ..Example::default()
        },
        Example { id: "c".into(), problem: "p".into(), answer: "-1".into(), ..Example::default() },
    ];
    assert_eq!(good(text.as_bytes()), expected);
}

#[test]
fn bad_rows_are_named_and_the_others_read() {
    check_bad(
        r#"{"id":"a","problem":"p","answer":"1"}

{"problem":"p","answer":"1"}
{"id":"","problem":"p","answer":"1"}
{"id":-1,"problem":"p","answer":"1"}
{"id":1.5,"problem":"p","answer":"1"}
{"id":"b","answer":"1"}
{"id":"b","problem":"  ","answer":"1"}
{"id":"b","problem":"p","answer":12}
{"id":"b","problem":"p","answer":null}
{"id":"b","problem":"p","answer":""}
{"id":"b","problem":["p"],"answer":"1"}
{"id":"b","problem":"p","answer":"1","teacher":7}
{"id":"b","problem":"p","answer":"1","teacher":["x",null]}
{"id":"b","problem":"p","answer":"1","teacher":""}
{"id":"b","problem":"p","answer":"1","teacher":"x<|im_end|>\n"}
{"id":"b","problem":"p","answer":"1","level":[1,2]}
{"id":"b","problem":"p","answer":"1","source":{}}
{"id":"b","problem":"p","answer":"1","answer":"2"}
{"id":"a","problem":"p","answer":"1"}
{"id":"last","problem":"p","answer":"1"}"#,
        &expect![[r#"
            good: a
            good: row-3
            f.jsonl:4: id: expected a string or a whole number, got ""
            f.jsonl:5: id: expected a string or a whole number, got -1
            f.jsonl:6: id: expected a string or a whole number, got 1.5
            f.jsonl:7: problem: expected a string that is not empty, got nothing
            f.jsonl:8: problem: expected a string that is not empty, got "  "
            good: b
            f.jsonl:10: answer: expected a gold answer: a string that is not empty, a finite number or a list of them, got null
            f.jsonl:11: answer: expected a gold answer: a string that is not empty, a finite number or a list of them, got ""
            f.jsonl:12: problem: expected a string that is not empty, got a list of 1
            f.jsonl:13: teacher: expected a string or a list of strings, none empty, got 7
            f.jsonl:14: teacher: expected a string or a list of strings, none empty, got null
            f.jsonl:15: teacher: expected a string or a list of strings, none empty, got an empty string
            f.jsonl:16: teacher: expected a solution without its end token, got one that ends in <|im_end|>
            f.jsonl:17: id: expected an id of its own (line 9 has this one), got "b"
            f.jsonl:18: id: expected an id of its own (line 9 has this one), got "b"
            f.jsonl:19: answer: expected the field once, got it twice
            f.jsonl:20: id: expected an id of its own (line 1 has this one), got "a"
            good: last
        "#]],
    );
}

#[test]
fn what_is_not_json_is_named() {
    check_bad(
        r#"[1]
"text"
null
{"id":
{"id":"a","problem":"p","answer":NaN}
{"id":"a","problem":"p","answer":"1","level":1e999}
{"id":"a","problem":"p","answer":"1"} extra
{"id":"a","problem":"\ud800","answer":"1"}"#,
        &expect![[r#"
            f.jsonl:1: row: expected one JSON object, got [1]
            f.jsonl:2: row: expected one JSON object, got "text"
            f.jsonl:3: row: expected one JSON object, got null
            f.jsonl:4: row: expected one JSON object, got EOF while parsing a value at column 6 of {"id":
            f.jsonl:5: row: expected one JSON object, got expected value at column 34 of {"id":"a","problem":"p","answer":NaN}
            good: a
            f.jsonl:7: row: expected one JSON object, got trailing characters at column 39 of {"id":"a","problem":"p","answer":"1"} extra
            f.jsonl:8: id: expected an id of its own (line 6 has this one), got "a"
        "#]],
    );
    check_bad(
        b"{\"id\":\"\xFF\"}\n\xC3",
        &expect![[r"
        f.jsonl:1: row: expected UTF-8, got an invalid byte at position 8
        f.jsonl:2: row: expected UTF-8, got an invalid byte at position 1
    "]],
    );
    check_bad(
        "[".repeat(900),
        &expect![[r"
            f.jsonl:1: row: expected one JSON object, got [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[…
        "]],
    );
    check_bad(
        format!("{{\"id\":{}1{}", "[".repeat(400), "]".repeat(400)),
        &expect![[r#"
            f.jsonl:1: row: expected one JSON object, got EOF while parsing an object at column 807 of {"id":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[…
        "#]],
    );
    check_bad(
        "\0\0\0\n\r\n \t",
        &expect![[r"
            f.jsonl:1: row: expected one JSON object, got expected value at column 1 of ���
        "]],
    );
}

#[test]
fn long_lines_are_skipped_whole_and_named() {
    let row = |id: &str, length: usize| {
        let empty = format!("{{\"id\":\"{id}\",\"problem\":\"\",\"answer\":\"1\"}}").len();
        format!(
            "{{\"id\":\"{id}\",\"problem\":\"{}\",\"answer\":\"1\"}}",
            "x".repeat(length - empty)
        )
    };
    let text = [row("a", 1000), row("b", 1001), row("c", 5000), row("d", 999), row("e", 70_000)]
        .join("\n");
    // A reader that hands out few bytes at a time takes the same path through every piece.
    for capacity in [1, 7, 1000, 1 << 16] {
        let reader = BufReader::with_capacity(capacity, text.as_bytes());
        let messages: Vec<String> = read_rows(reader, "f")
            .map(|row| match row.unwrap() {
                Row::Good(example) => example.id,
                Row::Bad(bad) => bad.to_string(),
            })
            .collect();
        assert_eq!(
            messages,
            [
                "a",
                "f:2: row: expected at most 1000 bytes in a line, got 1001 bytes",
                "f:3: row: expected at most 1000 bytes in a line, got 5000 bytes",
                "d",
                "f:5: row: expected at most 1000 bytes in a line, got 70000 bytes",
            ]
        );
    }
}

#[test]
fn long_values_are_shortened_in_messages() {
    let line = format!(
        r#"{{"id":"a","problem":"p","answer":"1","level":"x","teacher":{}}}"#,
        "1".repeat(300)
    );
    let Row::Bad(bad) = &rows(line.as_bytes())[0] else { panic!("a number is no teacher") };
    assert!(bad.got.chars().count() <= 81, "{}", bad.got);
}

#[test]
fn byte_order_mark_and_carriage_returns_are_tolerated() {
    let text = "\u{feff}{\"id\":\"a\",\"problem\":\"p\",\"answer\":\"1\"}\r\n\r\n{\"id\":\"b\",\"problem\":\"p\",\"answer\":\"1\"}\r\n";
    let ids: Vec<String> = good(text.as_bytes()).into_iter().map(|example| example.id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn fields_nobody_reads_are_counted() {
    let mut rows = read_rows(
        &b"{\"id\":\"a\",\"problem\":\"p\",\"answer\":\"1\",\"teachers\":\"x\"}\n{\"id\":\"b\",\"problem\":\"p\",\"answer\":\"1\",\"teachers\":\"x\",\"u\":{}}"[..],
        "f",
    );
    assert_eq!(rows.by_ref().filter(|row| matches!(row, Ok(Row::Good(_)))).count(), 2);
    assert_eq!(
        rows.unread.ignored_fields,
        BTreeMap::from([("teachers".to_owned(), 2), ("u".to_owned(), 1)])
    );
}

#[test]
fn files_are_recognised_by_content_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.any");
    let dataset = Dataset {
        examples: vec![
            Example {
                id: "a".into(),
                problem: "line\nbreak \"quoted\" \\boxed{} \u{2028} ½😀".into(),
                answer: "2".into(),
                teachers: vec!["one".into(), "two\u{0}".into()],
                source: Some("s".into()),
                level: Some("3".into()),
                subject: Some(String::new()),
                row: 1,
                ..Example::default()
            },
            Example {
                id: "b".into(),
                problem: "p".into(),
                answer: "1".into(),
                row: 2,
                ..Example::default()
            },
        ],
    };
    let mut file = std::fs::File::create(&path).unwrap();
    dataset.examples.iter().for_each(|it| write_row(&mut file, it).unwrap());
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.ends_with("{\"id\":\"b\",\"problem\":\"p\",\"answer\":\"1\"}\n"), "{written}");
    let loaded = load(&path).unwrap();
    assert_eq!((loaded.dataset, loaded.layout, loaded.bad_row_count), (dataset, "own", 0));
}

#[test]
fn every_bad_row_of_a_file_counts_and_the_first_thousand_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.jsonl");
    std::fs::write(&path, "{\"problem\":1}\n".repeat(1500)).unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!((loaded.bad_row_count, loaded.bad_rows.len()), (1500, 1000));
    assert_eq!(
        loaded.bad_rows[999].to_string(),
        format!("{}:1000: problem: expected a string that is not empty, got 1", path.display())
    );
}

fn check_refused(content: impl AsRef<[u8]>, expected: &Expect) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other");
    std::fs::write(&path, content).unwrap();
    let message = load(&path).unwrap_err().to_string();
    expected.assert_eq(&message.replace(&path.display().to_string(), "f"));
}

#[test]
fn files_that_are_not_ours_are_refused_by_name() {
    check_refused("", &expect!["f: expected rows, got none"]);
    check_refused("PAR1", &expect!["f: the file ends too early"]);
    check_refused("[]", &expect!["f: expected rows, got none"]);
    check_refused(
        "[1]",
        &expect!["f: row 1: row: expected one JSON object, got 1; no row can be read"],
    );
    check_refused("{\"x\":\"p\"}", &expect!["f: no known dataset layout has these columns: x"]);
    check_refused(
        "who,what\n1+1,2\n",
        &expect![
            "f:1: row: expected one JSON object, got expected value at column 1 of who,what; no row can be read"
        ],
    );
    check_refused(
        "\x1f\u{8b}",
        &expect![
            "f:1: row: expected one JSON object, got expected value at column 1 of ��; no row can be read"
        ],
    );
    check_refused([0x1f, 0x8b, 8, 0], &expect!["f: row 1: unexpected end of file"]);
    check_refused([0x28, 0xb5, 0x2f, 0xfd, 9], &expect!["f: row 1: incomplete frame"]);
    check_refused(
        [0xff; 40],
        &expect!["f: row 1: a message of 4294967295 bytes of metadata cannot be"],
    );
    check_refused("ARROW1\0\0", &expect!["f: expected rows, got none"]);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    assert!(load(&missing).unwrap_err().to_string().contains(&missing.display().to_string()));
    assert!(load(folder.path()).is_err());
    assert_eq!(DATASET_LAYOUTS.len(), 14);
}

proptest! {
    #[test]
    fn any_bytes_give_rows_or_reasons(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let count = rows(&bytes).len();
        prop_assert!(count <= bytes.split(|byte| *byte == b'\n').count());
    }

    #[test]
    fn broken_rows_give_rows_or_reasons(cut in 0_usize..90, byte in any::<u8>(), place in 0_usize..90) {
        let mut line = br#"{"id":"a","problem":"p\u00e9","answer":"1","teacher":["x","y"],"level":12.5,"source":null}"#.to_vec();
        let place = place.min(line.len() - 1);
        line[place] = byte;
        line.truncate(line.len() - cut.min(line.len()));
        prop_assert!(rows(&line).len() <= 2);
    }

    #[test]
    fn whatever_is_written_is_read_back(id in "\\PC{1,9}", problem in "\\PC{0,40}", teachers in proptest::collection::vec("\\PC{0,20}", 0..3)) {
        let example = Example {
            id,
            problem: problem + "?",
            answer: "1".into(),
            teachers: teachers.into_iter().map(|teacher| teacher + ".").collect(),
            ..Example::default()
        };
        let mut written = Vec::new();
        write_row(&mut written, &example).unwrap();
        prop_assert_eq!(good(&written), vec![example]);
    }
}
