//! The layouts, a row for each.

use super::begin::{ANSWERS, GOLDS, SOLUTIONS};
use super::{Gold, Labels, Layout, Prompt, Teachers, begin};

const IDS: &[&str] = &["id", "unique_id", "uuid"];
const SOURCES: &[&str] = &["source", "data_source", "dataset"];
/// Labels that rows of others carry under various names.
const USUAL: Labels = Labels { id: IDS, source: SOURCES, level: &["level"], subject: &["subject"] };
const USUAL_KEYS: &[&str] =
    &["id", "unique_id", "uuid", "source", "data_source", "dataset", "level", "subject"];
/// Plain rows: the first of each that a row has.
const PROBLEMS: &[&str] = &["problem", "question", "query"];
const LEVELS: &[&str] = &["level", "difficulty"];
const SUBJECTS: &[&str] = &["subject", "type"];

const BASE: Layout = Layout {
    name: "",
    summary: "",
    keys: &[],
    folds: false,
    fit: &[],
    begin: |_, _| Ok(()),
    prompt: Prompt::Begun,
    gold: Gold::Begun,
    teachers: &[],
    labels: USUAL,
};

/// The entry that files read by [`super::Columns`] have as their layout.
pub(crate) const COLUMNS: Layout =
    Layout { name: "columns", summary: "as the columns are named", ..BASE };

/// Our own. `id` (a string or a whole number), `problem` and `answer` (or a list of them); `teacher` is a text or a list
/// of them without end tokens, and `solution` is one where there is no `teacher`. An id belongs to one row.
pub(crate) const OWN: Layout = Layout {
    name: "own",
    summary: "problem, answer, id?, teacher? or solution?, source?, level?, subject?",
    keys: &[&["problem", "answer", "teacher", "solution", "id", "source", "level", "subject"]],
    // Only some rows may have a teacher: one of them outweighs all the others that a file is recognised by. A row that
    // lacks its answer is a bad row of this layout, where nothing else fits it.
    fit: &[("problem answer teacher", 1000), ("problem answer id", 8), ("problem", 1)],
    begin: begin::own,
    teachers: &[Teachers::Texts("teacher"), Teachers::Beside("solution")],
    labels: Labels { id: &[], source: &["source"], level: &["level"], subject: &["subject"] },
    ..BASE
};

/// verl's. `ability` and `extra_info` say where a row comes from; verl's own scripts for GSM8K and MATH keep the worked
/// solution there. A file with prompts alone, as verl's generation reads it, has no golds.
const VERL: Layout = Layout {
    name: "verl",
    summary: "prompt (messages), reward_model.ground_truth, data_source?, ability?, extra_info?",
    keys: &[
        &["data_source", "prompt", "ability", "reward_model", "extra_info", "target"],
        &["target_lst", "__index_level_0__"],
    ],
    fit: &[("prompt reward_model", 4), ("prompt[] @alone", 1)],
    begin: begin::verl,
    prompt: Prompt::Messages("prompt"),
    gold: Gold::In("reward_model", "ground_truth"),
    // The first solution of LUFFY's and TRAPO's rows may come after those that a file is recognised by.
    teachers: &[
        Teachers::Beside("extra_info.answer"),
        Teachers::Beside("extra_info.solution"),
        Teachers::FirstMessage("target"),
        Teachers::FirstMessages("target_lst"),
        Teachers::Thoughts("extra_info.answer_list"),
    ],
    labels: Labels {
        id: &["extra_info.id", "extra_info.uuid"],
        source: &["data_source"],
        level: &["extra_info.level"],
        subject: &["extra_info.subject", "ability"],
    },
    ..BASE
};

