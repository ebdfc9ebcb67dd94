//! Expressions in sympy's notation, so that they print as Math-Verify's do and sympy reads them.

use crate::expr::{Expr, Func, Interval, Op};
use crate::number::Rat;
use std::fmt::{self, Write};

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Limited { out: String::new(), left: 1_000 };
        if write_expr(&mut out, self, Place::Alone).is_err() {
            out.out.push('…');
        }
        f.write_str(&out.out)
    }
}

/// A text that refuses to grow past a length, so that printing an answer is bounded too.
struct Limited {
    out: String,
    left: usize,
}

impl Write for Limited {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.left = self.left.checked_sub(s.len()).ok_or(fmt::Error)?;
        self.out.push_str(s);
        Ok(())
    }
}

/// Where a part stands; a later place binds more tightly.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Place {
    Alone,
    Term,
    Factor,
    Power,
}

fn binding(e: &Expr) -> Place {
    let of_number = |n: &Rat| match n {
        n if n.is_negative() => Place::Alone,
        n if n.is_integer() => Place::Power,
        _ => Place::Term,
    };
    match e {
        Expr::Num(n) => of_number(n),
        Expr::Float(n) if n.is_negative() => Place::Alone,
        Expr::NegInfinity | Expr::Add(_) | Expr::Chain(_) | Expr::Rel(..) => Place::Alone,
        Expr::Percent(_) | Expr::Mul(_) => Place::Term,
        Expr::Pow(p) if root(p).is_none() => Place::Factor,
        _ => Place::Power,
    }
}

fn root(power: &(Expr, Expr)) -> Option<&Expr> {
    matches!(&power.1, Expr::Num(n) if *n == Rat::ratio(1, 2)).then_some(&power.0)
}

fn write_expr(f: &mut Limited, e: &Expr, place: Place) -> fmt::Result {
    if binding(e) < place {
        f.write_str("(")?;
        write_expr(f, e, Place::Alone)?;
        return f.write_str(")");
    }
    match e {
        Expr::Num(n) => write!(f, "{n}"),
        Expr::Float(n) => write!(f, "{}", n.to_f64()),
        Expr::Percent(a) => {
            write_expr(f, a, Place::Factor)?;
            f.write_str("*(1/100)")
        }
        Expr::Sym { name, .. } => f.write_str(name),
        Expr::Pi => f.write_str("pi"),
        Expr::E => f.write_str("E"),
        Expr::EulerGamma => f.write_str("EulerGamma"),
        Expr::I => f.write_str("I"),
        Expr::Infinity => f.write_str("oo"),
        Expr::NegInfinity => f.write_str("-oo"),
        Expr::Undefined => f.write_str("zoo"),
        Expr::Add(terms) => write_sum(f, terms),
        Expr::Mul(factors) => write_product(f, factors),
        Expr::Pow(p) => {
            if let Some(base) = root(p) {
                return write_call(f, "sqrt", std::slice::from_ref(base));
            }
            write_expr(f, &p.0, Place::Power)?;
            f.write_str("**")?;
            write_expr(f, &p.1, Place::Factor)
        }
        Expr::Call(func, arguments) => write_function(f, func, arguments),
        Expr::Matrix { cols, cells } => {
            f.write_str("Matrix([")?;
            for (idx, row) in cells.chunks((*cols).max(1)).enumerate() {
                write_list(f, if idx > 0 { ", [" } else { "[" }, row, "]")?;
            }
            f.write_str("])")
        }
        Expr::Rel(Op::Eq, p) => write_list(f, "Eq(", [&p.0, &p.1], ")"),
        Expr::Rel(Op::Ne, p) => write_list(f, "Ne(", [&p.0, &p.1], ")"),
        Expr::Rel(op, p) => {
            write_expr(f, &p.0, Place::Term)?;
            f.write_str(match op {
                Op::Lt => " < ",
                Op::Le => " <= ",
                Op::Gt => " > ",
                _ => " >= ",
            })?;
            write_expr(f, &p.1, Place::Term)
        }
        Expr::Chain(links) => {
            for (idx, link) in links.iter().enumerate() {
                f.write_str(if idx > 0 { " & " } else { "" })?;
                write_expr(f, link, Place::Term)?;
            }
            Ok(())
        }
        Expr::Set(v) => write_list(f, "{", v, "}"),
        Expr::Tuple(v) => write_list(f, "(", v, ")"),
        Expr::Interval(it) => write_interval(f, it),
        Expr::Union(v) => write_call(f, "Union", v),
        Expr::Complement(p) => write_list(f, "Complement(", [&p.0, &p.1], ")"),
        Expr::Domain(d) => write!(f, "{d:?}"),
    }
}

