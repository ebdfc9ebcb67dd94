//! Figures for papers: SVG by hand; a browser prints them or makes pixels of them. White ground, one width, no interaction.

use std::fmt::Write as _;

use crate::figures::{FIGURES, Figure, Scale};
use crate::folder::{Run, annealing_from, seed_groups};
use crate::summary::{short, time_parts};

/// Okabe and Ito's colours, which colour-blind readers can tell apart, the yellow darkened for white paper.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#444444"];
const DASHES: [&str; 4] = ["", "6 4", "2 3", "9 3 2 3"];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;

/// A figure that was drawn.
pub(crate) struct Drawn {
    pub(crate) id: &'static str,
    pub(crate) svg: String,
}

/// Every figure for which the runs have numbers.
pub(crate) fn all(runs: &[Run]) -> Vec<Drawn> {
    let sets = sets(runs);
    let mut drawn: Vec<Drawn> = FIGURES
        .iter()
        .filter_map(|figure| {
            let svg = figure_of(figure, runs, &sets)?;
            Some(Drawn { id: figure.id, svg })
        })
        .collect();
    drawn.extend(time(runs).map(|svg| Drawn { id: "time", svg }));
    drawn
}

/// Runs drawn as one: a run, or the seeds of a recipe.
struct Set {
    name: String,
    runs: Vec<usize>,
}

fn sets(runs: &[Run]) -> Vec<Set> {
    let groups = seed_groups(runs).into_iter();
    groups
        .map(|group| Set {
            name: match group.as_slice() {
                [one] => runs[*one].name.clone(),
                many => format!("{} ({} seeds)", runs[many[0]].name, many.len()),
            },
            runs: group,
        })
        .collect()
}

/// One metric of one set over its steps: step, mean, lowest, highest.
fn curve(set: &Set, runs: &[Run], metric: &str) -> Vec<[f64; 4]> {
    let mut by_step: std::collections::BTreeMap<u64, Vec<f64>> = std::collections::BTreeMap::new();
    for it in &set.runs {
        let columns = &runs[*it].columns;
        let Some(values) = columns.get(metric) else {
            continue;
        };
        let pairs = columns.steps().iter().zip(values);
        for (step, value) in pairs.filter(|it| it.1.is_finite()) {
            by_step.entry(*step as u64).or_default().push(*value);
        }
    }
    by_step
        .into_iter()
        .map(|(step, all)| {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let low = all.iter().copied().fold(f64::INFINITY, f64::min);
            let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            [step as f64, mean, low, high]
        })
        .collect()
}

/// Steps over whose mean a curve of `n` points is drawn.
fn window(n: usize) -> usize {
    (n / 40).clamp(1, 50)
}

/// Means over `window` points that end at each.
fn smoothed(points: &[[f64; 4]], window: usize) -> Vec<[f64; 4]> {
    (0..points.len())
        .map(|at| {
            let part = &points[at.saturating_sub(window - 1)..=at];
            let mean = |k: usize| part.iter().map(|it| it[k]).sum::<f64>() / part.len() as f64;
            [points[at][0], mean(1), mean(2), mean(3)]
        })
        .collect()
}

/// A curve of a figure: its colour, its dash, its label, and its points `[step, mean, lowest, highest]`.
type Curve = (usize, usize, String, Vec<[f64; 4]>);

/// The smoothed curves of a figure, and the longest window of means among them.
fn curves_of(figure: &Figure, runs: &[Run], sets: &[Set]) -> (Vec<Curve>, usize) {
    let mut curves = Vec::new();
    let mut longest = 1;
    for (colour, set) in sets.iter().enumerate() {
        for (dash, line) in figure.lines.iter().enumerate() {
            let points = curve(set, runs, line.metric);
            if !points.is_empty() {
                let window = window(points.len());
                longest = longest.max(window);
                let label = if sets.len() == 1 {
                    line.label.to_owned()
                } else {
                    format!("{}: {}", set.name, line.label)
                };
                // One run: its metrics are told apart by colour as well.
                let colour = if sets.len() == 1 { dash } else { colour };
                curves.push((colour, dash, label, smoothed(&points, window)));
            }
        }
    }
    (curves, longest)
}

