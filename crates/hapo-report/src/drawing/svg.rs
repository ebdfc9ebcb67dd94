//! Where a figure is drawn, and how its texts and paths are written.
//!
//! Attributes hold numbers and the crate's own words alone; a run's texts stand between tags, escaped.

use std::fmt::Write as _;

/// The rectangle between a figure's axes.
///
/// On the page it is as wide as there is room: places across are percentages, and paths lie on a grid of whole numbers
/// that the browser stretches, so that texts and strokes keep their size. In a file it has a fixed place in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(super) is_page: bool,
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Columns that a path may tell apart.
    pub(super) columns: usize,
}

const GRID: (f64, f64) = (1000.0, 500.0);
/// Width of a file's figure, and the room beside its frame.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 16.0;
pub(super) const TOP: f64 = 36.0;
pub(super) const BOTTOM: f64 = 46.0;

impl Frame {
    pub(crate) fn page(columns: usize) -> Self {
        Self { is_page: true, left: 0.0, top: 0.0, width: 0.0, height: 176.0, columns }
    }

    pub(crate) fn file() -> Self {
        let (width, height) = (WIDTH - LEFT - RIGHT, 338.0);
        Self { is_page: false, left: LEFT, top: TOP, width, height, columns: width as usize }
    }

    /// A place across, as an attribute's value.
    pub(super) fn across(&self, share: f64) -> String {
        if self.is_page {
            format!("{}%", rounded(100.0 * share, 2))
        } else {
            rounded(self.left + self.width * share, 1)
        }
    }

    pub(super) fn wide(&self, share: f64) -> String {
        Self { left: 0.0, ..*self }.across(share)
    }

    /// Pixels from the top for a height from 0 to 1.
    pub(super) fn down(&self, share: f64) -> f64 {
        self.top + self.height * (1.0 - share)
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Opens a group of paths, and returns its closing tag.
    pub(super) fn open(&self, svg: &mut String) -> &'static str {
        if self.is_page {
            let _ = write!(
                svg,
                "<svg y='{}' width='100%' height='{}' viewBox='0 0 {} {}' preserveAspectRatio='none'>",
                rounded(self.top, 1),
                rounded(self.height, 1),
                GRID.0,
                GRID.1
            );
            "</svg>\n"
        } else {
            *svg += "<g>";
            "</g>\n"
        }
    }

    /// A point on the grid of paths.
    fn grid(&self, (across, up): (f64, f64)) -> (i64, i64) {
        let (x, y) = if self.is_page {
            (GRID.0 * across, GRID.1 * (1.0 - up))
        } else {
            (10.0 * (self.left + self.width * across), 10.0 * self.down(up))
        };
        (x.round() as i64, y.round() as i64)
    }

    /// The data of a path through points; `None` is a gap.
    pub(super) fn path(&self, points: impl Iterator<Item = Option<(f64, f64)>>) -> String {
        let mut data = String::new();
        let mut last: Option<(i64, i64)> = None;
        let mut letter = ' ';
        let mut put = |data: &mut String, command: char, (x, y): (i64, i64)| {
            if letter != command || command == 'M' {
                data.push(command);
            } else if x >= 0 {
                data.push(' ');
            }
            letter = command;
            *data += &self.number(x);
            if y >= 0 {
                data.push(' ');
            }
            *data += &self.number(y);
        };
        // A point between two gaps is a pixel wide.
        let alone = if self.is_page { "h2" } else { "h1" };
        let mut is_alone = false;
        for point in points.chain([None]) {
            let at = point.map(|it| self.grid(it));
            if at.is_none() && is_alone {
                data += alone;
            }
            is_alone = at.is_some() && (last.is_none() || is_alone && last == at);
            match (last, at) {
                (Some(from), Some(to)) if from != to => {
                    put(&mut data, 'l', (to.0 - from.0, to.1 - from.1));
                }
                (None, Some(to)) => put(&mut data, 'M', to),
                _ => {}
            }
            last = at;
        }
        data
    }

    /// The data of a path that shows nothing but a dot at each point.
    pub(super) fn dots(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        points.fold(String::new(), |mut data, it| {
            let (x, y) = self.grid(it);
            let _ = write!(data, "M{} {}h.01", self.number(x), self.number(y));
            data
        })
    }

    /// A number of the grid: tenths of a pixel in a file.
    fn number(&self, it: i64) -> String {
        if self.is_page { it.to_string() } else { rounded(it as f64 / 10.0, 1) }
    }
}

/// A number with as many decimals, none that are zeros.
pub(super) fn rounded(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

pub(super) fn tick_text(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e12).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    match size {
        it if it >= 1e9 => rounded(value / 1e9, 2) + "G",
        it if it >= 1e6 => rounded(value / 1e6, 2) + "M",
        it if it >= 1e5 => rounded(value / 1e3, 2) + "k",
        _ => rounded(value, 6),
    }
}

pub(super) fn cut(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_owned();
    }
    let end: String = text.chars().skip(n - most + 1).collect();
    format!("…{end}")
}

pub(super) fn escaped(text: &str) -> String {
    let escaped = |it: char| match it {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        // XML has no place for other control characters.
        it if it.is_control() => "\u{fffd}".to_owned(),
        it => it.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_in_a_figure() {
        assert_eq!(escaped("<b>&\u{1}"), "&lt;b&gt;&amp;\u{fffd}");
        assert_eq!(cut("abcdef", 4), "…def");
    }

    #[test]
    fn ticks_are_short() {
        let texts =
            [0.600_000_000_000_000_1, 1e-5, 1.2e-5, 2000.0, 15e4, -2.5e6, 3e9, 0.0].map(tick_text);
        assert_eq!(texts, ["0.6", "1e-5", "1.2e-5", "2000", "150k", "-2.5M", "3G", "0"]);
    }

    #[test]
    fn a_path_goes_by_steps_of_the_grid_and_lifts_its_pen_at_gaps() {
        let points =
            [Some((0.0, 0.0)), Some((0.001, 0.5)), None, Some((1.0, 1.0)), Some((0.5, 1.0))];
        assert_eq!(Frame::page(9).path(points.into_iter()), "M0 500l1-250M1000 0l-500 0");
        let points = [Some((0.25, 0.5)), Some((0.25, 0.5)), None, Some((0.5, 1.0))];
        assert_eq!(Frame::page(9).path(points.into_iter()), "M250 250h2M500 0h2");
        let points = [Some((0.0, 0.0)), Some((0.001, 0.5))];
        assert_eq!(Frame::file().path(points.into_iter()), "M64 374l0.6-169");
        assert_eq!(Frame::page(9).dots([(0.5, 0.5)].into_iter()), "M500 250h.01");
    }
}
