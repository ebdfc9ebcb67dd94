//! Data as they lie around: every shape reads with its teachers.
//!
//! The files of `testdata/shapes` are written by `datasets`, pandas and pyarrow (`make_shapes.py` there).

use std::fs;
use std::path::{Path, PathBuf};

use hapo_data::{Columns, Container, Loaded, Reading, data_files, load, load_rows, open_all};

fn by(columns: Columns) -> Reading {
    Reading { columns: Some(columns), ..Reading::default() }
}

fn shapes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/shapes")
}

/// Layout, problems and solutions of a file without bad rows.
fn summary(loaded: &Loaded) -> (&'static str, usize, usize) {
    assert_eq!(loaded.bad_row_count, 0, "{:?}", loaded.bad_rows);
    let examples = &loaded.dataset.examples;
    (loaded.layout, examples.len(), examples.iter().map(|it| it.teachers.len()).sum())
}

#[test]
fn files_and_folders_of_the_ecosystem_are_read_with_their_teachers() {
    for (path, container, problems) in [
        ("save_to_disk", Container::Arrow, 8),
        ("dataset_dict", Container::Arrow, 5),
        ("dataset_dict/test", Container::Arrow, 3),
        ("hub", Container::Parquet, 8),
        ("hub/data/train-*.parquet", Container::Parquet, 8),
        ("hub/data/test-00000-of-00001.parquet", Container::Parquet, 2),
        ("pandas.csv", Container::Csv, 8),
        ("pandas.tsv", Container::Csv, 8),
        ("datasets.csv", Container::Csv, 8),
        ("lz4.parquet", Container::Parquet, 8),
        ("checksums.parquet", Container::Parquet, 8),
        ("pages-2.parquet", Container::Parquet, 8),
        ("delta.parquet", Container::Parquet, 8),
    ] {
        let loaded = load(&shapes().join(path)).unwrap();
        assert_eq!(summary(&loaded), ("oat", problems, problems), "{path}");
        assert_eq!(loaded.container, container, "{path}");
        let first = &loaded.dataset.examples[0];
        if !path.contains("test") {
            assert_eq!((&*first.problem, &*first.answer), ("What is 0 + 1?", "1"), "{path}");
            assert_eq!(first.teachers, ["Add 0 and 1: it is \\boxed{1}."], "{path}");
            let last = loaded.dataset.examples.last().unwrap();
            let expected = 3 * (problems - 1) + 1;
            assert_eq!(last.answer, expected.to_string(), "{path}");
        }
        // Ids are the program's own, and no two files of a set share one.
        let mut ids: Vec<&str> = loaded.dataset.examples.iter().map(|it| &*it.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), problems, "{path}");
    }
    let error = load(&shapes().join("brotli.parquet")).unwrap_err().to_string();
    let expected = "row group 1, column 1: write the file with snappy or zstd: Brotli is not read";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn lists_are_read_one_after_the_other() {
    let all = ["pandas.csv", "hub", "lz4.parquet"].map(|it| shapes().join(it));
    let loaded = load_rows(open_all(&all, &Reading::default()).unwrap()).unwrap();
    assert_eq!((loaded.layout, loaded.bad_row_count), ("oat", 0));
    // The same eight problems three times.
    let copies: Vec<u32> = loaded.dataset.examples.iter().map(|it| it.copies).collect();
    assert_eq!(copies, [2; 8]);
}

/// Rows as JSON lines.
fn read(rows: &str) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    fs::write(&file, rows).unwrap();
    load(&file).unwrap()
}

