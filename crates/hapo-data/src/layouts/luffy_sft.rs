//! LUFFY's export for SFT with `OpenRLHF`: `prompt` and `target`, both lists of messages. The last box
//! of the target is the gold.

use super::Layout;
use super::fields::{IDS, LABELS, SOURCES, gold_from_teacher, messages, set_labels, set_prompt};
use super::luffy::solution;
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object};

pub(super) const LAYOUT: Layout = Layout {
    name: "luffy-sft",
    summary: "prompt (messages), target (messages)",
    keys: &[&["prompt", "target"], IDS, SOURCES, LABELS],
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let pair = row.has("prompt") && row.has("target");
    u32::from(pair && !row.has("reward_model")) * 8
}

fn read(row: &Object) -> Result<Example, Fault> {
    let mut example = Example::default();
    set_prompt(&mut example, messages(row.get("prompt"), "prompt")?, "prompt")?;
    example.teachers.push(solution(row.get("target"), "target")?);
    gold_from_teacher(&mut example);
    set_labels(&mut example, row)?;
    Ok(example)
}
