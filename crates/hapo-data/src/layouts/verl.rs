//! verl: `prompt` is a list of messages, `reward_model.ground_truth` the gold; `data_source`,
//! `ability` and `extra_info` say where a row comes from. A file with prompts alone, as verl's
//! generation reads it, has no golds.

use super::Layout;
use super::fields::{
    gold, is_worked, messages, optional_label, optional_text, set_prompt, solution_beside,
};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, unexpected};

pub(super) const LAYOUT: Layout = Layout {
    name: "verl",
    summary: "prompt (messages), reward_model.ground_truth, data_source?, ability?, extra_info?",
    keys: KEYS,
    fit,
    read,
};

pub(super) const KEYS: &[&[&str]] = &[&[
    "data_source",
    "prompt",
    "ability",
    "reward_model",
    "extra_info",
    "target",
    "target_lst",
    "__index_level_0__",
]];

fn fit(row: &Object, container: Container) -> u32 {
    let columns = matches!(container, Container::Parquet | Container::Arrow);
    let prompts_alone =
        columns && row.0.len() == 1 && matches!(row.get("prompt"), Some(Value::List(_)));
    if row.has("prompt") && row.has("reward_model") { 4 } else { u32::from(prompts_alone) }
}

pub(super) fn read(row: &Object) -> Result<Example, Fault> {
    let mut example = labels(row)?;
    set_prompt(&mut example, messages(row.get("prompt"), "prompt")?, "prompt")?;
    Ok(example)
}

/// Everything but the prompt.
pub(super) fn labels(row: &Object) -> Result<Example, Fault> {
    let mut example = Example {
        source: optional_text(row, "data_source")?,
        subject: optional_text(row, "ability")?,
        ..Example::default()
    };
    if let Some(value) = row.get("reward_model") {
        let Value::Object(model) = value else {
            return Err(unexpected("reward_model", "a structure with ground_truth", Some(value)));
        };
        (example.answer, example.other_answers) =
            gold(model.get("ground_truth"), "reward_model.ground_truth")?;
    }
    match row.some("extra_info") {
        None => {}
        Some(Value::Object(info)) => {
            for field in ["id", "uuid"] {
                if let Ok(Some(id)) = optional_label(info, field)
                    && example.id.is_empty()
                {
                    example.id = id;
                }
            }
            // verl's own scripts for GSM8K and MATH keep the worked solution here.
            for field in ["answer", "solution"] {
                if matches!(info.get(field), Some(Value::Text(it)) if is_worked(it)) {
                    solution_beside(&mut example, info, field);
                }
            }
            example.level = optional_label(info, "level").ok().flatten();
            if let Ok(Some(subject)) = optional_text(info, "subject") {
                example.subject = Some(subject);
            }
        }
        other => return Err(unexpected("extra_info", "a structure", other)),
    }
    Ok(example)
}
