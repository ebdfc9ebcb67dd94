//! Charts of a study: lines over steps for its page, and differences with their intervals as a file.

use std::fmt::Write as _;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 200.0;
/// Space for the numbers of the axes.
const LEFT: f64 = 40.0;
const BELOW: f64 = 20.0;
const COLOURS: &[&str] = &[
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#e07b39",
    "#44aa99", "#882255", "#6699cc",
];

/// The colour of a line.
fn colour(line: usize) -> &'static str {
    COLOURS[line % COLOURS.len()]
}

/// Which colour is whose; labels are plain text.
pub(crate) fn legend(labels: &[&str]) -> String {
    let mut html = String::from("<p>");
    for (n, label) in labels.iter().enumerate() {
        let label = crate::study::html::escaped(label);
        let _ = write!(html, "<span style=\"color:{}\">■</span> {label} &nbsp; ", colour(n));
    }
    html + "</p>\n"
}

/// Lines over steps, from 1 on, in the colours of [`legend`]; a value that is NaN or infinite is left out. `None` where there
/// is nothing to draw.
pub(crate) fn chart(title: &str, lines: &[&[f64]]) -> Option<String> {
    let values = || lines.iter().flat_map(|it| it.iter()).filter(|it| it.is_finite());
    let steps = lines.iter().map(|it| it.len()).max()?;
    if values().next().is_none() || steps < 2 {
        return None;
    }
    let high = values().copied().fold(f64::MIN, f64::max);
    let low = values().copied().fold(0.0, f64::min);
    let span = if high > low { high - low } else { 1.0 };
    let x = |step: usize| LEFT + (WIDTH - LEFT) * step as f64 / (steps - 1) as f64;
    let y = |value: f64| 8.0 + (HEIGHT - BELOW - 8.0) * (1.0 - (value - low) / span);
    let mut svg = format!(
        "<figure><figcaption>{title}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\">\
         <g fill=currentColor font-size=11><text x=0 y={:.1}>{high:.2}</text><text x=0 y={:.1}>{low:.2}</text>\
         <text x={LEFT} y={HEIGHT}>1</text><text x={WIDTH} y={HEIGHT} text-anchor=end>{steps}</text></g>",
        y(high) + 4.0,
        y(low)
    );
    for (n, line) in lines.iter().enumerate() {
        let points = line.iter().enumerate().filter(|it| it.1.is_finite());
        let points: Vec<String> =
            points.map(|(step, value)| format!("{:.1},{:.1}", x(step), y(*value))).collect();
        let _ = write!(
            svg,
            "<polyline fill=none stroke=\"{}\" stroke-width=1.5 points=\"{}\"/>",
            colour(n),
            points.join(" ")
        );
    }
    Some(svg + "</svg></figure>\n")
}

/// A difference with the ends of its interval, at a place of the horizontal axis.
pub(crate) struct Difference {
    pub(crate) x: f64,
    pub(crate) mean: f64,
    /// Nothing of one seed.
    pub(crate) interval: Option<(f64, f64)>,
}

