//! Tokens into an [`Expr`], by recursive descent with a depth limit.
//!
//! The grammar is that of latex2sympy2-extended 1.11 with its ambiguities resolved as ANTLR resolves them: the first
//! alternative that reads the whole text. Where that needs unbounded look-ahead (is this bracket a set or a group?)
//! the bracket pairs are matched beforehand, so no text is read more than a constant number of times.

use super::Style;
use super::error::{MAX_DEPTH, ParseError, ParseResult};
use super::lexer::{Bracket, Fn1, MAX_TOKENS, Token, function_by_name};
use crate::expr::{Domain, Expr, Func, Interval, Op};
use crate::number::Rat;

/// Most links in one chain of postfixes, powers or signs, which nest without brackets.
const MAX_CHAIN: usize = 64;

/// Reads all of `tokens`; `complex` marks the symbols.
pub(crate) fn parse(tokens: &[Token<'_>], style: Style, complex: bool) -> ParseResult<Expr> {
    if tokens.is_empty() || tokens.len() > MAX_TOKENS {
        return Err(ParseError::Syntax);
    }
    let pairs = match_brackets(tokens);
    let parser = |pos| Parser {
        tokens,
        pairs: &pairs,
        pos,
        end: tokens.len(),
        depth: 0,
        style,
        complex,
        bars: 0,
    };
    let mut error = None;
    let mut keep = |result: ParseResult<Expr>| match result {
        Ok(it) => Some(it),
        Err(ParseError::Syntax) => None,
        Err(it) => {
            error.get_or_insert(it);
            None
        }
    };
    if let Some(it) = keep(parser(0).set_elements_relation()) {
        return Ok(it);
    }
    if let Some(it) = keep(parser(0).all_elements(Elements::WithRelations)) {
        return Ok(it);
    }
    let set_words = |it: &Token<'_>| {
        matches!(
            it,
            Token::Union
                | Token::Intersection
                | Token::SetMinus
                | Token::In
                | Token::NotIn
                | Token::Assign
        )
    };
    if tokens.iter().any(set_words)
        && let Some(it) = keep(parser(0).whole_set_relation())
    {
        return Ok(it);
    }
    Err(error.unwrap_or(ParseError::Syntax))
}

/// For each opening bracket the index of its partner. Round and square ones pair with each other (half-open
/// intervals); all others with their own kind.
fn match_brackets(tokens: &[Token<'_>]) -> Vec<u32> {
    let class = |it: Bracket| match it {
        Bracket::Paren
        | Bracket::ParenVisual
        | Bracket::Group
        | Bracket::Square
        | Bracket::SquareCommand => 0,
        other => 1 + other as u8,
    };
    let mut pairs = vec![u32::MAX; tokens.len()];
    let mut open: Vec<(usize, u8)> = Vec::new();
    for (idx, token) in tokens.iter().enumerate() {
        match token {
            Token::Open(it) => open.push((idx, class(*it))),
            Token::Close(it) => {
                if let Some((start, kind)) = open.pop()
                    && kind == class(*it)
                {
                    pairs[start] = idx as u32;
                }
            }
            _ => {}
        }
    }
    pairs
}

#[derive(Clone, Copy, PartialEq)]
enum Elements {
    WithRelations,
    NoRelations,
}

struct Parser<'t, 'a> {
    tokens: &'t [Token<'a>],
    pairs: &'t [u32],
    pos: usize,
    /// One past the last token this parser may use.
    end: usize,
    depth: usize,
    style: Style,
    complex: bool,
    /// How many `|…|` groups are open.
    bars: usize,
}

