//! Expressions outside of LaTeX, read by one grammar with the limits of the others. Nothing is executed.

use super::error::{MAX_DEPTH, ParseError, ParseResult};
use super::grammar::{e_notation, number, symbol};
use super::lexer::function_by_name;
use crate::cursor::Cursor;
use crate::expr::{Expr, Func};
use crate::number::Rat;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Digits and `+ - * / ** ( )` with spaces between them; `^` is a power.
    Calculator,
    /// A Python shell's with implicit products, as in `2x + sqrt(3)/2`: what OAT's second comparison reads.
    Python,
}

/// Longest text that is read as Python.
const MAX_TEXT: usize = 4_096;

/// Most steps that a calculator takes.
const MAX_STEPS: usize = 4_096;

/// Most quotients, and most factorials, in Python.
const MAX_QUOTIENTS: usize = 512;
const MAX_FACTORIALS: usize = 64;

#[rustfmt::skip]
const FUNCTIONS: [&str; 14] = [
    "sqrt", "exp", "log", "ln", "abs", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan",
];

const SYMBOLS: [&str; 8] = ["pi", "alpha", "beta", "theta", "mu", "omega", "phi", "sigma"];

pub(crate) fn parse(text: &str, dialect: Dialect) -> ParseResult<Expr> {
    if dialect == Dialect::Python && text.len() > MAX_TEXT {
        return Err(ParseError::Depth);
    }
    let mut parser = Parser { cursor: Cursor::new(text), dialect, depth: 0, links: 0, steps: 0 };
    let it = parser.sum()?;
    parser.skip();
    if parser.cursor.rest().is_empty() { Ok(it) } else { Err(ParseError::Syntax) }
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    dialect: Dialect,
    depth: usize,
    links: usize,
    steps: usize,
}

impl Parser<'_> {
    fn skip(&mut self) {
        if self.dialect == Dialect::Calculator {
            self.cursor.take_while(|c| c.is_ascii_whitespace());
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        self.cursor.eat(token).is_some()
    }

    fn at(&self, token: &str) -> bool {
        self.cursor.rest().starts_with(token)
    }

    fn step(&mut self) -> ParseResult<()> {
        self.steps += usize::from(self.dialect == Dialect::Calculator);
        if self.steps > MAX_STEPS { Err(ParseError::Depth) } else { Ok(()) }
    }

    fn link(&mut self, most: usize) -> ParseResult<()> {
        self.links += usize::from(self.dialect == Dialect::Python);
        if self.links > most { Err(ParseError::Depth) } else { Ok(()) }
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
        let mut left = self.unary()?;
        let mut is_first = true;
        loop {
            self.step()?;
            self.skip();
            if self.at("**") || self.at("//") {
                return Err(ParseError::Syntax);
            }
            let is_python = self.dialect == Dialect::Python;
            let is_operand = |c: char| c == '(' || is_letter(c) || c.is_ascii_digit();
            let right = if self.eat("*") {
                self.unary()?
            } else if self.eat("/") {
                self.link(MAX_QUOTIENTS)?;
                let divisor = self.unary()?;
                if is_python {
                    left = left.over(divisor);
                    continue;
                }
                Expr::pow(divisor, Expr::int(-1))
            } else if is_python && self.cursor.rest().starts_with(is_operand) {
                self.power()?
            } else {
                return Ok(left);
            };
            left = match left {
                it if is_python => it.times(right),
                Expr::Mul(mut factors) if !is_first => {
                    factors.push(right);
                    Expr::Mul(factors)
                }
                it => Expr::Mul(vec![it, right]),
            };
            is_first = false;
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
        let mut base = self.atom()?;
        while self.dialect == Dialect::Python && self.at("!") && !self.at("!=") {
            self.cursor.take(1);
            self.link(MAX_FACTORIALS)?;
            base = Expr::call(Func::Factorial, base);
        }
        if !self.eat("**") && !self.eat("^") {
            return Ok(base);
        }
        Ok(Expr::pow(base, self.nested(Self::unary)?))
    }

    fn atom(&mut self) -> ParseResult<Expr> {
        if self.eat("(") {
            let it = self.nested(Self::sum)?;
            return if self.eat(")") { Ok(it) } else { Err(ParseError::Syntax) };
        }
        match self.cursor.peek() {
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if is_letter(c) && self.dialect == Dialect::Python => self.name(),
            _ => Err(ParseError::Syntax),
        }
    }

    fn number(&mut self) -> ParseResult<Expr> {
        let start = self.cursor;
        let whole = self.cursor.digits().unwrap_or_default();
        let is_decimal = self.cursor.eat(".").is_some();
        if self.cursor.digits().is_none() && whole.is_empty() {
            return Err(ParseError::Syntax);
        }
        let mut exponent = self.cursor;
        if self.dialect == Dialect::Python && exponent.one_of(&["e", "E"]).is_some() {
            exponent.one_of(&["+", "-"]);
            if exponent.digits().is_some() {
                self.cursor = exponent;
                return e_notation(exponent.since(&start));
            }
        }
        let text = self.cursor.since(&start);
        if is_decimal {
            return e_notation(&format!("{text}e0"));
        }
        let is_zero = self.dialect == Dialect::Python && text.bytes().all(|b| b == b'0');
        if text.len() > 1 && text.starts_with('0') && !is_zero {
            return Err(ParseError::Syntax);
        }
        number(text)
    }

    /// A known function or constant, or a product of one-letter symbols.
    fn name(&mut self) -> ParseResult<Expr> {
        let start = self.cursor;
        let word = self.cursor.take_while(|c| is_letter(c) || c.is_ascii_digit());
        if FUNCTIONS.contains(&word) {
            let arg = if self.at("(") { self.atom()? } else { self.nested(Self::power)? };
            return Ok(match word {
                "sqrt" => Expr::pow(arg, Expr::Num(Rat::Small(1, 2))),
                "exp" => Expr::pow(Expr::E, arg),
                "log" | "ln" => Expr::Call(Func::Log, vec![arg, Expr::E]),
                "abs" => Expr::call(Func::Abs, arg),
                _ => Expr::call(function_by_name(word).ok_or(ParseError::Syntax)?, arg),
            });
        }
        if word == "lambda" {
            return Err(ParseError::Syntax);
        }
        if SYMBOLS.contains(&word) {
            return Ok(symbol(word, false));
        }
        self.cursor = start;
        let letter = self.cursor.one(|_| true).ok_or(ParseError::Syntax)?;
        if self.cursor.eat("_").is_some() {
            self.cursor.take_while(char::is_alphanumeric);
        }
        Ok(match letter {
            "I" => Expr::I,
            "E" => Expr::E,
            _ => symbol(self.cursor.since(&start), false),
        })
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}