fn figure_of(figure: &Figure, runs: &[Run], sets: &[Set]) -> Option<String> {
    let (curves, longest) = curves_of(figure, runs, sets);
    if curves.is_empty() {
        return None;
    }
    let all = || curves.iter().flat_map(|it| &it.3);
    let x_max = all().map(|it| it[0]).fold(1.0, f64::max);
    let axis = Axis::new(figure.scale, all().flat_map(|it| [it[2], it[3]]))?;
    let height = HEIGHT + LEGEND_LINE * curves.len().div_ceil(2) as f64;
    let x = |step: f64| LEFT + (WIDTH - LEFT - RIGHT) * (step - 1.0) / (x_max - 1.0).max(1.0);
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - axis.place(value));

    let title = if longest > 1 {
        format!("{} (means over {longest} steps)", figure.title)
    } else {
        figure.title.to_owned()
    };
    let mut svg = opened(height, &title);
    if figure.phases
        && let Some(gate) = sets.first().and_then(|it| runs[it.runs[0]].gate.as_ref())
        && let Some(step) = gate.extinct_at_step.map(|it| it.0).filter(|it| *it as f64 <= x_max)
    {
        let at = x(step as f64);
        let anneals = x(annealing_from(gate).unwrap_or(step).clamp(1, step) as f64);
        for (from, to, colour) in [(LEFT, anneals, "#0072b2"), (anneals, at, "#d55e00")] {
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" opacity=\"0.08\"/>",
                to - from,
                HEIGHT - BOTTOM - TOP
            );
        }
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#666\" stroke-dasharray=\"3 3\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" fill=\"#444\">e* = step {step}</text>",
            HEIGHT - BOTTOM,
            at + 4.0,
            TOP + 12.0
        );
    }
    for tick in axis.ticks() {
        let at = y(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"end\" fill=\"#333\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            tick_text(tick)
        );
    }
    for tick in linear_ticks(1.0, x_max, 6).into_iter().filter(|it| it.fract() == 0.0) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#333\">{tick}</text>",
            x(tick),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#333\">step</text><text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"11\" fill=\"#555\">{}</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0,
        TOP - 4.0,
        figure.unit
    );
    for (colour, dash, _, points) in &curves {
        let colour = COLOURS[colour % COLOURS.len()];
        if points.iter().any(|it| it[2] < it[3]) {
            let upper = points.iter().map(|it| format!("{:.1},{:.1}", x(it[0]), y(it[3])));
            let lower = points.iter().rev().map(|it| format!("{:.1},{:.1}", x(it[0]), y(it[2])));
            let outline: Vec<String> = upper.chain(lower).collect();
            let _ = writeln!(
                svg,
                "<polygon points=\"{}\" fill=\"{colour}\" opacity=\"0.15\"/>",
                outline.join(" ")
            );
        }
        let path: Vec<String> =
            points.iter().map(|it| format!("{:.1},{:.1}", x(it[0]), y(it[1]))).collect();
        let dash = DASHES[dash % DASHES.len()];
        if path.len() == 1 {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(points[0][0]),
                y(points[0][1])
            );
        }
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-dasharray=\"{dash}\"/>",
            path.join(" ")
        );
    }
    write_legend(&mut svg, &curves);
    svg += "</svg>\n";
    Some(svg)
}

/// A line with its name for each curve, in two columns below the figure.
fn write_legend(svg: &mut String, curves: &[Curve]) {
    for (n, (colour, dash, label, _)) in curves.iter().enumerate() {
        let (left, top) = (
            LEFT + (n % 2) as f64 * (WIDTH - LEFT) / 2.0,
            HEIGHT + (n / 2) as f64 * LEGEND_LINE + 8.0,
        );
        let (colour, dash) = (COLOURS[colour % COLOURS.len()], DASHES[dash % DASHES.len()]);
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/><text x=\"{:.1}\" y=\"{top:.1}\" font-size=\"12\" fill=\"#222\">{}</text>",
            left + 28.0,
            top - 4.0,
            top - 4.0,
            left + 34.0,
            escaped(&cut(label, 44))
        );
    }
}

/// A bar for each run: the share of its time in each part of a step.
fn time(runs: &[Run]) -> Option<String> {
    const ROW: f64 = 30.0;
    let bars: Vec<_> = runs
        .iter()
        .map(|it| (it.name.as_str(), time_parts(it)))
        .filter(|it| it.1.iter().any(|part| part.seconds > 0.0))
        .collect();
    let labels: Vec<&str> = bars.first()?.1.iter().map(|it| it.label).collect();
    let left = 190.0;
    let height = TOP + ROW * bars.len() as f64 + 34.0;
    let mut svg = opened(height, "Where the time went");
    for (n, (name, parts)) in bars.iter().enumerate() {
        let total: f64 = parts.iter().map(|it| it.seconds).sum();
        let top = TOP + n as f64 * ROW;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"end\" fill=\"#222\">{}</text>",
            left - 8.0,
            top + 15.0,
            escaped(&cut(name, 26))
        );
        let mut at = left;
        for part in parts {
            let colour = labels.iter().position(|it| *it == part.label).unwrap_or(0);
            let width = (WIDTH - left - RIGHT) * part.seconds / total;
            let _ = writeln!(
                svg,
                "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"20\" fill=\"{}\"/>",
                COLOURS[colour % COLOURS.len()]
            );
            if width > 44.0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#fff\">{:.0} %</text>",
                    at + width / 2.0,
                    top + 15.0,
                    100.0 * part.seconds / total
                );
            }
            at += width;
        }
    }
    for (n, label) in labels.iter().enumerate() {
        let at = left + n as f64 * 110.0;
        let top = height - 14.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{at:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{top:.1}\" font-size=\"12\" fill=\"#222\">{label}</text>",
            top - 10.0,
            COLOURS[n % COLOURS.len()],
            at + 18.0
        );
    }
    Some(svg + "</svg>\n")
}

