//! The two axes of a figure: where a value lies, from 0 to 1, and the ticks.

use serde::Serialize;

use super::svg::tick_text;
use crate::figures::Scale;
use crate::folder::Run;

/// Most points of the table by which the page finds the step at its pointer.
const TABLE: usize = 500;

/// What the horizontal axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    Step,
    Tokens,
    Time,
}

impl Across {
    pub(crate) const ALL: [Self; 3] = [Self::Step, Self::Tokens, Self::Time];

    /// Its name in a variant's key.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Tokens => "tokens",
            Self::Time => "time",
        }
    }

    /// How the page calls it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Tokens => "trained tokens",
            Self::Time => "wall clock",
        }
    }
}

/// Where each logged step of a run lies on every axis; NaN on one that the run does not log.
pub(super) fn places(run: &Run) -> [Vec<f64>; 3] {
    let steps = run.columns.steps();
    let column = |name: &str| run.columns.get(name);
    let summed = |of: &dyn Fn(usize) -> Option<f64>| -> Vec<f64> {
        let mut sum = 0.0;
        let add = |row: usize| {
            sum += of(row).filter(|it| it.is_finite()).unwrap_or(0.0);
            sum
        };
        let sums: Vec<f64> = (0..steps.len()).map(add).collect();
        if sum > 0.0 { sums } else { vec![f64::NAN; sums.len()] }
    };
    let (rate, train) = (column("tokens_per_second/train"), column("time/train"));
    let step_time = column("time/step");
    [
        steps.to_vec(),
        summed(&|row| Some(rate?[row] * train?[row])),
        summed(&|row| Some(step_time?[row])),
    ]
}

/// The horizontal axis, which all figures share.
pub(crate) struct XAxis {
    across: Across,
    first: f64,
    last: f64,
    /// What one unit of the ticks is, and its name.
    unit: (f64, &'static str),
    table: Table,
}

/// Steps and their places, between which the page interpolates.
#[derive(Serialize)]
pub(crate) struct Table {
    steps: Vec<f64>,
    at: Vec<f64>,
}

impl XAxis {
    /// An axis for runs with those places, if any run has some.
    pub(super) fn new(across: Across, runs: &[[Vec<f64>; 3]]) -> Option<Self> {
        let of = |run: &[Vec<f64>; 3]| run[across as usize].last().copied();
        let ends = runs.iter().filter_map(|it| Some((it, of(it).filter(|it| it.is_finite())?)));
        let (longest, last) = ends.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let unit = match across {
            Across::Step => (1.0, "step"),
            Across::Tokens => (1.0, "trained tokens"),
            Across::Time if last < 120.0 => (1.0, "seconds of wall clock"),
            Across::Time if last < 7200.0 => (60.0, "minutes of wall clock"),
            Across::Time => (3600.0, "hours of wall clock"),
        };
        let mut axis = Self { across, first: 0.0, last, unit, table: Table::empty() };
        if across == Across::Step {
            let firsts = runs.iter().filter_map(|it| it[0].first().copied());
            axis.first = firsts.fold(1.0, f64::min);
            axis.last = last.max(axis.first + 1.0);
            axis.table = Table { steps: vec![axis.first, axis.last], at: vec![0.0, 1.0] };
            return Some(axis);
        }
        let every = longest[0].len().div_ceil(TABLE);
        let rows = (0..longest[0].len()).filter(|it| it % every == 0 || it + 1 == longest[0].len());
        for row in rows {
            axis.table.steps.push(longest[0][row]);
            let at = axis.place(longest[across as usize][row]);
            axis.table.at.push((at * 1e5).round() / 1e5);
        }
        Some(axis)
    }

    pub(crate) fn across(&self) -> Across {
        self.across
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn label(&self) -> &'static str {
        self.unit.1
    }

    /// Where a value lies, 0 at the left and 1 at the right; NaN for NaN.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.first) / (self.last - self.first)).clamp(0.0, 1.0)
    }

    /// Places and texts of the ticks: the ends of a count of steps, and round numbers that leave room for them.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let is_step = self.across == Across::Step;
        let size = self.unit.0;
        let mut values = if is_step { vec![self.first, self.last] } else { vec![self.first] };
        for it in linear_ticks(self.first / size, self.last / size, 5) {
            let it = it * size;
            let fits = |other: &f64| (self.place(it) - self.place(*other)).abs() > 1.0 / 9.0;
            if (!is_step || it.fract() == 0.0) && values.iter().all(fits) {
                values.push(it);
            }
        }
        values.into_iter().map(|it| (self.place(it), tick_text(it / size))).collect()
    }
}