#[test]
fn every_layout_of_rows_gives_its_teachers() {
    let worked = r"So it is \\boxed{42}.";
    for (layout, rows, teachers) in [
        ("own", r#"{"problem":"p","answer":"42","teacher":"SOLUTION"}"#, 1),
        ("own", r#"{"id":"a","problem":"p","answer":42,"teacher":"SOLUTION"}"#, 1),
        ("own", r#"{"id":7,"problem":"p","answer":42.0}"#, 0),
        ("oat", r#"{"problem":"p","solution":"SOLUTION","answer":"42"}"#, 1),
        ("oat", r#"{"problem":"p","solution":"42","answer":"42"}"#, 0),
        ("oat", r#"{"problem":"p","solution":"","answer":"42"}"#, 0),
        ("plain", r#"{"problem":"p","level":"Level 5","type":"Algebra","solution":"SOLUTION"}"#, 1),
        ("plain", r#"{"ID":"2024-I-1","Problem":"p","Answer":42,"Solution":"SOLUTION"}"#, 1),
        ("plain", r#"{"question":"p","answer":"42"}"#, 0),
        ("plain", r#"{"Question":"p","Answer":"Well.\n#### 42"}"#, 1),
        ("gsm8k", r#"{"question":"p","answer":"Well, <<40+2=42>>42.\n#### 42"}"#, 1),
        ("trl-grpo", r#"{"prompt":"p","solution":"42"}"#, 0),
        ("trl-grpo", r#"{"prompt":"p","solution":"SOLUTION","answer":"42"}"#, 1),
        ("trl-grpo", r#"{"prompt":[{"role":"user","content":"p"}],"solution":"SOLUTION"}"#, 1),
        (
            "sharegpt",
            r#"{"conversations":[{"from":"human","value":"p"},{"from":"gpt","value":"SOLUTION"}]}"#,
            1,
        ),
        (
            "trl-sft",
            r#"{"problem":"p","messages":[{"role":"user","content":"p"},{"role":"assistant","content":"SOLUTION"}]}"#,
            1,
        ),
        (
            "trl-sft",
            r#"{"prompt":"p","answer":"42","messages":[{"role":"user","content":"p"},{"role":"assistant","content":"SOLUTION"}]}"#,
            1,
        ),
        ("input-output", r#"{"instruction":"p","input":"","output":"SOLUTION"}"#, 1),
        (
            "verl",
            r#"{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"p"}],"reward_model":{"ground_truth":"42"},"extra_info":{"answer":"Well.\n#### 42"}}"#,
            1,
        ),
    ] {
        let loaded = read(&rows.replace("SOLUTION", worked));
        assert_eq!(summary(&loaded), (layout, 1, teachers), "{rows}");
        let example = &loaded.dataset.examples[0];
        assert_eq!((&*example.problem, &*example.answer), ("p", "42"), "{rows}");
    }
}

/// Few rows have one, and the first may come after the 64 rows that a file is recognised by.
#[test]
fn teachers_of_few_rows_are_read() {
    // The first row with one, and one of how many.
    for (layout, count, first, every) in
        [("own", 40, 0, 4), ("own", 64, 63, 1), ("oat", 100, 99, 1)]
    {
        let has_teacher = |number: usize| number >= first && (number - first).is_multiple_of(every);
        let row = |number: usize| {
            let teacher = if has_teacher(number) { ",\"teacher\":\"so it is\"" } else { "" };
            format!("{{\"problem\":\"{number}+0?\",\"answer\":\"{number}\"{teacher}}}\n")
        };
        let rows: Vec<String> = (0..count).map(row).collect();
        let teachers = (0..count).filter(|number| has_teacher(*number)).count();
        assert_eq!(summary(&read(&rows.concat())), (layout, count, teachers));
    }
}

#[test]
fn named_columns_read_what_no_layout_fits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    let rows = r#"{"q":"p","meta":{"gold":[42,"42.0"],"n":3},"r1":"So \\boxed{42}","qwen":["No.",null,"So \\boxed{42}"]}"#;
    fs::write(&file, rows).unwrap();
    assert!(load(&file).unwrap_err().to_string().contains("no known dataset layout"));
    let columns =
        Columns::parse("problem=q, answer=meta.gold, teacher=r1, teacher=qwen, id=meta.n").unwrap();
    let loaded = load_rows(open_all(std::slice::from_ref(&file), &by(columns)).unwrap()).unwrap();
    assert_eq!(summary(&loaded), ("columns", 1, 2));
    assert!(loaded.unread.ignored_fields.is_empty(), "{:?}", loaded.unread.ignored_fields);
    let example = &loaded.dataset.examples[0];
    assert_eq!((&*example.id, &*example.answer), ("3", "42"));
    assert_eq!(example.other_answers, ["42.0"]);
    assert_eq!(example.teachers, ["So \\boxed{42}", "No."]);

    for (text, expected) in [
        ("answer=a", "columns: expected problem"),
        ("problem=q", "columns: expected answer or teacher"),
        ("problem=q,answer=", "columns: expected the name of a column behind each ="),
        ("problem=q,gold=a", "unknown column `gold`, expected one of: problem, answer, teacher"),
    ] {
        let error = Columns::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    // A column that is not there is a bad row that names it.
    let columns = Columns::parse("problem=nothing,answer=q").unwrap();
    let loaded = load_rows(open_all(&[file], &by(columns)).unwrap()).unwrap();
    assert!(loaded.bad_rows[0].to_string().contains("nothing: expected a string"));
}

#[test]
fn solutions_that_nobody_reads_are_noticed() {
    let long = "First this, then that, and in the end it is plain to see.";
    let rows = format!(
        r#"{{"problem":"p","answer":"1","generations":["{long}"],"note":"so \\boxed{{1}} it is, after all that was said","url":"{long}"}}"#
    );
    let loaded = read(&rows);
    let names: Vec<&str> = loaded.unread.unread_solutions.keys().map(String::as_str).collect();
    assert_eq!(names, ["generations", "note"]);
}

#[test]
fn a_solution_that_only_says_the_answer_is_noticed_and_read_where_it_is_named() {
    let cases = [
        (r#"{"problem":"p","answer":"2011-10-08","solution":" 2011-10-08"}"#, true),
        (r#"{"problem":"p","answer":"XIV","solution":"X + IV, so XIV","rationale":"XIV"}"#, false),
        (r#"{"question":"q","Answer":"yes","Rationale":"yes"}"#, true),
        (r#"{"question":"q","answer":"yes","rationale":["yes"]}"#, true),
        // Taken as they are: a text that the row marks as the teacher's, an object, a gold's only column.
        (r#"{"problem":"p","answer":"yes","teacher":"yes"}"#, false),
        (r#"{"problem":"p","answer":"{\"a\": 1}","solution":"{\"a\": 1}"}"#, false),
        (r#"{"prompt":"p","solution":"yes"}"#, false),
    ];
    for (row, is_noticed) in cases {
        let unread = read(row).unread.unread_solutions;
        assert_eq!(!unread.is_empty(), is_noticed, "{row}: {unread:?}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), cases[0].0).unwrap();
    let columns = Columns::parse("problem=problem,answer=answer,teacher=solution").unwrap();
    let files = [file.path().to_owned()];
    let loaded = load_rows(open_all(&files, &by(columns)).unwrap()).unwrap();
    assert_eq!(loaded.dataset.examples[0].teachers, [" 2011-10-08"]);
    assert!(loaded.unread.unread_solutions.is_empty());
}

#[test]
fn a_folder_that_leaves_something_open_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |it: &str| dir.path().join(it);
    let write = |name: &str| {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), "{\"problem\":\"p\",\"answer\":\"1\"}\n").unwrap();
    };
    let refused = |folder: &str, expected: &str| {
        let error = data_files(&path(folder)).unwrap_err().to_string();
        let error = error.replace(&format!("{}/", dir.path().display()), "");
        assert_eq!(error, format!("{folder}: {expected}"));
    };
    fs::create_dir(path("empty")).unwrap();
    refused("empty", "no file with rows in it (JSON, Parquet, Arrow, CSV)");
    write("splits/test.jsonl");
    write("splits/validation.jsonl.gz");
    refused(
        "splits",
        "no training split, name one of splits/test.jsonl, splits/validation.jsonl.gz",
    );
    write("configs/main/train.jsonl");
    write("configs/socratic/train.jsonl");
    refused("configs", "rows in several folders, name one of configs/main, configs/socratic");
    refused("none/*.jsonl", "no file has such a name");
    write("splits/train.jsonl");
    write("splits/README.md");
    write("splits/.cache/train.jsonl");
    assert_eq!(data_files(&path("splits")).unwrap(), [path("splits/train.jsonl")]);
}

#[test]
fn cells_of_csv_are_read_as_they_are_meant() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.csv");
    let load = |text: &[u8]| {
        fs::write(&file, text).unwrap();
        load(&file).unwrap()
    };
    let loaded = load(
        "\u{feff}id;question;answer;solution\r\n1;\"two\nlines; \"\"quoted\"\"\";42;\r\n2;p;-1,5;\"So \\boxed{-1,5}, as was to be shown\"\r\n".as_bytes(),
    );
    assert_eq!(summary(&loaded), ("plain", 2, 1));
    let [first, second] = &loaded.dataset.examples[..] else { panic!("two rows") };
    assert_eq!((&*first.id, &*first.problem), ("1", "two\nlines; \"quoted\""));
    assert_eq!((&*second.id, &*second.answer), ("2", "-1,5"));

    let loaded = load(b"problem,answer\na,1\nb\nc,2,3\nd,\xff\ne,5\n");
    assert_eq!((loaded.dataset.examples.len(), loaded.bad_row_count), (2, 3));
    let bad: Vec<String> = loaded.bad_rows.iter().map(std::string::ToString::to_string).collect();
    assert!(bad[0].ends_with("rows.csv: row 2: row: expected 2 cells, one for each column, got 1"));
    assert!(bad[2].ends_with("row 4: answer: expected UTF-8, got an invalid byte at position 1"));

    // A quote that is never closed takes no further rows.
    let rows = "problem,answer,solution\na,1,so\nb,2,\"so\nc,3,so\nd,4,so\n";
    for (text, row) in [(rows, 2), ("\u{feff}\"problem\",answer\na,\"1", 1), ("problem\n\"", 1)] {
        fs::write(&file, text).unwrap();
        let error = hapo_data::load(&file).unwrap_err();
        let expected = format!("rows.csv: row {row}: a quote is not closed");
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert!(error.how_to_mend().unwrap().to_string().contains("twice"), "{error:?}");
    }
    // Quotes within a cell, at its end and at the end of the file are closed.
    let loaded = load(b"problem,answer\n5\" or 6\"?,\"5\"\"\"\r\n\"a\n\"\"b\"\"\",\"2\"");
    assert_eq!((loaded.dataset.examples.len(), loaded.bad_row_count), (2, 0));

    // Nor does it take the whole file into memory.
    let mut endless = b"problem,answer\na,\"1\n".to_vec();
    endless.resize(40 << 20, b'x');
    fs::write(&file, endless).unwrap();
    let error = hapo_data::load(&file).unwrap_err().to_string();
    assert!(error.contains("row 1: a row of more than 16777216 bytes: a quote"), "{error}");
}

#[test]
fn a_page_that_does_not_match_its_checksum_is_refused() {
    let whole = fs::read(shapes().join("checksums.parquet")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flipped.parquet");
    let at = whole.windows(10).position(|it| it == b"What is 3 ").unwrap();
    let mut flipped = whole.clone();
    flipped[at + 8] ^= 1;
    fs::write(&file, flipped).unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("CRC"), "{error}");
}
