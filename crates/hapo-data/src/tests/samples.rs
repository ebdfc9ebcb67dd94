//! Small files of every layout, made here.

use crate::value::Object;
use crate::write::columns::{Compression, Table};
use arrow_array::builder::{Float64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use std::io::{Read, Seek};
use std::sync::Arc;

/// A file of a layout, as bytes.
pub(super) struct Sample {
    pub(super) layout: &'static str,
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    /// Rows in it.
    pub(super) rows: u64,
}

/// One of each layout, and more where a layout comes in several shapes.
pub(super) fn all() -> Vec<Sample> {
    let sample = |layout, name, bytes, rows| Sample { layout, name, bytes, rows };
    vec![
        sample("own", "JSON lines", OWN.into(), 3),
        sample("verl", "Parquet, snappy", verl(), 3),
        sample("luffy", "Parquet, zstd", luffy(), 3),
        sample("trapo", "Parquet, zstd", trapo(), 3),
        sample("simplerl-zoo", "Parquet, gzip", zoo(), 3),
        sample("simplerl-v0", "JSON array", SIMPLERL_V0.into(), 3),
        sample("oat", "Arrow stream of numbers", oat_numbers(Ipc::Stream), 3),
        sample("gsm8k", "JSON lines", GSM8K.into(), 3),
        sample("trl-grpo", "JSON lines of messages", TRL_GRPO.into(), 3),
        sample("trl-sft", "prompt and completion", TRL_SFT.into(), 3),
        sample("input-output", "JSON lines", OPENRLHF.into(), 3),
        sample("luffy-sft", "JSON lines", LUFFY_SFT.into(), 3),
        sample("sharegpt", "JSON lines", SHAREGPT.into(), 2),
        sample("plain", "CSV", PLAIN.into(), 3),
        sample("oat", "Arrow file of lists", oat_lists(Ipc::File), 2),
        sample("trl-sft", "messages", TRL_MESSAGES.into(), 1),
        sample("trl-sft", "text", TRL_TEXT.into(), 2),
    ]
}

pub(super) const OWN: &str = r#"{"id":"a","problem":"1+1?","answer":"2","teacher":"so \\boxed{2}","source":"s","level":3,"subject":"x"}
{"id":"b","problem":"2+2?","answer":"4","teacher":["one \\boxed{4}","two \\boxed{4}"]}
{"id":7,"problem":"3+3?","answer":"6","level":null}
"#;

pub(super) const SIMPLERL_V0: &str = r#"[
  {
    "input": "<|im_start|>system\nPut your answer into \\boxed{}.<|im_end|>\n<|im_start|>user\n1+1, [2]?<|im_end|>\n<|im_start|>assistant",
    "answer": "2", "gt_answer": "2", "subject": "Algebra", "level": 5,
    "question": "1+1, [2]?", "ground_truth_answer": "2", "target": "2"
  },
  {"input": "<|im_start|>user\n\"2\"+2?<|im_end|>\n<|im_start|>assistant", "gt_answer": "4", "target": "4"},
  {"input": "3+3?", "ground_truth_answer": 6, "level": 1, "target": "6"}
]
"#;

pub(super) const GSM8K: &str = r#"{"question":"Eggs?","answer":"16 - 3 = <<16-3=13>>13 eggs.\n#### 13"}
{"question":"Miles?","answer":"Many.\n#### 1,250"}
{"question":"Loss?","answer":"Some.\n#### -5"}
"#;

pub(super) const TRL_GRPO: &str = r#"{"prompt":[{"role":"user","content":"1+1?"}],"solution":"2"}
{"prompt":[{"role":"system","content":"Think."},{"role":"user","content":"2+2?"}],"solution":"First \\boxed{5}, no: \\boxed{\\frac{8}{2}}."}
{"prompt":"3+3?","answer":6,"id":"c"}
"#;

pub(super) const TRL_SFT: &str = r#"{"prompt":[{"role":"user","content":"1+1?"}],"completion":[{"role":"assistant","content":"It is \\boxed{2}.<|im_end|>\n"}]}
{"prompt":"2+2?","completion":"It is \\boxed 4"}
{"prompt":"3+3?","completion":"It is 6","solution":"6"}
"#;

