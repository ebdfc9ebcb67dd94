//! Success over exposures and over distinct traces: a panel a regime, a dot an arm.

use std::fmt::Write as _;

use crate::family::tables::{Row, Table};

const PANEL: f64 = 300.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 36.0;
const TOP: f64 = 52.0;
/// The end of the axis of exposures, and of that of traces.
const MOST: [f64; 2] = [4000.0, 165.0];
const TRACES: f64 = 160.0;
/// Arms that are drawn where a table has them. The withdrawn row of the first round has another label.
const COLOURS: [(&str, &str); 11] = [
    ("HAPO", "#aa3377"),
    ("TRAPO", "#4477aa"),
    ("SFT, then GRPO", "#228833"),
    ("5 steps of SFT, then GRPO", "#66ccaa"),
    ("GRPO", "#ee6677"),
    ("HAPO, not annealed", "#ccbb44"),
    ("SuperRL", "#dd7711"),
    ("ReLIFT", "#775522"),
    ("AMPO", "#999999"),
    ("LUFFY", "#ccbb44"),
    ("SFT", "#111111"),
];

/// The horizontal axis of a panel.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// Logarithmic, with a place for none.
    Exposures,
    Traces,
}

/// Panels in rows of three, first over exposures, then over traces; four are one row.
pub(crate) fn of_costs(tables: &[&Table]) -> String {
    let is_drawn = |label| tables.iter().any(|table| row_of(table, label).is_some());
    let arms = COLOURS.iter().filter(|arm| is_drawn(arm.0));
    let columns = if tables.len() == 4 { 4 } else { 3 };
    let wide = PANEL * columns as f64;
    let row_height = HEIGHT + TOP + 20.0;
    let high = 20.0 + row_height * (2 * tables.len().div_ceil(columns)) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" width=\"{wide}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"{wide}\" height=\"{high}\" fill=\"#fff\"/>\n"
    );
    let mut at = LEFT;
    for (label, colour) in arms.clone() {
        let _ = writeln!(
            svg,
            "<circle cx=\"{at}\" cy=\"14\" r=\"5\" fill=\"{colour}\"/><text x=\"{}\" y=\"18\" fill=\"#333\">{label}</text>",
            at + 9.0
        );
        at += 26.0 + 6.4 * label.len() as f64;
    }
    let panels = |cost| tables.iter().enumerate().map(move |(n, table)| (cost, n, table));
    for (cost, n, table) in panels(Cost::Exposures).chain(panels(Cost::Traces)) {
        let rows_above = if cost == Cost::Traces { tables.len().div_ceil(columns) } else { 0 };
        let left = PANEL * (n % columns) as f64;
        let top = row_height * (rows_above + n / columns) as f64;
        let _ = writeln!(
            svg,
            "<g transform=\"translate({left} {top})\"><text x=\"{LEFT}\" y=\"42\" fill=\"#333\" font-weight=\"bold\">{}</text>",
            table.name
        );
        axes(&mut svg, cost);
        for (label, colour) in arms.clone() {
            if let Some(row) = row_of(table, label) {
                dot(&mut svg, row, cost, colour);
            }
        }
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

fn row_of<'a>(table: &'a Table, label: &str) -> Option<&'a Row> {
    table.rows.iter().find(|row| row.label == label)
}

fn x(cost: Cost, at: f64) -> f64 {
    let share = match cost {
        Cost::Exposures => (1.0 + at / 10.0).ln() / (1.0 + MOST[0] / 10.0).ln(),
        Cost::Traces => at / MOST[1],
    };
    LEFT + 12.0 + (PANEL - LEFT - 30.0) * share
}

fn y(success: f64) -> f64 {
    TOP + HEIGHT * (1.0 - success)
}

fn axes(svg: &mut String, cost: Cost) {
    for success in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(success);
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333\">{success:.2}</text>",
            LEFT,
            PANEL - 8.0,
            LEFT - 4.0,
            at + 4.0
        );
    }
    let (label, ticks) = match cost {
        Cost::Exposures => (
            "success over exposures to the teacher",
            &[0.0, 30.0, 100.0, 300.0, 1000.0, 3000.0][..],
        ),
        Cost::Traces => ("success over distinct traces", &[0.0, 40.0, 80.0, 120.0, TRACES][..]),
    };
    for tick in ticks {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#333\">{tick}</text>",
            x(cost, *tick),
            y(0.0) + 16.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#333\">{label}</text>",
        PANEL / 2.0,
        y(0.0) + 32.0
    );
}

/// The mean with its interval; single seeds where they have two modes. A line from the least to the most traces.
fn dot(svg: &mut String, row: &Row, cost: Cost, colour: &str) {
    let [least, most] = match (cost, row.traces) {
        (Cost::Exposures, _) => [row.cost.exposures; 2],
        (Cost::Traces, Some(range)) => range,
        (Cost::Traces, None) => return,
    }
    .map(|end| x(cost, end));
    let at = f64::midpoint(least, most);
    if least < most {
        let _ = writeln!(
            svg,
            "<path d=\"M{least:.1} {:.1}H{most:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            y(row.average.mean)
        );
    }
    if let Some((low, high)) = row.average.interval {
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/><circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{colour}\"/>",
            y(low),
            y(high),
            y(row.average.mean)
        );
        return;
    }
    for success in &row.average.of_seeds {
        let _ = writeln!(
            svg,
            "<circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            y(*success)
        );
    }
}
