//! What enters is whole, or named.

use std::fs;

use hapo_data::{Columns, Loaded, Only, Reading, data_files, load, load_rows, open_all, write_row};

fn read(name: &str, bytes: &[u8], reading: &Reading) -> Result<Loaded, hapo_core::Refusal> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    fs::write(&file, bytes).unwrap();
    load_rows(open_all(&[file], reading)?)
}

fn rows(text: &str) -> Loaded {
    read("rows.jsonl", text.as_bytes(), &Reading::default()).unwrap()
}

#[test]
fn a_column_with_a_part_of_the_question_is_counted_unless_it_is_dropped_or_empty() {
    let count = |column: &str, value: &str, reading: &Reading| {
        let row = format!("{{\"problem\":\"p\",\"answer\":\"1\",\"{column}\":{value}}}");
        let loaded = read("rows.jsonl", row.as_bytes(), reading).unwrap();
        loaded.unread.unread_questions.into_iter().collect::<Vec<_>>()
    };
    let all = Reading::default();
    for column in [
        "images",
        "image_1",
        "imagePath",
        "tools",
        "chat_history",
        "Table",
        "system_prompt",
        "premises",
    ] {
        let named = vec![(column.to_owned(), 1)];
        assert_eq!(count(column, "[\"x\"]", &all), named, "{column}");
        let drop = Reading { drop: vec![column.to_owned()], ..Reading::default() };
        assert_eq!(count(column, "[\"x\"]", &drop), [], "{column}");
        for empty in ["null", "\"\"", "[]", "[null]", "{\"bytes\":null}", "3", "true"] {
            assert_eq!(count(column, empty, &all), [], "{column} {empty}");
        }
    }
    for column in ["image_id", "num_tools", "question_type", "document_title", "note"] {
        assert_eq!(count(column, "\"x\"", &all), [], "{column}");
    }
    assert_eq!(count("meta", "{\"figure\":\"x\"}", &all), [("meta.figure".to_owned(), 1)]);
}

#[test]
fn columns_name_a_context_and_choices() {
    let columns = Columns::parse("problem=q,context=c,choices=o,answer=gold").unwrap();
    let row = br#"{"q":"How many?","c":"Ann has 7.","o":["6","7"],"gold":"7"}"#;
    let reading = Reading { columns: Some(columns), ..Reading::default() };
    let loaded = read("rows.jsonl", row, &reading).unwrap();
    let example = &loaded.dataset.examples[0];
    assert_eq!(example.problem, "Ann has 7.\n\nHow many?\n\nA) 6\nB) 7");
    assert_eq!(example.answer, "B");
    assert!(loaded.unread.unread_questions.is_empty());
}

/// Ten answers in their letters, whatever the file says: an index, a letter in any form or the text.
#[test]
fn choices_are_found_by_index_letter_and_text() {
    for (answer, letter) in [
        ("0", Some("A")),
        ("2", Some("C")),
        ("3", None),
        ("\"b\"", Some("B")),
        ("\"(B)\"", Some("B")),
        ("\"B.\"", Some("B")),
        ("\"one  Pen\"", Some("A")),
        ("\"D\"", None),
        ("\"\"", None),
        ("-1", None),
        ("[\"B\"]", Some("B")),
        ("[\"A\",\"B\"]", None),
        ("true", None),
    ] {
        let row = format!(
            "{{\"question\":\"q\",\"choices\":[\"one pen\",\"two pens\",\"no pen\"],\"answer\":{answer}}}\n"
        );
        // The first row is good, so that the file is one of questions.
        let loaded = rows(&[&row.replace(answer, "\"A\""), &*row].concat());
        let got = loaded.dataset.examples.last().filter(|_| loaded.bad_row_count == 0);
        assert_eq!(got.map(|it| &*it.answer), letter, "{answer}");
    }
    let two = r#"{"question":"q","options":["a b","c d"],"answer":"A","answer_index":1}"#;
    let bad = &rows(two).bad_rows[0];
    assert_eq!((&*bad.field, &*bad.expected), ("answer", "B, as `answer_index` says"));
}

