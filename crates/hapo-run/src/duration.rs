//! Durations in words.

/// `42 s`, `3 min 5 s`, `2 h 10 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
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
        let all = [0.4, 59.4, 59.6, 200.0, 3600.0, 7849.0].map(duration);
        assert_eq!(all, ["0 s", "59 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 10 min"]);
    }
}
