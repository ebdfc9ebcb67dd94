//! Symbols with their subscripts and accents, and what is applied to them.

use super::super::lexer::{Bracket, Token};
use super::relations::raised;
use super::{ParseError, ParseResult, Parser, Style, TopLevel};
use crate::expr::{Expr, Func};
use crate::number::Rat;

impl Parser<'_, '_> {
    /// A symbol, as the reference names it without regard to case, or as its writer does: the comparison says then
    /// whether case counts. π and γ are constants.
    pub(super) fn symbol(&self, name: &str) -> Expr {
        let (name, complex) = match (name, self.style) {
            ("pi", _) | ("Pi" | "PI" | "pI", Style::Peer) => return Expr::Pi,
            ("gamma", _) | ("Gamma", Style::Peer) => return Expr::EulerGamma,
            (_, Style::Peer) => (name.to_lowercase().into(), self.complex),
            (_, Style::Meant) => (name.into(), false),
        };
        Expr::Sym { name, complex }
    }

    pub(super) fn atom(&mut self) -> ParseResult<Expr> {
        use Token as T;
        let token = self.peek().ok_or(ParseError::Syntax)?;
        if token.is_name() {
            return self.atom_expr();
        }
        self.pos += 1;
        match token {
            T::Number(text) => {
                if self.peek() == Some(T::Underscore) {
                    if self.style == Style::Meant {
                        return Err(ParseError::Meaning);
                    }
                    // The base of a numeral is not read: 204_5 is 204.
                    self.subscript_text()?;
                }
                number(text)
            }
            T::Percent(text) => Ok(Expr::Percent(Box::new(number(text)?))),
            T::ENotation(text) => e_notation(text),
            T::BigE => Ok(self.symbol("E")),
            T::Gamma(name) => Ok(self.symbol(name)),
            T::Differential(name) => Ok(self.symbol(&format!("d{name}"))),
            T::Infinity => Ok(Expr::Infinity),
            _ => Err(ParseError::Syntax),
        }
    }

    /// The name of the letter, Greek letter, symbol or accent at the cursor, with its subscript.
    fn atom_name(&mut self) -> ParseResult<String> {
        let mut name = match self.peek() {
            Some(Token::Letter(c)) => c.to_string(),
            Some(Token::Greek(name) | Token::Symbol(name)) => name.to_owned(),
            Some(Token::Accent(command, body)) => accent_name(command, body),
            _ => return Err(ParseError::Syntax),
        };
        self.pos += 1;
        if self.peek() == Some(Token::Underscore) {
            name.push_str(&self.subscript_text()?);
        }
        Ok(name)
    }

    /// A symbol with its subscript.
    pub(super) fn atom_expr(&mut self) -> ParseResult<Expr> {
        if self.peek() == Some(Token::Letter('I')) && self.peek_at(1) != Some(Token::Underscore) {
            self.pos += 1;
            return Ok(Expr::I);
        }
        let name = self.atom_name()?;
        Ok(self.symbol(&name))
    }

    /// A subscript as the text that becomes part of the symbol's name.
    pub(super) fn subscript_text(&mut self) -> ParseResult<String> {
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
            if !token.is_atom() {
                return Err(ParseError::Syntax);
            }
            push_token(&mut inner, token);
            self.pos += 1;
        }
        if inner.len() > 1 { Ok(format!("_{{{inner}}}")) } else { Ok(format!("_{inner}")) }
    }

    /// `f(x)`: a letter before exactly one atom, or before a list, in brackets.
    pub(super) fn application(&mut self) -> ParseResult<Option<Expr>> {
        let start = self.pos;
        let Some(paren) = self.application_bracket() else { return Ok(None) };
        let name = self.atom_name()?;
        let exponent = if self.eat(Token::Caret) { Some(self.script()?) } else { None };
        if self.pos != paren {
            self.pos = start;
            return Ok(None);
        }
        let close = self.pairs[paren] as usize;
        self.pos = paren + 1;
        let args = self.within(close, |it| {
            let mut args = vec![it.expr()?];
            while it.eat(Token::Comma) && !it.at_end() {
                args.push(it.expr()?);
            }
            Ok(args)
        });
        match args {
            Ok(args) if self.pos == close => {
                self.pos = close + 1;
                let it = Expr::Call(Func::Named(name.into()), args);
                Ok(Some(raised(it, exponent)))
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
            || !matches!(self.tokens[at], Token::Open(Bracket::Paren | Bracket::Square))
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
            [atom] => atom.is_atom(),
            // An atom may carry one subscript or power.
            [atom, script @ (Token::Underscore | Token::Caret), rest @ ..]
                if atom.is_name()
                    || matches!((atom, script), (Token::Number(_), Token::Underscore)) =>
            {
                match rest {
                    [Token::Open(Bracket::Brace), ..] => self.pairs[at + 3] as usize + 1 == close,
                    rest => rest.len() == 1,
                }
            }
            _ => false,
        };
        (same && (one_atom || TopLevel::of(inner).n_commas > 0)).then_some(at)
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
        Token::Number(text) | Token::ENotation(text) | Token::Symbol(text) => {
            out.push_str(text);
        }
        Token::Percent(text) => out.extend([text, "%"]),
        Token::Greek(name) => out.extend(["\\", name]),
        Token::Accent(command, body) => out.extend(["\\", command, "{", body, "}"]),
        Token::Differential(name) => out.extend(["d", name]),
        Token::ExpE => out.push('e'),
        Token::BigE => out.push('E'),
        Token::Infinity => out.push_str("\\infty"),
        Token::Add => out.push('+'),
        Token::Sub => out.push('-'),
        Token::Mul => out.push('*'),
        Token::Div => out.push('/'),
        Token::Comma => out.push(','),
        Token::Assign => out.push('='),
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
