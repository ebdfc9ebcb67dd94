//! The one scanner of texts that are not yet a formula: a place in a text that moves over its tokens. Every rewriting
//! of an answer is a rule that reads tokens at a place and writes others, or leaves the text where it does not fit.

use crate::work;

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    #[inline]
    pub(crate) fn before(&self) -> &'a str {
        &self.text[..self.at]
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> &'a str {
        let (taken, _) = self.rest().split_at(len);
        self.at += len;
        taken
    }

    pub(crate) fn take_while(&mut self, test: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        self.take(rest.find(|c| !test(c)).unwrap_or(rest.len()))
    }

    /// The next character that passes a test.
    pub(crate) fn one(&mut self, test: impl Fn(char) -> bool) -> Option<&'a str> {
        let c = self.peek().filter(|c| test(*c))?;
        Some(self.take(c.len_utf8()))
    }

    #[inline]
    pub(crate) fn eat(&mut self, token: &str) -> Option<()> {
        self.rest().starts_with(token).then(|| self.at += token.len())
    }

    /// The first of some tokens that stands here.
    pub(crate) fn one_of<T: AsRef<str> + Copy>(&mut self, tokens: &[T]) -> Option<T> {
        tokens.iter().copied().find(|token| self.eat(token.as_ref()).is_some())
    }

    /// A command that no letter continues.
    pub(crate) fn command(&mut self, name: &str) -> Option<()> {
        let after = self.rest().strip_prefix(name)?;
        (!after.starts_with(|c: char| c.is_ascii_alphabetic())).then(|| self.at += name.len())
    }

    pub(crate) fn spaces(&mut self) -> &'a str {
        self.take_while(char::is_whitespace)
    }

    pub(crate) fn letters(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphabetic())
    }

    #[inline]
    pub(crate) fn digit(&mut self) -> Option<&'a str> {
        self.one(|c| c.is_ascii_digit())
    }

    #[inline]
    pub(crate) fn digits(&mut self) -> Option<&'a str> {
        Some(self.take_while(|c| c.is_ascii_digit())).filter(|digits| !digits.is_empty())
    }

    /// The content of the braces here, maybe behind spaces.
    pub(crate) fn group(&mut self) -> Option<&'a str> {
        let mut inner = *self;
        inner.spaces();
        let rest = inner.rest().starts_with('{').then(|| inner.rest())?;
        let close = closing(rest, [b'{', b'}'])?;
        inner.at += close + 1;
        *self = inner;
        Some(&rest[1..close])
    }

    pub(crate) fn since(&self, start: &Cursor<'a>) -> &'a str {
        &self.text[start.at..self.at]
    }

    /// What the first rule that fits makes of the text here.
    pub(crate) fn first_of(&mut self, rules: &[Rule]) -> Option<String> {
        rules.iter().find_map(|rule| {
            let mut cursor = *self;
            let new = rule(&mut cursor)?;
            *self = cursor;
            Some(new)
        })
    }
}

/// Spaces of a formula.
pub(crate) const SPACES: [&str; 7] = ["\\,", "\\;", "\\:", "\\!", "\\ ", "~", "\\quad"];

/// A text without some spaces at its end.
pub(crate) fn without_spaces<'a>(text: &'a str, spaces: &[&str]) -> &'a str {
    let mut text = text.trim_end();
    while let Some(shorter) = spaces.iter().find_map(|it| text.strip_suffix(it)) {
        text = shorter.trim_end();
    }
    text
}

/// Reads some tokens and gives what is written for them.
pub(crate) type Rule = fn(&mut Cursor<'_>) -> Option<String>;

/// Where the bracket closes that a text begins with.
pub(crate) fn closing(text: &str, [open, close]: [u8; 2]) -> Option<usize> {
    let mut level = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        level += usize::from(byte == open);
        level -= usize::from(byte == close);
        if level == 0 {
            work::count(at);
            return Some(at);
        }
    }
    work::count(text.len());
    None
}

/// Runs `rule` behind each `token`. Where it writes nothing of its own the token stays.
pub(crate) fn replaced_at(
    text: &str,
    token: &str,
    mut rule: impl FnMut(&mut Cursor<'_>, &mut String) -> Option<()>,
) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut cursor = Cursor::new(text);
    while let Some(at) = cursor.rest().find(token) {
        work::count(at);
        out.push_str(cursor.take(at));
        cursor.take(token.len());
        let mut next = cursor;
        if rule(&mut next, &mut out).is_some() {
            cursor = next;
        } else {
            out.push_str(token);
        }
    }
    out.push_str(cursor.rest());
    out
}

/// As [`replaced_at`], in place.
pub(crate) fn replace_at(
    text: &mut String,
    token: &str,
    rule: impl FnMut(&mut Cursor<'_>, &mut String) -> Option<()>,
) {
    if text.contains(token) {
        *text = replaced_at(text, token, rule);
    }
}

/// Runs `rule` at each character. Where it does not fit the character stays.
pub(crate) fn replaced(
    text: &str,
    mut rule: impl FnMut(&mut Cursor<'_>, &mut String) -> Option<()>,
) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut cursor = Cursor::new(text);
    while let Some(c) = cursor.peek() {
        let mut next = cursor;
        if rule(&mut next, &mut out).is_some() {
            cursor = next;
        } else {
            out.push_str(cursor.take(c.len_utf8()));
        }
    }
    out
}

/// The parts of a text behind each `token`, as `rule` writes them; `None` where it cannot write one.
pub(crate) fn behind_each(
    text: &str,
    token: &str,
    mut rule: impl FnMut(&str, &mut String) -> Option<()>,
) -> Option<String> {
    let mut parts = text.split(token);
    let mut out = parts.next()?.to_owned();
    for part in parts {
        out.push_str(token);
        rule(part, &mut out)?;
    }
    Some(out)
}

/// One digit or more, and nothing else.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// True of a word of a list, which is a text of words with a space between them.
pub(crate) fn is_among(words: &str, word: &str) -> bool {
    words.split(' ').any(|it| it == word)
}

/// True for a text that begins with one of some others.
pub(crate) fn begins(text: &str, all: &[&str]) -> bool {
    all.iter().any(|it| text.starts_with(it))
}

/// True for a text that ends with one of some others.
pub(crate) fn ends(text: &str, all: &[&str]) -> bool {
    all.iter().any(|it| text.ends_with(it))
}

/// At most `len` bytes from the beginning of a text.
pub(crate) fn head(text: &str, len: usize) -> &str {
    &text[..text.floor_char_boundary(len)]
}

/// At most `len` bytes from the end of a text.
pub(crate) fn tail(text: &str, len: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(len))..]
}
