//! Durations in words.

/// `42 s`, `3 min 5 s`, `2 h 10 min`; below a second `0.3 s` or `40 ms`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if (0.0005..0.0995).contains(&seconds) => format!("{:.0} ms", seconds * 1000.0),
        _ if (0.0995..0.95).contains(&seconds) => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_two_units_at_most() {
        let all = [0.0, 59.4, 59.6, 200.0, 3600.0, 7849.0].map(duration);
        assert_eq!(all, ["0 s", "59 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 10 min"]);
    }

    #[test]
    fn durations_below_a_second_are_not_zero() {
        let all = [0.0001, 0.004, 0.0994, 0.0996, 0.34, 0.94, 0.96, 1.4].map(duration);
        assert_eq!(all, ["0 s", "4 ms", "99 ms", "0.1 s", "0.3 s", "0.9 s", "1 s", "1 s"]);
    }
}
