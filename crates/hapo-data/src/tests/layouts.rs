//! The result of each layout and each container.

use super::samples::{self, Ipc, Sample};
use crate::{
    ChatPrompt, ChatTemplate, Container, DATASET_LAYOUTS, Example, Loaded, PromptTemplate, Reading,
    Row, find_template, load, open_all, open_reader, prompt_of,
};
use expect_test::{Expect, expect};
use std::io::{Cursor, Write};
use std::path::Path;

/// Loads bytes as a file.
fn load_bytes(bytes: &[u8]) -> Result<Loaded, hapo_core::Refusal> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    load(file.path())
}

fn show(example: &Example) -> String {
    let mut text = format!(
        "{} row {} x{}: {:?} = {:?}",
        example.id,
        example.row,
        example.copies + 1,
        example.problem,
        example.answer
    );
    if !example.other_answers.is_empty() {
        text += &format!(" or {:?}", example.other_answers);
    }
    for (name, part) in [
        ("source", &example.source),
        ("level", &example.level),
        ("subject", &example.subject),
        ("system", &example.system),
        ("rendered", &example.rendered),
    ] {
        if let Some(part) = part {
            text += &format!(" {name} {part:?}");
        }
    }
    if !example.teachers.is_empty() {
        text += &format!(" teachers {:?}", example.teachers);
    }
    if !example.messages.is_empty() {
        text += &format!(" {} messages", example.messages.len());
    }
    text + "\n"
}

fn check(name: &str, bytes: &[u8], expected: &Expect) {
    let loaded = load_bytes(bytes).unwrap();
    let mut text = format!("{} in {}\n", loaded.layout, loaded.container.name());
    for bad in &loaded.bad_rows {
        text += &format!("bad: {}\n", bad.to_string().split_once(':').unwrap().1);
    }
    for (field, rows) in &loaded.unread.ignored_fields {
        text += &format!("ignored: {field} in {rows}\n");
    }
    text.extend(loaded.dataset.examples.iter().map(show));
    assert!(!text.contains("/tmp"), "{name}");
    expected.assert_eq(&text);
}

#[test]
fn every_layout_has_a_sample_that_it_recognises() {
    let samples = samples::all();
    for layout in DATASET_LAYOUTS {
        assert!(samples.iter().any(|it| it.layout == layout.name), "{}", layout.name);
    }
    for Sample { layout, name, bytes, rows } in samples {
        let loaded = load_bytes(&bytes).unwrap();
        assert_eq!((loaded.layout, loaded.bad_row_count), (layout, 0), "{name}");
        let n: u64 = loaded.dataset.examples.iter().map(|it| u64::from(it.copies + 1)).sum();
        assert_eq!(n, rows, "{layout}, {name}");
        assert!(
            loaded.unread.ignored_fields.is_empty(),
            "{layout}: {:?}",
            loaded.unread.ignored_fields
        );
    }
}

