//! The page's figures: what its controls offer, and each figure with its lines and its variants.

use serde_json::{Map, Value, json};

use super::axis::XAxis;
use super::curves::Curve;
use super::svg::Frame;
use super::{Drawing, Variant, bands_name, mark, smooth_name};
use crate::figures::{FIGURES, Figure, Line, Scale, others};

/// Columns of all paths of a page together, and the most and the fewest of one path: what a figure's width can show.
const ALL_COLUMNS: usize = 600_000;
const COLUMNS: (usize, usize) = (60, 400);

/// A figure with its curves in each grouping of the runs.
struct Page<'a> {
    figure: &'a Figure<'a>,
    /// Whether it stands below the others, folded.
    is_more: bool,
    curves: Vec<Vec<Curve>>,
}

/// What the controls offer: the first of each is what a page shows first.
struct Offer {
    groupings: &'static [bool],
    smoothing: &'static [bool],
    /// The longest mean.
    window: usize,
    variants: Vec<Variant>,
}

impl Drawing<'_> {
    /// The page's figures, in every variant; where one is `wanted` by its name in that, or in the first.
    pub(crate) fn page(&self, wanted: Option<&str>) -> Value {
        let names = self.placed.runs.iter().flat_map(|it| it.columns.names());
        let others: Vec<(&str, String)> =
            others(names).into_iter().map(|it| (it, format!("metric-{it}"))).collect();
        let lines: Vec<[Line<'_>; 1]> =
            others.iter().map(|(metric, _)| [Line { metric, label: metric }]).collect();
        let own = others.iter().zip(&lines).map(|((title, id), lines)| Figure {
            id,
            title,
            unit: "",
            help: "",
            lines,
            scale: Scale::Fitted,
            phases: false,
        });
        let more: Vec<Figure<'_>> = own.collect();
        let groupings: &[bool] = if self.placed.has_seeds() { &[true, false] } else { &[true] };
        let all = FIGURES.iter().map(|it| (it, false)).chain(more.iter().map(|it| (it, true)));
        let all = all.map(|(figure, is_more)| {
            let curves = groupings.iter().map(|it| self.placed.curves(figure, *it));
            Page { figure, is_more, curves: curves.collect() }
        });
        let pages: Vec<Page<'_>> =
            all.filter(|it| it.curves.iter().any(|it| !it.is_empty())).collect();
        let offer = self.offer(&pages, groupings);
        self.described(&pages, &offer, wanted)
    }

    fn offer(&self, pages: &[Page<'_>], groupings: &'static [bool]) -> Offer {
        let curves = pages.iter().flat_map(|it| it.curves.iter().flatten());
        let window = curves.map(Curve::window).max().unwrap_or(1);
        let smoothing: &[bool] = if window > 1 { &[true, false] } else { &[false] };
        let mut variants = Vec::new();
        for across in self.axes.iter().map(XAxis::across) {
            for smooth in smoothing {
                let of = |bands: &bool| Variant { across, smooth: *smooth, bands: *bands };
                variants.extend(groupings.iter().map(of));
            }
        }
        Offer { groupings, smoothing, window, variants }
    }

    fn described(&self, pages: &[Page<'_>], offer: &Offer, wanted: Option<&str>) -> Value {
        let variants = match wanted {
            None => offer.variants.as_slice(),
            Some(wanted) => {
                let at = offer.variants.iter().position(|it| it.key() == wanted).unwrap_or(0);
                offer.variants.get(at..=at).unwrap_or_default()
            }
        };
        let curves: usize = pages.iter().flat_map(|it| &it.curves).map(Vec::len).sum();
        let paths = curves * variants.len() / offer.groupings.len();
        let columns = (ALL_COLUMNS / paths.max(1)).clamp(COLUMNS.0, COLUMNS.1);
        let drawn = |page: &Page<'_>| {
            let legends = offer.groupings.iter().zip(&page.curves).map(|(bands, curves)| {
                (bands_name(*bands).to_owned(), legend(page.figure, curves))
            });
            let svgs = variants.iter().filter_map(|variant| {
                let at = offer.groupings.iter().position(|it| *it == variant.bands)?;
                let frame = Frame::page(columns);
                let svg = self.figure(page.figure, &page.curves[at], *variant, frame)?;
                Some((variant.key(), Value::from(svg)))
            });
            let Figure { id, title, unit, help, scale, .. } = page.figure;
            json!({
                "id": id, "title": title, "unit": unit, "help": help,
                "more": page.is_more, "stacked": *scale == Scale::Stacked,
                "curves": legends.collect::<Map<String, Value>>(),
                "svg": svgs.collect::<Map<String, Value>>(),
            })
        };
        let tables = self.axes.iter().map(|it| (it.across().name().to_owned(), json!(it.table())));
        let axes = self.axes.iter().map(|it| json!([it.across().name(), it.across().label()]));
        let smoothing = offer
            .smoothing
            .iter()
            .map(|it| json!([smooth_name(*it), smooth_label(*it, offer.window)]));
        json!({
            "axes": axes.collect::<Value>(),
            "smoothing": smoothing.collect::<Value>(),
            "groupings": offer.groupings.iter().map(|it| bands_name(*it)).collect::<Value>(),
            "tables": tables.collect::<Map<String, Value>>(),
            "shown": variants.first().map(|it| it.key()),
            "all": wanted.is_none(),
            "figures": pages.iter().map(drawn).collect::<Value>(),
        })
    }
}

fn smooth_label(smooth: bool, window: usize) -> String {
    if smooth { format!("means of up to {window} values") } else { "none".to_owned() }
}

/// What the page says beside each line, and where it finds its values.
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
