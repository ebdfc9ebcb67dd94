//! The address that is posted to, and how messages show it.

use crate::http::ureq::http::Uri;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapo_core::Refusal;
use percent_encoding::percent_decode_str;

pub(super) struct Address {
    /// The address of requests, without user and password.
    pub(super) posted: String,
    /// The same for messages: without the query, which may hold a secret.
    pub(super) shown: String,
    /// The header for the user and password of the address.
    pub(super) basic_authorization: Option<String>,
    pub(super) is_https: bool,
}

pub(super) fn address(given: &str) -> Result<Address, Refusal> {
    let wrong = |problem: String| {
        Refusal::input(format!("endpoint `…`: {problem}"))
            .hint("give the base address, as in http://localhost:8000/v1")
    };
    // An unparsable address may hold a secret anywhere.
    let uri: Uri =
        given.trim().parse().map_err(|it| wrong(format!("expected an http(s) address, {it}")))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return Err(wrong("expected an http(s) address".to_owned()));
    };
    let (user, host) = match authority.as_str().rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority.as_str()),
    };
    let path = uri.path().trim_end_matches('/');
    let shown = if path.ends_with("/chat/completions") {
        format!("{scheme}://{host}{}", uri.path())
    } else {
        format!("{scheme}://{host}{path}/chat/completions")
    };
    let query = uri.query().map(|it| format!("?{it}")).unwrap_or_default();
    let basic_authorization = user.map(|it| {
        let decoded: Vec<u8> = percent_decode_str(it).collect();
        format!("Basic {}", STANDARD.encode(decoded))
    });
    let is_https = scheme == "https";
    Ok(Address { posted: format!("{shown}{query}"), shown, basic_authorization, is_https })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_and_shown_without_secrets() {
        let check = |given: &str, posted: &str, seen: &str| {
            let it = address(given).unwrap();
            assert_eq!((it.posted.as_str(), it.shown.as_str()), (posted, seen));
        };
        check("http://h:1/v1", "http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions");
        check("http://h/", "http://h/chat/completions", "http://h/chat/completions");
        check(
            "https://u:p@h/v1/chat/completions/?key=s#f",
            "https://h/v1/chat/completions/?key=s",
            "https://h/v1/chat/completions/",
        );
        check(
            "http://[::1]:8000/v1/",
            "http://[::1]:8000/v1/chat/completions",
            "http://[::1]:8000/v1/chat/completions",
        );
        for it in ["", "h:8000/v1", "ftp://u:secret@h/", "http://", "http://h/ secret", "/v1"] {
            let message = address(it).err().unwrap().to_string();
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn user_and_password_become_a_header() {
        // RFC 7617, section 2.
        let it = address("http://Aladdin:open%20sesame@h/v1").unwrap();
        assert_eq!(it.basic_authorization.unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(address("http://h/v1").unwrap().basic_authorization.is_none());
    }
}
