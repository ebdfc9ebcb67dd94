//! Relations, sums, products and powers.

use super::super::lexer::{Bracket, Token};
use super::{MAX_CHAIN, ParseError, ParseResult, Parser, Style};
use crate::expr::{Expr, Func, Op};
use crate::number::Rat;
use crate::work;

impl Parser<'_, '_> {
    pub(super) fn relation(&mut self) -> ParseResult<Expr> {
        let mut left = self.expr()?;
        loop {
            let op = match self.peek() {
                Some(Token::Assign) => Op::Eq,
                Some(Token::Relation(op)) => op,
                Some(Token::Approx) => {
                    self.pos += 1;
                    let right = self.expr()?;
                    // An approximation says nothing that its exact side does not.
                    if left.is_only_symbols() {
                        left = right;
                    }
                    continue;
                }
                Some(Token::In) => return Err(ParseError::Meaning),
                _ => return Ok(left),
            };
            self.pos += 1;
            let right = self.expr()?;
            left = if let Some(Expr::Rel(_, sides)) = left.links().last() {
                let next = Expr::rel(op, sides.1.clone(), right);
                let mut links = match left {
                    Expr::Chain(links) => links,
                    it => vec![it],
                };
                links.push(next);
                Expr::Chain(links)
            } else {
                Expr::rel(op, left, right)
            };
            if matches!(&left, Expr::Chain(links) if links.len() > MAX_CHAIN) {
                return Err(ParseError::Depth);
            }
        }
    }

    pub(super) fn expr(&mut self) -> ParseResult<Expr> {
        let mut left = self.product(Functions::Allowed)?;
        loop {
            if self.eat(Token::Add) {
                left = left.plus(self.product(Functions::Allowed)?);
            } else if self.eat(Token::Sub) {
                left = left.plus(self.product(Functions::Allowed)?.negated());
            } else {
                return Ok(left);
            }
        }
    }

    pub(super) fn product(&mut self, functions: Functions) -> ParseResult<Expr> {
        let mut left = self.unary(functions)?;
        let mut n_links = 0;
        loop {
            n_links += 1;
            if self.eat(Token::Mul) {
                left = left.times(self.unary(functions)?);
                continue;
            }
            if n_links > MAX_CHAIN {
                return Err(ParseError::Depth);
            }
            if self.eat(Token::Div) {
                left = left.over(self.unary(functions)?);
            } else if self.eat(Token::Mod) {
                left = Expr::Call(Func::Mod, vec![left, self.unary(functions)?]);
            } else {
                return Ok(left);
            }
        }
    }

    fn unary(&mut self, functions: Functions) -> ParseResult<Expr> {
        let mut negative = false;
        loop {
            if self.eat(Token::Sub) {
                negative = !negative;
            } else if !self.eat(Token::Add) {
                break;
            }
        }
        let it = self.juxtaposed(functions)?;
        Ok(if negative { it.negated() } else { it })
    }

    /// `2 x \sin y`: a product without signs. An integer before a positive fraction is a mixed number.
    fn juxtaposed(&mut self, functions: Functions) -> ParseResult<Expr> {
        let mut starts = vec![self.pos];
        let mut factors = vec![self.postfix(Functions::Allowed)?];
        while self.starts_operand(functions) {
            if self.style == Style::Meant && self.between_numbers() {
                return Err(ParseError::Meaning);
            }
            starts.push(self.pos);
            factors.push(self.postfix(functions)?);
        }
        // The product of what is read so far, from the right, its last factor first.
        let mut product = Vec::with_capacity(factors.len());
        for (at, left) in factors.into_iter().enumerate().rev() {
            // For the reference only at the end of a product.
            if let Some(right) = product.last()
                && (product.len() == 1 || self.style == Style::Meant)
                && self.may_mix(&starts[at..])
                && let Some(mixed) = mixed_number(&left, right, self.style)
            {
                product.pop();
                product.push(mixed);
            } else if let Expr::Mul(factors) = left {
                work::count(factors.len());
                product.extend(factors.into_iter().rev());
            } else {
                product.push(left);
            }
        }
        product.reverse();
        Ok(if product.len() == 1 { product.swap_remove(0) } else { Expr::Mul(product) })
    }

