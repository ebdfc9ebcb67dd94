//! Folds constant groups from the innermost outwards, so that a tower of braces around a plain number is read however
//! deep it is. One pass with an explicit stack; used only where the grammar's depth limit was met.

use super::lexer::{Bracket, Token};

/// The tokens with `(n)` and `{n}` replaced by `n` where nothing else claims the bracket, and `1^n` by `1`.
pub(crate) fn fold(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let mut out: Vec<Token<'_>> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let Token::Close(kind) = token else {
            out.push(token);
            continue;
        };
        let n = out.len();
        let is_group = n >= 2
            && matches!(out[n - 1], Token::Number(_))
            && out[n - 2] == Token::Open(kind)
            && matches!(kind, Bracket::Brace | Bracket::Paren);
        let before = n.checked_sub(3).map(|it| out[it]);
        let free = matches!(
            before,
            None | Some(Token::Open(_) | Token::Caret | Token::Add | Token::Sub | Token::Mul)
        );
        if !is_group || !free {
            out.push(token);
            continue;
        }
        let number = out[n - 1];
        out.truncate(n - 2);
        let n = out.len();
        if n >= 2 && out[n - 1] == Token::Caret && out[n - 2] == Token::Number("1") {
            out.pop();
        } else {
            out.push(number);
        }
    }
    out
}