fn write_sum(f: &mut Limited, terms: &[Expr]) -> fmt::Result {
    for (idx, term) in terms.iter().enumerate() {
        let at = f.out.len();
        let negative = matches!(term, Expr::Num(n) | Expr::Float(n) if n.is_negative());
        write_expr(f, term, if negative { Place::Alone } else { Place::Term })?;
        if idx > 0 && f.out[at..].starts_with('-') {
            f.out.replace_range(at..=at, " - ");
        } else if idx > 0 {
            f.out.insert_str(at, " + ");
        }
    }
    Ok(())
}

fn write_product(f: &mut Limited, factors: &[Expr]) -> fmt::Result {
    let mut is_first = true;
    for (idx, factor) in factors.iter().enumerate() {
        let divisor = match factor {
            Expr::Pow(p) if matches!(&p.1, Expr::Num(n) if n.to_i64() == Some(-1)) => Some(&p.0),
            _ => None,
        };
        match (divisor, factor) {
            (Some(divisor), _) => {
                f.write_str(if is_first { "1/" } else { "/" })?;
                write_expr(f, divisor, Place::Power)?;
            }
            (None, Expr::Num(n)) if idx == 0 && n.to_i64() == Some(-1) && factors.len() > 1 => {
                f.write_str("-")?;
                continue;
            }
            (None, Expr::Num(_) | Expr::Float(_)) if idx == 0 => {
                write_expr(f, factor, Place::Alone)?;
            }
            _ => {
                f.write_str(if is_first { "" } else { "*" })?;
                write_expr(f, factor, Place::Factor)?;
            }
        }
        is_first = false;
    }
    Ok(())
}

fn write_function(f: &mut Limited, func: &Func, arguments: &[Expr]) -> fmt::Result {
    let name = match func {
        Func::Named(name) => return write_call(f, name, arguments),
        Func::Ceil => "ceiling".to_owned(),
        it => format!("{it:?}"),
    };
    match (func, arguments) {
        (Func::Integral, [body, range @ ..]) => {
            f.write_str(&name)?;
            write_list(f, "(", [body], ", ")?;
            write_list(f, "(", range, "))")
        }
        (Func::Abs | Func::Mod, _) => write_call(f, &name, arguments),
        _ => write_call(f, &name.to_lowercase(), arguments),
    }
}

fn write_interval(f: &mut Limited, it: &Interval) -> fmt::Result {
    let open = match (it.left_open, it.right_open) {
        (true, true) => "Interval.open(",
        (true, false) => "Interval.Lopen(",
        (false, true) => "Interval.Ropen(",
        (false, false) => "Interval(",
    };
    write_list(f, open, [&it.start, &it.end], ")")
}

fn write_call(f: &mut Limited, name: &str, arguments: &[Expr]) -> fmt::Result {
    f.write_str(name)?;
    write_list(f, "(", arguments, ")")
}

fn write_list<'a>(
    f: &mut Limited,
    open: &str,
    items: impl IntoIterator<Item = &'a Expr>,
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (idx, it) in items.into_iter().enumerate() {
        f.write_str(if idx > 0 { ", " } else { "" })?;
        write_expr(f, it, Place::Alone)?;
    }
    f.write_str(close)
}