impl<'a> Parser<'_, 'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.peek_at(0)
    }

    fn peek_at(&self, offset: usize) -> Option<Token<'a>> {
        let idx = self.pos + offset;
        if idx < self.end {
            self.tokens.get(idx).copied()
        } else {
            None
        }
    }

    fn eat(&mut self, token: Token<'_>) -> bool {
        let found = self.peek() == Some(token);
        self.pos += usize::from(found);
        found
    }

    fn expect(&mut self, token: Token<'_>) -> ParseResult<()> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(ParseError::Syntax)
        }
    }

    fn at_end(&self) -> bool {
        self.pos >= self.end
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::Depth);
        }
        self.depth += 1;
        let bars = std::mem::take(&mut self.bars);
        let result = read(self);
        self.bars = bars;
        self.depth -= 1;
        result
    }

    // ---- sets and lists -------------------------------------------------------------------------------------------

    /// `x = 1, 2, 3` and `x \in \{1, 2\}`: everything after the first sign belongs to the symbol.
    fn set_elements_relation(&mut self) -> ParseResult<Expr> {
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
        Ok(if atoms.len() == 1 {
            atoms.swap_remove(0)
        } else {
            Expr::Tuple(atoms)
        })
    }

    /// The whole rest as `a, b; c, d`: one value, a set, or a set of tuples.
    fn all_elements(&mut self, kind: Elements) -> ParseResult<Expr> {
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
            out.push(it.clone().negated());
            out.push(it);
            return Ok(());
        }
        if let Some(it) = self.set_atom_here()? {
            out.push(it);
            return Ok(());
        }
        let first = if kind == Elements::WithRelations {
            self.relation()?
        } else {
            self.expr()?
        };
        if self.peek() == Some(Token::PlusMinus) && !first.is_relation() {
            self.pos += 1;
            let right = self.expr()?;
            out.push(first.clone().plus(right.clone()));
            out.push(first.plus(right.negated()));
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
            Some(Token::Primes) => return Err(ParseError::Meaning),
            Some(Token::Open(_)) => self.pairs[start] as usize,
            Some(Token::Boxed) => match self.peek_at(1) {
                Some(Token::Open(Bracket::Brace)) => self.pairs[start + 1] as usize,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        if close >= self.end {
            return Ok(None);
        }
        let after = if close + 1 < self.end {
            self.tokens.get(close + 1)
        } else {
            None
        };
        let ends = matches!(
            after,
            None | Some(Token::Comma | Token::Semicolon | Token::Close(_))
        );
        if !ends {
            return Ok(None);
        }
        self.set_atom()
    }

    /// A set, tuple or interval at the cursor; `None` (and nothing consumed) where the bracket is a plain group of
    /// another kind.
    fn set_atom(&mut self) -> ParseResult<Option<Expr>> {
        let start = self.pos;
        let (open, inner) = match self.peek() {
            Some(Token::Domain(it)) => {
                self.pos += 1;
                return Ok(Some(if it == Domain::Empty {
                    Expr::Set(Vec::new())
                } else {
                    Expr::Domain(it)
                }));
            }
            Some(Token::Boxed) => (Token::Boxed, start + 2),
            Some(Token::Open(it)) => (Token::Open(it), start + 1),
            _ => return Ok(None),
        };
        let close = self.pairs[inner - 1] as usize;
        if close >= self.end {
            return Err(ParseError::Syntax);
        }
        let Token::Close(closing) = self.tokens[close] else {
            return Err(ParseError::Syntax);
        };
        let top_level = TopLevel::of(&self.tokens[inner..close]);
        if top_level.choose {
            return Ok(None);
        }
        let round = |it: Bracket| {
            matches!(
                it,
                Bracket::Paren
                    | Bracket::ParenVisual
                    | Bracket::Group
                    | Bracket::Square
                    | Bracket::SquareCommand
            )
        };
        let outer_end = self.end;
        let value = self.nested(|it| {
            it.pos = inner;
            it.end = close;
            match open {
                Token::Open(opening) if round(opening) => {
                    it.round_brackets(opening, closing, &top_level)
                }
                Token::Open(Bracket::Brace | Bracket::BraceVisual | Bracket::BraceCommand) => {
                    if inner == close {
                        return Ok(Some(Expr::Set(Vec::new())));
                    }
                    let groups = it.element_groups(Elements::WithRelations)?;
                    Ok(Some(Expr::Set(groups.into_iter().flatten().collect())))
                }
                Token::Boxed => Ok(Some(set_of_groups(
                    it.element_groups(Elements::WithRelations)?,
                ))),
                _ => Ok(None),
            }
        });
        let consumed = self.pos;
        self.end = outer_end;
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
        let open_end = |it| matches!(it, Bracket::Paren | Bracket::ParenVisual | Bracket::Group);
        let same_kind = opening == closing
            && matches!(
                opening,
                Bracket::Paren | Bracket::ParenVisual | Bracket::Square
            );
        if top.n_commas == 1 && top.n_semicolons == 0 && !top.relation && !top.plus_minus {
            let start = self.pos;
            let ends = self.expr().and_then(|left| {
                self.expect(Token::Comma)?;
                let right = self.expr()?;
                if self.at_end() {
                    Ok((left, right))
                } else {
                    Err(ParseError::Syntax)
                }
            });
            match ends {
                Ok((left, right)) => {
                    return interval(left, right, open_end(opening), open_end(closing)).map(Some);
                }
                Err(ParseError::Syntax) if same_kind => self.pos = start,
                Err(it) => return Err(it),
            }
        }
        if !same_kind {
            return if top.n_commas + top.n_semicolons == 0 {
                Ok(None)
            } else {
                Err(ParseError::Syntax)
            };
        }
        let groups = self.element_groups(Elements::WithRelations)?;
        let mut items: Vec<Expr> = groups.into_iter().flatten().collect();
        Ok(Some(if items.len() == 1 {
            items.swap_remove(0)
        } else {
            Expr::Tuple(items)
        }))
    }

    /// `x \in A \cup B`, `A \setminus B`, … over the whole text.
    fn whole_set_relation(&mut self) -> ParseResult<Expr> {
        let it = self.set_relation()?;
        if self.at_end() {
            Ok(it)
        } else {
            Err(ParseError::Syntax)
        }
    }

    fn set_relation(&mut self) -> ParseResult<Expr> {
        let start = self.pos;
        let mut left = None;
        if let Ok(lhs) = self.atom_list() {
            if self.eat(Token::In) || self.eat(Token::Assign) {
                left = Some((lhs, Op::Eq));
            } else if self.eat(Token::NotIn) {
                left = Some((lhs, Op::Ne));
            }
        }
        let Some((lhs, op)) = left else {
            self.pos = start;
            return self.set_minus();
        };
        let rhs = self.nested(Self::set_relation)?;
        Ok(Expr::rel(op, lhs, rhs))
    }

    fn set_minus(&mut self) -> ParseResult<Expr> {
        let mut left = self.set_union()?;
        while self.eat(Token::SetMinus) {
            left = Expr::Complement(Box::new((left, self.set_union()?)));
        }
        Ok(left)
    }

    fn set_union(&mut self) -> ParseResult<Expr> {
        let first = self.set_intersection()?;
        if self.peek() != Some(Token::Union) {
            return Ok(first);
        }
        let mut parts = vec![tuple_as_set(first)?];
        while self.eat(Token::Union) {
            parts.push(tuple_as_set(self.set_intersection()?)?);
        }
        Ok(Expr::Union(parts))
    }

    fn set_intersection(&mut self) -> ParseResult<Expr> {
        let first = self.set_group()?;
        if self.peek() != Some(Token::Intersection) {
            return Ok(first);
        }
        let mut parts = vec![tuple_as_set(first)?];
        while self.eat(Token::Intersection) {
            parts.push(tuple_as_set(self.set_group()?)?);
        }
        Ok(Expr::Intersection(parts))
    }

    fn set_group(&mut self) -> ParseResult<Expr> {
        let start = self.pos;
        if let Some(Token::Open(Bracket::Paren)) = self.peek() {
            let close = self.pairs[start] as usize;
            if close < self.end {
                let top = TopLevel::of(&self.tokens[start + 1..close]);
                if top.set_operator {
                    self.pos += 1;
                    let inner = self.nested(Self::set_minus)?;
                    self.expect(Token::Close(Bracket::Paren))?;
                    return Ok(inner);
                }
            }
        }
        self.set_atom()?.ok_or(ParseError::Syntax)
    }

    // ---- relations and expressions --------------------------------------------------------------------------------

    fn relation(&mut self) -> ParseResult<Expr> {
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
            left = match left {
                Expr::Chain(mut links) => {
                    links.push(Expr::rel(op, last_side(&links), right));
                    Expr::Chain(links)
                }
                it @ Expr::Rel(..) => {
                    let next = Expr::rel(op, last_side(std::slice::from_ref(&it)), right);
                    Expr::Chain(vec![it, next])
                }
                it => Expr::rel(op, it, right),
            };
            if matches!(&left, Expr::Chain(links) if links.len() > MAX_CHAIN) {
                return Err(ParseError::Depth);
            }
        }
    }

    fn expr(&mut self) -> ParseResult<Expr> {
        let mut left = self.product(Functions::Allowed)?;
        loop {
            if self.eat(Token::Add) {
                let right = self.product(Functions::Allowed)?;
                left = left.plus(right);
            } else if self.eat(Token::Sub) {
                let right = self.product(Functions::Allowed)?;
                left = left.plus(right.negated());
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self, functions: Functions) -> ParseResult<Expr> {
        let mut left = self.unary(functions)?;
        let mut n_links = 0;
        loop {
            n_links += 1;
            if self.eat(Token::Mul) {
                let right = self.unary(functions)?;
                left = left.times(right);
                continue;
            }
            if n_links > MAX_CHAIN {
                return Err(ParseError::Depth);
            }
            if self.eat(Token::Div) {
                let right = self.unary(functions)?;
                left = left.over(right);
            } else if self.eat(Token::Mod) {
                let right = self.unary(functions)?;
                left = Expr::Call(Func::Mod, vec![left, right]);
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
        let mut factors = vec![self.postfix(Functions::Allowed)?];
        while self.starts_operand(functions) {
            factors.push(self.postfix(functions)?);
        }
        let mut right = factors.pop().expect("one factor was read");
        if let Some(derivative) = derivative_of(&right) {
            // A derivative operator with nothing after it.
            let _ = derivative;
            return Err(ParseError::Meaning);
        }
        while let Some(left) = factors.pop() {
            right = juxtapose(left, right, self.style);
        }
        Ok(right)
    }

    fn starts_operand(&self, functions: Functions) -> bool {
        use Token as T;
        let function = functions == Functions::Allowed;
        match self.peek() {
            Some(
                T::Number(_)
                | T::Percent(_)
                | T::ENotation(_)
                | T::Letter(_)
                | T::BigE
                | T::Greek(_)
                | T::Gamma
                | T::Symbol(_)
                | T::Accent(..)
                | T::Differential(_)
                | T::Infinity
                | T::InfinityPercent
                | T::Partial
                | T::Variable(_)
                | T::Phantom
                | T::Boxed
                | T::Frac
                | T::Binom
                | T::MatrixStart
                | T::DetStart
                | T::Open(_),
            ) => true,
            // Inside |…| a bar closes; the opening of another group cannot be told from it.
            Some(T::Bar | T::Vert | T::Norm) => self.bars == 0,
            Some(
                T::ExpE
                | T::Function(_)
                | T::MultiFunction(_)
                | T::OperatorName
                | T::Sqrt
                | T::Int
                | T::Sum
                | T::Prod
                | T::Lim,
            ) => function,
            _ => false,
        }
    }

    /// A factor with its powers, factorials, transposes and degree signs.
    fn postfix(&mut self, functions: Functions) -> ParseResult<Expr> {
        let mut it = self.factor(functions)?;
        let mut n_links = 0;
        loop {
            match self.peek() {
                Some(Token::Caret) => {
                    self.pos += 1;
                    let exponent = self.script()?;
                    if self.peek() == Some(Token::Underscore) {
                        self.subscript_text()?;
                    }
                    it = power(it, exponent);
                }
                Some(Token::Bang) => {
                    self.pos += 1;
                    it = factorial(it);
                }
                Some(Token::Transpose) => {
                    self.pos += 1;
                    if let Expr::Matrix { cols, cells } = it {
                        it = transpose(cols, &cells);
                    } else if !matches!(it, Expr::Num(_) | Expr::Float(_)) {
                        it = Expr::call(Func::Transpose, it);
                    }
                }
                Some(Token::Degree) => self.pos += 1,
                Some(Token::Bar)
                    if self.peek_at(1) == Some(Token::Underscore) && self.bars == 0
                        || self.bars == 0
                            && self.peek_at(1) == Some(Token::Caret)
                            && self.peek_at(2) == Some(Token::Open(Bracket::Brace)) =>
                {
                    // Evaluation at a point: no answer of this form has a value here.
                    return Err(ParseError::Meaning);
                }
                _ => return Ok(it),
            }
            if !matches!(it, Expr::Num(_)) {
                n_links += 1;
            }
            if n_links > MAX_CHAIN {
                return Err(ParseError::Depth);
            }
        }
    }

    /// What follows `^` or `_`: one atom, or an expression in braces.
    fn script(&mut self) -> ParseResult<Expr> {
        if self.eat(Token::Open(Bracket::Brace)) {
            let it = self.nested(Self::expr)?;
            self.expect(Token::Close(Bracket::Brace))?;
            return Ok(it);
        }
        self.nested(Self::atom)
    }

    fn factor(&mut self, functions: Functions) -> ParseResult<Expr> {
        use Token as T;
        let token = self.peek().ok_or(ParseError::Syntax)?;
        match token {
            T::Open(Bracket::Angle) => Err(ParseError::Meaning),
            T::Open(Bracket::Floor) => self
                .group(T::Close(Bracket::Floor))
                .map(|it| Expr::call(Func::Floor, it)),
            T::Open(Bracket::Ceil) => self
                .group(T::Close(Bracket::Ceil))
                .map(|it| Expr::call(Func::Ceil, it)),
            T::Open(Bracket::VertBar) => self
                .group(T::Close(Bracket::VertBar))
                .map(|it| Expr::call(Func::Abs, it)),
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
            T::DetStart => self
                .matrix(T::DetStart, T::DetEnd)
                .map(|it| Expr::call(Func::Det, it)),
            T::ExpE
            | T::Function(_)
            | T::MultiFunction(_)
            | T::OperatorName
            | T::Sqrt
            | T::Int
            | T::Sum
            | T::Prod
            | T::Lim
                if functions == Functions::Allowed =>
            {
                self.nested(Self::function)
            }
            T::Gamma
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
    fn group(&mut self, close: Token<'_>) -> ParseResult<Expr> {
        self.pos += 1;
        let it = self.nested(Self::expr)?;
        self.expect(close)?;
        Ok(it)
    }

    fn braced(&mut self) -> ParseResult<Expr> {
        if self.peek() != Some(Token::Open(Bracket::Brace)) {
            return Err(ParseError::Syntax);
        }
        self.group(Token::Close(Bracket::Brace))
    }

    fn bars(&mut self, bar: Token<'_>) -> ParseResult<Expr> {
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

    // ---- atoms ----------------------------------------------------------------------------------------------------

    fn symbol(&self, name: &str) -> Expr {
        symbol(name, self.complex)
    }

    fn atom(&mut self) -> ParseResult<Expr> {
        use Token as T;
        let token = self.peek().ok_or(ParseError::Syntax)?;
        match token {
            T::Letter(_) | T::Greek(_) | T::Symbol(_) | T::Accent(..) => self.atom_expr(),
            T::Number(text) => {
                self.pos += 1;
                if self.peek() == Some(T::Underscore) {
                    // The base of a numeral is not read: 204_5 is 204.
                    self.subscript_text()?;
                }
                number(text)
            }
            T::Percent(text) => {
                self.pos += 1;
                Ok(Expr::Percent(Box::new(number(text)?)))
            }
            T::ENotation(text) => {
                self.pos += 1;
                e_notation(text)
            }
            T::BigE => {
                self.pos += 1;
                Ok(self.symbol("e"))
            }
            T::Gamma => {
                self.pos += 1;
                Ok(Expr::EulerGamma)
            }
            T::Differential(name) => {
                self.pos += 1;
                Ok(Expr::Sym {
                    name: format!("d{}", name.to_lowercase()).into(),
                    complex: self.complex,
                })
            }
            T::Infinity | T::InfinityPercent => {
                self.pos += 1;
                Ok(Expr::Infinity)
            }
            T::Variable(text) => {
                self.pos += 1;
                Ok(Expr::Sym {
                    name: text.to_lowercase().into(),
                    complex: self.complex,
                })
            }
            T::Partial => Err(ParseError::Meaning),
            _ => Err(ParseError::Syntax),
        }
    }

    /// The name of the letter, Greek letter, symbol or accent at the cursor.
    fn atom_name(&mut self) -> ParseResult<String> {
        let name = match self.peek() {
            Some(Token::Letter(c)) => c.to_string(),
            Some(Token::Greek(name) | Token::Symbol(name)) => name.to_owned(),
            Some(Token::Accent(command, body)) => accent_name(command, body),
            _ => return Err(ParseError::Syntax),
        };
        self.pos += 1;
        Ok(name)
    }

    /// A symbol with its subscript and power.
    fn atom_expr(&mut self) -> ParseResult<Expr> {
        if self.peek() == Some(Token::Letter('I')) && self.peek_at(1) != Some(Token::Underscore) {
            self.pos += 1;
            return Ok(Expr::I);
        }
        let mut name = self.atom_name()?;
        let mut exponent = None;
        if self.peek() == Some(Token::Underscore) {
            name.push_str(&self.subscript_text()?);
        } else if self.peek() == Some(Token::Caret) {
            let start = self.pos;
            self.pos += 1;
            let power = self.script()?;
            if self.peek() == Some(Token::Underscore) {
                name.push_str(&self.subscript_text()?);
                exponent = Some(power);
            } else {
                // The power of a symbol without a subscript is read by the caller like any other.
                self.pos = start;
            }
        }
        let base = self.symbol(&name);
        Ok(match exponent {
            Some(it) => power(base, it),
            None => base,
        })
    }

    /// A subscript as the text that becomes part of the symbol's name.
    fn subscript_text(&mut self) -> ParseResult<String> {
        self.expect(Token::Underscore)?;
        let mut inner = String::new();
        if self.peek() == Some(Token::Open(Bracket::Brace)) {
            let close = self.pairs[self.pos] as usize;
            if close >= self.end || close == self.pos + 1 {
                return Err(ParseError::Syntax);
            }
            for token in &self.tokens[self.pos + 1..close] {
                push_token(&mut inner, *token);
            }
            self.pos = close + 1;
        } else {
            let token = self.peek().ok_or(ParseError::Syntax)?;
            match token {
                Token::Letter(_)
                | Token::Greek(_)
                | Token::Symbol(_)
                | Token::Accent(..)
                | Token::Number(_)
                | Token::BigE
                | Token::Infinity
                | Token::Percent(_)
                | Token::Differential(_)
                | Token::ENotation(_) => {
                    push_token(&mut inner, token);
                    self.pos += 1;
                }
                _ => return Err(ParseError::Syntax),
            }
        }
        if inner.len() > 1 {
            Ok(format!("_{{{inner}}}"))
        } else {
            Ok(format!("_{inner}"))
        }
    }

    /// `f(x)`: a letter before exactly one atom, or before a list, in brackets.
    fn application(&mut self) -> ParseResult<Option<Expr>> {
        let start = self.pos;
        let Some(paren) = self.application_bracket() else {
            return Ok(None);
        };
        let name = {
            let mut name = self.atom_name()?;
            if self.peek() == Some(Token::Underscore) {
                name.push_str(&self.subscript_text()?);
            }
            name
        };
        let exponent = if self.eat(Token::Caret) {
            Some(self.script()?)
        } else {
            None
        };
        if self.pos != paren {
            self.pos = start;
            return Ok(None);
        }
        let close = self.pairs[paren] as usize;
        let outer_end = self.end;
        self.end = close;
        self.pos = paren + 1;
        let args = self.nested(|it| {
            let mut args = vec![it.expr()?];
            while it.eat(Token::Comma) {
                if it.at_end() {
                    break;
                }
                args.push(it.expr()?);
            }
            Ok(args)
        });
        let consumed = self.pos;
        self.end = outer_end;
        match args {
            Ok(args) if consumed == close => {
                self.pos = close + 1;
                let it = Expr::Call(Func::Named(name.into()), args);
                Ok(Some(match exponent {
                    Some(exponent) => power(it, exponent),
                    None => it,
                }))
            }
            Err(ParseError::Depth) => Err(ParseError::Depth),
            _ => {
                self.pos = start;
                Ok(None)
            }
        }
    }

    /// Where the argument bracket of an application at the cursor opens, if there is one.
    fn application_bracket(&self) -> Option<usize> {
        let mut at = self.pos + 1;
        for script in [Token::Underscore, Token::Caret] {
            if self.tokens.get(at) == Some(&script) {
                at += 1;
                at = match self.tokens.get(at)? {
                    Token::Open(Bracket::Brace) => self.pairs[at] as usize + 1,
                    _ => at + 1,
                };
            }
        }
        if at >= self.end
            || !matches!(
                self.tokens[at],
                Token::Open(Bracket::Paren | Bracket::Square)
            )
        {
            return None;
        }
        let close = self.pairs[at] as usize;
        if close >= self.end || close < at + 2 {
            return None;
        }
        let same = matches!(
            (self.tokens[at], self.tokens[close]),
            (Token::Open(a), Token::Close(b)) if a == b
        );
        let inner = &self.tokens[at + 1..close];
        let one_atom = match inner {
            [
                Token::Letter(_)
                | Token::Greek(_)
                | Token::Symbol(_)
                | Token::Accent(..)
                | Token::Number(_)
                | Token::BigE
                | Token::Infinity
                | Token::Percent(_)
                | Token::ENotation(_)
                | Token::Differential(_),
            ] => true,
            // An atom may carry one subscript or power.
            [
                Token::Letter(_)
                | Token::Greek(_)
                | Token::Symbol(_)
                | Token::Accent(..)
                | Token::Number(_),
                Token::Underscore,
                rest @ ..,
            ]
            | [
                Token::Letter(_) | Token::Greek(_) | Token::Symbol(_) | Token::Accent(..),
                Token::Caret,
                rest @ ..,
            ] => match rest {
                [Token::Open(Bracket::Brace), ..] => self.pairs[at + 3] as usize + 1 == close,
                [_] => true,
                _ => false,
            },
            _ => false,
        };
        (same && (one_atom || TopLevel::of(inner).n_commas > 0)).then_some(at)
    }

    // ---- functions ------------------------------------------------------------------------------------------------

    fn function(&mut self) -> ParseResult<Expr> {
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
                    Expr::Num(Rat::Small(1, 2))
                };
                let base = self.braced()?;
                Ok(Expr::pow(base, root))
            }
            T::Function(it) => self.one_argument(it),
            T::OperatorName => self.operator_name(),
            T::MultiFunction(name) => {
                self.scripts()?;
                let args = self.arguments()?;
                Ok(Expr::Call(
                    function_by_name(name).ok_or(ParseError::Syntax)?,
                    args,
                ))
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
        let minus_one = matches!(&above, Some(Expr::Num(n)) if *n == Rat::MINUS_ONE);
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
                if minus_one && inverse {
                    exponent = None;
                    Expr::call(
                        function_by_name(&format!("a{name}")).ok_or(ParseError::Syntax)?,
                        arg,
                    )
                } else {
                    Expr::call(function_by_name(name).ok_or(ParseError::Syntax)?, arg)
                }
            }
        };
        Ok(match exponent {
            Some(exponent) => Expr::pow(it, exponent),
            None => it,
        })
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
            "gcd" | "lcm" => Expr::Call(
                function_by_name(name).ok_or(ParseError::Syntax)?,
                self.arguments()?,
            ),
            "zeros" | "ones" | "diag" | "hstack" | "vstack" => return Err(ParseError::Meaning),
            _ => {
                let arg = self.single_argument()?;
                let func = function_by_name(name).unwrap_or_else(|| Func::Named(name.into()));
                Expr::call(func, arg)
            }
        };
        Ok(match exponent {
            Some(exponent) => Expr::pow(it, exponent),
            None => it,
        })
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
            at += 1;
        }
        let (body, variable) = if at < self.end {
            let Token::Differential(variable) = self.tokens[at] else {
                return Err(ParseError::Syntax);
            };
            let variable = self.symbol(variable);
            let body = if at == self.pos {
                Expr::int(1)
            } else {
                let outer_end = std::mem::replace(&mut self.end, at);
                let body = self.nested(Self::expr);
                self.end = outer_end;
                let body = body?;
                if self.pos != at {
                    return Err(ParseError::Syntax);
                }
                body
            };
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
                    let differential = Expr::Sym {
                        name: format!("d{name}").into(),
                        complex: self.complex,
                    };
                    (
                        replace(&body, &differential, &Expr::int(1)),
                        self.symbol(&name),
                    )
                }
                None => (body, self.symbol("x")),
            }
        };
        let mut parts = vec![body, variable];
        if let (Some(from), Some(to)) = (from, to) {
            parts.push(from);
            parts.push(to);
        }
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

#[derive(Clone, Copy, PartialEq)]
enum Functions {
    Allowed,
    Refused,
}

/// What occurs at the outermost level of a bracket's content.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one token list"
)]
struct TopLevel {
    n_commas: usize,
    n_semicolons: usize,
    relation: bool,
    plus_minus: bool,
    choose: bool,
    set_operator: bool,
}

