//! Where the time went: a bar for each run.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::lines::opened;
use super::svg::{Frame, TOP, cut, escaped, rounded};
use crate::folder::Run;
use crate::summary::{TimePart, time_parts};

/// Height of a run's name and bar.
const ROW: f64 = 44.0;
const BAR: f64 = 20.0;

/// A bar for each run, the share of its time in each part of a step, with the parts' names and colours; for the page or
/// as a file.
pub(crate) fn time(runs: &[Run], is_page: bool) -> Option<(String, Vec<Value>)> {
    let bars: Vec<(&str, Vec<TimePart>)> = runs
        .iter()
        .map(|it| (it.name.as_str(), time_parts(it)))
        .filter(|it| it.1.iter().any(|part| part.seconds > 0.0))
        .collect();
    let mut labels: Vec<&str> = Vec::new();
    for part in bars.iter().flat_map(|it| &it.1) {
        if !labels.contains(&part.label) {
            labels.push(part.label);
        }
    }
    if labels.is_empty() {
        return None;
    }
    let frame = if is_page { Frame::page(0) } else { Frame::file() };
    let height = ROW * bars.len() as f64;
    let mut svg = if is_page {
        format!("<svg class='bars' width='100%' height='{height}'>\n")
    } else {
        opened(TOP + height + 34.0, "Where the time went")
    };
    for (n, (name, parts)) in bars.iter().enumerate() {
        bar(&mut svg, name, parts, &labels, &Frame { top: frame.top + ROW * n as f64, ..frame });
    }
    if !is_page {
        for (n, label) in labels.iter().enumerate() {
            let (left, top) = (frame.left + n as f64 * 110.0, frame.top + height + 10.0);
            let _ = writeln!(
                svg,
                "<rect class='f{n}' x='{left}' y='{top}' width='12' height='12'/><text class='name' x='{}' y='{}'>{label}</text>",
                left + 18.0,
                top + 10.0
            );
        }
    }
    let legend = labels.iter().enumerate().map(|(n, it)| json!({ "label": it, "colour": n }));
    Some((svg + "</svg>\n", legend.collect()))
}

fn bar(svg: &mut String, name: &str, parts: &[TimePart], labels: &[&str], frame: &Frame) {
    let total: f64 = parts.iter().map(|it| it.seconds).sum();
    let top = frame.top + 17.0;
    let _ = writeln!(
        svg,
        "<text class='name' x='{}' y='{}'>{}</text>",
        frame.across(0.0),
        frame.top + 12.0,
        escaped(&cut(name, if frame.is_page { 46 } else { 80 }))
    );
    let mut at = 0.0;
    for part in parts {
        let colour = labels.iter().position(|it| *it == part.label).unwrap_or(0);
        let share = part.seconds / total;
        let _ = write!(
            svg,
            "<g><title>{} {} %</title><rect class='f{colour}' x='{}' y='{top}' width='{}' height='{BAR}'/>",
            part.label,
            rounded(100.0 * share, 1),
            frame.across(at),
            frame.wide(share)
        );
        if share >= 0.1 {
            let _ = write!(
                svg,
                "<text class='on' x='{}' y='{}' text-anchor='middle'>{:.0} %</text>",
                frame.across(at + share / 2.0),
                top + 14.0,
                100.0 * share
            );
        }
        *svg += "</g>\n";
        at += share;
    }
}
