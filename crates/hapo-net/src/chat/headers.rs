//! The limits that a server names in its headers.

use std::time::Duration;

use crate::http::seconds;
use crate::http::ureq::http::HeaderMap;

/// How long until a spent limit is filled again: the longer of `x-ratelimit-reset-requests` and `-tokens` among those
/// whose `x-ratelimit-remaining-*` is 0.
pub(super) fn spent(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    ["requests", "tokens"]
        .iter()
        .filter(|it| text(format!("x-ratelimit-remaining-{it}")) == Some("0"))
        .filter_map(|it| reset(text(format!("x-ratelimit-reset-{it}"))?))
        .max()
}

/// `6m0s`, `1.5s`, `20ms`, or bare seconds.
fn reset(text: &str) -> Option<Duration> {
    if let Ok(it) = text.parse::<f64>() {
        return seconds(it);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..letters] {
                "d" => 86_400.0,
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    seconds(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::headers;
    use proptest::prelude::*;

    #[test]
    fn spent_limits_hold_until_they_are_filled_again() {
        let check = |pairs: &[(&'static str, &str)], expected: Option<f64>| {
            let it = spent(&headers(pairs)).map(|it| it.as_secs_f64());
            assert_eq!(it, expected, "{pairs:?}");
        };
        check(
            &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m1.5s")],
            Some(361.5),
        );
        check(
            &[("x-ratelimit-remaining-requests", "7"), ("x-ratelimit-reset-requests", "6m0s")],
            None,
        );
        check(
            &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "20ms")],
            Some(0.02),
        );
        for it in ["", "m", "1", "1x", "1s2", "..s"] {
            let expected = (it == "1").then_some(Duration::from_secs(1));
            assert_eq!(reset(it).filter(|it| !it.is_zero()), expected, "{it}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pause_or_none(text in "\\PC{0,40}") {
            let _ = reset(&text);
        }
    }
}
