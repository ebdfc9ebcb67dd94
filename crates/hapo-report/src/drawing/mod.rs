//! Figures as SVG, the only drawing of each: for the page in every variant that it offers, and for files.
//!
//! The page scales a figure to its room and colours it by its style; a file has one size and carries a style. The page's
//! script shows one of the variants, hides lines, and moves the cursor; it draws nothing.

mod axis;
mod curves;
mod lines;
mod page;
mod svg;
mod time;

pub(crate) use axis::Across;
use axis::XAxis;
use curves::{Curve, DASHES, Placed};
pub(crate) use time::time;

use crate::figures::FIGURES;
use crate::folder::Run;

/// What a reader chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    across: Across,
    smooth: bool,
    bands: bool,
}

impl Variant {
    /// Its name in a page's data, of three that the page's controls set.
    pub(crate) fn key(self) -> String {
        format!("{}-{}-{}", self.across.name(), smooth_name(self.smooth), bands_name(self.bands))
    }
}

fn smooth_name(smooth: bool) -> &'static str {
    if smooth { "means" } else { "values" }
}

fn bands_name(bands: bool) -> &'static str {
    if bands { "bands" } else { "runs" }
}

/// A figure that was drawn.
pub(crate) struct Drawn {
    pub(crate) id: &'static str,
    pub(crate) svg: String,
}

/// Every figure for which the runs have numbers, as files: over the steps, smoothed, the seeds as bands.
pub(crate) fn files(runs: &[Run]) -> Vec<Drawn> {
    let drawing = Drawing::new(runs);
    let variant = Variant { across: Across::Step, smooth: true, bands: true };
    let figures = FIGURES.iter().filter_map(|figure| {
        let curves = drawing.placed.curves(figure, true);
        let svg = drawing.file(figure, &curves, variant)?;
        Some(Drawn { id: figure.id, svg })
    });
    let mut all: Vec<Drawn> = figures.collect();
    all.extend(time(runs, false).map(|(svg, _)| Drawn { id: "time", svg }));
    all
}

/// Runs, and what all their figures share.
pub(crate) struct Drawing<'a> {
    placed: Placed<'a>,
    axes: Vec<XAxis>,
}

impl<'a> Drawing<'a> {
    pub(crate) fn new(runs: &'a [Run]) -> Self {
        let placed = Placed::new(runs);
        let axes =
            Across::ALL.into_iter().filter_map(|it| XAxis::new(it, &placed.places)).collect();
        Self { placed, axes }
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
