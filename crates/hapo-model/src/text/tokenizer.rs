//! Text to token ids and back, as `tokenizer.json` says.
//!
//! A thin wrapper of the `tokenizers` crate that leaves nothing to settings in the file: no truncation, no padding, and
//! of the special tokens that its post-processor adds only those in front of a prompt. Templates write the others out
//! themselves, and they become their ids wherever they appear in a text.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use hapo_core::{Refusal, fenced};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::{Encoding, PostProcessor, Token};

use crate::files::{Companions, excerpt, read_file, refused};
use crate::gguf::{self, Gguf};

/// Longest piece of a vocabulary with scores, in bytes, and of a word that is cut into pieces, in characters: the time of
/// an encoding grows with it.
const MOST_PIECE: u64 = 1_000;

/// Most bytes that all rules of a tokenizer together make of one. An allocation that fails ends the program, so that rules
/// which multiply are refused before the library reads them.
const MOST_GROWTH: usize = 64;

const RETAKE: &str = "take tokenizer.json of the model this one was trained from";

#[derive(Clone, Debug)]
pub struct Tokenizer {
    file: PathBuf,
    inner: tokenizers::Tokenizer,
    vocab_size: usize,
    /// What the post-processor puts in front of every text.
    prefix: Vec<u32>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder, or the tokenizer of a GGUF file.
    pub fn open(dir: &Path) -> Result<Self, Refusal> {
        if let Some(gguf) = Gguf::open(dir)? {
            return Self::of_files(dir, &gguf.tokenizer_files()?);
        }
        let file = dir.join("tokenizer.json");
        let bytes = read_file(&file)?;
        Self::from_bytes(&file, &bytes)
    }

    /// The same, where the files of the folder have been read.
    pub fn of_files(dir: &Path, files: &Companions) -> Result<Self, Refusal> {
        match files.iter().find(|it| it.0 == "tokenizer.json") {
            Some((name, bytes)) => {
                let file = gguf::find(dir)?.unwrap_or_else(|| dir.join(name));
                Self::from_bytes(&file, bytes)
            }
            None => Self::open(dir),
        }
    }

