//! How much longer a tokenizer's rules can make a text. An allocation that fails ends the program, so that rules which
//! multiply are refused before the library reads them.

use base64::Engine as _;
use serde_json::Value;

/// Most bytes that all rules together make of one.
const MOST: usize = 64;

/// Refuses a normalizer or decoder that makes long texts out of short ones, and a map that is not as long as it says.
pub(super) fn check(section: &Value) -> Result<(), String> {
    let factor = factor(section)?;
    if factor > MOST {
        return Err(format!("rules that make it {factor} times as long"));
    }
    Ok(())
}

fn factor(section: &Value) -> Result<usize, String> {
    let parts = ["normalizers", "decoders"].iter().find_map(|it| section.get(it)?.as_array());
    if let Some(parts) = parts {
        let factors = parts.iter().map(factor).collect::<Result<Vec<_>, _>>()?;
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
            assert_eq!(check(&good), Ok(()), "{good}");
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
            assert!(check(&bad).unwrap_err().contains("times as long"), "{bad}");
        }
        let map = |text: &str| json!({ "type": "Precompiled", "precompiled_charsmap": text });
        let error = check(&map("/////////////w==")).unwrap_err();
        assert_eq!(error, "a map of 10 bytes whose trie has 4294967295");
        let long = [&[0; 4][..], &[b'1'; 100]].concat();
        let long = base64::prelude::BASE64_STANDARD.encode(long);
        assert!(check(&map(&long)).unwrap_err().contains("100 times"));
    }
}
