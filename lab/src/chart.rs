//! Panels of lines as one SVG, for the pages of results.

use std::fmt::Write as _;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 42.0;

/// A diagram of lines that share both axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    /// True if the vertical axis is logarithmic.
    pub(crate) log: bool,
    pub(crate) lines: Vec<Line>,
}

pub(crate) struct Line {
    pub(crate) label: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) points: Vec<Point>,
}

/// A mean with the ends of its band.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Point {
    /// One without a band.
    pub(crate) fn alone(x: f64, mean: f64) -> Self {
        Self { x, mean, low: mean, high: mean }
    }

    /// The mean of values and their smallest and largest; `None` of none.
    pub(crate) fn of(x: f64, values: &[f64]) -> Option<Self> {
        let [low, high] = [f64::min, f64::max].map(|end| values.iter().copied().reduce(end));
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { x, mean, low: low?, high: high? })
    }
}

/// The panels, `columns` in a row, under the colours of all their lines.
pub(crate) fn svg(panels: &[Panel], columns: usize) -> String {
    let (wide, row) = (WIDTH * columns as f64, TOP + HEIGHT + BOTTOM);
    let high = 24.0 + row * panels.len().div_ceil(columns) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" width=\"{wide}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"{wide}\" height=\"{high}\" fill=\"#fff\"/>\n"
    );
    let mut shown: Vec<&str> = Vec::new();
    let mut at = LEFT;
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if shown.contains(&line.label) {
            continue;
        }
        shown.push(line.label);
        let _ = writeln!(
            svg,
            "<path d=\"M{at} 13h14\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"17\" fill=\"#333\">{}</text>",
            line.colour,
            at + 18.0,
            line.label
        );
        at += 34.0 + 6.6 * line.label.chars().count() as f64;
    }
    for (n, panel) in panels.iter().enumerate() {
        let (left, top) = (WIDTH * (n % columns) as f64, 24.0 + row * (n / columns) as f64);
        let _ = writeln!(svg, "<g transform=\"translate({left} {top})\">");
        panel.draw(&mut svg);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

impl Panel {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let ends = |of: &dyn Fn(&Point) -> [f64; 2]| {
            let values = points().flat_map(of).filter(|it| it.is_finite());
            let fold = |(low, high): (f64, f64), it: f64| (low.min(it), high.max(it));
            values.fold((f64::INFINITY, f64::NEG_INFINITY), fold)
        };
        let (first, last) = ends(&|it| [it.x, it.x]);
        let (mut low, mut high) = ends(&|it| [self.scaled(it.low), self.scaled(it.high)]);
        if !self.log {
            low = low.min(0.0);
        }
        // Equal values have an axis too.
        high = high.max(low + 1e-9);
        let x = |it: f64| LEFT + (WIDTH - LEFT - 14.0) * (it - first) / (last - first).max(1e-9);
        let y = |it: f64| TOP + HEIGHT * (1.0 - (self.scaled(it) - low) / (high - low));
        let text = |svg: &mut String, x: f64, y: f64, anchor: &str, text: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333\">{text}</text>"
            );
        };
        text(svg, LEFT, TOP - 10.0, "start", &self.title);
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let value = low + (high - low) * share;
            let shown = if self.log { 10_f64.powf(value) } else { value };
            let at = TOP + HEIGHT * (1.0 - share);
            let _ =
                writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>", WIDTH - 14.0);
            text(svg, LEFT - 4.0, at + 4.0, "end", &number(shown));
        }
        for at in [first, f64::midpoint(first, last), last] {
            text(svg, x(at), TOP + HEIGHT + 16.0, "middle", &number(at));
        }
        text(svg, f64::midpoint(LEFT, WIDTH), TOP + HEIGHT + 32.0, "middle", self.x);
        for line in &self.lines {
            let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
                let places = points.map(|(at, value)| format!("{:.1} {:.1}", x(at), y(value)));
                places.collect::<Vec<_>>().join("L")
            };
            let upper = line.points.iter().map(|it| (it.x, it.high));
            let lower = line.points.iter().rev().map(|it| (it.x, it.low));
            let band = path(&mut upper.chain(lower));
            let mean = path(&mut line.points.iter().map(|it| (it.x, it.mean)));
            let _ = writeln!(
                svg,
                "<path d=\"M{band}Z\" fill=\"{0}\" opacity=\"0.15\"/><path d=\"M{mean}\" fill=\"none\" stroke=\"{0}\" stroke-width=\"2\"/>",
                line.colour
            );
        }
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.log { value.max(1e-6).log10() } else { value }
    }
}

/// A tick's text: three digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
