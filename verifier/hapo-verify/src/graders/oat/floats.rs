//! Numbers as Python's `float()` reads them.

/// The numbers that Python's `float()` reads, apart from the infinities.
pub(super) fn python_float(s: &str) -> Option<f64> {
    let text: String =
        s.trim().chars().map(|c| digit_value(c).map_or(c, |d| (b'0' + d) as char)).collect();
    let valid =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !valid || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}

/// Decimal digits of the mathematical alphabets count as digits.
fn digit_value(c: char) -> Option<u8> {
    let code = c as u32;
    if (0x1D7CE..=0x1D7FF).contains(&code) { Some(((code - 0x1D7CE) % 10) as u8) } else { None }
}

/// The integer within 1e-7 of a float.
pub(super) fn near_integer(x: f64) -> Option<String> {
    let nearest = x.round_ties_even();
    ((x - nearest).abs() <= 1e-7)
        .then(|| format!("{:.0}", if nearest == 0.0 { 0.0 } else { nearest }))
}

/// `1,234` as `1234`; commas that separate anything else stay.
pub(super) fn without_separators(s: &str) -> String {
    if !s.contains(',') {
        return s.to_owned();
    }
    let chars: Vec<char> = s.chars().collect();
    let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let separates = |at: usize| {
        at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4)
    };
    // A separator further left becomes one when the groups to its right are joined.
    let mut drop = vec![false; chars.len()];
    for at in (0..chars.len()).rev() {
        if chars[at] == ',' {
            drop[at] = separates(at);
        }
    }
    chars.iter().enumerate().filter(|(at, _)| !drop[*at]).map(|it| it.1).collect()
}
