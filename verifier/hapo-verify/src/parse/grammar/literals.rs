//! Number literals.

use super::super::error::{ParseError, ParseResult};
use crate::expr::Expr;
use crate::number::Rat;

/// A literal: with a point a decimal, without one an integer.
pub(crate) fn number(text: &str) -> ParseResult<Expr> {
    let value = Rat::parse_decimal(text).ok_or(ParseError::Depth)?;
    Ok(if text.contains('.') { Expr::Float(value) } else { Expr::Num(value) })
}

/// `1.5E-3`, a decimal.
pub(crate) fn e_notation(text: &str) -> ParseResult<Expr> {
    let (mantissa, exponent) = text.split_once(['E', 'e']).ok_or(ParseError::Syntax)?;
    let exponent: i64 = exponent.parse().map_err(|_| ParseError::Depth)?;
    let mantissa = Rat::parse_decimal(mantissa).ok_or(ParseError::Depth)?;
    if exponent.unsigned_abs() > 4_000 {
        return Err(ParseError::Depth);
    }
    let value = Rat::ten_pow(exponent).and_then(|it| it.mul(&mantissa)).ok_or(ParseError::Depth)?;
    Ok(Expr::Float(value))
}