    /// Reads a tokenizer from the bytes of its file; `file` is only named in errors.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self, Refusal> {
        let malformed = |got: String| {
            let expected = "a tokenizer of the tokenizers library";
            refused(file, "", expected, excerpt(&got)).hint(RETAKE)
        };
        let text = std::str::from_utf8(bytes).map_err(|cause| malformed(cause.to_string()))?;
        let Sketch { model, normalizer, decoder } =
            serde_json::from_str(text).map_err(|cause| malformed(cause.to_string()))?;
        for (field, section) in [("normalizer", &normalizer), ("decoder", &decoder)] {
            if let Err(got) = check_growth(section) {
                let expected = "rules that make a text at most 64 times as long";
                return Err(refused(file, field, expected, got));
            }
        }
        if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
            let expected = "null, so that a text has one encoding";
            return Err(refused(file, "model.dropout", expected, dropout.to_string())
                .hint("set model.dropout to null"));
        }
        // The library would panic on the two that follow: it cuts the prefix from tokens that may
        // be shorter, and writes merged tokens into a buffer as long as the longest known one.
        let (made, known) = (model.longest_merge(), model.longest_token());
        let prefix = model.continuing_subword_prefix.unwrap_or_default();
        if made > 0 && !prefix.is_empty() {
            let (place, got) =
                ("model.continuing_subword_prefix", format!("{:?}", excerpt(&prefix)));
            return Err(refused(file, place, "null in a byte-pair vocabulary", got));
        }
        if made > known {
            let expected = "merges that make tokens of the vocabulary";
            let got = format!("one of {made} bytes where the longest token has {known}");
            return Err(refused(file, "model.merges", expected, got).hint(RETAKE));
        }
        let piece = if model.vocab.is_array() { known as u64 } else { 0 };
        let most = model.max_input_chars_per_word.unwrap_or(0).max(piece);
        if most > MOST_PIECE {
            let expected = format!("pieces and words of at most {MOST_PIECE} bytes");
            return Err(refused(file, "model", expected, format!("up to {most}")));
        }
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(text)).map_err(malformed)?;
        inner
            .with_padding(None)
            .with_truncation(None)
            .map_err(|cause| malformed(cause.to_string()))?;
        let mut all: Vec<u32> = inner.get_vocab(true).into_values().collect();
        all.sort_unstable();
        let Some(&highest) = all.last() else {
            return Err(malformed("one without tokens".to_owned()));
        };
        // The decoder sees every token once, so that one on which it fails is found now.
        if guarded(|| Ok(inner.decode(&all, false))).is_err() {
            return Err(malformed("one whose decoder fails on its own tokens".to_owned()));
        }
        let prefix = guarded(|| prefix_of(&inner)).map_err(malformed)?;
        if let Some(id) = prefix.iter().find(|id| inner.id_to_token(**id).is_none()) {
            let expected = "special tokens of the vocabulary";
            return Err(refused(file, "post_processor", expected, format!("id {id}")).hint(RETAKE));
        }
        Ok(Self { file: file.to_owned(), inner, vocab_size: highest as usize + 1, prefix })
    }

    /// Refuses a tokenizer that can give an id which the model's embedding has no row for.
    /// `model_vocab_size` is [`Config::vocab_size`](crate::Config::vocab_size).
    pub fn check_fits(&self, model_vocab_size: usize) -> Result<(), Refusal> {
        if self.vocab_size <= model_vocab_size {
            return Ok(());
        }
        let expected = format!("ids below vocab_size ({model_vocab_size}) of config.json");
        let got = format!("id {}", self.vocab_size - 1);
        Err(refused(&self.file, "vocab", expected, got).hint(RETAKE))
    }

    /// Highest id of the vocabulary, added tokens included, plus one. Ids of the model from here on have no text.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Token ids of a text. Nothing is added; special tokens written out in the text become their ids.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        let encoded = guarded(|| self.inner.encode_fast(text, false));
        let encoded = encoded.map_err(|cause| self.failed("a text it can encode", &cause))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// Token ids of a text that begins a sequence: behind what the post-processor puts in front of every text (`<s>`,
    /// `<bos>`), once. What it puts behind a text is left out: a completion follows.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        let ids = self.encode(text)?;
        Ok(if ids.starts_with(&self.prefix) { ids } else { [&self.prefix[..], &ids].concat() })
    }

    /// Text of token ids, with special tokens written out. Ids without a token are left out, and bytes that are no
    /// UTF-8 (a character cut in two) become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Refusal> {
        guarded(|| self.inner.decode(ids, false))
            .map_err(|cause| self.failed("ids it can decode", &cause))
    }

    pub fn decode_without_special(&self, ids: &[u32]) -> Result<String, Refusal> {
        guarded(|| self.inner.decode(ids, true))
            .map_err(|cause| self.failed("ids it can decode", &cause))
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id as the vocabulary writes it; `None` for padded ids and holes.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    fn failed(&self, expected: &str, cause: &str) -> Refusal {
        refused(&self.file, "model", expected, excerpt(cause))
    }
}

/// What the library gives, or why not. A file can make it panic while it is read and later, at a text or at ids.
fn guarded<T>(ask: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    // Nothing outlives a panic: the library changes nothing of a tokenizer that it only asks.
    match fenced(ask) {
        Ok(given) => given.map_err(|cause| cause.to_string()),
        Err(_) => Err("one on which the library fails".to_owned()),
    }
}

/// The special tokens that a post-processor puts in front of a text.
fn prefix_of(inner: &tokenizers::Tokenizer) -> tokenizers::Result<Vec<u32>> {
    let Some(post_processor) = inner.get_post_processor() else { return Ok(Vec::new()) };
    let text = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    let whole = post_processor.process(text, None, true)?;
    let is_special = whole.get_special_tokens_mask().iter();
    let prefix = whole.get_ids().iter().zip(is_special).take_while(|it| *it.1 == 1);
    Ok(prefix.map(|it| *it.0).collect())
}

/// The fields of `tokenizer.json` that are looked at before the library is.
#[derive(Deserialize)]
struct Sketch {
    model: Model,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    decoder: Value,
}

#[derive(Deserialize)]
struct Model {
    dropout: Option<f64>,
    max_input_chars_per_word: Option<u64>,
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Value,
}

impl Model {
    /// Bytes of the longest token of a vocabulary, which is an object of tokens or a list of pieces with scores.
    fn longest_token(&self) -> usize {
        let keys = self.vocab.as_object().into_iter().flat_map(Map::keys).map(String::len);
        let pieces = self.vocab.as_array().into_iter().flatten();
        keys.chain(pieces.filter_map(|it| it.get(0)?.as_str()).map(str::len)).max().unwrap_or(0)
    }

