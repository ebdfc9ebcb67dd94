//! Sets, lists, tuples and intervals, and what joins them.

use super::super::lexer::{Bracket, Token};
use super::{ParseError, ParseResult, Parser, TopLevel};
use crate::expr::{Domain, Expr, Interval, Op};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Elements {
    WithRelations,
    NoRelations,
}

impl Parser<'_, '_> {
    /// `x = 1, 2, 3` and `x \in \{1, 2\}`: everything after the first sign belongs to the symbol.
    pub(super) fn set_elements_relation(&mut self) -> ParseResult<Expr> {
        let lhs = self.atom_list()?;
        if !self.eat(Token::In) && !self.eat(Token::Assign) {
            return Err(ParseError::Syntax);
        }
        let rhs = self.all_elements(Elements::NoRelations)?;
        Ok(Expr::rel(Op::Eq, lhs, rhs))
    }

    /// `x` or `(x, y, z)`.
    fn atom_list(&mut self) -> ParseResult<Expr> {
        if !self.eat(Token::Open(Bracket::Paren)) {
            return self.atom_expr();
        }
        let mut atoms = vec![self.atom_expr()?];
        while self.eat(Token::Comma) {
            atoms.push(self.atom_expr()?);
        }
        self.expect(Token::Close(Bracket::Paren))?;
        Ok(if atoms.len() == 1 { atoms.swap_remove(0) } else { Expr::Tuple(atoms) })
    }

    /// The whole rest as `a, b; c, d`: one value, a set, or a set of tuples.
    pub(super) fn all_elements(&mut self, kind: Elements) -> ParseResult<Expr> {
        let groups = self.element_groups(kind)?;
        if !self.at_end() {
            return Err(ParseError::Syntax);
        }
        Ok(set_of_groups(groups))
    }

    fn element_groups(&mut self, kind: Elements) -> ParseResult<Vec<Vec<Expr>>> {
        let mut groups = vec![Vec::new()];
        loop {
            let group = groups.last_mut().expect("there is always a current group");
            self.element(kind, group)?;
            if self.eat(Token::Comma) {
                continue;
            }
            if !self.eat(Token::Semicolon) {
                return Ok(groups);
            }
            groups.push(Vec::new());
        }
    }

    /// One element; `±` gives two.
    fn element(&mut self, kind: Elements, out: &mut Vec<Expr>) -> ParseResult<()> {
        if self.eat(Token::PlusMinus) {
            let it = self.expr()?;
            out.extend([it.clone().negated(), it]);
            return Ok(());
        }
        if let Some(it) = self.set_atom_here()? {
            out.push(it);
            return Ok(());
        }
        let first = if kind == Elements::WithRelations { self.relation()? } else { self.expr()? };
        if self.peek() == Some(Token::PlusMinus) && !first.is_relation() {
            self.pos += 1;
            let right = self.expr()?;
            out.extend([first.clone().plus(right.clone()), first.plus(right.negated())]);
            return Ok(());
        }
        out.push(first);
        Ok(())
    }

    /// A bracketed set, tuple or interval, if it spans the whole element; otherwise nothing is consumed.
    fn set_atom_here(&mut self) -> ParseResult<Option<Expr>> {
        let start = self.pos;
        let close = match self.peek() {
            Some(Token::Domain(_)) => start,
            Some(Token::Open(_)) => self.pairs[start] as usize,
            _ => return Ok(None),
        };
        if close >= self.end {
            return Ok(None);
        }
        let after = if close + 1 < self.end { self.tokens.get(close + 1) } else { None };
        let ends = matches!(after, None | Some(Token::Comma | Token::Semicolon | Token::Close(_)));
        if !ends {
            return Ok(None);
        }
        self.set_atom()
    }

    /// A set, tuple or interval at the cursor; `None` (and nothing consumed) where the bracket is a group.
    fn set_atom(&mut self) -> ParseResult<Option<Expr>> {
        let start = self.pos;
        let open = match self.peek() {
            Some(Token::Domain(it)) => {
                self.pos += 1;
                let is_empty = it == Domain::Empty;
                return Ok(Some(if is_empty { Expr::Set(Vec::new()) } else { Expr::Domain(it) }));
            }
            Some(Token::Open(it)) => it,
            _ => return Ok(None),
        };
        let (inner, close) = (start + 1, self.pairs[start] as usize);
        if close >= self.end {
            return Err(ParseError::Syntax);
        }
        let Token::Close(closing) = self.tokens[close] else { return Err(ParseError::Syntax) };
        let top_level = TopLevel::of(&self.tokens[inner..close]);
        if top_level.choose {
            return Ok(None);
        }
        self.pos = inner;
        let value = self.within(close, |it| match open {
            opening if opening.is_round() => it.round_brackets(opening, closing, &top_level),
            Bracket::Brace | Bracket::BraceVisual | Bracket::BraceCommand => {
                let groups = it.element_groups(Elements::WithRelations)?;
                Ok(Some(Expr::Set(groups.into_iter().flatten().collect())))
            }
            _ => Ok(None),
        });
        let consumed = self.pos;
        match value? {
            Some(it) if consumed == close => {
                self.pos = close + 1;
                Ok(Some(it))
            }
            Some(_) => Err(ParseError::Syntax),
            None => {
                self.pos = start;
                Ok(None)
            }
        }
    }