impl TopLevel {
    fn of(tokens: &[Token<'_>]) -> TopLevel {
        let mut top = TopLevel::default();
        let mut level = 0_usize;
        for token in tokens {
            match token {
                Token::Open(_) => level += 1,
                Token::Close(_) => level = level.saturating_sub(1),
                _ if level > 0 => {}
                Token::Comma => top.n_commas += 1,
                Token::Semicolon => top.n_semicolons += 1,
                Token::Assign | Token::Relation(_) | Token::Approx | Token::In => {
                    top.relation = true;
                }
                Token::PlusMinus => top.plus_minus = true,
                Token::Choose => top.choose = true,
                Token::Union | Token::Intersection | Token::SetMinus => top.set_operator = true,
                _ => {}
            }
        }
        top
    }
}

/// A symbol as the reference names it: case does not matter; π and γ are constants.
pub(crate) fn symbol(name: &str, complex: bool) -> Expr {
    match name {
        "pi" | "Pi" | "PI" | "pI" => return Expr::Pi,
        "gamma" | "Gamma" => return Expr::EulerGamma,
        _ => {}
    }
    Expr::Sym {
        name: name.to_lowercase().into(),
        complex,
    }
}

fn accent_name(command: &str, body: &str) -> String {
    let mut body: String = body.chars().filter(|c| *c != ' ').collect();
    if command.contains("text") || command.contains("mbox") {
        body.retain(|c| c != '(' && c != ')');
        return match body.as_str() {
            "α" => "alpha".to_owned(),
            "π" => "pi".to_owned(),
            it => it.strip_prefix('\\').unwrap_or(it).to_owned(),
        };
    }
    let name = match command {
        "bar" | "overline" => "bar",
        "vec" | "overrightarrow" => "vec",
        "tilde" | "widetilde" => "tilde",
        it if it.contains("math") => "math",
        it => it,
    };
    format!("{name}{{{body}}}")
}

fn push_token(out: &mut String, token: Token<'_>) {
    match token {
        Token::Letter(c) => out.push(c),
        Token::Number(text) | Token::ENotation(text) => out.push_str(text),
        Token::Percent(text) => {
            out.push_str(text);
            out.push('%');
        }
        Token::Greek(name) => {
            out.push('\\');
            out.push_str(name);
        }
        Token::Symbol(name) => out.push_str(name),
        Token::Accent(command, body) => {
            out.push('\\');
            out.push_str(command);
            out.push('{');
            out.push_str(body);
            out.push('}');
        }
        Token::Differential(name) => {
            out.push('d');
            out.push_str(name);
        }
        Token::Word(word) => out.push_str(word),
        Token::ExpE => out.push('e'),
        Token::BigE => out.push('E'),
        Token::Infinity => out.push_str("\\infty"),
        Token::Add => out.push('+'),
        Token::Sub => out.push('-'),
        Token::Mul => out.push('*'),
        Token::Div => out.push('/'),
        Token::Comma => out.push(','),
        Token::Caret => out.push('^'),
        Token::Underscore => out.push('_'),
        Token::Open(Bracket::Paren) => out.push('('),
        Token::Close(Bracket::Paren) => out.push(')'),
        Token::Open(_) => out.push('{'),
        Token::Close(_) => out.push('}'),
        _ => out.push('?'),
    }
}

/// A literal: with a point a decimal, without one an integer.
pub(crate) fn number(text: &str) -> ParseResult<Expr> {
    let value = Rat::parse_decimal(text).ok_or(ParseError::Depth)?;
    Ok(if text.contains('.') {
        Expr::Float(value)
    } else {
        Expr::Num(value)
    })
}

/// `1.5E-3`, a decimal.
pub(crate) fn e_notation(text: &str) -> ParseResult<Expr> {
    let (mantissa, exponent) = text.split_once(['E', 'e']).ok_or(ParseError::Syntax)?;
    let exponent: i64 = exponent.parse().map_err(|_| ParseError::Depth)?;
    let mantissa = Rat::parse_decimal(mantissa).ok_or(ParseError::Depth)?;
    if exponent.unsigned_abs() > 4_000 {
        return Err(ParseError::Depth);
    }
    let value = Rat::ten_pow(exponent)
        .and_then(|it| it.mul(&mantissa))
        .ok_or(ParseError::Depth)?;
    Ok(Expr::Float(value))
}

/// `base^exponent`; a small power of one, or of zero, is folded so that towers stay shallow.
fn power(base: Expr, exponent: Expr) -> Expr {
    if let (Expr::Num(b), Expr::Num(_)) = (&base, &exponent)
        && b.is_one()
    {
        return Expr::int(1);
    }
    Expr::pow(base, exponent)
}

/// `arg!`; a small one is folded so that chains stay shallow.
fn factorial(arg: Expr) -> Expr {
    if let Expr::Num(n) = &arg
        && let Some(n @ 0..=20) = n.to_i64()
    {
        return Expr::int((1..=n).product());
    }
    Expr::call(Func::Factorial, arg)
}

fn transpose(cols: usize, cells: &[Expr]) -> Expr {
    let rows = cells.len() / cols.max(1);
    let turned = (0..cols).flat_map(|c| (0..rows).map(move |r| cells[r * cols + c].clone()));
    Expr::Matrix {
        cols: rows,
        cells: turned.collect(),
    }
}

fn derivative_of(e: &Expr) -> Option<&Expr> {
    match e {
        Expr::Call(Func::Derivative, args) if args.len() == 1 => args.first(),
        _ => None,
    }
}

/// `left right` without a sign between them.
fn juxtapose(left: Expr, right: Expr, style: Style) -> Expr {
    if derivative_of(&left).is_some()
        && let Expr::Call(_, args) = left
    {
        let variable = args
            .into_iter()
            .next()
            .expect("a derivative operator has its variable");
        return Expr::Call(Func::Derivative, vec![right, variable]);
    }
    if let (Expr::Num(whole), Expr::Num(part)) = (&left, &right)
        && whole.is_integer()
        && !part.is_negative()
        && !part.is_zero()
        && (style == Style::Peer || *part < Rat::ONE)
    {
        let sum = if whole.is_negative() {
            whole.sub(part)
        } else {
            whole.add(part)
        };
        if let Some(sum) = sum {
            return Expr::Num(sum);
        }
    }
    left.times(right)
}

fn set_of_groups(mut groups: Vec<Vec<Expr>>) -> Expr {
    if groups.len() == 1 {
        let mut only = groups.swap_remove(0);
        return if only.len() == 1 {
            only.swap_remove(0)
        } else {
            Expr::Set(only)
        };
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

fn last_side(links: &[Expr]) -> Expr {
    match links.last() {
        Some(Expr::Rel(_, sides)) => sides.1.clone(),
        _ => Expr::Undefined,
    }
}

/// `(a, b)` and its closed kin: an interval, unless the ends are in the wrong order, which makes it a tuple.
fn interval(start: Expr, end: Expr, left_open: bool, right_open: bool) -> ParseResult<Expr> {
    if let Some(order) = crate::numeric::compare_real(&start, &end) {
        let both_open = left_open && right_open;
        let both_closed = !left_open && !right_open;
        if both_open && order.is_ge() || both_closed && order.is_gt() {
            return Ok(Expr::Tuple(vec![start, end]));
        }
        if order.is_gt() || order.is_eq() && !both_closed {
            return Ok(Expr::Set(Vec::new()));
        }
        if order.is_eq() {
            return Ok(Expr::Set(vec![start]));
        }
    }
    if matches!(start, Expr::Matrix { .. }) || start.is_set() || end.is_set() {
        return Err(ParseError::Meaning);
    }
    // A symbol that may be complex cannot bound an interval.
    let is_complex = |it: &Expr| matches!(it, Expr::Sym { complex: true, .. } | Expr::I);
    if start.any(&mut |it| is_complex(it)) || end.any(&mut |it| is_complex(it)) {
        return Err(ParseError::Meaning);
    }
    let infinite = |it: &Expr| matches!(it, Expr::Infinity | Expr::NegInfinity);
    let (left_open, right_open) = (left_open || infinite(&start), right_open || infinite(&end));
    Ok(Expr::Interval(Box::new(Interval {
        start,
        end,
        left_open,
        right_open,
    })))
}

fn replace(e: &Expr, from: &Expr, to: &Expr) -> Expr {
    if e == from {
        return to.clone();
    }
    let all = |v: &[Expr]| v.iter().map(|it| replace(it, from, to)).collect::<Vec<_>>();
    match e {
        Expr::Add(v) => Expr::Add(all(v)),
        Expr::Mul(v) => Expr::Mul(all(v)),
        Expr::Call(f, v) => Expr::Call(f.clone(), all(v)),
        Expr::Pow(p) => Expr::pow(replace(&p.0, from, to), replace(&p.1, from, to)),
        it => it.clone(),
    }
}
