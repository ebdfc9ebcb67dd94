//! Expressions in the notation of a Python shell with implicit products: `2x + sqrt(3)/2`, as OAT's second comparison
//! reads them. Nothing is executed; this is a grammar like the others, with the same limits.

use super::error::{MAX_DEPTH, ParseError, ParseResult};
use super::grammar::{e_notation, number, symbol};
use crate::expr::{Expr, Func};
use crate::number::Rat;

/// Longest text that is read.
const MAX_TEXT: usize = 4_096;

/// Reads `text`.
pub(crate) fn parse(text: &str) -> ParseResult<Expr> {
    if text.len() > MAX_TEXT {
        return Err(ParseError::Depth);
    }
    let mut parser = Parser { text, at: 0, depth: 0, links: 0 };
    let it = parser.sum()?;
    if parser.at == text.len() { Ok(it) } else { Err(ParseError::Syntax) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    links: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::Depth);
        }
        self.depth += 1;
        let it = read(self);
        self.depth -= 1;
        it
    }

    fn sum(&mut self) -> ParseResult<Expr> {
        let mut left = self.product()?;
        loop {
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
        let mut left = self.unary()?;
        loop {
            if self.rest().starts_with("**") || self.rest().starts_with("//") {
                return Err(ParseError::Syntax);
            }
            if self.eat("*") {
                left = left.times(self.unary()?);
            } else if self.eat("/") {
                self.links += 1;
                if self.links > 512 {
                    return Err(ParseError::Depth);
                }
                left = left.over(self.unary()?);
            } else if self
                .rest()
                .starts_with(|c: char| c == '(' || is_letter(c) || c.is_ascii_digit())
            {
                left = left.times(self.power()?);
            } else {
                return Ok(left);
            }
        }
    }

    fn unary(&mut self) -> ParseResult<Expr> {
        let mut negative = false;
        loop {
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
        let mut base = self.atom()?;
        while self.rest().starts_with('!') && !self.rest().starts_with("!=") {
            self.at += 1;
            self.links += 1;
            if self.links > 64 {
                return Err(ParseError::Depth);
            }
            base = Expr::call(Func::Factorial, base);
        }
        if !self.eat("**") && !self.eat("^") {
            return Ok(base);
        }
        let exponent = self.nested(Self::unary)?;
        Ok(Expr::pow(base, exponent))
    }

    fn atom(&mut self) -> ParseResult<Expr> {
        if self.eat("(") {
            let it = self.nested(Self::sum)?;
            return if self.eat(")") { Ok(it) } else { Err(ParseError::Syntax) };
        }
        let first = self.rest().chars().next().ok_or(ParseError::Syntax)?;
        if first.is_ascii_digit() || first == '.' {
            return self.number();
        }
        if is_letter(first) {
            return self.name();
        }
        Err(ParseError::Syntax)
    }

    fn number(&mut self) -> ParseResult<Expr> {
        let rest = self.rest().as_bytes();
        let digits = |from: usize| {
            rest[from.min(rest.len())..].iter().take_while(|b| b.is_ascii_digit()).count()
        };
        let mut end = digits(0);
        let mut decimal = false;
        if rest.get(end) == Some(&b'.') {
            decimal = true;
            end += 1 + digits(end + 1);
        }
        if end == 1 && decimal {
            return Err(ParseError::Syntax);
        }
        let mut exponent = 0;
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let n_digits = digits(end + 1 + sign);
            exponent = if n_digits > 0 { 1 + sign + n_digits } else { 0 };
        }
        let text = &self.rest()[..end + exponent];
        let it = if exponent > 0 {
            e_notation(text)?
        } else if decimal {
            e_notation(&format!("{text}e0"))?
        } else {
            if text.len() > 1 && text.starts_with('0') && !text.bytes().all(|b| b == b'0') {
                return Err(ParseError::Syntax);
            }
            number(text)?
        };
        self.at += end + exponent;
        Ok(it)
    }

    /// A known function or constant, or a product of one-letter symbols.
    fn name(&mut self) -> ParseResult<Expr> {
        let rest = self.rest();
        let len = rest.find(|c: char| !is_letter(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
        let word = &rest[..len];
        let function = match word {
            "sqrt" | "exp" => Some(None),
            "log" | "ln" => Some(Some(Func::Log)),
            "abs" => Some(Some(Func::Abs)),
            "sin" => Some(Some(Func::Sin)),
            "cos" => Some(Some(Func::Cos)),
            "tan" => Some(Some(Func::Tan)),
            "cot" => Some(Some(Func::Cot)),
            "sec" => Some(Some(Func::Sec)),
            "csc" => Some(Some(Func::Csc)),
            "asin" => Some(Some(Func::Asin)),
            "acos" => Some(Some(Func::Acos)),
            "atan" => Some(Some(Func::Atan)),
            _ => None,
        };
        if let Some(function) = function {
            self.at += len;
            let arg =
                if self.rest().starts_with('(') { self.atom()? } else { self.nested(Self::power)? };
            return Ok(match (word, function) {
                ("sqrt", _) => Expr::pow(arg, Expr::Num(Rat::Small(1, 2))),
                ("exp", _) => Expr::pow(Expr::E, arg),
                (_, Some(Func::Log)) => Expr::Call(Func::Log, vec![arg, Expr::E]),
                (_, Some(function)) => Expr::call(function, arg),
                _ => return Err(ParseError::Syntax),
            });
        }
        if matches!(
            word,
            "pi" | "alpha" | "beta" | "theta" | "lambda" | "mu" | "omega" | "phi" | "sigma"
        ) {
            self.at += len;
            return if word == "lambda" {
                Err(ParseError::Syntax)
            } else {
                Ok(symbol(word, false))
            };
        }
        let letter = rest.chars().next().ok_or(ParseError::Syntax)?;
        self.at += letter.len_utf8();
        let mut subscript = String::new();
        if self.rest().starts_with('_') {
            let len = self.rest()[1..]
                .find(|c: char| !c.is_alphanumeric())
                .map_or(self.rest().len(), |it| it + 1);
            subscript.push_str(&self.rest()[..len]);
            self.at += len;
        }
        Ok(match letter {
            'I' => Expr::I,
            'E' => Expr::E,
            _ => symbol(&format!("{letter}{subscript}"), false),
        })
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}
