//! The text of a completion while it grows, and the strings that end it.
//!
//! Purpose: a piece of text is released as soon as no later token can change it: complete characters only, and never a
//! possible beginning of a stop string. The pieces of a completion, joined, are the text of its tokens up to the stop
//! string. Price: the last few tokens are decoded twice per token. Tokens that are single bytes (`<0x0A>` of Llama 2)
//! are held until another token follows; stop strings among them are found at once.

use hapo_core::Refusal;
use hapo_model::Tokenizer;

use crate::request::SpecialTokens;

#[derive(Debug)]
pub(crate) struct TextStream {
    tokens: Vec<u32>,
    reading: Reading,
    /// Reads a run of byte tokens as the characters that it is so far. One byte that is no UTF-8 makes U+FFFD of every
    /// byte of the run, so this finds stop strings and releases nothing.
    run: Option<Reading>,
}

#[derive(Clone, Debug, Default)]
struct Reading {
    /// Tokens from here on are decoded together; those before `read` are given out already.
    context: usize,
    read: usize,
    special: SpecialTokens,
    held: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Grown {
    pub(crate) text: String,
    /// Index of the stop string that the text now contains; `text` ends before it.
    pub(crate) stopped: Option<usize>,
}

/// Tokens without a complete character after which a run is no UTF-8: a character has four bytes at most, and a few
/// tokens without a text may stand before it.
const MOST_CUT: usize = 8;

impl TextStream {
    pub(crate) fn new(special: SpecialTokens) -> Self {
        let reading = Reading { special, ..Reading::default() };
        Self { tokens: Vec::new(), reading, run: None }
    }

    pub(crate) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: u32,
        stops: &[String],
    ) -> Result<Grown, Refusal> {
        self.tokens.push(token);
        if self.is_in_run(tokenizer, token) && !self.run_stops(tokenizer, stops)? {
            return Ok(Grown::default());
        }
        self.run = None;
        self.reading.advance(tokenizer, &self.tokens)?;
        Ok(self.reading.release(stops))
    }

    /// The remaining text when no token follows: cut characters as U+FFFD.
    pub(crate) fn finish(
        mut self,
        tokenizer: &Tokenizer,
        stops: &[String],
    ) -> Result<Grown, Refusal> {
        self.reading.held.push_str(&self.reading.unread(tokenizer, &self.tokens)?);
        let mut grown = self.reading.release(stops);
        if grown.stopped.is_none() {
            grown.text.push_str(&self.reading.held);
        }
        Ok(grown)
    }

    /// True if the last token is a byte, or has no text and stands in a run of bytes: decoders pass over it.
    fn is_in_run(&self, tokenizer: &Tokenizer, token: u32) -> bool {
        tokenizer.token(token).map_or(self.run.is_some(), |it| is_byte(&it))
    }

    /// Reads the run as far as it is complete characters; true if it now contains a stop string.
    fn run_stops(&mut self, tokenizer: &Tokenizer, stops: &[String]) -> Result<bool, Refusal> {
        let run = self.run.get_or_insert_with(|| self.reading.clone());
        if stops.is_empty() || self.tokens.len() - run.read > MOST_CUT {
            return Ok(false);
        }
        run.advance(tokenizer, &self.tokens)?;
        Ok(run.release(stops).stopped.is_some())
    }
}

impl Reading {
    /// Holds the text of the unread tokens, unless it ends in a cut character.
    fn advance(&mut self, tokenizer: &Tokenizer, tokens: &[u32]) -> Result<(), Refusal> {
        let new = self.unread(tokenizer, tokens)?;
        // A cut character decodes to U+FFFD until its last byte is there.
        if !new.is_empty() && !new.ends_with('\u{FFFD}') {
            self.held.push_str(&new);
            self.context = self.read;
            self.read = tokens.len();
        }
        Ok(())
    }

    fn unread(&self, tokenizer: &Tokenizer, tokens: &[u32]) -> Result<String, Refusal> {
        let decode = |tokens| match self.special {
            SpecialTokens::WrittenOut => tokenizer.decode(tokens),
            SpecialTokens::LeftOut => tokenizer.decode_without_special(tokens),
        };
        let before = decode(&tokens[self.context..self.read])?;
        let now = decode(&tokens[self.context..])?;
        match now.strip_prefix(before.as_str()) {
            Some(new) => Ok(new.to_owned()),
            // These tokens change the text before them, which is given out.
            None => decode(&tokens[self.read..]),
        }
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

/// True of a token that byte-fallback decoders read as one byte: `<0x0A>`.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|it| it.strip_suffix('>'));
    digits.is_some_and(|it| it.len() == 2 && u8::from_str_radix(it, 16).is_ok())
}

/// Where the earliest stop string begins and which it is; the first of the list where two begin together.
pub(crate) fn first_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    let found = |(index, it): (usize, &String)| Some((text.find(it.as_str())?, index));
    stops.iter().enumerate().filter_map(found).min()
}