#[test]
fn labels_of_any_type_make_no_row_bad() {
    for value in ["3", "[\"a\"]", "{\"a\":1}", "true", "\"x\"", "null"] {
        for label in ["source", "level", "subject", "type", "uuid", "dataset"] {
            let row = format!("{{\"question\":\"q\",\"answer\":\"1\",\"{label}\":{value}}}");
            assert_eq!(rows(&row).bad_row_count, 0, "{row}");
        }
    }
    let left_out = rows(r#"{"question":"q","answer":"1","type":3}"#).unread.labels_left_out;
    assert_eq!(left_out.into_iter().collect::<Vec<_>>(), [("type".to_owned(), 1)]);
}

#[test]
fn solutions_of_late_rows_are_read() {
    for late in [
        r#""target":[{"role":"assistant","content":"so"}]"#,
        r#""target_lst":[[{"role":"assistant","content":"so"}]]"#,
        r#""extra_info":{"answer_list":["so"]}"#,
    ] {
        let row = |n: usize, more: &str| {
            format!(
                "{{\"prompt\":[{{\"role\":\"user\",\"content\":\"{n}\"}}],\"reward_model\":{{\"ground_truth\":\"1\"}}{more}}}\n"
            )
        };
        let mut all: String = (0..100).map(|n| row(n, "")).collect();
        all += &row(100, &format!(",{late}"));
        assert_eq!(rows(&all).dataset.examples[100].teachers, ["so"], "{late}");
    }
}

#[test]
fn golds_are_answers_and_words_for_a_missing_one_are_none() {
    let gold = |text: &str| {
        let row = serde_json::json!({ "problem": "p", "answer": text }).to_string();
        let loaded = rows(&row);
        loaded.dataset.examples.first().map(|it| it.golds().collect::<Vec<_>>().join("|"))
    };
    for missing in ["nan", "NaN", "None", "N/A", "null", "notfound", "proof", "NA", "TBD", " none "]
    {
        assert_eq!(gold(missing), None, "{missing}");
    }
    for (text, read) in [
        (r"\text{None}", r"\text{None}"),
        ("Na", "Na"),
        ("[1, 2]", "[1, 2]"),
        ("[]", "[]"),
        (r#"["-2, 2"]"#, "-2, 2"),
        (r#"["3","-3"]"#, "3|-3"),
        ("so\n#### 40\nThe answer is: 40", "40"),
        ("so\n#### 1,250\n\nmore", "1250"),
    ] {
        assert_eq!(gold(text).as_deref(), Some(read), "{text}");
    }
    let mut line = Vec::new();
    let example = &rows(r#"{"problem":"p","answer":["1","one"]}"#).dataset.examples[0];
    write_row(&mut line, example).unwrap();
    let back = rows(std::str::from_utf8(&line).unwrap());
    assert_eq!(back.dataset.examples[0].other_answers, ["one"]);
}

#[test]
fn files_that_are_no_rows_are_called_what_they_are() {
    for (bytes, expected) in [
        (&b"\xfd7zXZ\0\0\0"[..], "an xz file"),
        (b"PK\x03\x04rest", "a zip file"),
        (b"BZh91AY", "a bzip2 file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS file"),
        (br#"{"version":"1","data":[{"problem":"p","answer":"1"}]}"#, "`data`"),
        (b"{\n \"rows\": [\n {\"problem\":\"p\",\"answer\":\"1\"}\n]}", "`rows`"),
        (br#"{"prompt":"p","chosen":"a","rejected":"b"}"#, "preference pairs"),
        (br#"{"prompt":"p","completions":["a"],"labels":[true]}"#, "judged completions"),
    ] {
        let error = read("rows.parquet", bytes, &Reading::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.how_to_mend().is_some(), "{error}");
    }
}

#[test]
fn the_folders_of_math_are_one_data_set_and_conditions_take_rows_out_of_it() {
    let dir = tempfile::tempdir().unwrap();
    for (class, level) in [("algebra", 3), ("geometry", 5)] {
        let folder = dir.path().join("train").join(class);
        fs::create_dir_all(&folder).unwrap();
        for n in 1..=3 {
            let text = format!(
                "{{\n  \"problem\": \"{class} {n}?\",\n  \"level\": \"Level {level}\",\n  \"type\": \"{class}\",\n  \"solution\": \"so in the end it is \\\\boxed{{{n}}}\"\n}}\n"
            );
            fs::write(folder.join(format!("{n}.json")), text).unwrap();
        }
    }
    assert_eq!(data_files(dir.path()).unwrap().len(), 6);
    let loaded = load(dir.path()).unwrap();
    assert_eq!((loaded.bad_row_count, loaded.dataset.examples.len()), (0, 6));
    let taken = |conditions: &[&str]| {
        let only = conditions.iter().map(|it| Only::parse(it).unwrap()).collect();
        let reading = Reading { only, ..Reading::default() };
        let loaded = load_rows(open_all(&[dir.path().to_owned()], &reading).unwrap()).unwrap();
        loaded.dataset.examples.len()
    };
    assert_eq!(taken(&["level=4..5"]), 3);
    assert_eq!(taken(&["level=1..5"]), 6);
    assert_eq!(taken(&["type=algebra", "level=Level 3"]), 3);
    assert_eq!(taken(&["type=algebra", "level=5..6"]), 0);
    assert!(Only::parse("level").is_err());
}
