//! Functions and integrals.

use super::super::lexer::{Bracket, Fn1, Token, function_by_name};
use super::relations::{Functions, raised};
use super::{ParseError, ParseResult, Parser};
use crate::expr::{Expr, Func};
use crate::number::Rat;
use crate::work;

impl Parser<'_, '_> {
    pub(super) fn function(&mut self) -> ParseResult<Expr> {
        use Token as T;
        let token = self.peek().ok_or(ParseError::Syntax)?;
        self.pos += 1;
        match token {
            T::ExpE => {
                // e^x is one function; its power is read here so that e^x^2 is (e^x)^2.
                if self.eat(T::Caret) {
                    Ok(Expr::pow(Expr::E, self.script()?))
                } else {
                    Ok(Expr::E)
                }
            }
            T::Sqrt => {
                let root = if self.peek() == Some(T::Open(Bracket::Square)) {
                    Expr::int(1).over(self.group(T::Close(Bracket::Square))?)
                } else {
                    Expr::Num(Rat::ratio(1, 2))
                };
                Ok(Expr::pow(self.braced()?, root))
            }
            T::Function(it) => self.one_argument(it),
            T::Int => self.integral(),
            _ => Err(ParseError::Syntax),
        }
    }

    /// An optional subscript and power, in either order.
    fn scripts(&mut self) -> ParseResult<(Option<Expr>, Option<Expr>)> {
        let (mut below, mut above) = (None, None);
        for _ in 0..2 {
            if below.is_none() && self.eat(Token::Underscore) {
                below = Some(self.script()?);
            } else if above.is_none() && self.eat(Token::Caret) {
                above = Some(self.script()?);
            }
        }
        Ok((below, above))
    }

    fn one_argument(&mut self, function: Fn1<'_>) -> ParseResult<Expr> {
        let (below, above) = self.scripts()?;
        let arg = self.single_argument()?;
        let minus_one = matches!(&above, Some(Expr::Num(n)) if n.to_i64() == Some(-1));
        let mut exponent = above;
        let it = match function {
            Fn1::Log => Expr::Call(Func::Log, vec![arg, below.unwrap_or(Expr::int(10))]),
            Fn1::Ln => Expr::Call(Func::Log, vec![arg, below.unwrap_or(Expr::E)]),
            Fn1::Exp => Expr::pow(Expr::E, arg),
            Fn1::Known(name) => {
                let is_inverse = minus_one && !matches!(name, "floor" | "ceil");
                exponent = exponent.filter(|_| !is_inverse);
                let arc = if is_inverse { "arc" } else { "" };
                Expr::call(function_by_name(&format!("{arc}{name}")), arg)
            }
        };
        Ok(raised(it, exponent))
    }

    /// `(x)` alone, or everything up to the next sum or function.
    fn single_argument(&mut self) -> ParseResult<Expr> {
        if self.peek() == Some(Token::Open(Bracket::Paren)) {
            let start = self.pos;
            match self.group(Token::Close(Bracket::Paren)) {
                Err(ParseError::Syntax) => self.pos = start,
                it => return it,
            }
        }
        self.nested(|it| it.product(Functions::Refused))
    }

    fn integral(&mut self) -> ParseResult<Expr> {
        let (from, to) = self.scripts()?;
        if from.is_some() != to.is_some() {
            return Err(ParseError::Syntax);
        }
        // The integrand ends at the first differential of its own level.
        let mut level = 0_usize;
        let at = (self.pos..self.end).find(|at| {
            work::count(1);
            match self.tokens[*at] {
                Token::Open(_) => level += 1,
                Token::Close(_) => level = level.saturating_sub(1),
                Token::Differential(_) => return level == 0,
                _ => {}
            }
            false
        });
        let at = at.ok_or(ParseError::Syntax)?;
        let Token::Differential(variable) = self.tokens[at] else { return Err(ParseError::Syntax) };
        let variable = self.symbol(variable);
        let body = if at == self.pos { Expr::int(1) } else { self.within(at, Self::expr)? };
        if self.pos != at {
            return Err(ParseError::Syntax);
        }
        self.pos = at + 1;
        let parts = [Some(body), Some(variable), from, to].into_iter().flatten().collect();
        Ok(Expr::Call(Func::Integral, parts))
    }
}
