//! GSM8K: `question`, and an `answer` that is a worked solution ending in `#### 18`. The solution becomes the teacher's
//! unchanged; the text after the last `####` is the gold, without thousands separators.

use super::Layout;
use super::fields::{IDS, LABELS, SOURCES, set_labels, text, with_solutions};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, fault};

pub(super) const LAYOUT: Layout = Layout {
    name: "gsm8k",
    summary: "question, answer that ends in #### and the gold",
    keys: &[&["question", "answer"], IDS, SOURCES, LABELS],
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let marked = matches!(row.get("answer"), Some(Value::Text(text)) if text.contains("####"));
    u32::from(row.has("question") && marked) * 8
}

fn read(row: &Object) -> Result<Example, Fault> {
    let solution = text(row, "answer")?;
    let gold = solution
        .rsplit_once("####")
        .map(|(_, gold)| gold.trim().replace(',', ""))
        .filter(|gold| !gold.is_empty())
        .ok_or_else(|| {
            let got = Value::Text(solution.clone()).to_string();
            fault("answer", "a solution that ends in #### and the gold", &got)
        })?;
    let problem = text(row, "question")?;
    let mut example = Example { problem, answer: gold, ..Example::default() };
    with_solutions(&mut example, vec![solution]);
    set_labels(&mut example, row)?;
    Ok(example)
}