    /// The content of `(…)`, `[…]`, `(…]` or `[…)`.
    fn round_brackets(
        &mut self,
        opening: Bracket,
        closing: Bracket,
        top: &TopLevel,
    ) -> ParseResult<Option<Expr>> {
        let open_end = |it| matches!(it, Bracket::Paren | Bracket::ParenVisual);
        let same_kind = opening == closing
            && matches!(opening, Bracket::Paren | Bracket::ParenVisual | Bracket::Square);
        if top.n_commas == 1 && top.n_semicolons == 0 {
            let start = self.pos;
            let ends = self.expr().and_then(|left| {
                self.expect(Token::Comma)?;
                let right = self.expr()?;
                if self.at_end() { Ok((left, right)) } else { Err(ParseError::Syntax) }
            });
            match ends {
                Ok((left, right)) => {
                    let is_open = [opening, closing].map(open_end);
                    return Ok(Some(interval(left, right, is_open)));
                }
                Err(ParseError::Syntax) if same_kind => self.pos = start,
                Err(it) => return Err(it),
            }
        }
        if !same_kind {
            let is_group = top.n_commas + top.n_semicolons == 0;
            return if is_group { Ok(None) } else { Err(ParseError::Syntax) };
        }
        let groups = self.element_groups(Elements::WithRelations)?;
        let mut items: Vec<Expr> = groups.into_iter().flatten().collect();
        Ok(Some(if items.len() == 1 { items.swap_remove(0) } else { Expr::Tuple(items) }))
    }

    /// `x \in A \cup B`, `A \setminus B`, … over the whole text.
    pub(super) fn whole_set_relation(&mut self) -> ParseResult<Expr> {
        let it = self.set_relation()?;
        if self.at_end() { Ok(it) } else { Err(ParseError::Syntax) }
    }

    fn set_relation(&mut self) -> ParseResult<Expr> {
        let start = self.pos;
        if let Ok(left) = self.atom_list()
            && (self.eat(Token::In) || self.eat(Token::Assign))
        {
            return Ok(Expr::rel(Op::Eq, left, self.nested(Self::set_relation)?));
        }
        self.pos = start;
        self.set_minus()
    }

    fn set_minus(&mut self) -> ParseResult<Expr> {
        let mut left = self.set_union()?;
        while self.eat(Token::SetMinus) {
            left = Expr::Complement(Box::new((left, self.set_union()?)));
        }
        Ok(left)
    }

    fn set_union(&mut self) -> ParseResult<Expr> {
        let first = self.set_here()?;
        if self.peek() != Some(Token::Union) {
            return Ok(first);
        }
        let mut parts = vec![tuple_as_set(first)?];
        while self.eat(Token::Union) {
            parts.push(tuple_as_set(self.set_here()?)?);
        }
        Ok(Expr::Union(parts))
    }

    fn set_here(&mut self) -> ParseResult<Expr> {
        self.set_atom()?.ok_or(ParseError::Syntax)
    }
}

fn set_of_groups(mut groups: Vec<Vec<Expr>>) -> Expr {
    if groups.len() == 1 {
        let mut only = groups.swap_remove(0);
        return if only.len() == 1 { only.swap_remove(0) } else { Expr::Set(only) };
    }
    if groups.iter().all(|it| it.len() == 1) {
        return Expr::Set(groups.into_iter().flatten().collect());
    }
    Expr::Set(groups.into_iter().map(Expr::Tuple).collect())
}

/// Unions and intersections take sets; a tuple among them is its set.
fn tuple_as_set(e: Expr) -> ParseResult<Expr> {
    match e {
        Expr::Tuple(items) => Ok(Expr::Set(items)),
        it if it.is_set() => Ok(it),
        _ => Err(ParseError::Meaning),
    }
}

/// `(a, b)` and its closed kin: an interval, unless the ends are in the wrong order, which makes it a tuple.
fn interval(start: Expr, end: Expr, [left_open, right_open]: [bool; 2]) -> Expr {
    if let Some(order) = crate::numeric::compare_real(&start, &end) {
        let both_open = left_open && right_open;
        let both_closed = !left_open && !right_open;
        if both_open && order.is_ge() || both_closed && order.is_gt() {
            return Expr::Tuple(vec![start, end]);
        }
        if order.is_gt() || order.is_eq() && !both_closed {
            return Expr::Set(Vec::new());
        }
        if order.is_eq() {
            return Expr::Set(vec![start]);
        }
    }
    let infinite = |it: &Expr| matches!(it, Expr::Infinity | Expr::NegInfinity);
    let (left_open, right_open) = (left_open || infinite(&start), right_open || infinite(&end));
    Expr::Interval(Box::new(Interval { start, end, left_open, right_open }))
}
