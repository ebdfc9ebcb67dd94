//! Plain arithmetic outside of LaTeX: digits and `+ - * / ** ( )`, as a calculator reads it.

use super::error::{MAX_DEPTH, ParseError, ParseResult};
use super::grammar::{e_notation, number};
use crate::expr::Expr;

/// Reads `text`; `^` is a power.
pub(crate) fn parse(text: &str) -> ParseResult<Expr> {
    let mut parser = Parser { bytes: text.as_bytes(), text, at: 0, depth: 0, steps: 0 };
    let it = parser.sum()?;
    parser.skip();
    if parser.at == text.len() { Ok(it) } else { Err(ParseError::Syntax) }
}

struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    depth: usize,
    steps: usize,
}

impl Parser<'_> {
    fn skip(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn step(&mut self) -> ParseResult<()> {
        self.steps += 1;
        if self.steps > 4_096 { Err(ParseError::Depth) } else { Ok(()) }
    }

    fn sum(&mut self) -> ParseResult<Expr> {
        let mut left = self.product()?;
        loop {
            self.step()?;
            if self.eat("+") {
                left = left.plus(self.product()?);
            } else if self.eat("-") {
                left = left.plus(self.product()?.negated());
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> ParseResult<Expr> {
        let mut factors = vec![self.unary()?];
        loop {
            self.step()?;
            self.skip();
            if self.text[self.at..].starts_with("**") || self.text[self.at..].starts_with("//") {
                return Err(ParseError::Syntax);
            }
            if self.eat("*") {
                factors.push(self.unary()?);
            } else if self.eat("/") {
                let divisor = self.unary()?;
                factors.push(Expr::pow(divisor, Expr::int(-1)));
            } else if factors.len() == 1 {
                return factors.pop().ok_or(ParseError::Syntax);
            } else {
                return Ok(Expr::Mul(factors));
            }
        }
    }

    fn unary(&mut self) -> ParseResult<Expr> {
        let mut negative = false;
        loop {
            self.step()?;
            if self.eat("-") {
                negative = !negative;
            } else if !self.eat("+") {
                break;
            }
        }
        let it = self.power()?;
        Ok(if negative { it.negated() } else { it })
    }

    fn power(&mut self) -> ParseResult<Expr> {
        let base = self.atom()?;
        if !self.eat("**") && !self.eat("^") {
            return Ok(base);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ParseError::Depth);
        }
        let exponent = self.unary()?;
        self.depth -= 1;
        Ok(Expr::pow(base, exponent))
    }

    fn atom(&mut self) -> ParseResult<Expr> {
        if self.eat("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(ParseError::Depth);
            }
            let it = self.sum()?;
            self.depth -= 1;
            return if self.eat(")") { Ok(it) } else { Err(ParseError::Syntax) };
        }
        self.skip();
        let start = self.at;
        let digits =
            |from: usize| self.bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut end = start + digits(start);
        if self.bytes.get(end) == Some(&b'.') {
            end += 1 + digits(end + 1);
        }
        let text = &self.text[start..end];
        if text.is_empty() || text == "." {
            return Err(ParseError::Syntax);
        }
        let whole = text.split('.').next().unwrap_or_default();
        if !text.contains('.') && whole.len() > 1 && whole.starts_with('0') {
            return Err(ParseError::Syntax);
        }
        self.at = end;
        if text.contains('.') { e_notation(&format!("{text}E0")) } else { number(text) }
    }
}