fn opened(height: f64, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"DejaVu Sans, sans-serif\">\n<title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"{LEFT}\" y=\"18\" font-size=\"15\" fill=\"#111\">{title}</text>\n"
    )
}

/// The vertical axis.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis that holds the values; none where a logarithm has nothing to show.
    fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let positive = scale == Scale::Log;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for it in values.filter(|it| it.is_finite() && (!positive || *it > 0.0)) {
            low = low.min(it);
            high = high.max(it);
        }
        if low > high {
            return (scale == Scale::Log).then_some(Self { scale, low: 0.1, high: 1.0 });
        }
        if matches!(scale, Scale::FromZero | Scale::Stacked) {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if scale == Scale::Log {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            let high = high.max(low + 1.0);
            return Some(Self { scale, low: 10_f64.powf(low), high: 10_f64.powf(high) });
        }
        // Equal values lie in the middle, zeros at the bottom.
        let room = match (high - low, high.abs()) {
            (spread, _) if spread > 0.0 => spread * 0.05,
            (_, size) if size > 0.0 => size * 0.1,
            _ => 1.0,
        };
        Some(Self {
            scale,
            low: if low == 0.0 { 0.0 } else { low - room },
            high: if high == 0.0 && low < 0.0 { 0.0 } else { high + room },
        })
    }

    /// Where a value lies, 0 at the bottom and 1 at the top.
    fn place(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Log => {
                let of = |it: f64| it.max(self.low).log10();
                (of(value) - of(self.low)) / (of(self.high) - of(self.low))
            }
            _ => (value - self.low) / (self.high - self.low),
        };
        at.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let (low, high) = (self.low.log10().round(), self.high.log10().round());
                let every = ((high - low) / 6.0).ceil().max(1.0);
                let n = ((high - low) / every).floor() as usize;
                (0..=n).map(|it| 10_f64.powf(low + it as f64 * every)).collect()
            }
            _ => linear_ticks(self.low, self.high, 6),
        }
    }
}

/// Round numbers between two ends, about `n`.
fn linear_ticks(low: f64, high: f64, n: usize) -> Vec<f64> {
    let span = high - low;
    // One value, or none that can be told from it: the axis of a run of one step.
    if !span.is_finite() || span <= low.abs() * 1e-12 {
        return vec![low];
    }
    let rough = span / n as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|it| it * power)
        .find(|it| *it >= rough)
        .unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (0..=2 * n as i64)
        .map(|it| (first + it) as f64 * step)
        .take_while(|it| *it <= high + step * 1e-9)
        .collect()
}

fn tick_text(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        return short(value);
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let end: String =
        text.chars().rev().take(most - 1).collect::<Vec<_>>().into_iter().rev().collect();
    format!("…{end}")
}

fn escaped(text: &str) -> String {
    text.chars()
        .map(|it| match it {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            // XML has no place for other control characters.
            it if it.is_control() => "\u{fffd}".to_owned(),
            it => it.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_one_value_has_one_tick() {
        assert_eq!(linear_ticks(1.0, 1.0, 6), [1.0]);
        assert_eq!(linear_ticks(0.0, 0.0, 6), [0.0]);
        assert_eq!(linear_ticks(0.0, 3.0, 6), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(linear_ticks(0.0, 1.0, 6), [0.0, 0.2, 0.4, 0.600_000_000_000_000_1, 0.8, 1.0]);
        assert_eq!(linear_ticks(1.0, 2000.0, 6), [500.0, 1000.0, 1500.0, 2000.0]);
        assert_eq!(tick_text(0.600_000_000_000_000_1), "0.6");
        assert_eq!(tick_text(1e-5), "1.00e-5");
    }

    #[test]
    fn a_logarithmic_axis_passes_over_zeros() {
        let axis = Axis::new(Scale::Log, [0.0, 0.02, 3.0].into_iter()).unwrap();
        assert_eq!((axis.low, axis.high), (0.01, 10.0));
        assert_eq!(axis.place(0.0), 0.0);
        assert!((axis.place(0.1) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn names_are_text_in_a_figure() {
        assert_eq!(escaped("<b>&\u{1}"), "&lt;b&gt;&amp;\u{fffd}");
    }
}