/// Bytes at the end of a text that a stop string begins with.
fn longest_beginning(text: &str, stops: &[String]) -> usize {
    let of_stop = |stop: &String| {
        let ends = stop.char_indices().skip(1).map(|(at, _)| at);
        ends.filter(|at| text.ends_with(&stop[..*at])).max()
    };
    stops.iter().filter_map(of_stop).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn tokenizer() -> Tokenizer {
        let folder = hapo_testing::model_dir("tiny-qwen2");
        Tokenizer::open(&folder).unwrap()
    }

    /// As Llama 2 and Mistral have it: `TOKENS` at their indices, and none at the index behind them.
    fn byte_fallback() -> Tokenizer {
        let vocab: serde_json::Map<_, _> =
            TOKENS.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
        let space = json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " });
        let strip = json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 });
        let decoders = json!([space, { "type": "ByteFallback" }, { "type": "Fuse" }, strip]);
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": decoders },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": [],
            },
        });
        Tokenizer::from_bytes(Path::new("tokenizer.json"), file.to_string().as_bytes()).unwrap()
    }

    const TOKENS: [&str; 9] =
        ["▁", "▁w", "w", "<0x41>", "<0x20>", "<0xE6>", "<0xB1>", "<0x89>", "<0xFF>"];

    /// A text that comes token by token.
    #[derive(Debug, Default, PartialEq)]
    struct Streamed {
        pieces: Vec<String>,
        stopped: Option<usize>,
        /// Tokens that came until then.
        tokens: usize,
    }

    fn stream_of(tokenizer: &Tokenizer, tokens: &[u32], stops: &[&str]) -> Streamed {
        let stops: Vec<String> = stops.iter().map(|it| (*it).to_owned()).collect();
        let mut stream = TextStream::new(SpecialTokens::WrittenOut);
        let mut streamed = Streamed::default();
        for token in tokens {
            let grown = stream.push(tokenizer, *token, &stops).unwrap();
            streamed.pieces.push(grown.text);
            streamed.tokens += 1;
            if grown.stopped.is_some() {
                return Streamed { stopped: grown.stopped, ..streamed };
            }
        }
        let last = stream.finish(tokenizer, &stops).unwrap();
        streamed.pieces.push(last.text);
        Streamed { stopped: last.stopped, ..streamed }
    }

    /// Pieces of a text that comes token by token, and the stop string that ended it.
    fn stream(text: &str, stops: &[&str]) -> (Vec<String>, Option<usize>) {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode(text).unwrap();
        let Streamed { pieces, stopped, .. } = stream_of(&tokenizer, &tokens, stops);
        (pieces, stopped)
    }

    /// Every sequence of at most `length` of the tokens.
    fn sequences(length: u32) -> impl Iterator<Item = Vec<u32>> {
        let n = TOKENS.len() as u32 + 1;
        let digits = move |length: u32, number: u32| {
            (0..length).map(|place| number / n.pow(place) % n).collect::<Vec<_>>()
        };
        (0..=length).flat_map(move |length| (0..n.pow(length)).map(move |it| digits(length, it)))
    }

    /// One byte that is no UTF-8 makes U+FFFD of every byte of its run: `A` alone is "A", before 0xFF it is not.
    #[test]
    fn runs_of_bytes_join_to_the_text_and_end_at_stop_strings() {
        let tokenizer = byte_fallback();
        let both: [&[&str]; 2] = [&[], &["AA", "汉w", " A"]];
        for tokens in sequences(4) {
            for stops in both {
                let owned: Vec<String> = stops.iter().map(|it| (*it).to_owned()).collect();
                let mut expected = (tokenizer.decode(&tokens).unwrap(), None, tokens.len());
                for n in 0..=tokens.len() {
                    let mut text = tokenizer.decode(&tokens[..n]).unwrap();
                    if let Some((at, index)) = first_stop(&text, &owned) {
                        text.truncate(at);
                        expected = (text, Some(index), n);
                        break;
                    }
                }
                let got = stream_of(&tokenizer, &tokens, stops);
                let got = (got.pieces.concat(), got.stopped, got.tokens);
                assert_eq!(got, expected, "{tokens:?} {stops:?}");
            }
        }
    }

    #[test]
    fn long_runs_of_bytes_come_behind_the_token_that_ends_them() {
        let tokenizer = byte_fallback();
        for (byte, text) in [(3_u32, "A"), (8, "\u{FFFD}")] {
            let mut tokens = vec![byte; 5000];
            tokens.push(1);
            let Streamed { pieces, .. } = stream_of(&tokenizer, &tokens, &["never seen"]);
            assert!(pieces[..5000].iter().all(String::is_empty), "{text}");
            assert_eq!(pieces[5000], text.repeat(5000) + " w");
        }
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
        let mut stream = TextStream::new(SpecialTokens::WrittenOut);
        let mut given = String::new();
        for token in tokenizer.encode("4</answ").unwrap() {
            given.push_str(&stream.push(&tokenizer, token, &stops).unwrap().text);
        }
        assert_eq!(given, "4");
        assert_eq!(stream.finish(&tokenizer, &stops).unwrap().text, "</answ");
    }
}
