//! Functions, sums, integrals and limits.

use super::super::error::{ParseError, ParseResult};
use super::super::lexer::{Bracket, Fn1, Token, function_by_name};
use super::Parser;
use super::relations::Functions;
use crate::expr::{Expr, Func, Op};
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
                    let exponent = self.script()?;
                    return Ok(Expr::pow(Expr::E, exponent));
                }
                Ok(Expr::E)
            }
            T::Sqrt => {
                let root = if self.peek() == Some(T::Open(Bracket::Square)) {
                    let root = self.group(T::Close(Bracket::Square))?;
                    Expr::int(1).over(root)
                } else {
                    Expr::Num(Rat::ratio(1, 2))
                };
                let base = self.braced()?;
                Ok(Expr::pow(base, root))
            }
            T::Function(it) => self.one_argument(it),
            T::OperatorName => self.operator_name(),
            T::MultiFunction(name) => {
                self.scripts()?;
                let args = self.arguments()?;
                Ok(Expr::Call(function_by_name(name).ok_or(ParseError::Syntax)?, args))
            }
            T::Int => self.integral(),
            T::Sum => self.sum(Func::Sum),
            T::Prod => self.sum(Func::Product),
            T::Lim => self.limit(),
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

    fn one_argument(&mut self, function: Fn1) -> ParseResult<Expr> {
        let (below, above) = self.scripts()?;
        let arg = self.single_argument()?;
        let minus_one = matches!(&above, Some(Expr::Num(n)) if n.to_i64() == Some(-1));
        let mut exponent = above;
        let it = match function {
            Fn1::Log => Expr::Call(Func::Log, vec![arg, below.unwrap_or(Expr::int(10))]),
            Fn1::Ln => Expr::Call(Func::Log, vec![arg, below.unwrap_or(Expr::E)]),
            Fn1::Exp => Expr::pow(Expr::E, arg),
            Fn1::Known(name) => {
                let inverse = matches!(
                    name,
                    "sin" | "cos" | "tan" | "csc" | "sec" | "cot" | "sinh" | "cosh" | "tanh"
                );
                let is_inverse = minus_one && inverse;
                exponent = exponent.filter(|_| !is_inverse);
                let func = if is_inverse {
                    function_by_name(&format!("a{name}"))
                } else {
                    function_by_name(name)
                };
                Expr::call(func.ok_or(ParseError::Syntax)?, arg)
            }
        };
        Ok(to_power(it, exponent))
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

    fn arguments(&mut self) -> ParseResult<Vec<Expr>> {
        if !self.eat(Token::Open(Bracket::Paren)) {
            return Err(ParseError::Meaning);
        }
        let mut args = vec![self.nested(Self::expr)?];
        while self.eat(Token::Comma) {
            args.push(self.nested(Self::expr)?);
        }
        self.expect(Token::Close(Bracket::Paren))?;
        Ok(args)
    }

    fn operator_name(&mut self) -> ParseResult<Expr> {
        self.expect(Token::Open(Bracket::Brace))?;
        let Some(Token::Word(name)) = self.peek() else {
            return Err(ParseError::Syntax);
        };
        self.pos += 1;
        self.expect(Token::Close(Bracket::Brace))?;
        let (_, exponent) = self.scripts()?;
        let it = match name {
            "gcd" | "lcm" => {
                Expr::Call(function_by_name(name).ok_or(ParseError::Syntax)?, self.arguments()?)
            }
            "zeros" | "ones" | "diag" | "hstack" | "vstack" => return Err(ParseError::Meaning),
            _ => {
                let arg = self.single_argument()?;
                let func = function_by_name(name).unwrap_or_else(|| Func::Named(name.into()));
                Expr::call(func, arg)
            }
        };
        Ok(to_power(it, exponent))
    }

    fn integral(&mut self) -> ParseResult<Expr> {
        let (from, to) = self.scripts()?;
        if from.is_some() != to.is_some() {
            return Err(ParseError::Syntax);
        }
        // The integrand ends at the first differential of its own level.
        let mut level = 0_usize;
        let mut at = self.pos;
        while at < self.end {
            match self.tokens[at] {
                Token::Open(_) => level += 1,
                Token::Close(_) if level == 0 => {
                    at = self.end;
                    break;
                }
                Token::Close(_) => level -= 1,
                Token::Differential(_) if level == 0 => break,
                _ => {}
            }
            work::count(1);
            at += 1;
        }
        let (body, variable) = if at < self.end {
            let Token::Differential(variable) = self.tokens[at] else {
                return Err(ParseError::Syntax);
            };
            let variable = self.symbol(variable);
            let body = if at == self.pos { Expr::int(1) } else { self.within(at, Self::expr)? };
            if self.pos != at {
                return Err(ParseError::Syntax);
            }
            self.pos = at + 1;
            (body, variable)
        } else {
            let body = self.nested(Self::expr)?;
            let mut variable = None;
            body.any(&mut |it| {
                if let Expr::Sym { name, .. } = it
                    && name.len() > 1
                    && let Some(rest) = name.strip_prefix('d')
                {
                    variable = Some(rest.to_owned());
                }
                variable.is_some()
            });
            match variable {
                Some(name) => {
                    let differential =
                        Expr::Sym { name: format!("d{name}").into(), complex: self.complex };
                    (body.substituted(&differential, &Expr::int(1)), self.symbol(&name))
                }
                None => (body, self.symbol("x")),
            }
        };
        let parts = [Some(body), Some(variable), from, to].into_iter().flatten().collect();
        Ok(Expr::Call(Func::Integral, parts))
    }

    fn sum(&mut self, func: Func) -> ParseResult<Expr> {
        let mut range = None;
        let mut last = None;
        for _ in 0..2 {
            if range.is_none() && self.eat(Token::Underscore) {
                self.expect(Token::Open(Bracket::Brace))?;
                let variable = self.nested(Self::expr)?;
                if !self.eat(Token::Assign) && !self.eat(Token::Relation(Op::Eq)) {
                    return Err(ParseError::Syntax);
                }
                let first = self.nested(Self::expr)?;
                self.expect(Token::Close(Bracket::Brace))?;
                range = Some((variable, first));
            } else if last.is_none() && self.eat(Token::Caret) {
                last = Some(self.script()?);
            }
        }
        let ((variable, first), last) = range.zip(last).ok_or(ParseError::Syntax)?;
        let body = self.nested(|it| it.product(Functions::Allowed))?;
        Ok(Expr::Call(func, vec![body, variable, first, last]))
    }

    fn limit(&mut self) -> ParseResult<Expr> {
        self.expect(Token::Underscore)?;
        self.expect(Token::Open(Bracket::Brace))?;
        let variable = match self.peek() {
            Some(Token::Letter(_) | Token::Greek(_) | Token::Symbol(_)) => {
                let name = self.atom_name()?;
                self.symbol(&name)
            }
            _ => return Err(ParseError::Syntax),
        };
        self.expect(Token::Approach)?;
        let to = self.nested(Self::expr)?;
        self.expect(Token::Close(Bracket::Brace))?;
        let body = self.nested(|it| it.product(Functions::Allowed))?;
        Ok(Expr::Call(Func::Limit, vec![body, variable, to]))
    }
}

fn to_power(base: Expr, exponent: Option<Expr>) -> Expr {
    match exponent {
        Some(exponent) => Expr::pow(base, exponent),
        None => base,
    }
}
