//! The pauses that a server asks for in its headers.

use std::time::{Duration, SystemTime};

use ureq::http::HeaderMap;

/// The pause that a server asks for: `retry-after-ms`, or `Retry-After` as seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(it) = text("retry-after-ms").and_then(|it| it.parse::<f64>().ok()) {
        return seconds(it / 1000.0);
    }
    let it = text("retry-after")?;
    if let Ok(number) = it.parse::<f64>() {
        return seconds(number);
    }
    let date = httpdate::parse_http_date(it).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

/// A number of seconds; one beyond the clock's range is the longest pause.
fn seconds(it: f64) -> Option<Duration> {
    const LONGEST: f64 = 1e9;
    (it.is_finite() && it >= 0.0).then(|| Duration::from_secs_f64(it.min(LONGEST)))
}

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
    use proptest::prelude::*;
    use ureq::http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    #[test]
    fn retry_after_is_read_as_seconds_milliseconds_or_date() {
        // RFC 9110's example date is 784,111,777 seconds after 1970.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let check = |pairs: &[(&'static str, &str)], expected: Option<f64>| {
            let it = retry_after(&headers(pairs), now).map(|it| it.as_secs_f64());
            assert_eq!(it, expected, "{pairs:?}");
        };
        check(&[("retry-after", "3")], Some(3.0));
        check(&[("retry-after", " 0.5 ")], Some(0.5));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(7.0));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(0.0));
        check(&[("retry-after-ms", "250"), ("retry-after", "9")], Some(0.25));
        check(&[("retry-after", "99999999999999999999")], Some(1e9));
        for it in ["-1", "NaN", "inf", "soon", "", "1e400"] {
            check(&[("retry-after", it)], None);
        }
    }

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
