//! Tests of `hapo-data` as its users see it, in one program.

mod arrow_types;
mod chat_templates;
mod numbers;
mod shapes;
mod whole;
