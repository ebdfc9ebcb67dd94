//! Text: the tokenizer, and the files of chat templates.

pub(crate) mod chat;
pub(crate) mod tokenizer;
