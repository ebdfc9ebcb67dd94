//! Times of the day and dates, which are no quotients and no differences.

use num_integer::Integer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    hours: u32,
    minutes: u32,
    seconds: u32,
    /// Before noon (0) or after it (12), where that is said.
    half: Option<u32>,
    /// Written as no ratio is: with a half of the day, with a zero, or with a common factor.
    is_certain: bool,
}

/// The time that a text says: `3:30`, `03:30 p.m.`, `3 \text{ PM}`.
pub(crate) fn clock(text: &str) -> Option<Clock> {
    let text = squeezed(text).to_lowercase().replace('.', "");
    let (digits, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(digits), _) => (digits, Some(0)),
        (_, Some(digits)) => (digits, Some(12)),
        _ => (text.as_str(), None),
    };
    let mut parts = digits.split(':');
    let two_digits = |part: &str| -> Option<u32> {
        let is_plain = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        is_plain.then(|| part.parse().ok())?
    };
    let first = parts.next()?;
    let hours = two_digits(&format!("{first:0>2}"))?;
    let (minutes, seconds) = (parts.next(), parts.next());
    if first.is_empty() || parts.next().is_some() || minutes.is_none() && half.is_none() {
        return None;
    }
    let has_zero = first.starts_with('0') || minutes.is_some_and(|it| it.starts_with('0'));
    let [minutes, seconds] = [minutes, seconds].map(|it| two_digits(it.unwrap_or("00")));
    let (minutes, seconds) = (minutes?, seconds?);
    let is_certain = half.is_some() || has_zero || hours.gcd(&minutes) > 1;
    let is_time = hours <= if half.is_some() { 12 } else { 24 } && minutes < 60 && seconds < 60;
    is_time.then_some(Clock { hours, minutes, seconds, half, is_certain })
}

impl Clock {
    /// True if only a time is written so.
    pub(crate) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// True if an answer names this time. A half of the day that is asked has to be said.
    pub(crate) fn is_named_by(&self, answer: Clock) -> bool {
        let hour = |it: &Clock| it.half.map_or(it.hours, |half| it.hours % 12 + half);
        let same_hour = match (self.half, answer.half) {
            (None, Some(_)) => self.hours % 12 == answer.hours % 12,
            _ => hour(self) == hour(&answer),
        };
        same_hour && (self.minutes, self.seconds) == (answer.minutes, answer.seconds)
    }
}

/// True for `2024-01-05` and `1/5/2024`.
pub(crate) fn is_date(text: &str) -> bool {
    let text = squeezed(text);
    ['-', '/'].iter().any(|sign| {
        let parts: Vec<&str> = text.split(*sign).collect();
        let is_number = |it: &&str| it.bytes().all(|b| b.is_ascii_digit());
        let lengths: Vec<usize> = parts.iter().map(|it| it.len()).collect();
        parts.iter().all(is_number) && matches!(lengths[..], [4, 2, 2] | [1..=2, 1..=2, 4])
    })
}

/// A text without spaces and text commands.
fn squeezed(text: &str) -> String {
    let text = text.replace("\\text", "").replace("\\mathrm", "");
    text.chars().filter(|c| !c.is_whitespace() && !"{}\\,~$".contains(*c)).collect()
}