/// Series of differences over a share, as a file of its own; a line at zero. `None` where there is nothing to draw.
pub(crate) fn differences(
    (across, up): (&str, &str),
    series: &[(&str, Vec<Difference>)],
) -> Option<String> {
    const WIDE: f64 = 560.0;
    const HIGH: f64 = 320.0;
    const MARGIN: f64 = 52.0;
    /// Between the series of one place.
    const APART: f64 = 5.0;
    /// Width of a place's number.
    const LABEL: f64 = 30.0;
    let all = || series.iter().flat_map(|it| &it.1);
    let ends = |it: &Difference| it.interval.unwrap_or((it.mean, it.mean));
    let low = all().map(|it| ends(it).0).fold(0.0, f64::min);
    let high = all().map(|it| ends(it).1).fold(0.0, f64::max);
    if high <= low {
        return None;
    }
    let from = all().map(|it| it.x).fold(f64::MAX, f64::min);
    let to = all().map(|it| it.x).fold(f64::MIN, f64::max);
    let span = if to > from { to - from } else { 1.0 };
    let x = |it: f64| MARGIN + 24.0 + (WIDE - 2.0 * MARGIN - 48.0) * (it - from) / span;
    let y = |it: f64| 30.0 + (HIGH - 30.0 - MARGIN) * (high - it) / (high - low);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDE} {HIGH}\" width=\"{WIDE}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"{WIDE}\" height=\"{HIGH}\" fill=\"#fff\"/><g fill=\"#333\">\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{across}</text><text x=\"8\" y=\"18\">{up}</text>\n",
        WIDE / 2.0,
        HIGH - 10.0
    );
    let tick = (high - low) / 5.0;
    let tick = [0.02, 0.05, 0.1, 0.2, 0.5].into_iter().find(|it| tick <= *it).unwrap_or(1.0);
    let marks = (low / tick).ceil() as i64..=(high / tick).floor() as i64;
    for value in marks.map(|it| it as f64 * tick) {
        let (at, colour) = (y(value), if value == 0.0 { "#333" } else { "#ddd" });
        let _ = writeln!(
            svg,
            "<path d=\"M{MARGIN} {at:.1}H{:.1}\" stroke=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:+.2}</text>",
            WIDE - MARGIN,
            MARGIN - 6.0,
            at + 4.0
        );
    }
    let mut places: Vec<f64> = all().map(|it| it.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    // In the first of two lines where it does not touch the number before it.
    let mut lines = [(HIGH - MARGIN + 18.0, f64::MIN), (HIGH - MARGIN + 30.0, f64::MIN)];
    for place in places {
        let at = x(place);
        if let Some((below, last)) = lines.iter_mut().find(|it| at - it.1 >= LABEL) {
            *last = at;
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{place:.2}</text>"
            );
        }
    }
    svg += "</g>\n";
    for (n, (label, points)) in series.iter().enumerate() {
        let colour = colour(n);
        let aside = (n as f64 - (series.len() - 1) as f64 / 2.0) * APART;
        for it in points {
            let (at, (low, high)) = (x(it.x) + aside, ends(it));
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\"/><circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>",
                y(low),
                y(high),
                y(it.mean)
            );
        }
        let (at, label) = (150.0 + 130.0 * n as f64, crate::study::html::escaped(label));
        let _ = writeln!(
            svg,
            "<circle cx=\"{at}\" cy=\"14\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"18\" fill=\"#333\">{label}</text>",
            at + 9.0
        );
    }
    Some(svg + "</svg>\n")
}

#[cfg(test)]
mod tests {
    use super::{Difference, chart, differences};

    #[test]
    fn differences_stand_at_their_places_with_their_intervals() {
        let point = |x, mean, interval| Difference { x, mean, interval };
        let series = [
            ("a", vec![point(0.2, 0.5, Some((0.0, 1.0))), point(0.8, 0.0, None)]),
            ("b", vec![point(0.2, -1.0, Some((-1.0, -1.0)))]),
        ];
        let svg = differences(("failing", "gain"), &series).unwrap();
        // From the highest end at the top to the lowest below it, beside each other.
        assert!(
            svg.contains("M73.5 149.0V30.0") && svg.contains("cx=\"73.5\" cy=\"89.5\""),
            "{svg}"
        );
        assert!(svg.contains("cx=\"78.5\" cy=\"268.0\"") && svg.contains(">0.20<"), "{svg}");
        assert!(differences(("", ""), &[("a", Vec::new())]).is_none());
        // Numbers that would touch are written in two lines, a third not at all.
        let near = [0.0, 0.99, 0.995, 1.0].map(|x| point(x, 0.5, None)).into();
        let svg = differences(("", ""), &[("a", near)]).unwrap();
        assert_eq!(["y=\"286.0\"", "y=\"298.0\""].map(|it| svg.matches(it).count()), [2, 1]);
    }

    #[test]
    fn a_line_goes_from_corner_to_corner_and_gaps_are_left_out() {
        let svg = chart("β", &[&[0.0, f64::NAN, 2.0], &[]]).unwrap();
        assert!(svg.contains("points=\"40.0,180.0 380.0,8.0\""), "{svg}");
        assert!(svg.contains(">2.00<") && svg.contains(">3</text>"), "{svg}");
        assert!(chart("β", &[&[f64::NAN, f64::NAN]]).is_none());
        assert!(chart("β", &[]).is_none());
        assert!(chart("flat", &[&[0.0, 0.0]]).is_some());
    }
}
