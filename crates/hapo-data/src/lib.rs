//! Sources of problems: dataset files, prompt templates, teachers' solutions, and the built-in task, which needs no
//! download.
//!
//! Purpose: everything between a file (or a seed) and the text that a tokenizer sees. An
//! [`Example`] is one problem with its answer and the teachers' solutions to it; a [`Template`]
//! turns the problem into a prompt; [`admit`] decides, once per run, which teacher may be injected;
//! [`task`] makes problems of exact arithmetic with solutions checked step by step.
//!
//! Price: the crate knows no model, no tokenizer and no grader; callers pass token counts and verdicts in as functions.
//! A dataset in use lives in memory whole; a file that is only checked or converted does not.

mod chat_template;
mod container;
mod convert;
mod dataset;
mod example;
mod layouts;
mod refuse;
mod row;
mod summary;
pub mod task;
mod teacher;
mod template;
mod value;
mod write;

pub use chat_template::{
    ChatTemplate, FIXED_TIME, FUEL, MAX_RENDERED_BYTES, MAX_SOURCE_BYTES, MEMORY, RECURSION,
    Rendering, TIME,
};
pub use container::Container;
pub use convert::{Converted, Decision, convert, most_teachers};
pub use dataset::{
    Dataset, Loaded, Only, Reading, Rows, Unread, data_files, json_lines, json_rows, load,
    load_rows, open_all, open_reader, question_hash,
};
pub use example::{Example, Message, with_thought};
pub use layouts::{Columns, DATASET_LAYOUTS, Layout, NamedColumns, golds_in};
pub use row::{BadRow, LINE_LIMIT, Row};
pub use summary::{FileSummary, Lengths, TokenCount, summarise};
pub use teacher::{Admission, AdmissionRule, Refused, admit};
pub use template::{
    CHAT, CHAT_ORIGIN, ChatPrompt, EndOfTurn, PromptTemplate, TEMPLATES, Template, TemplateChoice,
    find_template, jinja, prompt_of, render, teacher_prompt, template_hash, with_hint,
};
pub use write::{Format, VERL_SOURCE, Writer, Written, write_row};

#[cfg(test)]
mod tests;
