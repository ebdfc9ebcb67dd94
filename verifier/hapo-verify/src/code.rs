//! The parts of a completion that are code.

use std::ops::Range;

/// Fenced blocks of a programming language, and comments.
pub(crate) fn code_spans(text: &str) -> Vec<Range<usize>> {
    const TEXTS: [&str; 10] =
        ["", "json", "text", "txt", "plaintext", "markdown", "md", "latex", "tex", "math"];
    let mut spans = Vec::new();
    let mut open: Option<(usize, bool)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let plain = line.trim();
        if let Some(name) = plain.strip_prefix("```") {
            open = match open {
                Some((start, is_code)) => {
                    if is_code {
                        spans.push(start..at);
                    }
                    None
                }
                None => Some((at, !TEXTS.contains(&name.trim().to_ascii_lowercase().as_str()))),
            };
        } else if open.is_none() && (plain.starts_with("<!--") || plain.starts_with("% ")) {
            spans.push(at..at + line.len());
        }
        at += line.len();
    }
    if let Some((start, true)) = open {
        spans.push(start..text.len());
    }
    spans
}