#[test]
fn own_rows_are_read() {
    check(
        "own",
        samples::OWN.as_bytes(),
        &expect![[r#"
        own in JSON lines
        a row 1 x1: "1+1?" = "2" source "s" level "3" subject "x" teachers ["so \\boxed{2}"]
        b row 2 x1: "2+2?" = "4" teachers ["one \\boxed{4}", "two \\boxed{4}"]
        7 row 3 x1: "3+3?" = "6"
    "#]],
    );
}

#[test]
fn verl_rows_are_read_and_copies_grouped() {
    check(
        "verl",
        &samples::verl(),
        &expect![[r#"
        verl in Parquet
        row-1 row 1 x1: "1+1?" = "2" source "amc" subject "math" system "Think."
        row-2 row 2 x2: "2+2?" = "025" source "aime" subject "math"
    "#]],
    );
}

#[test]
fn verl_prompts_alone_have_no_golds() {
    let schema = "message schema { optional group prompt (LIST) { repeated group list {
        optional group element { optional binary content (STRING); optional binary role (STRING); } } } }";
    let rows = "{\"prompt\":[{\"content\":\"8,3:9,4\",\"role\":\"user\"}]}";
    let bytes = samples::parquet(schema, samples::zstd(), rows);
    check(
        "prompts",
        &bytes,
        &expect![[r#"
        verl in Parquet
        row-1 row 1 x1: "8,3:9,4" = ""
    "#]],
    );
}

#[test]
fn luffy_targets_are_teachers() {
    check(
        "luffy",
        &samples::luffy(),
        &expect![[r#"
        luffy in Parquet
        row-1 row 1 x1: "1+1?" = "2" source "m" subject "math" system "Think." teachers ["<think>\nwell\n</think>\n\\boxed{2}"]
        row-2 row 2 x1: "2+2?" = "4" source "m" subject "math"
        row-3 row 3 x1: "3+3?" = "6" source "m" teachers ["\\boxed{6}"]
    "#]],
    );
}

#[test]
fn trapo_thoughts_are_teachers() {
    check(
        "trapo",
        &samples::trapo(),
        &expect![[r#"
            trapo in Parquet
            row-1 row 1 x1: "1+1?" = "2" source "m" subject "math" system "Think." teachers ["\nfirst\n", "plain \\boxed{2}"]
            row-2 row 2 x1: "2+2?" = "4" source "m" subject "math"
            row-3 row 3 x1: "3+3?" = "6" source "m" subject "math"
        "#]],
    );
}

#[test]
fn simplerl_zoo_prompts_are_known_to_be_rendered() {
    check(
        "zoo",
        &samples::zoo(),
        &expect![[r#"
        simplerl-zoo in Parquet
        row-1 row 1 x1: "1+1?" = "2" source "z" rendered "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n1+1?\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n"
        row-2 row 2 x1: "2+2?" = "4" source "z" rendered "Question:\n2+2?\nAnswer:\nLet's think step by step.\n"
        row-3 row 3 x1: "3+3?" = "6" source "z" rendered "<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant"
    "#]],
    );
}

#[test]
fn simplerl_v0_target_is_no_solution() {
    check(
        "v0",
        samples::SIMPLERL_V0.as_bytes(),
        &expect![[r#"
        simplerl-v0 in JSON array
        row-1 row 1 x1: "1+1, [2]?" = "2" level "5" subject "Algebra" rendered "<|im_start|>system\nPut your answer into \\boxed{}.<|im_end|>\n<|im_start|>user\n1+1, [2]?<|im_end|>\n<|im_start|>assistant"
        row-2 row 2 x1: "\"2\"+2?" = "4" rendered "<|im_start|>user\n\"2\"+2?<|im_end|>\n<|im_start|>assistant"
        row-3 row 3 x1: "3+3?" = "6" level "1" rendered "3+3?"
    "#]],
    );
}

#[test]
fn oat_answers_are_numbers_or_lists() {
    check(
        "numbers",
        &samples::oat_numbers(Ipc::Stream),
        &expect![[r#"
        oat in Arrow IPC
        row-1 row 1 x1: "1+1?" = "2" level "1"
        row-2 row 2 x1: "1/8?" = "0.125" level "2"
        row-3 row 3 x1: "3+3?" = "6"
    "#]],
    );
    check(
        "lists",
        &samples::oat_lists(Ipc::File),
        &expect![[r#"
        oat in Arrow IPC
        row-1 row 1 x1: "4+5.6?" = "9.6"
        row-2 row 2 x1: "x^2=4?" = "2" or ["-2"]
    "#]],
    );
}

#[test]
fn gsm8k_golds_follow_the_marks() {
    check(
        "gsm8k",
        samples::GSM8K.as_bytes(),
        &expect![[r#"
        gsm8k in JSON lines
        row-1 row 1 x1: "Eggs?" = "13" teachers ["16 - 3 = <<16-3=13>>13 eggs.\n#### 13"]
        row-2 row 2 x1: "Miles?" = "1250" teachers ["Many.\n#### 1,250"]
        row-3 row 3 x1: "Loss?" = "-5" teachers ["Some.\n#### -5"]
    "#]],
    );
}

#[test]
fn trl_grpo_solutions_stand_for_their_last_box() {
    check(
        "grpo",
        samples::TRL_GRPO.as_bytes(),
        &expect![[r#"
        trl-grpo in JSON lines
        row-1 row 1 x1: "1+1?" = "2"
        row-2 row 2 x1: "2+2?" = "\\frac{8}{2}" system "Think." teachers ["First \\boxed{5}, no: \\boxed{\\frac{8}{2}}."]
        c row 3 x1: "3+3?" = "6"
    "#]],
    );
}

#[test]
fn trl_sft_comes_in_three_shapes() {
    check(
        "pairs",
        samples::TRL_SFT.as_bytes(),
        &expect![[r#"
        trl-sft in JSON lines
        row-1 row 1 x1: "1+1?" = "2" teachers ["It is \\boxed{2}."]
        row-2 row 2 x1: "2+2?" = "4" teachers ["It is \\boxed 4"]
        row-3 row 3 x1: "3+3?" = "6" teachers ["It is 6"]
    "#]],
    );
    check(
        "messages",
        samples::TRL_MESSAGES.as_bytes(),
        &expect![[r#"
        trl-sft in JSON lines
        row-1 row 1 x1: "1+1?" = "2" system "Think." teachers ["\\boxed{2}"]
    "#]],
    );
    check(
        "text",
        samples::TRL_TEXT.as_bytes(),
        &expect![[r#"
        trl-sft in JSON lines
        row-1 row 1 x1: "1+1?" = "2" rendered "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n" teachers ["\\boxed{2}"]
        row-2 row 2 x1: "" = "" teachers ["A document without turns."]
    "#]],
    );
}

#[test]
fn openrlhf_outputs_are_teachers() {
    check(
        "input-output",
        samples::OPENRLHF.as_bytes(),
        &expect![[r#"
        input-output in JSON lines
        row-1 row 1 x1: "1+1?" = "2" teachers ["It is \\boxed{2}"]
        row-2 row 2 x1: "2+2?" = "4"
        row-3 row 3 x1: "3+3?" = "6" teachers ["It is six"]
    "#]],
    );
    let alpaca = r#"{"instruction":"Add.","input":"1+1","output":"\\boxed{2}"}
{"instruction":"Say 4.","input":"","output":"\\boxed{4}"}"#;
    check(
        "alpaca",
        alpaca.as_bytes(),
        &expect![[r#"
        input-output in JSON lines
        row-1 row 1 x1: "Add.\n1+1" = "2" teachers ["\\boxed{2}"]
        row-2 row 2 x1: "Say 4." = "4" teachers ["\\boxed{4}"]
    "#]],
    );
}

#[test]
fn luffy_sft_targets_are_teachers() {
    check(
        "luffy-sft",
        samples::LUFFY_SFT.as_bytes(),
        &expect![[r#"
        luffy-sft in JSON lines
        row-1 row 1 x1: "1+1?" = "2" system "Think." teachers ["<think>\nwell\n</think>\n\\boxed{2}"]
        row-2 row 2 x1: "2+2?" = "4" teachers ["\\boxed{4}"]
        row-3 row 3 x1: "3+3?" = "" teachers ["no box"]
    "#]],
    );
}

#[test]
fn bad_rows_of_other_layouts_are_named() {
    let rows = r#"{"prompt":[{"role":"user","content":"1+1?"}],"solution":"2"}
{"prompt":[],"solution":"2"}
{"prompt":[{"role":"user"}],"solution":"2"}
{"prompt":[{"role":"user","content":5}],"solution":"2"}
{"prompt":["text"],"solution":"2"}
{"prompt":[{"role":"system","content":"s"}],"solution":"2"}
{"prompt":"p","solution":null}
{"prompt":"p","solution":"  "}
{"prompt":"p","solution":"\\boxed{}"}
{"prompt":"p","solution":{}}
{"prompt":"p","solution":[]}
{"prompt":"p","prompt":"p","solution":"2"}
{"prompt":"p","solution":"2","level":[]}
{"solution":"2"}
"#;
    check(
        "grpo",
        rows.as_bytes(),
        &expect![[r#"
            trl-grpo in JSON lines
            bad: 2: prompt: expected a list of messages with role and content, got an empty list
            bad: 3: prompt[0].content: expected a string, got nothing
            bad: 4: prompt[0].content: expected a string, got 5
            bad: 5: prompt[0]: expected a message with role and content, got "text"
            bad: 6: prompt: expected a message of the user, got none
            bad: 7: solution: expected a gold answer: a string that is not empty, a finite number or a list of them, got null
            bad: 8: solution: expected a gold answer: a string that is not empty, a finite number or a list of them, got "  "
            bad: 9: solution: expected an answer in the last box, got an empty box
            bad: 10: solution: expected a gold answer: a string that is not empty, a finite number or a list of them, got an object
            bad: 11: solution: expected a gold answer: a string that is not empty, a finite number or a list of them, got a list of 0
            bad: 12: prompt: expected the field once, got it twice
            bad: 14: prompt: expected a string that is not empty or a list of messages, got nothing
            row-1 row 1 x1: "1+1?" = "2"
            row-13 row 13 x1: "p" = "2"
        "#]],
    );
}

#[test]
fn rows_of_columns_are_named_by_their_number() {
    let schema = "message schema { optional binary problem (STRING); optional double answer; }";
    let rows = "{\"problem\":\"p\",\"answer\":1.0}\n{\"problem\":null,\"answer\":2.0}\n{\"problem\":\"r\",\"answer\":null}";
    let bytes = samples::parquet(schema, samples::gzip(), rows);
    check(
        "oat in Parquet",
        &bytes,
        &expect![[r#"
        oat in Parquet
        bad:  row 2: problem: expected a string that is not empty, got null
        bad:  row 3: answer: expected a gold answer: a string that is not empty, a finite number or a list of them, got null
        row-1 row 1 x1: "p" = "1"
    "#]],
    );
}

#[test]
fn last_box_is_found_as_people_write_it() {
    use crate::layouts::last_boxed;
    for (text, expected) in [
        ("no", None),
        ("\\boxed{1} then \\boxed{2}", Some("2")),
        ("\\boxed{\\frac{1}{2}}.", Some("\\frac{1}{2}")),
        ("\\boxed 5.", Some("5")),
        ("$\\boxed 5$", Some("5")),
        ("\\boxed{\\{1\\}}", Some("\\{1\\}")),
        ("\\boxed{}", Some("")),
        ("\\boxed{never ends", None),
    ] {
        assert_eq!(last_boxed(text), expected, "{text}");
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_files_give_the_same_rows() {
    for Sample { layout, bytes, .. } in samples::all() {
        let plain = load_bytes(&bytes).unwrap();
        for (kind, packed) in
            [("gzip", gzipped(&bytes)), ("zstd", zstd::encode_all(&bytes[..], 1).unwrap())]
        {
            let file = Path::new("f");
            let rows = open_reader(Cursor::new(packed.clone()), file).unwrap();
            assert_eq!(rows.compression, Some(kind));
            let loaded = load_bytes(&packed).unwrap();
            assert_eq!(loaded.dataset, plain.dataset, "{layout} in {kind}");
            assert_eq!(loaded.container, plain.container, "{layout} in {kind}");
            // A cut file is no shorter dataset.
            let cut = open_reader(Cursor::new(packed[..packed.len() - 9].to_vec()), file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let message = cut.unwrap_err().to_string();
            assert!(message.starts_with("f: row "), "{layout} in {kind}: {message}");
        }
    }
}

#[test]
fn arrow_files_and_streams_are_the_same() {
    let stream = load_bytes(&samples::oat_numbers(Ipc::Stream)).unwrap();
    let file = load_bytes(&samples::oat_numbers(Ipc::File)).unwrap();
    assert_eq!(stream.dataset, file.dataset);
    assert_eq!(file.container, Container::Arrow);
}

#[test]
fn json_array_is_read_element_by_element() {
    let text = r#"[{"id":"a","problem":"]},{[\"\\","answer":"1"}, 5 ,{"id":"b"}, {"id":"c","problem":"p","answer":"1"}]  "#;
    check(
        "array",
        text.as_bytes(),
        &expect![[r#"
        own in JSON array
        bad:  row 2: row: expected one JSON object, got 5
        bad:  row 3: problem: expected a string that is not empty, got nothing
        a row 1 x1: "]},{[\"\\" = "1"
        c row 4 x1: "p" = "1"
    "#]],
    );
    // A reader that gives three bytes at a time takes the same path through every piece.
    let slow = std::io::BufReader::with_capacity(3, Cursor::new(text.as_bytes().to_vec()));
    let rows = open_reader(slow, Path::new("f")).unwrap();
    let good = rows.filter(|it| matches!(it, Ok(Row::Good(_)))).count();
    assert_eq!(good, 2);
}

#[test]
fn a_cut_array_gives_its_whole_rows_and_then_the_place() {
    let text = r#"[{"id":"a","problem":"p","answer":"1"},{"id":"b","pro"#;
    let mut rows = open_reader(Cursor::new(text.as_bytes()), Path::new("f")).unwrap();
    assert!(matches!(rows.next(), Some(Ok(Row::Good(_)))));
    let message = rows.next().unwrap().unwrap_err().to_string();
    assert_eq!(message, "f: row 2: the JSON array ends before its closing bracket");
    assert!(rows.next().is_none());
    let message = open_reader(Cursor::new(b"[] x"), Path::new("f")).err().unwrap().to_string();
    assert_eq!(message, "f: row 1: something follows the closing bracket of the JSON array");
}

#[test]
fn long_elements_are_skipped_whole_and_named() {
    let long = "x".repeat(crate::LINE_LIMIT);
    let text = format!(
        "[{{\"id\":\"a\",\"problem\":\"p\",\"answer\":\"1\"}},{{\"id\":\"{long}\"}},{{\"id\":\"c\",\"problem\":\"p\",\"answer\":\"1\"}}]"
    );
    let rows = open_reader(Cursor::new(text.into_bytes()), Path::new("f")).unwrap();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    let [Row::Good(_), Row::Bad(bad), Row::Good(_)] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(
        bad.to_string(),
        "f: row 2: row: expected at most 16777216 bytes in a row, got 16777225 bytes"
    );
}

#[test]
fn opening_reads_no_more_than_the_first_rows() {
    // The file could be of any size: rows after the first ones are read on demand.
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            let line = format!("{{\"question\":\"{}\",\"answer\":\"so #### 1\"}}\n", self.0);
            buffer[..line.len()].copy_from_slice(line.as_bytes());
            Ok(line.len())
        }
    }
    let rows = open_reader(Endless(0), Path::new("f")).unwrap();
    assert_eq!(rows.layout.name, "gsm8k");
    assert_eq!(rows.take(5000).filter(|it| matches!(it, Ok(Row::Good(_)))).count(), 5000);
}

#[test]
fn the_open_file_says_what_it_is() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&samples::zoo()).unwrap();
    let rows = open_all(&[file.path().to_owned()], &Reading::default()).unwrap();
    assert_eq!(
        (rows.layout.name, rows.container, rows.compression),
        ("simplerl-zoo", Container::Parquet, None)
    );
}

#[test]
fn rendered_prompts_go_only_with_their_template() {
    let zoo = load_bytes(&samples::zoo()).unwrap().dataset.examples;
    let text = |example: &Example, template: &str| {
        let prompt = prompt_of(example, &find_template(template).unwrap().into());
        prompt.unwrap_or_else(|it| it.to_string())
    };
    assert_eq!(text(&zoo[0], "qwen-boxed"), zoo[0].rendered.clone().unwrap());
    assert_eq!(text(&zoo[1], "abel"), zoo[1].rendered.clone().unwrap());
    // The template's line break at the end may be missing.
    let whole = "<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant";
    assert_eq!(text(&zoo[2], "chatml"), format!("{whole}\n"));
    assert_eq!(text(&zoo[2], "none"), whole);
    assert_eq!(
        text(&zoo[1], "chatml"),
        "row 2, id row-2: the prompt is already rendered, and not with template `chatml`"
    );
    let document = load_bytes(samples::TRL_TEXT.as_bytes()).unwrap().dataset;
    assert_eq!(
        text(&document.examples[1], "none"),
        "row 2, id row-2: a document without a problem"
    );
}

fn chat(source: &str) -> PromptTemplate {
    let template = ChatTemplate::new("tiny", source, std::collections::BTreeMap::new()).unwrap();
    PromptTemplate::Chat(Box::new(ChatPrompt { template, system: None, suffix: None }))
}

#[test]
fn thoughts_do_not_begin_twice_and_stand_in_the_tags_of_the_template() {
    let first = |bytes: &[u8], template: &PromptTemplate| {
        let dataset = load_bytes(bytes).unwrap().dataset;
        dataset.under(template).unwrap().examples[0].teachers[0].clone()
    };
    let opens = chat("{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}");
    let plain = find_template("chatml").unwrap().into();
    let luffy = samples::luffy();
    assert_eq!(first(&luffy, &opens), "well\n</think>\n\\boxed{2}");
    assert_eq!(first(&luffy, &plain), "<think>\nwell\n</think>\n\\boxed{2}");

    let row = r#"{"messages":[{"role":"user","content":"1+1?"},{"role":"assistant","KEY":"one and one","content":"\\boxed{2}"}]}"#;
    for key in ["reasoning_content", "reasoning", "thinking"] {
        let row = row.replace("KEY", key);
        let written = "<think>\none and one\n</think>\n\n\\boxed{2}";
        assert_eq!(first(row.as_bytes(), &plain), written, "{key}");
        // A template that shows no thoughts has no tags of its own.
        assert_eq!(first(row.as_bytes(), &chat("{{ messages[-1].content }}")), written, "{key}");
        let tags = chat(&format!(
            "{{% for m in messages %}}<{{{{ m.role }}}}>{{% if m.{key} %}}[THINK]{{{{ m.{key} }}}}[/THINK]{{% endif %}}\
             {{{{ m.content }}}}{{% endfor %}}{{% if add_generation_prompt %}}<assistant>{{% endif %}}"
        ));
        let written = "[THINK]one and one[/THINK]\\boxed{2}";
        assert_eq!(first(row.as_bytes(), &tags), written, "{key}");
        // Where the prompt opens the thought, the solution goes on from there.
        let r1 = chat(&format!(
            "{{% for m in messages %}}<{{{{ m.role }}}}>{{% if m.{key} %}}<think>\n{{{{ m.{key} }}}}\n</think>\n{{% endif %}}\
             {{{{ m.content }}}}{{% endfor %}}{{% if add_generation_prompt %}}<assistant><think>\n{{% endif %}}"
        ));
        assert_eq!(first(row.as_bytes(), &r1), "one and one\n</think>\n\\boxed{2}", "{key}");
    }
}

/// The same rule for one turn and for three, under the model's own template.
#[test]
fn system_texts_are_rendered_whatever_the_number_of_turns() {
    let rows = r#"{"prompt":[{"role":"system","content":"s"},{"role":"user","content":"a"}],"answer":"2"}
{"prompt":[{"role":"developer","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"answer":"3"}
"#;
    let examples = load_bytes(rows.as_bytes()).unwrap().dataset.examples;
    let source = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
    let prompts = |system: Option<&str>| {
        let PromptTemplate::Chat(mut prompt) = chat(source) else { unreachable!() };
        (prompt.system, prompt.suffix) = (system.map(str::to_owned), Some("!".to_owned()));
        let template = PromptTemplate::Chat(prompt);
        examples.iter().map(|it| prompt_of(it, &template).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(prompts(None), ["system:s;user:a!;", "system:s;user:a;assistant:b;user:c!;"]);
    assert_eq!(prompts(Some("r")), ["system:r;user:a!;", "system:r;user:a;assistant:b;user:c!;"]);
    // A template of the table has its own.
    let named = find_template("chatml").unwrap().into();
    let prompt = prompt_of(&examples[0], &named).unwrap();
    assert_eq!(prompt, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    assert!(prompt_of(&examples[1], &named).unwrap_err().to_string().contains("of 4 turns"));
}

/// What is read of the rows of published sets, or why they are refused.
#[test]
fn published_rows_are_read_whole_or_refused_by_name() {
    let table = include_str!("../../../../docs/data.md");
    for (set, rows, expected) in samples::PUBLISHED {
        let outcome = match load_bytes(rows.as_bytes()) {
            Err(refusal) => refusal.to_string().split_once(": ").unwrap().1.to_owned(),
            Ok(loaded) => match (loaded.bad_rows.first(), loaded.unread.not_whole("")) {
                (Some(bad), _) => bad.to_string().splitn(3, ':').nth(2).unwrap().trim().to_owned(),
                (_, Some(refusal)) => refusal.to_string().trim_start_matches(": ").to_owned(),
                _ => {
                    let it = &loaded.dataset.examples[0];
                    let golds: Vec<&str> = it.golds().collect();
                    let solutions = it.teachers.concat();
                    format!(
                        "{} = {}{}",
                        it.problem,
                        golds.join(" or "),
                        ["", &format!(" by {solutions}")][usize::from(!solutions.is_empty())]
                    )
                }
            },
        };
        assert_eq!(outcome, *expected, "{set}");
        assert!(table.contains(&format!("| {set} |")), "{set} is not in docs/data.md");
    }
}
