//! Factors in brackets: groups, fractions, bars, matrices.

use super::super::lexer::{Bracket, Token};
use super::relations::Functions;
use super::{ParseError, ParseResult, Parser};
use crate::expr::{Expr, Func};

const OPEN: Token<'_> = Token::Open(Bracket::Brace);
const CLOSE: Token<'_> = Token::Close(Bracket::Brace);

impl Parser<'_, '_> {
    pub(super) fn factor(&mut self, functions: Functions) -> ParseResult<Expr> {
        use Token as T;
        let token = self.peek().ok_or(ParseError::Syntax)?;
        match token {
            T::Open(it @ (Bracket::Floor | Bracket::Ceil | Bracket::VertBar)) => {
                let func = match it {
                    Bracket::Floor => Func::Floor,
                    Bracket::Ceil => Func::Ceil,
                    _ => Func::Abs,
                };
                self.group(T::Close(it)).map(|it| Expr::call(func, it))
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
            T::Bar => self.bars(token).map(|it| Expr::call(Func::Abs, it)),
            T::Frac => {
                self.pos += 1;
                Ok(self.braced()?.over(self.braced()?))
            }
            T::Binom => {
                self.pos += 1;
                Ok(Expr::Call(Func::Binomial, vec![self.braced()?, self.braced()?]))
            }
            T::MatrixStart => self.matrix(),
            _ if functions == Functions::Allowed && token.is_function() => {
                self.nested(Self::function)
            }
            T::Gamma(_)
                if functions == Functions::Allowed
                    && self.peek_at(1) == Some(T::Open(Bracket::Paren)) =>
            {
                self.pos += 1;
                self.group(T::Close(Bracket::Paren)).map(|arg| Expr::call(Func::Gamma, arg))
            }
            _ if functions == Functions::Allowed && token.is_name() => {
                let applied = self.application()?;
                applied.map_or_else(|| self.atom(), Ok)
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
        if self.peek() == Some(OPEN) { self.group(CLOSE) } else { Err(ParseError::Syntax) }
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

    fn matrix(&mut self) -> ParseResult<Expr> {
        self.pos += 1;
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
            // A row may be ended once more than there are rows.
            let is_last = self.eat(Token::MatrixEnd);
            if !is_last {
                self.expect(Token::RowEnd)?;
            }
            if is_last || self.eat(Token::MatrixEnd) {
                return Ok(Expr::Matrix { cols, cells });
            }
        }
    }
}
