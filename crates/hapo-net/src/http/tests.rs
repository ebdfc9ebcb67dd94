use super::*;
use proptest::prelude::*;
use ureq::http::{HeaderName, HeaderValue};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
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
fn failures_that_may_pass_are_repeated_with_doubled_waits() {
    let retries = Retries { attempts: 4, first_wait: Duration::from_millis(1) };
    let mut waits = Vec::new();
    let failed = retries.run(
        &mut waits,
        |_| Err::<(), _>(Failure::<()>::Later("busy".to_owned(), None)),
        |waits, cause, wait| waits.push((cause.to_owned(), wait.as_millis())),
    );
    assert!(matches!(failed, Err(Failure::Later(cause, None)) if cause == "busy"));
    assert_eq!(waits, [1, 2, 4].map(|ms| ("busy".to_owned(), ms)));
    let mut attempts = 0;
    let refused = retries.run(
        &mut attempts,
        |attempts| {
            *attempts += 1;
            Err::<(), _>(Failure::Never("no"))
        },
        |_, _, _| {},
    );
    assert!(matches!(refused, Err(Failure::Never("no"))) && attempts == 1);
}

#[test]
fn tokens_and_passwords_are_in_no_text() {
    let address = "http://ada:open@host:8/v1?key=s";
    assert_eq!(shown(address), "http://host:8/v1");
    assert_eq!(shown("https://host"), "https://host");
    let said = "ada:open@host says invalid Bearer hf_1, not open";
    assert_eq!(redacted(said, Some("hf_1"), address), "***@host says invalid Bearer ***, not ***");
    assert_eq!(redacted("plain", Some(""), "http://host"), "plain");
}

/// A server that sends every answer twice.
#[test]
fn an_answer_that_nobody_asked_for_shifts_nothing() {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let (mut reader, mut writer) = (BufReader::new(&stream), &stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                line.clear();
            }
            let mut body = [0; 1];
            reader.read_exact(&mut body).unwrap();
            for _ in 0..2 {
                let answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}", body[0] as char);
                let _ = writer.write_all(answer.as_bytes());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let agent = config(false).build().new_agent();
    for it in ["a", "b", "c", "d"] {
        let answer = agent.post(&url).send(it).unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(answer, it);
        std::thread::sleep(Duration::from_millis(30));
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
    check(&[("x-ratelimit-remaining-requests", "7"), ("x-ratelimit-reset-requests", "6m0s")], None);
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
