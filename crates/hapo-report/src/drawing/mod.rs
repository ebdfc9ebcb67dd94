//! Figures as SVG, one drawing of each, for the page and for files: over the steps, smoothed, the seeds of a recipe as a
//! band.
//!
//! The page scales a figure to its room and colours it by its style; a file has one size and carries a style. The page's
//! script hides lines and moves the cursor; it draws nothing.

mod axis;
mod curves;
mod lines;
mod page;
mod svg;

use axis::XAxis;
use curves::{Curve, DASHES, Set, sets};

use crate::figures::FIGURES;
use crate::folder::Run;

pub(crate) struct Drawn {
    pub(crate) id: &'static str,
    pub(crate) svg: String,
}

pub(crate) fn files(runs: &[Run]) -> Vec<Drawn> {
    let drawing = Drawing::new(runs);
    let figures = FIGURES.iter().filter_map(|figure| {
        let svg = drawing.file(figure, &drawing.curves(figure))?;
        Some(Drawn { id: figure.id, svg })
    });
    figures.collect()
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

/// A piece of a line as it is drawn.
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
