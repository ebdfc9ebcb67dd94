//! Messages about words and values: what was expected, what came, and the word that was probably meant.

use super::sections::{Key, path_of, sections_and_keys};

/// The key that means a word of another trainer, or that ends in it.
pub fn key_of_word(word: &str) -> Option<String> {
    let word = word.trim_start_matches('-').replace('-', "_").to_lowercase();
    let last = word.rsplit('.').next().unwrap_or_default();
    let is_synonym = |key: &Key| key.synonyms.contains(&last);
    let synonym = sections_and_keys().find(|(_, key)| is_synonym(key));
    let (section, key) =
        synonym.or_else(|| sections_and_keys().find(|(_, key)| key.name == last))?;
    Some(path_of(section, key.name))
}

/// Serde's message in the words of this project, and what to do.
pub(super) fn explain(message: &str) -> (String, String) {
    fn known(rest: &str) -> Vec<&str> {
        rest.split('`').skip(1).step_by(2).collect()
    }
    let message = message.lines().next().unwrap_or_default();
    let see = "`hapo recipe` lists every key".to_owned();
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = known(rest);
        let (key, names) = names.split_first().expect("serde names the field");
        let what = format!("unknown key `{key}`, expected one of {}", names.join(", "));
        let synonym = key_of_word(key).map(|it| format!("did you mean `{it}`?"));
        return (what, synonym.unwrap_or_else(|| did_you_mean(key, names, "", &see)));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let names = known(rest);
        let (word, names) = names.split_first().expect("serde names the variant");
        let what = format!("expected one of {}, got `{word}`", names.join(", "));
        let write = format!("write one of: {}", names.join(", "));
        return (what, did_you_mean(word, names, "", &write));
    }
    let invalid =
        message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((got, expected)) = invalid.and_then(|it| it.rsplit_once(", expected ")) {
        let expected = match expected {
            // TOML's integers end there.
            "u64" | "u32" | "usize" => "a whole number from 0 to 9223372036854775807",
            "f64" => "a number",
            "a boolean" => "true or false",
            other => other,
        };
        return (format!("expected {expected}, got {got}"), see);
    }
    (message.to_owned(), see)
}

/// A hint at the known word closest to `word`, written behind `before`; `otherwise` where none is close.
pub fn did_you_mean(word: &str, known: &[&str], before: &str, otherwise: &str) -> String {
    let meant = nearest(word, known).map(|it| format!("did you mean `{before}{it}`?"));
    meant.unwrap_or_else(|| otherwise.to_owned())
}

/// The known word closest to `word`, if it is close enough to be what was meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = &word.to_lowercase();
    let (d, it) = known.iter().map(|it| (strsim::levenshtein(word, it), *it)).min()?;
    (d <= 1 + it.len() / 3).then_some(it)
}

#[cfg(test)]
mod tests {
    use super::super::sections::SECTIONS;
    use super::*;

    #[test]
    fn a_synonym_stands_for_one_key_and_is_none_itself() {
        let all = || sections_and_keys().flat_map(|(_, key)| key.synonyms);
        for word in all() {
            assert_eq!(all().filter(|other| *other == word).count(), 1, "{word}");
            let own = SECTIONS.iter().any(|(_, keys)| keys.iter().any(|key| key.name == *word));
            assert!(!own, "{word} is a key itself");
        }
    }

    #[test]
    fn words_of_other_trainers_and_last_parts_find_their_key() {
        assert_eq!(key_of_word("learning_rate").as_deref(), Some("optim.lr"));
        assert_eq!(key_of_word("--num-generations").as_deref(), Some("sampling.group_size"));
        assert_eq!(key_of_word("lr").as_deref(), Some("optim.lr"));
        assert_eq!(key_of_word("nonsense"), None);
        let (_, hint) = explain("unknown field `learning_rate`, expected one of `lr`, `betas`");
        assert_eq!(hint, "did you mean `optim.lr`?");
        let (_, hint) = explain("unknown variant `GRPO`, expected one of `sft`, `grpo`, `trapo`");
        assert_eq!(hint, "did you mean `grpo`?");
    }
}