    /// True if the first two factors may be a mixed number: for a reader a literal and a fraction without brackets.
    fn may_mix(&self, starts: &[usize]) -> bool {
        use Token::{Close, Number, Open};
        let &[whole, fraction, ..] = starts else { return false };
        let is_literal = matches!(
            self.tokens[whole..fraction],
            [Number(_)] | [Open(Bracket::Brace), Number(_), Close(Bracket::Brace)]
        );
        let is_fraction = matches!(self.tokens[fraction], Token::Frac | Open(Bracket::Brace));
        self.style == Style::Peer || is_literal && is_fraction
    }

    /// True if two numbers stand side by side: nobody writes a product or a sum that way.
    fn between_numbers(&self) -> bool {
        let number = |it: Option<&Token<'_>>| matches!(it, Some(Token::Number(_)));
        number(self.tokens.get(self.pos)) && self.pos > 0 && number(self.tokens.get(self.pos - 1))
    }

    fn starts_operand(&self, functions: Functions) -> bool {
        use Token as T;
        let Some(token) = self.peek() else { return false };
        match token {
            // Inside |…| a bar closes; the opening of another group looks the same.
            T::Bar => self.bars == 0,
            _ if token.is_function() => functions == Functions::Allowed,
            _ => token.is_operand(),
        }
    }

    /// A factor with its powers, factorials and degree signs.
    fn postfix(&mut self, functions: Functions) -> ParseResult<Expr> {
        let mut it = self.factor(functions)?;
        let mut n_links = 0;
        loop {
            match self.peek() {
                Some(Token::Caret) => {
                    self.pos += 1;
                    it = power(it, self.script()?);
                }
                Some(Token::Bang) => {
                    self.pos += 1;
                    it = factorial(it);
                }
                Some(Token::Degree) => self.pos += 1,
                _ => return Ok(it),
            }
            if !matches!(it, Expr::Num(_)) && !is_plain_factorial(&it) {
                n_links += 1;
            }
            if n_links > MAX_CHAIN {
                return Err(ParseError::Depth);
            }
        }
    }

    /// The script behind `^` or `_`: one atom, or an expression in braces.
    pub(super) fn script(&mut self) -> ParseResult<Expr> {
        if self.eat(Token::Open(Bracket::Brace)) {
            let it = self.nested(Self::expr)?;
            self.expect(Token::Close(Bracket::Brace))?;
            return Ok(it);
        }
        self.nested(Self::atom)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Functions {
    Allowed,
    Refused,
}

/// `base^exponent`; a small power of one, or of zero, is folded so that towers stay shallow.
fn power(base: Expr, exponent: Expr) -> Expr {
    if let (Expr::Num(b), Expr::Num(_)) = (&base, &exponent)
        && b.to_i64() == Some(1)
    {
        return Expr::int(1);
    }
    Expr::pow(base, exponent)
}

/// `base` to a power, if there is one.
pub(super) fn raised(base: Expr, exponent: Option<Expr>) -> Expr {
    match exponent {
        Some(exponent) => power(base, exponent),
        None => base,
    }
}

/// `arg!`, where that of a small factorial is one of a number, so that chains stay shallow. It is never a number
/// itself: `3!7!` is a product and no mixed number.
fn factorial(arg: Expr) -> Expr {
    if let Expr::Call(Func::Factorial, inner) = &arg
        && let [Expr::Num(n)] = inner.as_slice()
        && let Some(n @ 0..=20) = n.to_i64()
    {
        return Expr::call(Func::Factorial, Expr::int((1..=n).product()));
    }
    Expr::call(Func::Factorial, arg)
}

fn is_plain_factorial(e: &Expr) -> bool {
    matches!(e, Expr::Call(Func::Factorial, args) if matches!(args.as_slice(), [Expr::Num(_)]))
}

/// The value of an integer before a fraction, where they are a mixed number.
fn mixed_number(left: &Expr, right: &Expr, style: Style) -> Option<Expr> {
    let (Expr::Num(whole), Expr::Num(part)) = (left, right) else { return None };
    let is_part =
        !part.is_negative() && !part.is_zero() && (style == Style::Peer || *part < Rat::int(1));
    if !whole.is_integer() || !is_part {
        return None;
    }
    let sum = if whole.is_negative() { whole.sub(part) } else { whole.add(part) };
    sum.map(Expr::Num)
}
