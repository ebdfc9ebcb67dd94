//! Where problems come from: datasets in files, prompt templates, teachers' solutions, and the
//! built-in task that needs no download.
//!
//! Purpose: everything between a file (or a seed) and the text that a tokenizer sees. An
//! [`Example`] is one problem with its answer and the teachers' solutions to it; a [`Template`]
//! turns the problem into a prompt; [`admit`] decides, once per run, which teacher may be injected;
//! [`task`] makes problems of exact arithmetic with solutions checked step by step.
//!
//! Price: the crate knows no model, no tokenizer and no grader of ours. Whoever needs token counts
//! or verdicts passes them in as functions. A dataset lives in memory whole.

mod chat_template;
mod dataset;
mod error;
mod jsonl;
pub mod task;
mod teacher;
mod template;

pub use chat_template::{
    ChatTemplate, FIXED_TIME, FUEL, MAX_RENDERED_BYTES, Message, RECURSION, Rendering,
};
pub use dataset::{DATASET_LAYOUTS, Dataset, Example, Layout, Loaded, load, load_as};
pub use error::Error;
pub use jsonl::{BadRow, LINE_LIMIT, Row, Rows, read_rows, write_file, write_row};
pub use teacher::{Admission, Refused, admit};
pub use template::{
    CHAT, CHAT_ORIGIN, ChatPrompt, EndOfTurn, PromptTemplate, TEMPLATES, Template, TemplateChoice,
    find_template, render, teacher_prompt, template_hash,
};
