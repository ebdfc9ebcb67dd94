//! Small line charts for the study's page.

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
        let label = crate::html::escaped(label);
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

#[cfg(test)]
mod tests {
    use super::chart;

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