impl Table {
    fn empty() -> Self {
        Self { steps: Vec::new(), at: Vec::new() }
    }
}

/// The vertical axis.
pub(super) struct YAxis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl YAxis {
    /// An axis that holds the values.
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let positive = scale == Scale::Log;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for it in values.filter(|it| it.is_finite() && (!positive || *it > 0.0)) {
            low = low.min(it);
            high = high.max(it);
        }
        if low > high {
            (low, high) = if positive { (0.1, 1.0) } else { (0.0, 1.0) };
        }
        if matches!(scale, Scale::FromZero | Scale::Stacked) {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if scale == Scale::Log {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            let high = high.max(low + 1.0);
            return Self { scale, low: 10_f64.powf(low), high: 10_f64.powf(high) };
        }
        // Equal values lie in the middle, zeros at the bottom.
        let room = match (high - low, high.abs()) {
            (spread, _) if spread > 0.0 => spread * 0.05,
            (_, size) if size > 0.0 => size * 0.1,
            _ => 1.0,
        };
        Self {
            scale,
            low: if low == 0.0 { 0.0 } else { low - room },
            high: if high == 0.0 && low < 0.0 { 0.0 } else { high + room },
        }
    }

    /// Where a value lies, 0 at the bottom and 1 at the top; nowhere where a logarithm has no place for it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let at = match self.scale {
            Scale::Log if value > 0.0 => {
                let of = |it: f64| it.log10();
                (of(value) - of(self.low)) / (of(self.high) - of(self.low))
            }
            Scale::Log => return None,
            _ => (value - self.low) / (self.high - self.low),
        };
        at.is_finite().then(|| at.clamp(0.0, 1.0))
    }

    /// About `n` ticks.
    pub(super) fn ticks(&self, n: usize) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let (low, high) = (self.low.log10().round(), self.high.log10().round());
                let every = ((high - low) / n as f64).ceil().max(1.0);
                let n = ((high - low) / every).floor() as usize;
                (0..=n).map(|it| 10_f64.powf(low + it as f64 * every)).collect()
            }
            _ => linear_ticks(self.low, self.high, n),
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
        .find(|it| *it >= rough * 0.999_999)
        .unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (0..=2 * n as i64)
        .map(|it| (first + it) as f64 * step)
        .take_while(|it| *it <= high + step * 1e-9)
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
    }

    #[test]
    fn a_logarithmic_axis_has_no_place_for_zeros() {
        let axis = YAxis::new(Scale::Log, [0.0, 0.02, 3.0].into_iter());
        assert_eq!((axis.low, axis.high), (0.01, 10.0));
        assert_eq!(axis.place(0.0), None);
        assert!((axis.place(0.1).unwrap() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn an_axis_of_time_counts_in_a_unit_that_fits() {
        let of = |end: f64| {
            let run = [vec![1.0, 2.0], vec![f64::NAN; 2], vec![end / 2.0, end]];
            XAxis::new(Across::Time, &[run]).unwrap()
        };
        let said = |it: &XAxis| {
            let texts: Vec<String> = it.ticks().into_iter().map(|it| it.1).collect();
            (it.label().to_owned(), texts.join(" "))
        };
        assert_eq!(said(&of(60.0)), ("seconds of wall clock".to_owned(), "0 20 40 60".to_owned()));
        assert_eq!(
            said(&of(5400.0)),
            ("minutes of wall clock".to_owned(), "0 20 40 60 80".to_owned())
        );
        assert_eq!(said(&of(36e3)), ("hours of wall clock".to_owned(), "0 2 4 6 8 10".to_owned()));
        assert_eq!(of(60.0).table().at, [0.5, 1.0]);
        let without = [vec![1.0], vec![f64::NAN], vec![f64::NAN]];
        assert!(XAxis::new(Across::Tokens, &[without]).is_none());
    }

    #[test]
    fn steps_have_their_ends_as_ticks_and_whole_numbers_between() {
        let steps = |n: usize| (1..=n).map(|it| it as f64).collect::<Vec<f64>>();
        let texts = |n: usize| {
            let none = vec![f64::NAN; n];
            let axis = XAxis::new(Across::Step, &[[steps(n), none.clone(), none]]).unwrap();
            axis.ticks().into_iter().map(|it| it.1).collect::<Vec<String>>().join(" ")
        };
        assert_eq!(texts(1), "1 2");
        assert_eq!(texts(54), "1 54 20 40");
        assert_eq!(texts(2000), "1 2000 500 1000 1500");
    }
}
