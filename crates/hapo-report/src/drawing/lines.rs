//! A figure of lines over an axis, or of areas on top of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::axis::{XAxis, YAxis};
use super::curves::{Curve, DASHES, thinned};
use super::svg::{BOTTOM, Frame, LEFT, WIDTH, cut, escaped, rounded, tick_text};
use super::{Drawing, mark};
use crate::figures::{Figure, Scale};
use crate::folder::annealing_from;

pub(super) const STYLE: &str = include_str!("../../assets/figure.css");
const LEGEND_LINE: f64 = 18.0;
/// A line whose points lie so far apart shows each of them.
const APART: f64 = 0.05;

impl Drawing<'_> {
    pub(super) fn file(&self, figure: &Figure<'_>, curves: &[Curve]) -> Option<String> {
        let mut frame = Frame::file();
        let body = self.body(figure, curves, &mut frame)?;
        let longest = curves.iter().map(Curve::window).max().unwrap_or(1);
        let mut title = figure.title.to_owned();
        if !figure.unit.is_empty() {
            title += &format!(", {}", figure.unit);
        }
        if longest > 1 {
            title += &format!(" (means of up to {longest} values)");
        }
        let below = frame.bottom() + BOTTOM;
        let mut seen = BTreeSet::new();
        let named: Vec<&Curve> = curves.iter().filter(|it| seen.insert(&it.label)).collect();
        let mut svg = opened(below + LEGEND_LINE * named.len().div_ceil(2) as f64, &title);
        svg += &body;
        for (n, curve) in named.into_iter().enumerate() {
            let left = LEFT + (n % 2) as f64 * (WIDTH - LEFT) / 2.0;
            let top = below + (n / 2) as f64 * LEGEND_LINE + 8.0;
            let mark = mark(curve, figure.scale == Scale::Stacked, left, top - 4.0);
            let (left, name) = (left + 34.0, escaped(&cut(&curve.label, 44)));
            let _ = writeln!(svg, "{mark}<text class='name' x='{left}' y='{top}'>{name}</text>");
        }
        Some(svg + "</svg>\n")
    }

    pub(super) fn figure(
        &self,
        figure: &Figure<'_>,
        curves: &[Curve],
        mut frame: Frame,
    ) -> Option<String> {
        let body = self.body(figure, curves, &mut frame)?;
        let height = rounded(frame.height, 1);
        Some(format!(
            "<svg class='chart' width='100%' height='{height}' aria-hidden='true'>\n{body}<line class='cursor' y2='{height}'/>\n</svg>"
        ))
    }

    /// The contents of the frame, which grows if it holds several curves.
    fn body(&self, figure: &Figure<'_>, curves: &[Curve], frame: &mut Frame) -> Option<String> {
        let x = self.x.as_ref()?;
        if curves.is_empty() {
            return None;
        }
        let mut svg = String::new();
        if figure.scale == Scale::Stacked {
            self.stacks(&mut svg, curves, x, frame);
        } else {
            if figure.phases {
                self.phases(&mut svg, x, frame);
            }
            self.stages(&mut svg, x, frame);
            lines(&mut svg, figure, curves, x, frame);
        }
        horizontal(&mut svg, x, frame);
        Some(svg)
    }

    /// A frame for each set, in it its lines on top of each other as areas.
    fn stacks(&self, svg: &mut String, curves: &[Curve], x: &XAxis, frame: &mut Frame) {
        let sets: Vec<&[Curve]> = curves.chunk_by(|a, b| a.set == b.set).collect();
        let several = sets.len() > 1;
        let least = if several { 96.0 } else { 0.0 };
        frame.height = frame.height.max(least * sets.len() as f64);
        let each = frame.height / sets.len() as f64;
        let mut first = 0;
        for (n, of) in sets.iter().enumerate() {
            let above = if several { 18.0 } else { 0.0 };
            let below = if n + 1 < sets.len() { 4.0 } else { 0.0 };
            let top = frame.top + each * n as f64 + above;
            let part = Frame { top, height: each - above - below, ..*frame };
            if several {
                let most = if part.is_page { 40 } else { 80 };
                let name = escaped(&cut(&self.sets[of[0].set].name, most));
                let (left, above) = (part.across(0.0), rounded(top - 5.0, 1));
                let _ = writeln!(svg, "<text class='name' x='{left}' y='{above}'>{name}</text>");
            }
            let y = areas(svg, first, of, x, &part);
            vertical(svg, &y.ticks(if several { 3 } else { 5 }), &y, &part);
            first += of.len();
        }
    }

    fn stages(&self, svg: &mut String, x: &XAxis, frame: &Frame) {
        let shifts = self.runs.iter().map(|run| run.shift as u64).filter(|it| *it > 0);
        for shift in shifts.collect::<BTreeSet<u64>>() {
            let at = frame.across(x.place(shift as f64));
            let (top, bottom) = (frame.top, frame.bottom());
            let _ = writeln!(
                svg,
                "<line class='tick' stroke-dasharray='2 3' x1='{at}' x2='{at}' y1='{top}' y2='{bottom}'><title>next stage</title></line>"
            );
        }
    }

    /// The ground of the gate's phases, of the first run that has a gate.
    fn phases(&self, svg: &mut String, x: &XAxis, frame: &Frame) {
        let mut runs = self.sets.iter().flat_map(|set| set.runs.iter().map(|it| &self.runs[*it]));
        let gated = runs.find_map(|run| Some((run, run.gate.as_ref()?)));
        let Some((run, gate)) = gated else { return };
        let place = |step: u64| x.place(step as f64 + run.shift);
        let logged = run.columns.steps().last().copied().unwrap_or(0.0) as u64;
        let extinct = gate.extinct_at_step.map(|it| it.0);
        let end = extinct.unwrap_or(logged + 1);
        let anneals = annealing_from(gate).unwrap_or(end).clamp(1, end);
        let line = extinct.filter(|it| *it <= logged).map(|it| (it, place(it)));
        // The line's name goes where it fits, and the phases' names where it leaves room.
        let (name, room) = match line {
            Some((step, at)) if at < 0.65 => (format!("teacher gone from step {step}"), 1.0),
            Some((step, at)) => (format!("gone from {step}"), at - 0.22),
            None => (String::new(), 1.0),
        };
        for (class, label, from, to, needs) in
            [("open", "open", 1, anneals, 0.12), ("annealing", "annealing", anneals, end, 0.22)]
        {
            let (from, to) = (place(from), place(to.min(logged)));
            if from >= to {
                continue;
            }
            let (x, y, wide) = (frame.across(from), frame.top, frame.wide(to - from));
            let high = frame.height;
            let _ = write!(
                svg,
                "<rect class='{class}' x='{x}' y='{y}' width='{wide}' height='{high}'/>"
            );
            if to.min(room) - from > needs {
                let _ = write!(svg, "<text x='{x}' dx='3' y='{}'>{label}</text>", y - 4.0);
            }
            svg.push('\n');
        }
        if let Some((_, at)) = line {
            let at_left = at >= 0.65;
            let _ = writeln!(
                svg,
                "<line class='extinct' x1='{0}' x2='{0}' y1='{1}' y2='{2}'/><text x='{0}' dx='{3}' y='{4}' text-anchor='{5}'>{name}</text>",
                frame.across(at),
                frame.top - 10.0,
                frame.bottom(),
                if at_left { -3 } else { 3 },
                frame.top - 4.0,
                if at_left { "end" } else { "start" }
            );
        }
    }
}

