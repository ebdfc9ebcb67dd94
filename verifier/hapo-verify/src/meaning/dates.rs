//! Times of the day and dates, which are no quotients and no differences: met by the same digits and letters alone, a
//! date that names its month in any order of its parts.

use super::as_words;
use crate::cursor::is_among;

const MONTHS: &str = "january february march april may june july august september october november \
    december";

/// True for `3:30 PM`, `03:30`, and where only a time has such parts.
pub(crate) fn is_time(text: &str) -> bool {
    let text = squeezed(text);
    let has_half = text.ends_with("am") || text.ends_with("pm");
    let digits = text.trim_end_matches(['a', 'p', 'm']);
    let Some((hours, minutes)) = digits.split_once(':') else {
        return has_half && digits.parse::<u8>().is_ok();
    };
    let (Ok(h), Ok(m)) = (hours.parse::<u8>(), minutes.parse::<u8>()) else { return false };
    let has_zero = hours.starts_with('0') || minutes.starts_with('0');
    let is_reduced = num_integer::gcd(h, m) == 1;
    minutes.len() == 2 && h < 25 && m < 60 && (has_half || has_zero || !is_reduced)
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

/// True for `May 3, 2026` and `3rd of May 2026`: one month by its name, and the same numbers.
pub(crate) fn same_date(a: &str, b: &str) -> bool {
    let parts = |text: &str| {
        let all = as_words(text)?;
        let words = all.split(' ').filter(|it| !matches!(*it, "of" | "the" | "text"));
        let mut parts: Vec<&str> = words
            .map(|word| {
                let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
                let month = MONTHS.split(' ').find(|it| word.len() > 2 && it.starts_with(word));
                if number.is_empty() { month.unwrap_or(word) } else { number }
            })
            .collect();
        parts.sort_unstable();
        let n_months = parts.iter().filter(|it| is_among(MONTHS, it)).count();
        (n_months == 1 && parts.len() > 1).then(|| parts.join(" "))
    };
    parts(a).is_some_and(|it| parts(b) == Some(it))
}

/// True for times or numeric dates that are written alike, spaces and marks aside.
pub(crate) fn same_time(a: &str, b: &str) -> bool {
    squeezed(a) == squeezed(b)
}

/// A text in lower case without spaces and text commands.
fn squeezed(text: &str) -> String {
    let text = text.replace("\\text", "").replace("\\mathrm", "").to_lowercase();
    text.chars().filter(|c| !c.is_whitespace() && !"{}\\,.~$".contains(*c)).collect()
}
