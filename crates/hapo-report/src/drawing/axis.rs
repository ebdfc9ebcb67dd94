//! The two axes of a figure: where a value lies, from 0 to 1, and the ticks.

use super::svg::tick_text;
use crate::figures::Scale;

pub(crate) struct XAxis {
    first: f64,
    last: f64,
}

impl XAxis {
    pub(super) fn new(ends: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let (first, last) = ends.reduce(|all, run| (all.0.min(run.0), all.1.max(run.1)))?;
        let first = first.min(1.0);
        Some(Self { first, last: last.max(first + 1.0) })
    }

    pub(super) fn ends(&self) -> [f64; 2] {
        [self.first, self.last]
    }

    /// Where a step lies, 0 at the left and 1 at the right.
    pub(super) fn place(&self, step: f64) -> f64 {
        ((step - self.first) / (self.last - self.first)).clamp(0.0, 1.0)
    }

    /// Places and texts of the ticks: the ends, and round numbers that leave room for them.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let mut values = vec![self.first, self.last];
        for tick in linear_ticks(self.first, self.last, 5) {
            let fits = |other: &f64| (self.place(tick) - self.place(*other)).abs() > 1.0 / 9.0;
            if tick.fract() == 0.0 && values.iter().all(fits) {
                values.push(tick);
            }
        }
        values.into_iter().map(|it| (self.place(it), tick_text(it))).collect()
    }
}

pub(super) struct YAxis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl YAxis {
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
                (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
            }
            Scale::Log => return None,
            _ => (value - self.low) / (self.high - self.low),
        };
        at.is_finite().then(|| at.clamp(0.0, 1.0))
    }

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
    let mut steps = [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter();
    let step = steps.find(|it| *it >= rough * 0.999_999).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let ticks = (0..=2 * n as i64).map(|it| (first + it) as f64 * step);
    ticks.take_while(|it| *it <= high + step * 1e-9).collect()
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
    fn steps_have_their_ends_as_ticks_and_whole_numbers_between() {
        let texts = |n: u32| {
            let axis = XAxis::new([(1.0, f64::from(n))].into_iter()).unwrap();
            axis.ticks().into_iter().map(|it| it.1).collect::<Vec<String>>().join(" ")
        };
        assert_eq!(texts(1), "1 2");
        assert_eq!(texts(54), "1 54 20 40");
        assert_eq!(texts(2000), "1 2000 500 1000 1500");
        assert!(XAxis::new([].into_iter()).is_none());
    }
}