pub(super) const TRL_MESSAGES: &str = r#"{"messages":[{"role":"system","content":"Think."},{"role":"user","content":"1+1?"},{"role":"assistant","content":"\\boxed{2}"}]}
"#;

pub(super) const TRL_TEXT: &str = r#"{"text":"<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n\\boxed{2}<|im_end|>\n"}
{"text":"A document without turns."}
"#;

pub(super) const OPENRLHF: &str = r#"{"input":"1+1?","output":"It is \\boxed{2}"}
{"input":"2+2?","label":"4"}
{"input":[{"role":"user","content":"3+3?"}],"output":"It is six","label":6}
"#;

pub(super) const LUFFY_SFT: &str = r#"{"prompt":[{"content":"Think.","role":"system"},{"content":"1+1?","role":"user"}],"target":[{"content":"<think>\nwell\n</think>\n\\boxed{2}","role":"assistant"}]}
{"prompt":[{"content":"2+2?","role":"user"}],"target":[{"content":"\\boxed{4}","role":"assistant"}]}
{"prompt":[{"content":"3+3?","role":"user"}],"target":[{"content":"no box","role":"assistant"}]}
"#;

pub(super) const SHAREGPT: &str = r#"{"conversations":[{"from":"system","value":"Think."},{"from":"human","value":"1+1?"},{"from":"gpt","value":"\\boxed{2}"}]}
{"conversations":[{"from":"human","value":"2+2?"},{"from":"gpt","value":"It is 4.\n#### 4"}],"id":"b"}
"#;

pub(super) const PLAIN: &str = "ID,Problem,Answer,Solution\n1,1+1?,2,It is \\boxed{2} in the end.\n2,\"2+2,\n you see?\",4,\n3,3+3?,6,6\n";

const MESSAGES: &str = "(LIST) { repeated group list { optional group element {
    optional binary content (STRING); optional binary role (STRING); } } }";

fn schema(target: bool, answer_list: bool) -> String {
    format!(
        "message schema {{
           optional binary data_source (STRING);
           optional group prompt {MESSAGES}
           {}
           optional binary ability (STRING);
           optional group reward_model {{
             optional binary ground_truth (STRING); optional binary style (STRING); }}
           optional group extra_info {{ {}
             optional int64 index; optional binary split (STRING); }}
           optional int64 __index_level_0__;
         }}",
        if target { format!("optional group target {MESSAGES}") } else { String::new() },
        if answer_list {
            "optional group answer_list (LIST) { repeated group list { optional binary element (STRING); } }"
        } else {
            ""
        },
    )
}

/// Rows given as JSON, in the columns of a schema.
pub(super) fn parquet(schema: &str, compression: Compression, rows: &str) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let mut table = Table::new(file.try_clone().unwrap(), schema, compression).unwrap();
    for row in rows.lines() {
        table.push(&serde_json::from_str::<Object>(row).unwrap()).unwrap();
    }
    table.close().unwrap();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

