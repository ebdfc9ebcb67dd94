//! Tokens into an [`Expr`], by recursive descent with a depth limit. The grammar is that of latex2sympy2-extended 1.11
//! with its ambiguities resolved as ANTLR resolves them: the first alternative that reads the whole text. Where that
//! needs unbounded look-ahead (is this bracket a set or a group?) the bracket pairs are matched beforehand, so no text
//! is read more than a constant number of times.

mod atoms;
mod functions;
mod groups;
mod relations;
mod sets;

use super::lexer::{Bracket, MAX_TOKENS, Token};
use super::{MAX_DEPTH, ParseError, ParseResult, Style};
use crate::expr::Expr;
use crate::work;
pub(crate) use atoms::{e_notation, number};
use sets::Elements;

/// Most links in one chain of postfixes, powers or signs, which nest without brackets.
const MAX_CHAIN: usize = 64;

/// Reads all of `tokens`; `complex` marks the symbols.
pub(crate) fn parse(tokens: &[Token<'_>], style: Style, complex: bool) -> ParseResult<Expr> {
    if tokens.is_empty() || tokens.len() > MAX_TOKENS {
        return Err(ParseError::Syntax);
    }
    let pairs = match_brackets(tokens);
    let (pairs, end) = (&pairs, tokens.len());
    let parser = || Parser { tokens, pairs, pos: 0, end, depth: 0, style, complex, bars: 0 };
    let set_words =
        |it: &Token<'_>| matches!(it, Token::Union | Token::SetMinus | Token::In | Token::Assign);
    let is_syntax = |result: &ParseResult<Expr>| *result == Err(ParseError::Syntax);
    let first = parser().set_elements_relation();
    if first.is_ok() {
        return first;
    }
    let second = parser().all_elements(Elements::WithRelations);
    if second.is_ok() {
        return second;
    }
    let is_set = tokens.iter().any(set_words);
    let third = if is_set { parser().whole_set_relation() } else { Err(ParseError::Syntax) };
    // What was too deep, or has no meaning, is not a matter of syntax.
    match [first, second].into_iter().find(|it| !is_syntax(it)) {
        Some(error) if third.is_err() => error,
        _ => third,
    }
}

/// For each opening bracket the index of its partner. Round and square ones pair with each other (half-open
/// intervals); all others with their own kind.
fn match_brackets(tokens: &[Token<'_>]) -> Vec<u32> {
    let class = |it: Bracket| if it.is_round() { 0 } else { 1 + it as u8 };
    let mut pairs = vec![u32::MAX; tokens.len()];
    let mut open: Vec<(usize, u8)> = Vec::new();
    for (idx, token) in tokens.iter().enumerate() {
        match token {
            Token::Open(it) => open.push((idx, class(*it))),
            Token::Close(it) => {
                if let Some((start, kind)) = open.pop()
                    && kind == class(*it)
                {
                    pairs[start] = idx as u32;
                }
            }
            _ => {}
        }
    }
    pairs
}

struct Parser<'t, 'a> {
    tokens: &'t [Token<'a>],
    pairs: &'t [u32],
    pos: usize,
    /// One past the last token this parser may use.
    end: usize,
    depth: usize,
    style: Style,
    complex: bool,
    /// How many `|…|` groups are open.
    bars: usize,
}

impl<'a> Parser<'_, 'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.peek_at(0)
    }

    fn peek_at(&self, offset: usize) -> Option<Token<'a>> {
        work::count(1);
        let idx = self.pos + offset;
        if idx < self.end { self.tokens.get(idx).copied() } else { None }
    }

    fn eat(&mut self, token: Token<'_>) -> bool {
        let found = self.peek() == Some(token);
        self.pos += usize::from(found);
        found
    }

    fn expect(&mut self, token: Token<'_>) -> ParseResult<()> {
        if self.eat(token) { Ok(()) } else { Err(ParseError::Syntax) }
    }

    fn at_end(&self) -> bool {
        self.pos >= self.end
    }

    /// As [`Parser::nested`], of the tokens before `end` alone.
    fn within<T>(
        &mut self,
        end: usize,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let outer_end = std::mem::replace(&mut self.end, end);
        let result = self.nested(read);
        self.end = outer_end;
        result
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::Depth);
        }
        self.depth += 1;
        let bars = std::mem::take(&mut self.bars);
        let result = read(self);
        self.bars = bars;
        self.depth -= 1;
        result
    }
}

/// The signs at the outermost level of a bracket's content.
#[derive(Default)]
struct TopLevel {
    n_commas: usize,
    n_semicolons: usize,
    choose: bool,
}

impl TopLevel {
    fn of(tokens: &[Token<'_>]) -> TopLevel {
        work::count(tokens.len());
        let mut top = TopLevel::default();
        let mut level = 0_usize;
        for token in tokens {
            match token {
                Token::Open(_) => level += 1,
                Token::Close(_) => level = level.saturating_sub(1),
                _ if level > 0 => {}
                Token::Comma => top.n_commas += 1,
                Token::Semicolon => top.n_semicolons += 1,
                Token::Choose => top.choose = true,
                _ => {}
            }
        }
        top
    }
}
