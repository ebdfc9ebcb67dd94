//! The address that is posted to, and how messages show it.

use reqwest::Url;

use crate::error::Error;

/// The address to post to, and how it is shown.
pub(super) fn address(given: &str) -> Result<(Url, String), Error> {
    let wrong =
        |url: &str, problem: &str| Error::Url { url: url.to_owned(), problem: problem.to_owned() };
    // What cannot be parsed may hold a secret anywhere.
    let mut url = Url::parse(given.trim())
        .map_err(|it| wrong("…", &format!("expected an http(s) address, {it}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong(&shown(&url), "expected an http(s) address"));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with("/chat/completions") {
        url.set_path(&format!("{path}/chat/completions"));
    }
    url.set_fragment(None);
    let shown = shown(&url);
    Ok((url, shown))
}

/// An address without user, password and query.
fn shown(url: &Url) -> String {
    let mut it = url.clone();
    it.set_query(None);
    it.set_fragment(None);
    let _ = it.set_username("");
    let _ = it.set_password(None);
    it.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_and_shown_without_secrets() {
        let check = |given: &str, posted: &str, seen: &str| {
            let (url, shown) = address(given).unwrap();
            assert_eq!((url.as_str(), shown.as_str()), (posted, seen));
        };
        check("http://h:1/v1", "http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions");
        check("http://h/", "http://h/chat/completions", "http://h/chat/completions");
        check(
            "https://u:p@h/v1/chat/completions/?key=s#f",
            "https://u:p@h/v1/chat/completions/?key=s",
            "https://h/v1/chat/completions/",
        );
        for it in ["", "h:8000/v1", "ftp://u:secret@h/", "http://"] {
            let message = address(it).unwrap_err().to_string();
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
