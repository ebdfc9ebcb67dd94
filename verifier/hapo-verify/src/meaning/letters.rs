//! Letters of choices.

use super::words::hedges;

/// The letter of a choice, such as `(B)` or `\text{B.}`.
pub(crate) fn as_letter(text: &str) -> Option<char> {
    let is_mark = |c: char| c.is_whitespace() || "\\{}()[].,:;$*~`\"".contains(c);
    if !text.chars().all(|c| c.is_ascii_alphabetic() || is_mark(c)) {
        return None;
    }
    let words = text.split(is_mark).filter(|it| !it.is_empty());
    let is_command =
        |it: &str| it.starts_with("text") || matches!(it, "mathrm" | "mathbf" | "mbox");
    let is_label = |it: &str| matches!(it, "Option" | "option" | "Choice" | "choice");
    let mut letters = words.filter(|it| !is_command(it) && !is_label(it));
    let mut only = letters.next()?.chars();
    let letter = only.next()?;
    (only.next().is_none() && letters.next().is_none()).then_some(letter)
}

/// The letter of a choice before its content, such as `(B) 15` or `\text{B) } 15`, where no other letter follows.
pub(crate) fn labelled(text: &str) -> Option<char> {
    let text = without_commands(text);
    let text = text.trim().trim_start_matches(['(', ' ', '*']);
    let letter = text.chars().next().filter(char::is_ascii_uppercase)?;
    let rest = text[1..].trim_start_matches([' ', '*']);
    let content = rest.strip_prefix([')', ':', '.']).or_else(|| rest.strip_prefix("- "))?;
    (!hedges(content) && !names_another(content)).then_some(letter)
}

/// True if another letter of a choice stands in the text behind one. "A" before a word is an article.
fn names_another(content: &str) -> bool {
    let mut words = content.split(|c: char| !c.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
    let mut next = words.next();
    while let Some(word) = next {
        next = words.next();
        let is_letter = word.len() == 1 && word.bytes().all(|b| b.is_ascii_uppercase());
        let is_article = matches!(word, "A" | "I")
            && next.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_lowercase()));
        if is_letter && !is_article {
            return true;
        }
    }
    false
}

/// True if a text gives one letter of a choice beside another: `A, C`, `A or C`, `A B`.
pub(crate) fn lists_letters(text: &str) -> bool {
    let text = without_commands(text);
    let marks = |c: char| c.is_whitespace() || "()[]*.,;/&+|\\".contains(c);
    let words = || text.split(marks).filter(|it| !it.is_empty());
    let is_letter = |it: &str| it.len() == 1 && it.bytes().all(|b| b.is_ascii_uppercase());
    let joins = |it: &str| matches!(it, "or" | "and" | "either" | "both" | "maybe");
    let n_letters =
        words().take_while(|it| is_letter(it) || joins(it)).filter(|it| is_letter(it)).count();
    n_letters > 1
}

fn without_commands(text: &str) -> String {
    const COMMANDS: [&str; 5] = ["\\textbf", "\\textrm", "\\text", "\\mathrm", "\\mathbf"];
    let text = COMMANDS.iter().fold(text.to_owned(), |text, it| text.replace(it, ""));
    text.replace(['{', '}', '$'], "")
}
