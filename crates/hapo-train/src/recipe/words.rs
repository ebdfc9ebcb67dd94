//! Messages about words and values: what was expected, what came, and the word that was probably meant.

/// Serde's message in the words of this project, and what to do.
pub(super) fn explain(message: &str) -> (String, String) {
    let message = message.lines().next().unwrap_or_default();
    let see = "`hapo recipe` lists every key".to_owned();
    let known = |rest: &str| -> Vec<String> {
        let quoted = rest.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    };
    let did_you_mean = |word: &str, known: &[String]| {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let near = nearest(word, &known);
        near.map(|it| format!("did you mean `{it}`?"))
    };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = known(rest);
        let (key, names) = names.split_first().expect("serde names the field");
        let what = format!("unknown key `{key}`, expected one of {}", names.join(", "));
        return (what, did_you_mean(key, names).unwrap_or(see));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let names = known(rest);
        let (word, names) = names.split_first().expect("serde names the variant");
        let what = format!("expected one of {}, got `{word}`", names.join(", "));
        let write = format!("write one of: {}", names.join(", "));
        return (what, did_you_mean(word, names).unwrap_or(write));
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

/// The known word closest to `word`, if it is close enough to be what was meant.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|it| (strsim::levenshtein(word, it), *it))
        .min()
        .filter(|(d, it)| *d <= 1 + it.len() / 3)
        .map(|it| it.1)
}
