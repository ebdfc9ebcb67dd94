//! Words of messages.

/// A number with what it counts, and whatever of the sentence agrees with it: `1 row is`, `2 rows are`.
pub fn counted<N: std::fmt::Display + Copy + PartialEq + From<u8>>(
    n: N,
    one: &str,
    many: &str,
) -> String {
    let word = if n == N::from(1) { one } else { many };
    format!("{n} {word}")
}

/// A text as a message quotes it: its first `most` characters on one line, none of them a control character, and an
/// ellipsis where there were more.
pub fn excerpt(text: &str, most: usize) -> String {
    let mut kept = text.chars();
    let mut quoted: String = (&mut kept)
        .take(most)
        .map(|it| match it {
            it if it.is_whitespace() => ' ',
            it if it.is_control() => '\u{fffd}',
            it => it,
        })
        .collect();
    if kept.next().is_some() {
        quoted.push('…');
    }
    quoted
}

/// A text that a terminal only shows: what would move its cursor or change its colours is U+FFFD.
pub fn printable(text: &str) -> String {
    let is_shown = |it: &char| !it.is_control() || *it == '\n' || *it == '\t';
    text.chars().map(|it| Some(it).filter(is_shown).unwrap_or('\u{fffd}')).collect()
}

/// True of a word of a list, which is a text of words with a space between them.
pub fn is_among(words: &str, word: &str) -> bool {
    words.split(' ').any(|it| it == word)
}

/// The message of a caught panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// Bytes in hexadecimal, in small letters.
pub fn hex(digest: impl AsRef<[u8]>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = digest.as_ref().iter().flat_map(|it| [it >> 4, it & 15]);
    digits.map(|it| char::from(DIGITS[usize::from(it)])).collect()
}

#[cfg(test)]
mod tests {
    use super::{counted, excerpt, hex};

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex([0_u8, 9, 10, 255]), "00090aff");
        assert_eq!(hex([]), "");
    }

    #[test]
    fn one_is_singular_and_none_is_not() {
        let all = [0_usize, 1, 2].map(|n| counted(n, "row is", "rows are"));
        assert_eq!(all, ["0 rows are", "1 row is", "2 rows are"]);
    }

    #[test]
    fn excerpts_are_one_line_and_cut_between_characters() {
        assert_eq!(excerpt("a\nb\0", 4), "a b\u{fffd}");
        assert_eq!(excerpt("ééé", 2), "éé…");
        assert_eq!(excerpt("", 0), "");
    }
}