pub(super) fn verl() -> Vec<u8> {
    let rows = r#"{"data_source":"amc","prompt":[{"role":"system","content":"Think."},{"role":"user","content":"1+1?"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"2"},"extra_info":{"index":0,"split":"default"},"__index_level_0__":0}
{"data_source":"aime","prompt":[{"role":"user","content":"2+2?"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"025"},"extra_info":{"index":0,"split":"default"},"__index_level_0__":1}
{"data_source":"aime","prompt":[{"role":"user","content":"2+2?"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"025"},"extra_info":{"index":0,"split":"default"},"__index_level_0__":2}"#;
    parquet(&schema(false, false), Compression::SNAPPY, rows)
}

pub(super) fn luffy() -> Vec<u8> {
    let rows = r#"{"data_source":"m","prompt":[{"role":"system","content":"Think."},{"role":"user","content":"1+1?"}],"target":[{"role":"assistant","content":"<think>\nwell\n</think>\n\\boxed{2}"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"2"},"extra_info":{"index":0,"split":"default"}}
{"data_source":"m","prompt":[{"role":"user","content":"2+2?"}],"target":null,"ability":"math","reward_model":{"style":"rule","ground_truth":"4"},"extra_info":{"index":1,"split":"default"}}
{"data_source":"m","prompt":[{"role":"user","content":"3+3?"}],"target":[{"role":"assistant","content":"\\boxed{6}"},{"role":"assistant","content":"unused"}],"reward_model":{"style":"rule","ground_truth":"6"},"extra_info":null}"#;
    parquet(&schema(true, false), zstd(), rows)
}

pub(super) fn trapo() -> Vec<u8> {
    let rows = r#"{"data_source":"m","prompt":[{"role":"system","content":"Think."},{"role":"user","content":"1+1?"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"2"},"extra_info":{"answer_list":["<think>\nfirst\n</think>\n\\boxed{2}","plain \\boxed{2}","a third"],"index":0,"split":"train"}}
{"data_source":"m","prompt":[{"role":"user","content":"2+2?"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"4"},"extra_info":{"answer_list":[],"index":1,"split":"train"}}
{"data_source":"m","prompt":[{"role":"user","content":"3+3?"}],"ability":"math","reward_model":{"style":"rule","ground_truth":"6"},"extra_info":{"answer_list":null,"index":2,"split":"train"}}"#;
    parquet(&schema(false, true), zstd(), rows)
}

pub(super) fn zoo() -> Vec<u8> {
    let rows = r#"{"data_source":"z","prompt":[{"role":"user","content":"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n1+1?\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n"}],"reward_model":{"style":"rule","ground_truth":"2"},"extra_info":{"index":0,"split":"train"}}
{"data_source":"z","prompt":[{"role":"user","content":"Question:\n2+2?\nAnswer:\nLet's think step by step.\n"}],"reward_model":{"style":"rule","ground_truth":"4"},"extra_info":{"index":1,"split":"train"}}
{"data_source":"z","prompt":[{"role":"user","content":"<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant"}],"reward_model":{"style":"rule","ground_truth":"6"},"extra_info":{"index":2,"split":"train"}}"#;
    parquet(&schema(false, false), gzip(), rows)
}

pub(super) fn zstd() -> Compression {
    Compression::ZSTD(parquet::basic::ZstdLevel::default())
}

pub(super) fn gzip() -> Compression {
    Compression::GZIP(parquet::basic::GzipLevel::default())
}

#[derive(Clone, Copy)]
pub(super) enum Ipc {
    Stream,
    File,
}

pub(super) fn oat_numbers(kind: Ipc) -> Vec<u8> {
    let mut problems = StringBuilder::new();
    problems.extend(["1+1?", "1/8?", "3+3?"].map(Some));
    let mut answers = Float64Builder::new();
    answers.append_slice(&[2.0, 0.125, 6.0]);
    let mut difficulty = Float64Builder::new();
    difficulty.append_slice(&[1.0, 2.0]);
    difficulty.append_null();
    ipc(
        kind,
        vec![
            ("problem", Arc::new(problems.finish()) as ArrayRef),
            ("answer", Arc::new(answers.finish())),
            ("difficulty", Arc::new(difficulty.finish())),
        ],
    )
}

pub(super) fn oat_lists(kind: Ipc) -> Vec<u8> {
    let mut problems = StringBuilder::new();
    problems.extend(["4+5.6?", "x^2=4?"].map(Some));
    let mut answers = ListBuilder::new(StringBuilder::new());
    answers.append_value([Some("9.6\n")]);
    answers.append_value([Some("2"), Some("-2")]);
    ipc(
        kind,
        vec![
            ("problem", Arc::new(problems.finish()) as ArrayRef),
            ("answer", Arc::new(answers.finish())),
        ],
    )
}

pub(super) fn ipc(kind: Ipc, columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    match kind {
        Ipc::Stream => {
            let mut writer =
                arrow_ipc::writer::StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        Ipc::File => {
            let mut writer =
                arrow_ipc::writer::FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
    }
    bytes
}

/// Rows in the layouts of published sets, with what is read of the first, or why it is refused.
pub(super) const PUBLISHED: &[(&str, &str, &str)] = &[
    (
        "MATH",
        r#"{
    "problem": "Find it.",
    "level": "Level 5",
    "type": "Algebra",
    "solution": "so that in the end it is \\boxed{7}"
}
"#,
        "Find it. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "GSM8K",
        r#"{"question": "Eggs?", "answer": "3+4=<<3+4=7>>7 eggs.\n#### 7"}"#,
        "Eggs? = 7 by 3+4=<<3+4=7>>7 eggs.\n#### 7",
    ),
    (
        "MATH-500, DeepScaleR, Big-Math",
        r#"{"problem": "Find it.", "solution": "so that in the end it is \\boxed{7}", "answer": "7", "subject": "Algebra", "level": 5, "unique_id": "test/1.json"}"#,
        "Find it. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "AIME",
        r#"{"ID": "2024-I-1", "Problem": "Find it.", "Answer": 7, "Solution": "so that in the end it is \\boxed{7}"}"#,
        "Find it. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "NuminaMath-1.5",
        r#"{"problem": "Prove it.", "solution": "By hand.", "answer": "proof", "problem_type": "Algebra", "question_type": "proof", "source": "olympiads"}"#,
        "answer: expected a gold answer, not a word for a missing one or the tests of a program, got \"proof\"",
    ),
    (
        "Skywork-OR1",
        r#"{"data_source": "train-math", "prompt": [{"role": "user", "content": "Find it."}], "ability": "math", "reward_model": {"ground_truth": "[\"3\", \"-3\"]", "style": "rule"}, "extra_info": {"index": 0}}"#,
        "Find it. = 3 or -3",
    ),
    (
        "Eurus-2",
        r#"{"data_source": "codecontests", "prompt": [{"role": "user", "content": "Sort."}], "ability": "code", "reward_model": {"ground_truth": "{\"inputs\": [\"1\"], \"outputs\": [\"1\"]}", "style": "rule"}, "extra_info": {"index": 0}}"#,
        "reward_model.ground_truth: expected a gold answer, not a word for a missing one or the tests of a program, got \"{\\\"inputs\\\": [\\\"1\\\"], \\\"outputs\\\": [\\\"1\\\"]}\"",
    ),
    (
        "OpenR1-Math",
        r#"{"problem": "Find it.", "solution": "so that in the end it is \\boxed{7}", "answer": "7", "problem_type": "Algebra", "source": "s", "uuid": "u", "generations": ["a"], "correctness_math_verify": [true], "messages": [{"role": "user", "content": "Find it."}, {"role": "assistant", "content": "so that in the end it is \\boxed{7}"}]}"#,
        "Find it. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "OpenThoughts, ShareGPT",
        r#"{"system": "Think.", "conversations": [{"from": "user", "value": "Find it."}, {"from": "assistant", "value": "so that in the end it is \\boxed{7}"}]}"#,
        "Find it. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "OpenAI fine-tuning",
        r#"{"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Find it."}]}, {"role": "assistant", "content": "\\boxed{7}", "reasoning_content": "three and four"}]}"#,
        "Find it. = 7 by <think>\nthree and four\n</think>\n\n\\boxed{7}",
    ),
    (
        "tool calls",
        r#"{"messages": [{"role": "user", "content": "3+4?"}, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": "{}"}}]}, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "\\boxed{7}"}]}"#,
        "messages[1].tool_calls: expected nothing: neither tools nor pictures have a place in a prompt here, got a list of 1",
    ),
    (
        "Tulu RLVR, Dolci",
        r#"{"messages": [{"role": "user", "content": "Find it."}], "ground_truth": "7", "dataset": ["math"]}"#,
        "Find it. = 7",
    ),
    (
        "Alpaca",
        r#"{"instruction": "Add.", "input": "3 and 4", "output": "so that in the end it is \\boxed{7}"}"#,
        "Add.\n3 and 4 = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "Alpaca with `history`",
        r#"{"instruction": "Add.", "input": "3 and 4", "output": "so that in the end it is \\boxed{7}", "system": "", "history": [["Hello", "Hi"]]}"#,
        "a part of the question is in `history` (1 row), and is not read",
    ),
    (
        "Dolly",
        r#"{"instruction": "Add them.", "context": "3 and 4", "response": "so that in the end it is \\boxed{7}", "category": "qa"}"#,
        "3 and 4\n\nAdd them. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "DPO, UltraFeedback, HH",
        r#"{"prompt": "Find it.", "chosen": [{"role": "user", "content": "Find it."}, {"role": "assistant", "content": "7"}], "rejected": [{"role": "user", "content": "Find it."}, {"role": "assistant", "content": "8"}]}"#,
        "the rows are preference pairs (chosen, rejected)",
    ),
    (
        "KTO, PRM",
        r#"{"prompt": "Find it.", "completion": "7", "label": true}"#,
        "the rows are judged completions (completion, label)",
    ),
    (
        "MMLU",
        r#"{"question": "Which is prime?", "subject": "math", "choices": ["4", "6", "7", "8"], "answer": 2}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 7\nD) 8 = C",
    ),
    (
        "MMLU-Pro",
        r#"{"question_id": 1, "question": "Which is prime?", "options": ["4", "6", "9", "8", "10", "12", "14", "15", "7"], "answer": "I", "answer_index": 8, "cot_content": "", "category": "math", "src": "x"}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 9\nD) 8\nE) 10\nF) 12\nG) 14\nH) 15\nI) 7 = I",
    ),
    (
        "MMMLU, C-Eval",
        r#"{"Question": "Which is prime?", "A": "4", "B": "6", "C": "7", "D": "8", "Answer": "C", "Subject": "math"}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 7\nD) 8 = C",
    ),
    (
        "GPQA",
        r#"{"Question": "Which is prime?", "Correct Answer": "7", "Incorrect Answer 1": "4", "Incorrect Answer 2": "6", "Incorrect Answer 3": "8", "Subdomain": "math", "Record ID": "rec1"}"#,
        "Which is prime?\n\nA) 6\nB) 7\nC) 4\nD) 8 = B",
    ),
    (
        "ARC, OpenBookQA, CommonsenseQA",
        r#"{"id": "a", "question": "Which is prime?", "choices": {"text": ["4", "6", "7"], "label": ["1", "2", "3"]}, "answerKey": "3"}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 7 = C",
    ),
    (
        "ARC, its own files",
        r#"{"id": "a", "question": {"stem": "Which is prime?", "choices": [{"text": "4", "label": "A"}, {"text": "7", "label": "B"}]}, "answerKey": "B"}"#,
        "Which is prime?\n\nA) 4\nB) 7 = B",
    ),
    (
        "MedQA",
        r#"{"question": "Which is prime?", "answer": "7", "options": {"A": "4", "B": "6", "C": "7"}, "answer_idx": "C"}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 7 = C",
    ),
    (
        "AQuA",
        r#"{"question": "Which is prime?", "options": ["A)4", "B)6", "C)7"], "rationale": "Seven.", "correct": "C"}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 7 = C by Seven.",
    ),
    (
        "MathQA",
        r#"{"Problem": "Which is prime?", "Rationale": "Seven.", "options": "a ) ( a + b ) , b ) 6 , c ) 7 , d ) none of these", "correct": "c"}"#,
        "Which is prime?\n\nA) ( a + b )\nB) 6\nC) 7\nD) none of these = C by Seven.",
    ),
    (
        "MedMCQA",
        r#"{"id": "x", "question": "Which is prime?", "opa": "4", "opb": "6", "opc": "7", "opd": "8", "cop": 2}"#,
        "Which is prime?\n\nA) 4\nB) 6\nC) 7\nD) 8 = C",
    ),
    (
        "an index or a text",
        r#"{"question": "Which is 2?", "choices": ["2", "3", "1"], "answer": "2"}"#,
        "answer: expected the letter (A to C), index (from 0) or text of one choice, got \"2\"",
    ),
    (
        "RACE",
        r#"{"example_id": "h", "article": "Ann has 7 pens.", "question": "How many?", "options": ["6", "7"], "answer": "B"}"#,
        "Ann has 7 pens.\n\nHow many?\n\nA) 6\nB) 7 = B",
    ),
    (
        "AGIEval, LogiQA",
        r#"{"passage": "Ann has 7 pens.", "question": "How many?", "options": ["(A)6", "(B)7"], "label": "B", "answer": null}"#,
        "Ann has 7 pens.\n\nHow many?\n\nA) 6\nB) 7 = B",
    ),
    (
        "SVAMP",
        r#"{"ID": "c", "Body": "Ann has 3 pens and buys 4.", "Question": "How many has she?", "Equation": "3+4", "Answer": 7.0, "Type": "Addition"}"#,
        "Ann has 3 pens and buys 4. How many has she? = 7",
    ),
    (
        "ASDiv",
        r#"{"body": "Ann has 3 pens and buys 4.", "question": "How many has she?", "answer": "7 (pens)", "formula": "3+4=7", "solution_type": "Addition"}"#,
        "Ann has 3 pens and buys 4. How many has she? = 7 (pens)",
    ),
    (
        "DROP",
        r#"{"section_id": "n", "query_id": "q", "passage": "They won 7 games.", "question": "How many?", "answers_spans": {"spans": ["7"], "types": ["number"]}}"#,
        "They won 7 games.\n\nHow many? = 7",
    ),
    (
        "DROP, several spans",
        r#"{"section_id": "n", "query_id": "q", "passage": "Ann and Bob won.", "question": "Who?", "answers_spans": {"spans": ["Ann", "Bob"], "types": ["span", "span"]}}"#,
        "answers_spans.spans: expected one span, got a list of 2; no row can be read",
    ),
    (
        "SQuAD",
        r#"{"id": "1", "title": "T", "context": "Ann has 7 pens.", "question": "How many?", "answers": {"text": ["7", "7 pens"], "answer_start": [8, 8]}}"#,
        "Ann has 7 pens.\n\nHow many? = 7 or 7 pens",
    ),
    (
        "HotpotQA",
        r#"{"id": "1", "question": "Who?", "answer": "Bob", "context": {"title": ["t"], "sentences": [["s"]]}}"#,
        "a part of the question is in `context` (1 row), and is not read",
    ),
    (
        "OlympiadBench",
        r#"{"id": 1, "question": "Find it.", "solution": ["so that in the end it is \\boxed{7}"], "final_answer": ["7"], "context": "Let $n=3$.", "image_1": null, "difficulty": "C"}"#,
        "Let $n=3$.\n\nFind it. = 7 by so that in the end it is \\boxed{7}",
    ),
    (
        "Geometry3K, MathVision",
        r#"{"images": ["a.png"], "problem": "<image>Find it.", "answer": "7"}"#,
        "a part of the question is in `images` (1 row), and is not read",
    ),
    (
        "verl with tools",
        r#"{"data_source": "d", "prompt": [{"role": "user", "content": "3+4?"}], "reward_model": {"ground_truth": "7"}, "extra_info": {"tools_kwargs": {"add": {"create_kwargs": {"x": "7"}}}}}"#,
        "a part of the question is in `extra_info.tools_kwargs` (1 row), and is not read",
    ),
    (
        "messages as JSON text",
        r#"{"prompt": "[{\"role\": \"user\", \"content\": \"3+4?\"}]", "answer": "7"}"#,
        "3+4? = 7",
    ),
    (
        "messages as Python text",
        r#"{"prompt": "[{'role': 'user', 'content': '3+4?'}]", "answer": "7"}"#,
        "prompt: expected messages, or a JSON list of them as text, got \"[{'role': 'user', 'content': '3+4?'}]\"",
    ),
    (
        "rows in one list",
        r#"{"version": "1", "data": [{"problem": "3+4?", "answer": "7"}]}"#,
        "the rows are in a list of their own, `data`",
    ),
];
