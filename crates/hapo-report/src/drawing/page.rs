//! The page's figures: each with its lines.

use serde_json::{Value, json};

use super::axis::XAxis;
use super::curves::Curve;
use super::svg::Frame;
use super::{Drawing, mark};
use crate::figures::{FIGURES, Figure, PLAIN, Scale, others};

/// Columns of all paths of a page together, and the most and the fewest of one path, bounded by a figure's width.
const ALL_COLUMNS: usize = 600_000;
const COLUMNS: (usize, usize) = (60, 400);

impl Drawing<'_> {
    pub(crate) fn page(&self) -> Value {
        let names = self.runs.iter().flat_map(|run| run.columns.names());
        let others: Vec<(&str, String)> =
            others(names).into_iter().map(|it| (it, format!("metric-{it}"))).collect();
        let lines: Vec<[(&str, &str); 1]> =
            others.iter().map(|(metric, _)| [(*metric, *metric)]).collect();
        let own = others.iter().zip(&lines).map(|((title, id), lines)| Figure {
            id,
            title,
            lines,
            scale: Scale::Fitted,
            ..PLAIN
        });
        let more: Vec<Figure<'_>> = own.collect();
        // Those of the second kind stand below the others, folded.
        let all = FIGURES.iter().map(|it| (it, false)).chain(more.iter().map(|it| (it, true)));
        let drawn: Vec<(&Figure<'_>, bool, Vec<Curve>)> = all
            .map(|(figure, is_more)| (figure, is_more, self.curves(figure)))
            .filter(|(.., curves)| !curves.is_empty())
            .collect();
        let paths: usize = drawn.iter().map(|(.., curves)| curves.len()).sum();
        let columns = (ALL_COLUMNS / paths.max(1)).clamp(COLUMNS.0, COLUMNS.1);
        let figures = drawn.iter().map(|(figure, is_more, curves)| {
            let Figure { id, title, unit, help, scale, .. } = figure;
            json!({
                "id": id, "title": title, "unit": unit, "help": help,
                "more": is_more, "stacked": *scale == Scale::Stacked,
                "curves": legend(figure, curves),
                "svg": self.figure(figure, curves, Frame::page(columns)),
            })
        });
        let figures: Value = figures.collect();
        json!({ "ends": self.x.as_ref().map(XAxis::ends), "figures": figures })
    }
}

/// The text beside each line, and the source of its values.
fn legend(figure: &Figure<'_>, curves: &[Curve]) -> Value {
    let is_area = figure.scale == Scale::Stacked;
    let of = |it: &Curve| {
        json!({
            "label": it.label, "metric": it.metric, "runs": it.runs, "colour": it.colour,
            "mark": format!("<svg viewBox='0 0 28 8'>{}</svg>", mark(it, is_area, 0.0, 4.0)),
        })
    };
    curves.iter().map(of).collect()
}