pub(super) fn opened(height: f64, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'>\n<title>{title}</title>\n<style>{STYLE}</style>\n<rect width='{WIDTH}' height='{height}' fill='#fff'/>\n<text class='title' x='{LEFT}' y='18'>{title}</text>\n"
    )
}

/// The points of a curve as places, one of its three values each, as many as the frame shows.
fn placed(
    points: impl Iterator<Item = (f64, f64)>,
    x: &XAxis,
    y: &YAxis,
    frame: &Frame,
) -> Vec<Option<(f64, f64)>> {
    let places = points.map(|(at, value)| (x.place(at), y.place(value)));
    let places: Vec<(f64, Option<f64>)> = places.filter(|it| it.0.is_finite()).collect();
    let kept = thinned(&places, frame.columns);
    kept.into_iter().map(|it| Some((places[it].0, places[it].1?))).collect()
}

fn lines(svg: &mut String, figure: &Figure<'_>, curves: &[Curve], x: &XAxis, frame: &Frame) {
    // The values behind the means of one run alone.
    let has_values = curves.iter().all(|it| it.set == curves[0].set);
    let values = curves.iter().flat_map(|it| {
        let behind = it.points.iter().filter(move |_| has_values).map(|it| it.values);
        behind.chain(it.drawn().map(|it| it.1))
    });
    let y = YAxis::new(figure.scale, values.flat_map(|it| [it[1], it[2]]));
    vertical(svg, &y.ticks(5), &y, frame);
    let close = frame.open(svg);
    for (n, it) in curves.iter().enumerate() {
        let _ = write!(svg, "<g data-line='{n}'>");
        let (colour, dash) = (it.colour, it.line % DASHES);
        let drawn = |k: usize| placed(it.drawn().map(move |it| (it.0, it.1[k])), x, &y, frame);
        if it.is_band() {
            let upper = drawn(2).into_iter().flatten();
            let outline = frame.path(upper.chain(drawn(1).into_iter().rev().flatten()).map(Some));
            let _ = write!(svg, "<path class='band f{colour}' d='{outline}z'/>");
        } else if has_values && it.window() > 1 {
            let values = it.points.iter().map(|point| (point.step as f64, point.values[0]));
            let path = frame.path(placed(values, x, &y, frame).into_iter());
            let _ = write!(svg, "<path class='raw c{colour}' d='{path}'/>");
        }
        let points = drawn(0);
        let dots: Vec<(f64, f64)> = points.iter().flatten().copied().collect();
        let spread = dots.last().map_or(0.0, |it| it.0) - dots.first().map_or(0.0, |it| it.0);
        if spread >= APART * dots.len().saturating_sub(1) as f64 {
            let dots = frame.dots(dots.into_iter());
            let _ = write!(svg, "<path class='dots c{colour}' d='{dots}'/>");
        }
        let path = frame.path(points.into_iter());
        let _ = write!(svg, "<path class='line c{colour} d{dash}' d='{path}'/></g>");
    }
    *svg += close;
}

