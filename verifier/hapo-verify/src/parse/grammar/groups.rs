//! Factors in brackets: groups, fractions, bars, matrices.

use super::super::error::{ParseError, ParseResult};
use super::super::lexer::{Bracket, Token};
use super::Parser;
use super::relations::Functions;
use crate::expr::{Expr, Func};

impl Parser<'_, '_> {
    pub(super) fn factor(&mut self, functions: Functions) -> ParseResult<Expr> {
        use Token as T;
        let token = self.peek().ok_or(ParseError::Syntax)?;
        match token {
            T::Open(Bracket::Angle) => Err(ParseError::Meaning),
            T::Open(Bracket::Floor) => {
                self.group(T::Close(Bracket::Floor)).map(|it| Expr::call(Func::Floor, it))
            }
            T::Open(Bracket::Ceil) => {
                self.group(T::Close(Bracket::Ceil)).map(|it| Expr::call(Func::Ceil, it))
            }
            T::Open(Bracket::VertBar) => {
                self.group(T::Close(Bracket::VertBar)).map(|it| Expr::call(Func::Abs, it))
            }
            T::Open(it) if it != Bracket::ParenVisual => {
                self.pos += 1;
                let inner = self.nested(Self::expr)?;
                if self.eat(T::Choose) {
                    let lower = self.nested(Self::expr)?;
                    self.expect(T::Close(Bracket::Brace))?;
                    return Ok(Expr::Call(Func::Binomial, vec![inner, lower]));
                }
                self.expect(T::Close(it))?;
                Ok(inner)
            }
            T::Bar => self.bars(T::Bar).map(|it| Expr::call(Func::Abs, it)),
            T::Vert => self.bars(T::Vert).map(|it| Expr::call(Func::Abs, it)),
            T::Norm => self.bars(T::Norm).map(|it| Expr::call(Func::Norm, it)),
            T::Phantom | T::Boxed => {
                self.pos += 1;
                self.braced()
            }
            T::Frac => self.fraction(),
            T::Binom => {
                self.pos += 1;
                let upper = self.braced()?;
                let lower = self.braced()?;
                Ok(Expr::Call(Func::Binomial, vec![upper, lower]))
            }
            T::MatrixStart => self.matrix(T::MatrixStart, T::MatrixEnd),
            T::DetStart => self.matrix(T::DetStart, T::DetEnd).map(|it| Expr::call(Func::Det, it)),
            _ if functions == Functions::Allowed && token.is_function() => {
                self.nested(Self::function)
            }
            T::Gamma(_)
                if functions == Functions::Allowed
                    && self.peek_at(1) == Some(T::Open(Bracket::Paren)) =>
            {
                self.pos += 1;
                let arg = self.group(T::Close(Bracket::Paren))?;
                Ok(Expr::call(Func::Gamma, arg))
            }
            T::Letter(_) | T::Greek(_) | T::Symbol(_) | T::Accent(..)
                if functions == Functions::Allowed =>
            {
                if let Some(it) = self.application()? {
                    return Ok(it);
                }
                self.atom()
            }
            _ => self.atom(),
        }
    }

    /// An opening token, an expression and `close`.
    pub(super) fn group(&mut self, close: Token<'_>) -> ParseResult<Expr> {
        self.pos += 1;
        let it = self.nested(Self::expr)?;
        self.expect(close)?;
        Ok(it)
    }

    pub(super) fn braced(&mut self) -> ParseResult<Expr> {
        if self.peek() != Some(Token::Open(Bracket::Brace)) {
            return Err(ParseError::Syntax);
        }
        self.group(Token::Close(Bracket::Brace))
    }

    pub(super) fn bars(&mut self, bar: Token<'_>) -> ParseResult<Expr> {
        self.pos += 1;
        // Two bars in a row at the start open two groups.
        let it = self.nested(|it| {
            it.bars = 1;
            it.expr()
        })?;
        self.expect(bar)?;
        Ok(it)
    }

    fn fraction(&mut self) -> ParseResult<Expr> {
        self.pos += 1;
        if let (
            Some(Token::Open(Bracket::Brace)),
            Some(Token::Letter('d')),
            Some(Token::Close(Bracket::Brace)),
            Some(Token::Open(Bracket::Brace)),
            Some(Token::Differential(variable)),
            Some(Token::Close(Bracket::Brace)),
        ) = (
            self.peek(),
            self.peek_at(1),
            self.peek_at(2),
            self.peek_at(3),
            self.peek_at(4),
            self.peek_at(5),
        ) {
            self.pos += 6;
            let variable = self.symbol(variable);
            return Ok(Expr::Call(Func::Derivative, vec![variable]));
        }
        let upper = self.braced()?;
        let lower = self.braced()?;
        Ok(upper.over(lower))
    }

    fn matrix(&mut self, start: Token<'_>, end: Token<'_>) -> ParseResult<Expr> {
        self.expect(start)?;
        let mut cells = Vec::new();
        let mut cols = 0;
        let mut n_rows = 0;
        loop {
            let row_start = cells.len();
            loop {
                cells.push(self.nested(Self::expr)?);
                if !self.eat(Token::Ampersand) {
                    break;
                }
            }
            let width = cells.len() - row_start;
            if n_rows > 0 && width != cols {
                return Err(ParseError::Meaning);
            }
            cols = width;
            n_rows += 1;
            if self.eat(end) {
                return Ok(Expr::Matrix { cols, cells });
            }
            self.expect(Token::RowEnd)?;
            if self.eat(end) {
                return Ok(Expr::Matrix { cols, cells });
            }
        }
    }
}
