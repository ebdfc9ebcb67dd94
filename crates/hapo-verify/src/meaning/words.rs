//! Answers that are words, and words that take an answer back.

/// Commands whose argument is text.
pub(super) const TEXTS: [&str; 8] = [
    "\\text",
    "\\textrm",
    "\\textbf",
    "\\textit",
    "\\textnormal",
    "\\mbox",
    "\\mathrm",
    "\\operatorname",
];

/// Names of functions and constants, which begin words of formulas.
const NAMES: [&str; 36] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "arc", "log", "ln", "exp", "sqrt", "lim", "max",
    "min", "gcd", "lcm", "mod", "det", "inf", "alpha", "beta", "gamma", "delta", "theta", "lambda",
    "sigma", "omega", "kappa", "epsilon", "rank", "trace", "floor", "ceil", "asin", "acos", "atan",
];

/// Words of a text that offers more than one value, or takes one back.
const HEDGES: [&str; 33] = [
    "or",
    "either",
    "neither",
    "nor",
    "maybe",
    "perhaps",
    "possibly",
    "probably",
    "not",
    "isn't",
    "isnt",
    "never",
    "wrong",
    "false",
    "incorrect",
    "impossible",
    "except",
    "unless",
    "unknown",
    "invalid",
    "anything",
    "cannot",
    "can't",
    "guess",
    "alternatively",
    "rather",
    "instead",
    "otherwise",
    "doubt",
    "unsure",
    "unclear",
    "between",
    "plus/minus",
];

/// Whether the words of a text, outside of formulas, offer alternatives or take its value back.
pub(crate) fn hedges(text: &str) -> bool {
    let is_hedge = |word: &str| HEDGES.contains(&word);
    words(text).any(|it| is_hedge(&it.to_lowercase()))
        || ["at least", "at most", "more than", "less than", "other than"]
            .iter()
            .any(|it| text.contains(it))
}

/// The words of a text: runs of letters that are no command.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphabetic() || matches!(c, '\'' | '’');
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find(|c: char| c.is_alphabetic() || c == '\\')?;
            let found = &rest[at..];
            if let Some(command) = found.strip_prefix('\\') {
                let name = command.bytes().take_while(u8::is_ascii_alphabetic).count();
                rest = found.get(1 + name.max(1)..).unwrap_or_default();
                continue;
            }
            let len = found.find(|c: char| !is_part(c)).unwrap_or(found.len());
            let (word, after) = found.split_at(len);
            rest = after;
            return Some(word);
        }
    })
}

/// The words of an answer that is made of words, in lower case and without marks: `\text{East}` and `east`.
pub(super) fn only_words(text: &str) -> Option<String> {
    let is_text = TEXTS[..6]
        .iter()
        .any(|it| text.strip_prefix(it).is_some_and(|it| it.trim_start().starts_with('{')));
    // What begins with a number is a value and its unit.
    let inner = text.trim_start_matches(|c: char| c != '{').trim_start_matches(['{', ' ', '(']);
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    if has_digit && !(is_text && text.ends_with('}') && inner.starts_with(char::is_alphabetic)) {
        return None;
    }
    let is_formula = |word: &str| NAMES.iter().any(|it| word.starts_with(it));
    let is_word = |word: &str| word.chars().count() >= 4 && !is_formula(word);
    let has_sign = text.contains(['=', '<', '>', '^', '_', '+', '(', '/']);
    if is_text || !has_sign && words(text).any(is_word) { as_words(text) } else { None }
}

/// The words of a text, whatever else it may be.
pub(crate) fn as_words(text: &str) -> Option<String> {
    let has_word = words(text).next().is_some();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '\\');
    let all =
        text.split(|c: char| !is_part(c)).filter(|it| !it.is_empty() && !it.starts_with('\\'));
    has_word.then(|| all.map(str::to_lowercase).collect::<Vec<_>>().join(" "))
}

/// The part of an announced answer that says it: up to the end of the sentence, or to a word that begins a reason.
pub(crate) fn announced_part(text: &str) -> &str {
    let ends = [
        ". ",
        "! ",
        "? ",
        ".\n",
        ".*",
        "; ",
        " because",
        " since",
        " as ",
        ", since",
        ", so ",
        ", because",
        ", which",
    ];
    let end = ends.iter().filter_map(|it| text.find(it)).min();
    text[..end.unwrap_or(text.len())].trim()
}

/// The letter of a gold answer that is one capital letter.
pub(crate) fn capital(text: Option<&str>) -> Option<char> {
    let mut letters = text?.trim().chars();
    let only = letters.next().filter(char::is_ascii_uppercase)?;
    letters.next().is_none().then_some(only)
}