/// The lines of one set, from the `first` of the figure on, as areas, each over those before it; gives their axis.
fn areas(svg: &mut String, first: usize, curves: &[Curve], x: &XAxis, frame: &Frame) -> YAxis {
    let mut tops: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut below: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    // Every step of any line: one that a line does not log has nothing of it.
    for it in curves {
        below.extend(it.points.iter().map(|point| (point.step, (point.step as f64, 0.0))));
    }
    for it in curves {
        for (point, values) in it.points.iter().zip(&it.smoothed) {
            below.entry(point.step).and_modify(|top| top.1 += values[0]);
        }
        tops.push(below.values().copied().collect());
    }
    let y = YAxis::new(Scale::Stacked, tops.iter().flatten().map(|it| it.1));
    let close = frame.open(svg);
    // The highest first: later areas lie on top.
    *svg += "<g class='areas'>";
    for (n, curve) in curves.iter().enumerate().rev() {
        let outline = placed(tops[n].iter().copied(), x, &y, frame);
        let ends = (outline.first().copied().flatten(), outline.last().copied().flatten());
        let floor = [ends.1, ends.0].into_iter().flatten().map(|it| Some((it.0, 0.0)));
        let path = frame.path(outline.into_iter().chain(floor));
        let _ =
            write!(svg, "<path class='f{}' data-line='{}' d='{path}z'/>", curve.colour, first + n);
    }
    *svg += "</g>";
    *svg += close;
    y
}

fn vertical(svg: &mut String, ticks: &[f64], y: &YAxis, frame: &Frame) {
    for tick in ticks {
        let Some(at) = y.place(*tick) else { continue };
        let at = frame.down(at);
        let _ = writeln!(
            svg,
            "<line class='grid' x1='{}' x2='{}' y1='{2}' y2='{2}'/><text x='{3}' y='{4}' text-anchor='end'>{5}</text>",
            frame.across(0.0),
            frame.across(1.0),
            rounded(at, 1),
            rounded(frame.left - 5.0, 1),
            rounded(at + 4.0, 1),
            tick_text(*tick)
        );
    }
}

fn horizontal(svg: &mut String, x: &XAxis, frame: &Frame) {
    let below = frame.bottom();
    for (at, text) in x.ticks() {
        let across = frame.across(at);
        let anchor = if at > 0.97 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<line class='tick' x1='{across}' x2='{across}' y1='{}' y2='{}'/><text x='{across}' y='{}' text-anchor='{anchor}'>{text}</text>",
            rounded(below, 1),
            rounded(below + 4.0, 1),
            rounded(below + 16.0, 1)
        );
    }
    let _ = writeln!(
        svg,
        "<line class='tick' x1='{}' x2='{}' y1='{2}' y2='{2}'/><text x='{3}' y='{4}' text-anchor='middle'>step</text>",
        frame.across(0.0),
        frame.across(1.0),
        rounded(below, 1),
        frame.across(0.5),
        rounded(below + 32.0, 1)
    );
}
