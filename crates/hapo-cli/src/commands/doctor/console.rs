//! What trainers print, among other lines: TRL's dictionaries, verl's `step:3 - name:value - …`.

use serde_json::{Map, Value};

pub(super) fn verl(line: &str) -> Option<(u64, Map<String, Value>)> {
    let (_, line) = line.split_once("step:")?;
    let mut parts = line.split(" - ");
    let step = parts.next()?.trim().parse().ok()?;
    let numbers = parts.filter_map(|it| {
        let (name, it) = it.rsplit_once(':')?;
        // A number of numpy's is printed as its call.
        let it = it.trim().trim_end_matches(')').rsplit('(').next()?;
        Some((name.to_owned(), it.parse::<f64>().ok()?.into()))
    });
    Some((step, numbers.collect()))
}

/// The lines of TRL, each with the step that its loss ends: it prints none.
pub(super) fn trl(text: &str) -> Vec<(u64, Map<String, Value>)> {
    let mut step = 0;
    let lines = text.lines().filter_map(|line| {
        let numbers = dictionary(line)?;
        step += u64::from(numbers.contains_key("loss"));
        Some((step, numbers))
    });
    lines.collect()
}

/// The numbers of `{'loss': 0.5, 'reward': '0.25'}`; a bar of progress may stand before it.
fn dictionary(line: &str) -> Option<Map<String, Value>> {
    let (inside, _) = line.get(line.find("{'")? + 2..)?.split_once('}')?;
    let numbers = inside.split(", '").filter_map(|it| {
        let (name, it) = it.split_once("': ")?;
        Some((name.to_owned(), it.trim_matches('\'').parse::<f64>().ok()?.into()))
    });
    Some(numbers.collect())
}