    /// Bytes of the longest token that a merge makes, which is `["a", "b"]` or `"a b"`; 0 without merges.
    fn longest_merge(&self) -> usize {
        let made = |merge: &Value| match merge {
            Value::String(line) => line.len().saturating_sub(1),
            pair => {
                let parts = pair.as_array().into_iter().flatten().filter_map(Value::as_str);
                parts.map(str::len).sum()
            }
        };
        self.merges.as_array().into_iter().flatten().map(made).max().unwrap_or(0)
    }
}

/// Refuses a normalizer or decoder that makes long texts out of short ones, and a map that is not as long as it says.
fn check_growth(section: &Value) -> Result<(), String> {
    let factor = growth(section)?;
    if factor > MOST_GROWTH {
        return Err(format!("rules that make it {factor} times as long"));
    }
    Ok(())
}

fn growth(section: &Value) -> Result<usize, String> {
    let parts = ["normalizers", "decoders"].iter().find_map(|it| section.get(it)?.as_array());
    if let Some(parts) = parts {
        let factors = parts.iter().map(growth).collect::<Result<Vec<_>, _>>()?;
        return Ok(factors.into_iter().fold(1, usize::saturating_mul));
    }
    match section["type"].as_str() {
        Some("Replace") => {
            let content = section["content"].as_str().map_or(0, str::len);
            Ok(match section["pattern"]["String"].as_str().map(str::len) {
                Some(pattern @ 1..) => content.div_ceil(pattern).max(1),
                // An expression may be found between any two characters.
                _ => content + 1,
            })
        }
        Some("Prepend") => Ok(section["prepend"].as_str().map_or(1, |it| it.len().max(1))),
        Some("Precompiled") => {
            let map = section["precompiled_charsmap"].as_str().unwrap_or_default();
            longest_of_map(map).map(|it| it.max(1))
        }
        _ => Ok(1),
    }
}

/// The longest text that a `SentencePiece` map puts in place of a character: the map has the length of its trie, the trie,
/// and texts that end with a zero.
fn longest_of_map(map: &str) -> Result<usize, String> {
    let bytes = base64::prelude::BASE64_STANDARD.decode(map).map_err(|it| it.to_string())?;
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return if bytes.is_empty() {
            Ok(1)
        } else {
            Err(format!("a map of {} bytes", bytes.len()))
        };
    };
    let trie = u32::from_le_bytes(*length) as usize;
    let Some(texts) = rest.get(trie..) else {
        return Err(format!("a map of {} bytes whose trie has {trie}", bytes.len()));
    };
    Ok(texts.split(|it| *it == 0).map(<[u8]>::len).max().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replace(pattern: &str, content: &str) -> Value {
        json!({ "type": "Replace", "pattern": { "String": pattern }, "content": content })
    }

    #[test]
    fn rules_that_multiply_are_refused() {
        let llama = json!({ "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "\u{2581}" }, replace(" ", "\u{2581}") ] });
        let decoder = json!({ "type": "Sequence", "decoders": [
            replace("\u{2581}", " "), { "type": "ByteFallback" }, { "type": "Fuse" } ] });
        let spaces =
            json!({ "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": "\u{2581}" });
        for good in [Value::Null, json!({ "type": "NFKC" }), llama, decoder, spaces] {
            assert_eq!(check_growth(&good), Ok(()), "{good}");
        }
        let ones = |n: usize| replace("1", &"1".repeat(n));
        let nested = |key: &str, n: usize, times: usize| json!({ "type": "Sequence", key: vec![ones(n); times] });
        for bad in [
            ones(1_000_000),
            json!({ "type": "Prepend", "prepend": "1".repeat(100) }),
            nested("normalizers", 100, 5),
            nested("decoders", 1000, 4),
            json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": "1".repeat(100) }),
        ] {
            assert!(check_growth(&bad).unwrap_err().contains("times as long"), "{bad}");
        }
        let map = |text: &str| json!({ "type": "Precompiled", "precompiled_charsmap": text });
        let error = check_growth(&map("/////////////w==")).unwrap_err();
        assert_eq!(error, "a map of 10 bytes whose trie has 4294967295");
        let long = [&[0; 4][..], &[b'1'; 100]].concat();
        let long = base64::prelude::BASE64_STANDARD.encode(long);
        assert!(check_growth(&map(&long)).unwrap_err().contains("100 times"));
    }
}
