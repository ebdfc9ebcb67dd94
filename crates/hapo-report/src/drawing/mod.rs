//! Figures as SVG, one drawing of each, for the page and for files: over the steps, smoothed, the seeds of a recipe as a
//! band.
//!
//! The page scales a figure to its room and colours it by its style; a file has one size and carries a style. The page's
//! script hides lines and moves the cursor; it draws nothing.

mod axis;
mod curves;
mod lines;
mod svg;

use serde_json::{Value, json};

use axis::XAxis;
use curves::{Curve, DASHES, Set, sets};
use svg::Frame;

use crate::figures::{FIGURES, Figure, PLAIN, Scale, others};
use crate::folder::Run;

/// Each figure of the runs that has something to show: its name and its SVG.
pub(crate) fn files(runs: &[Run]) -> Vec<(&'static str, String)> {
    let drawing = Drawing::new(runs);
    FIGURES.iter().filter_map(|it| Some((it.id, drawing.file(it, &drawing.curves(it))?))).collect()
}

pub(crate) struct Drawing<'a> {
    runs: &'a [Run],
    sets: Vec<Set>,
    /// `None` where no run has logged a step.
    x: Option<XAxis>,
}

impl<'a> Drawing<'a> {
    pub(crate) fn new(runs: &'a [Run]) -> Self {
        let ends = runs.iter().filter_map(|run| {
            let (first, last) = (run.columns.steps().first()?, run.columns.steps().last()?);
            // An evaluation of the start lies before the first step.
            let first = run.evaluations().first().map_or(*first, |it| it.0.min(*first));
            Some((first + run.shift, last + run.shift))
        });
        Self { runs, sets: sets(runs), x: XAxis::new(ends) }
    }
}

fn mark(curve: &Curve, is_area: bool, left: f64, middle: f64) -> String {
    let (colour, dash) = (curve.colour, curve.line % DASHES);
    if is_area {
        return format!(
            "<rect class='areas f{colour}' x='{left}' y='{}' width='28' height='8'/>",
            middle - 4.0
        );
    }
    format!("<path class='line c{colour} d{dash}' d='M{left} {middle}h28'/>")
}

/// Columns of all paths of a page together, and the most and the fewest of one path, bounded by a figure's width.
const ALL_COLUMNS: usize = 600_000;
const COLUMNS: (usize, usize) = (60, 400);

impl Drawing<'_> {
    pub(crate) fn page(&self) -> Value {
        let names = self.runs.iter().flat_map(|run| run.columns.names());
        let others: Vec<(&str, String)> =
            others(names).into_iter().map(|it| (it, format!("metric-{it}"))).collect();
        let lines: Vec<_> = others.iter().map(|(metric, _)| [(*metric, *metric)]).collect();
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
        let drawn = all.map(|(figure, is_more)| (figure, is_more, self.curves(figure)));
        let drawn: Vec<_> = drawn.filter(|(.., curves)| !curves.is_empty()).collect();
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
