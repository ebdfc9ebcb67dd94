//! Text: the tokenizer, and the files of chat templates.

pub(crate) mod chat;
mod growth;
pub(crate) mod tokenizer;
