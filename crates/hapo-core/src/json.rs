//! JSON as others write it: objects with a field that comes twice, and halves of surrogate pairs, which Python writes for
//! texts that are no Unicode.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// The fields of an object, in their order; a field that comes twice is an error: readers would take different ones.
#[derive(Debug)]
pub struct UniqueFields<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueFields<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Fields<V> {
    type Value = UniqueFields<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut names) = (Vec::new(), std::collections::BTreeSet::new());
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("the field `{name}` comes twice")));
            }
            fields.push((name, value));
        }
        Ok(UniqueFields(fields))
    }
}

/// JSON whose lone `\\ud800` to `\\udfff` are `\\ufffd`: no other JSON reader than Python's takes them, and a
/// model's output may hold anything.
pub fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut mended = Cow::Borrowed(json);
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        at += found;
        match unit(bytes, at) {
            Some(0xd800..=0xdbff) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => {
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                mended.to_mut().replace_range(at + 2..at + 6, "fffd");
                at += 6;
            }
            // An escaped backslash is two bytes; of any other escape the rest is no backslash.
            _ => at += 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    mended
}

/// The UTF-16 unit of an escape `\\uXXXX` at a place.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::without_lone_surrogates;

    #[test]
    fn lone_halves_are_replaced_and_pairs_are_kept() {
        for (json, expected) in [
            (r#""\ud800""#, "\u{fffd}"),
            (r#""a\udc00\ud83d\ude00\uD83Db""#, "a\u{fffd}😀\u{fffd}b"),
            (r#""\\ud800""#, "\\ud800"),
            (r#""\\\ud800é\n""#, "\\\u{fffd}é\n"),
            (r#""é😀""#, "é😀"),
        ] {
            let text: String = serde_json::from_str(&without_lone_surrogates(json)).unwrap();
            assert_eq!(text, expected, "{json}");
        }
        // Invalid JSON stays as it is.
        for it in ["\\", "\\é", "\\u", "\\ud8", "\\u+123"] {
            assert_eq!(without_lone_surrogates(it), it);
        }
    }
}
