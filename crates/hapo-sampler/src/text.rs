//! The text of a completion while it grows, and the strings that end it.
//!
//! Purpose: a piece of text is released as soon as no later token can change it: complete characters only, and never a
//! possible beginning of a stop string. The pieces of a completion, joined, are the text of its tokens up to the stop
//! string.
//!
//! Price: the last few tokens are decoded twice per token.

use hapo_model::Tokenizer;

use crate::Error;

/// The text of one completion, token by token.
#[derive(Debug)]
pub(crate) struct TextStream {
    tokens: Vec<u32>,
    /// Tokens from here on are decoded together; those before `read` are given out already.
    context: usize,
    read: usize,
    /// Text that may be the beginning of a stop string.
    held: String,
}

/// The change that a token made to the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grown {
    /// Text that is certain now.
    pub(crate) text: String,
    /// Index of the stop string that the text now contains; `text` ends before it.
    pub(crate) stopped: Option<usize>,
}

impl TextStream {
    pub(crate) fn new() -> Self {
        Self { tokens: Vec::new(), context: 0, read: 0, held: String::new() }
    }

    pub(crate) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: u32,
        stops: &[String],
    ) -> Result<Grown, Error> {
        self.tokens.push(token);
        let (before, now) = self.decode(tokenizer)?;
        // A cut character decodes to U+FFFD until its last byte is there.
        if let Some(new) = now.strip_prefix(before.as_str())
            && !new.is_empty()
            && !new.ends_with('\u{FFFD}')
        {
            self.held.push_str(new);
            self.context = self.read;
            self.read = self.tokens.len();
        }
        Ok(self.release(stops))
    }

    /// The remaining text when no token follows: cut characters as U+FFFD.
    pub(crate) fn finish(
        mut self,
        tokenizer: &Tokenizer,
        stops: &[String],
    ) -> Result<Grown, Error> {
        let (before, now) = self.decode(tokenizer)?;
        self.held.push_str(now.strip_prefix(before.as_str()).unwrap_or_default());
        let mut grown = self.release(stops);
        if grown.stopped.is_none() {
            grown.text.push_str(&self.held);
        }
        Ok(grown)
    }

    fn decode(&self, tokenizer: &Tokenizer) -> Result<(String, String), Error> {
        let before = tokenizer.decode(&self.tokens[self.context..self.read])?;
        let now = tokenizer.decode(&self.tokens[self.context..])?;
        Ok((before, now))
    }

    fn release(&mut self, stops: &[String]) -> Grown {
        if let Some((at, index)) = first_stop(&self.held, stops) {
            self.held.truncate(at);
            return Grown { text: std::mem::take(&mut self.held), stopped: Some(index) };
        }
        let held = longest_beginning(&self.held, stops);
        let rest = self.held.split_off(self.held.len() - held);
        Grown { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }
}

/// Where the earliest stop string begins and which it is; the first of the list where two begin
/// together.
pub(crate) fn first_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    (stops.iter().enumerate())
        .filter_map(|(index, it)| text.find(it.as_str()).map(|at| (at, index)))
        .min()
}

/// Bytes at the end of a text that a stop string begins with.
fn longest_beginning(text: &str, stops: &[String]) -> usize {
    stops
        .iter()
        .flat_map(|stop| stop.char_indices().skip(1).map(move |(at, _)| &stop[..at]))
        .filter(|beginning| text.ends_with(beginning))
        .map(str::len)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let folder = hapo_testing::model_dir("tiny-qwen2");
        Tokenizer::open(&folder).unwrap()
    }

    /// Pieces of a text that comes token by token, and the stop string that ended it.
    fn stream(text: &str, stops: &[&str]) -> (Vec<String>, Option<usize>) {
        let tokenizer = tokenizer();
        let stops: Vec<String> = stops.iter().map(|it| (*it).to_owned()).collect();
        let mut stream = TextStream::new();
        let mut pieces = Vec::new();
        for token in tokenizer.encode(text).unwrap() {
            let grown = stream.push(&tokenizer, token, &stops).unwrap();
            pieces.push(grown.text);
            if grown.stopped.is_some() {
                return (pieces, grown.stopped);
            }
        }
        let last = stream.finish(&tokenizer, &stops).unwrap();
        pieces.push(last.text);
        (pieces, last.stopped)
    }

    #[test]
    fn pieces_join_to_the_text() {
        for text in ["The sum is 41.", "", "né — 漢字 🎈 end", "a\n\n b  c", "\u{FFFD}x"] {
            let (pieces, stopped) = stream(text, &["never seen", "🎈!"]);
            assert_eq!(pieces.concat(), text);
            assert_eq!(stopped, None);
        }
    }

    #[test]
    fn characters_come_whole() {
        let (pieces, _) = stream("漢字🎈", &[]);
        assert!(pieces.iter().all(|it| !it.contains('\u{FFFD}')), "{pieces:?}");
    }

    #[test]
    fn a_stop_string_across_tokens_ends_the_text_before_it() {
        for (text, stops, expected) in [
            ("one STOP two", vec!["STOP"], ("one ", Some(0))),
            ("one STOP two", vec!["two", "P tw", "OP"], ("one ST", Some(2))),
            ("aab", vec!["aab", "aa"], ("", Some(1))),
            ("ab", vec!["bc"], ("ab", None)),
            ("ab 漢字 c", vec!["字 "], ("ab 漢", Some(0))),
            ("x", vec!["x"], ("", Some(0))),
        ] {
            let (pieces, stopped) = stream(text, &stops);
            assert_eq!((pieces.concat().as_str(), stopped), expected, "{text:?} {stops:?}");
        }
    }

    #[test]
    fn what_may_become_a_stop_string_is_held_back() {
        let tokenizer = tokenizer();
        let stops = ["</answer>".to_owned()];
        let mut stream = TextStream::new();
        let mut given = String::new();
        for token in tokenizer.encode("4</answ").unwrap() {
            given.push_str(&stream.push(&tokenizer, token, &stops).unwrap().text);
        }
        assert_eq!(given, "4");
        assert_eq!(stream.finish(&tokenizer, &stops).unwrap().text, "</answ");
    }
}
