//! Errors that explain themselves.

/// What an error knows beyond its message. It is implemented by the error of every crate whose errors reach a user.
pub trait Explain {
    /// What the reader can do about it, if anything is known.
    fn hint(&self) -> Option<String> {
        None
    }

    /// Whether the input is at fault rather than the machine or the program.
    fn is_bad_input(&self) -> bool;
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

/// What a caught panic said.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn excerpts_are_one_line_and_cut_between_characters() {
        assert_eq!(excerpt("a\nb\0", 4), "a b\u{fffd}");
        assert_eq!(excerpt("ééé", 2), "éé…");
        assert_eq!(excerpt("", 0), "");
    }
}
