//! Numbers as Python's `float()` reads them.

/// The numbers that Python's `float()` reads, apart from the infinities.
pub(super) fn python_float(s: &str) -> Option<f64> {
    let text = s.trim();
    let valid =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !valid || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}

/// The integer within 1e-7 of a float.
pub(super) fn near_integer(x: f64) -> Option<String> {
    let nearest = x.round_ties_even();
    ((x - nearest).abs() <= 1e-7)
        .then(|| format!("{:.0}", if nearest == 0.0 { 0.0 } else { nearest }))
}

/// `1,234` as `1234`; commas that separate anything else stay.
pub(super) fn without_separators(s: &str) -> String {
    let groups: Vec<&str> = s.split(',').collect();
    let mut out = String::new();
    for (idx, group) in groups.iter().enumerate() {
        out.push_str(group);
        let Some(next) = groups.get(idx + 1) else {
            break;
        };
        let digits = next.bytes().take_while(u8::is_ascii_digit).count();
        let separates = digits == 3 && out.ends_with(|c: char| c.is_ascii_digit());
        out.push_str(if separates { "" } else { "," });
    }
    out
}