pub const DATASET_LAYOUTS: &[Layout] = &[
    OWN,
    VERL,
    // LUFFY's training files; `target` may be null.
    Layout {
        name: "luffy",
        summary: "verl with target (messages): the teacher's solution",
        fit: &[("prompt reward_model target", 100)],
        ..VERL
    },
    // TRAPO's training files.
    Layout {
        name: "trapo",
        summary: "verl with extra_info.answer_list: the teachers' solutions",
        fit: &[("prompt extra_info.answer_list", 100)],
        ..VERL
    },
    Layout {
        name: "simplerl-zoo",
        summary: "verl whose prompt[0].content is already rendered",
        fit: &[("reward_model prompt~", 50)],
        prompt: Prompt::Rendered("prompt"),
        ..VERL
    },
    // `target` is the answer too, not a solution.
    Layout {
        name: "simplerl-v0",
        summary: "input (rendered prompt), gt_answer or ground_truth_answer, question?, subject?, level?",
        keys: &[
            &["input", "answer", "gt_answer", "ground_truth_answer", "target", "question"],
            USUAL_KEYS,
        ],
        fit: &[("input gt_answer|ground_truth_answer", 8)],
        begin: begin::simplerl_v0,
        gold: Gold::First(&["gt_answer", "ground_truth_answer", "answer"]),
        ..BASE
    },
    // OAT's tables, and many sets of the hub. The first `teacher` of the native layout may come after the head.
    Layout {
        name: "oat",
        summary: "problem, answer (string, number or list of strings), solution?, no id",
        keys: &[&["problem", "answer", "difficulty", "solution", "teacher"], USUAL_KEYS],
        fit: &[("problem answer !id !teacher", 4)],
        prompt: Prompt::Text(&["problem"]),
        gold: Gold::First(&["answer"]),
        teachers: &[Teachers::Texts("teacher"), Teachers::Beside("solution")],
        labels: Labels { level: LEVELS, ..USUAL },
        ..BASE
    },
    Layout {
        name: "gsm8k",
        summary: "question, answer that ends in #### and the gold",
        keys: &[&["question", "answer"], USUAL_KEYS],
        fit: &[("question answer####", 8)],
        begin: begin::gsm8k,
        prompt: Prompt::Text(&["question"]),
        ..BASE
    },
    // The gold is in a column of the reward function. A file with prompts alone has no golds. A `completion` is the
    // teacher's, as in TRL's SFT. Prompts alone in columns are verl's.
    Layout {
        name: "trl-grpo",
        summary: "prompt (string or messages), answer or solution or ground_truth or label",
        keys: &[&["prompt", "completion"], GOLDS, USUAL_KEYS],
        fit: &[
            ("prompt !completion !target !reward_model answer|solution|ground_truth|label", 4),
            ("prompt !completion !target !reward_model", 1),
        ],
        begin: begin::completion,
        prompt: Prompt::TextOrMessages("prompt"),
        gold: Gold::OrTeachers(GOLDS),
        teachers: &[Teachers::Beside("solution")],
        ..BASE
    },
    // Without a pair it fits as well as TRL's GRPO, so that one row with a completion decides.
    Layout {
        name: "trl-sft",
        summary: "prompt and completion, or messages, or text",
        keys: &[&["prompt", "completion", "messages", "text"], GOLDS, USUAL_KEYS],
        fit: &[
            ("prompt completion", 8),
            ("messages", 8),
            ("text !problem !prompt", 2),
            ("prompt !completion !target !reward_model answer|solution|ground_truth|label", 4),
            ("prompt !completion !target !reward_model", 1),
        ],
        begin: begin::trl_sft,
        gold: Gold::OrTeachers(GOLDS),
        teachers: &[Teachers::Beside("solution")],
        ..BASE
    },
    // A question with its output, as in OpenRLHF and Alpaca.
    Layout {
        name: "input-output",
        summary: "input or question or instruction, output or response, label?",
        keys: &[&["input", "question", "instruction", "output", "response", "label"], USUAL_KEYS],
        fit: &[(
            "input|question|instruction output|response|label !gt_answer !ground_truth_answer",
            4,
        )],
        begin: begin::input_output,
        gold: Gold::OrTeachers(&["label"]),
        ..BASE
    },
    // LUFFY's export for SFT with OpenRLHF.
    Layout {
        name: "luffy-sft",
        summary: "prompt (messages), target (messages)",
        keys: &[&["prompt", "target"], USUAL_KEYS],
        fit: &[("prompt target !reward_model", 8)],
        begin: begin::luffy_sft,
        prompt: Prompt::Messages("prompt"),
        gold: Gold::OrTeachers(&[]),
        ..BASE
    },
    Layout {
        name: "sharegpt",
        summary: "conversations (turns with from and value)",
        keys: &[&["conversations", "system"], GOLDS, USUAL_KEYS],
        fit: &[("conversations[]", 8)],
        begin: begin::sharegpt,
        gold: Gold::OrTeachers(GOLDS),
        ..BASE
    },
    // Common names: AIME's `Problem`, `Answer` and `Solution`, `hendrycks_math`'s `problem` and `solution`.
    Layout {
        name: "plain",
        summary: "problem or question, answer or solution, in any case",
        keys: &[PROBLEMS, ANSWERS, SOLUTIONS, IDS, LEVELS, SUBJECTS, &["source"]],
        folds: true,
        fit: &[(
            "problem|question|query answer|final_answer|expected_answer|gold|ground_truth|\
             solution|solutions|teacher|rationale",
            3,
        )],
        begin: begin::plain,
        prompt: Prompt::Text(PROBLEMS),
        labels: Labels { id: IDS, source: &["source"], level: LEVELS, subject: SUBJECTS },
        ..BASE
    },
];
