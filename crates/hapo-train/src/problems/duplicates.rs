//! Problems that say the same, whatever their layout.

use std::collections::HashMap;

use crate::problems::prompts::{Prompt, PromptTable};

/// The texts of a table's problems, each with the first problem that has it.
pub(crate) struct Texts<'a>(HashMap<String, &'a Prompt>);

impl<'a> Texts<'a> {
    pub(crate) fn of(table: &'a PromptTable) -> Self {
        let mut texts = HashMap::new();
        for it in with_text(table) {
            texts.entry(plain_problem(&it.problem)).or_insert(it);
        }
        Self(texts)
    }

    /// Problems of a table that say what another of these says, and are `alike`: how many, and the names of the first two.
    pub(crate) fn shared<'b>(
        &self,
        table: &'b PromptTable,
        alike: impl Fn(&Prompt, &Prompt) -> bool,
    ) -> Option<(usize, &'b str, &'a str)> {
        let other = |it: &'b Prompt| {
            let known = *self.0.get(&plain_problem(&it.problem))?;
            (!std::ptr::eq(known, it) && alike(it, known)).then_some((it, known))
        };
        let mut both = with_text(table).filter_map(other);
        let (first, known) = both.next()?;
        Some((1 + both.count(), &first.name, &known.name))
    }
}

fn with_text(table: &PromptTable) -> impl Iterator<Item = &Prompt> {
    table.prompts.iter().filter(|it| !it.problem.trim().is_empty())
}

/// A problem's text without case, white space, dollar signs and LaTeX's spaces and sizes of brackets.
pub fn plain_problem(problem: &str) -> String {
    const LAYOUT: [&str; 9] =
        ["\\left", "\\right", "\\quad", "\\qquad", "\\,", "\\;", "\\:", "\\!", "\\ "];
    let mut text = problem.to_lowercase();
    if text.contains('\\') {
        for it in LAYOUT {
            text = text.replace(it, "");
        }
        text = text.replace("\\dfrac", "\\frac");
    }
    text.chars().filter(|it| !it.is_whitespace() && *it != '$').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_the_same_in_another_layout() {
        let one = plain_problem("Find $\\left(\\dfrac{1}{2}\\right)\\, x$.\n");
        assert_eq!(one, "find(\\frac{1}{2})x.");
        assert_eq!(
            one,
            plain_problem("find  $$(\\frac 12)x$$ .").replace("\\frac12", "\\frac{1}{2}")
        );
        assert_ne!(one, plain_problem("Find $(\\frac{1}{3}) x$."));
    }
}
