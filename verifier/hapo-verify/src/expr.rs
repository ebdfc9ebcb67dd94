//! The meaning of an answer: a small exact expression type. The shape follows what the reference grader can tell apart
//! (an atomic number from a product of numbers, a set from a tuple from an interval), because its verdicts depend on
//! it. The price is that nothing is simplified here; values are computed in [`crate::numeric`], within bounds.

use crate::number::Rat;
use crate::work;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    /// The operator with its sides swapped; `None` where the reference knows none.
    pub(crate) fn flipped(self) -> Option<Op> {
        Some(match self {
            Op::Eq => Op::Eq,
            Op::Lt => Op::Gt,
            Op::Le => Op::Ge,
            Op::Gt => Op::Lt,
            Op::Ge => Op::Le,
            Op::Ne => return None,
        })
    }
}

/// A named function with a known meaning, or an unknown one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Func {
    Sin,
    Cos,
    Tan,
    Csc,
    Sec,
    Cot,
    Asin,
    Acos,
    Atan,
    /// `Log(x, base)`.
    Log,
    Abs,
    Floor,
    Ceil,
    Factorial,
    Gamma,
    Binomial,
    Mod,
    /// `Integral(body, variable)` or `Integral(body, variable, from, to)`.
    Integral,
    /// A function the reader does not know: equal only to itself at equal arguments.
    Named(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Naturals,
    Integers,
    Rationals,
    Reals,
    Complexes,
    Empty,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) start: Expr,
    pub(crate) end: Expr,
    pub(crate) left_open: bool,
    pub(crate) right_open: bool,
}

/// An answer as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    /// An exact integer or fraction.
    Num(Rat),
    /// A literal decimal.
    Float(Rat),
    /// A percentage: the inner value times an unevaluated 1/100.
    Percent(Box<Expr>),
    /// A symbol; `complex` tells whether the text that it came from looked complex.
    Sym {
        name: Box<str>,
        complex: bool,
    },
    Pi,
    /// Euler's number.
    E,
    EulerGamma,
    /// The imaginary unit.
    I,
    /// ∞; its negative is `Mul([-1, Infinity])` folded into `NegInfinity`.
    Infinity,
    NegInfinity,
    /// A division by zero.
    Undefined,
    Add(Vec<Expr>),
    Mul(Vec<Expr>),
    Pow(Box<(Expr, Expr)>),
    Call(Func, Vec<Expr>),
    Matrix {
        cols: usize,
        cells: Vec<Expr>,
    },
    Rel(Op, Box<(Expr, Expr)>),
    /// A chain `a < b < c` as `[a < b, b < c]`.
    Chain(Vec<Expr>),
    /// A finite set in the order it was written, duplicates kept.
    Set(Vec<Expr>),
    Tuple(Vec<Expr>),
    Interval(Box<Interval>),
    Union(Vec<Expr>),
    Complement(Box<(Expr, Expr)>),
    Domain(Domain),
}

impl Expr {
    pub(crate) fn int(n: i64) -> Expr {
        Expr::Num(Rat::int(n))
    }

    pub(crate) fn pow(base: Expr, exponent: Expr) -> Expr {
        Expr::Pow(Box::new((base, exponent)))
    }

    pub(crate) fn rel(op: Op, lhs: Expr, rhs: Expr) -> Expr {
        Expr::Rel(op, Box::new((lhs, rhs)))
    }

    pub(crate) fn call(func: Func, arg: Expr) -> Expr {
        Expr::Call(func, vec![arg])
    }

    /// `self + other`, one flat sum.
    pub(crate) fn plus(self, other: Expr) -> Expr {
        let mut terms = match self {
            Expr::Add(terms) => terms,
            it => vec![it],
        };
        match other {
            Expr::Add(more) => {
                work::count(more.len());
                terms.extend(more);
            }
            it => terms.push(it),
        }
        Expr::Add(terms)
    }

    /// `self · other`, one flat product.
    pub(crate) fn times(self, other: Expr) -> Expr {
        let mut factors = match self {
            Expr::Mul(factors) => factors,
            it => vec![it],
        };
        match other {
            Expr::Mul(more) => {
                work::count(more.len());
                factors.extend(more);
            }
            it => factors.push(it),
        }
        Expr::Mul(factors)
    }

    /// `-self`; numbers stay atomic.
    pub(crate) fn negated(self) -> Expr {
        match self {
            Expr::Num(n) => Expr::Num(n.neg()),
            Expr::Float(n) => Expr::Float(n.neg()),
            Expr::Infinity => Expr::NegInfinity,
            Expr::NegInfinity => Expr::Infinity,
            it => Expr::int(-1).times(it),
        }
    }

    /// `self / other`; a quotient of integers is one rational.
    pub(crate) fn over(self, other: Expr) -> Expr {
        if let (Expr::Num(a), Expr::Num(b)) = (&self, &other)
            && a.is_integer()
            && b.is_integer()
        {
            return a.div(b).map_or(Expr::Undefined, Expr::Num);
        }
        // The reference keeps `a · b⁻¹` as two factors, which matters for nothing but the printed form.
        Expr::Mul(vec![self, Expr::pow(other, Expr::int(-1))])
    }

    pub(crate) fn is_set(&self) -> bool {
        use Expr::{Complement, Domain, Interval, Set, Union};
        matches!(self, Set(_) | Interval(_) | Union(_) | Complement(_) | Domain(_))
    }

    /// The relations of a chain, or this one.
    pub(crate) fn links(&self) -> &[Expr] {
        match self {
            Expr::Chain(links) => links,
            it => std::slice::from_ref(it),
        }
    }

    pub(crate) fn is_relation(&self) -> bool {
        self.links().iter().all(|it| matches!(it, Expr::Rel(..)))
    }

    pub(crate) fn is_equation(&self) -> bool {
        self.links().iter().all(|it| matches!(it, Expr::Rel(Op::Eq, _)))
    }

    /// An equation whose first left side is made of symbols only.
    pub(crate) fn is_assignment(&self) -> bool {
        self.is_equation()
            && matches!(self.links(), [Expr::Rel(_, sides), ..] if sides.0.is_only_symbols())
    }

    /// True for a symbol, and for what is built of symbols alone (`A/S`, `(x, y)`, `f(x)`).
    pub(crate) fn is_only_symbols(&self) -> bool {
        match self {
            Expr::Sym { .. } => true,
            Expr::Pow(p) => {
                let minus_one = matches!(&p.1, Expr::Num(n) if n.to_i64() == Some(-1));
                p.0.is_only_symbols() && (minus_one || p.1.is_only_symbols())
            }
            Expr::Add(it) | Expr::Mul(it) | Expr::Tuple(it) | Expr::Set(it) | Expr::Call(_, it) => {
                !it.is_empty() && it.iter().all(Expr::is_only_symbols)
            }
            Expr::Rel(_, sides) => sides.0.is_only_symbols() && sides.1.is_only_symbols(),
            _ => false,
        }
    }

    pub(crate) fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Percent(a) => vec![a],
            Expr::Pow(p) | Expr::Rel(_, p) | Expr::Complement(p) => vec![&p.0, &p.1],
            Expr::Interval(i) => vec![&i.start, &i.end],
            Expr::Add(v)
            | Expr::Mul(v)
            | Expr::Call(_, v)
            | Expr::Chain(v)
            | Expr::Set(v)
            | Expr::Tuple(v)
            | Expr::Union(v)
            | Expr::Matrix { cells: v, .. } => v.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// This with its parts replaced, whatever it is.
    pub(crate) fn with_parts(&self, part: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
        let mut all = |v: &[Expr]| v.iter().map(&mut *part).collect();
        match self {
            Expr::Chain(v) => Expr::Chain(all(v)),
            Expr::Set(v) => Expr::Set(all(v)),
            Expr::Tuple(v) => Expr::Tuple(all(v)),
            Expr::Union(v) => Expr::Union(all(v)),
            Expr::Matrix { cols, cells } => Expr::Matrix { cols: *cols, cells: all(cells) },
            Expr::Rel(op, sides) => Expr::rel(*op, part(&sides.0), part(&sides.1)),
            Expr::Complement(sides) => Expr::Complement(Box::new((part(&sides.0), part(&sides.1)))),
            Expr::Interval(i) => {
                let (start, end) = (part(&i.start), part(&i.end));
                Expr::Interval(Box::new(Interval { start, end, ..(**i).clone() }))
            }
            Expr::Add(v) => Expr::Add(all(v)),
            Expr::Mul(v) => Expr::Mul(all(v)),
            Expr::Call(f, v) => Expr::Call(f.clone(), all(v)),
            Expr::Pow(p) => Expr::pow(part(&p.0), part(&p.1)),
            Expr::Percent(it) => Expr::Percent(Box::new(part(it))),
            it => it.clone(),
        }
    }

    pub(crate) fn substituted(&self, from: &Expr, to: &Expr) -> Expr {
        if self == from { to.clone() } else { self.with_parts(&mut |it| it.substituted(from, to)) }
    }

    /// True if `test` holds for this node or any below it.
    pub(crate) fn any(&self, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
        test(self) || self.children().into_iter().any(|it| it.any(test))
    }

    /// Number of this node and those below it.
    fn nodes(&self) -> usize {
        1 + self.children().into_iter().map(Expr::nodes).sum::<usize>()
    }

    /// A sum or a product of matrices, or one with a factor, as one matrix.
    pub(crate) fn as_matrix(&self) -> Option<Expr> {
        match self {
            Expr::Matrix { .. } => Some(self.clone()),
            Expr::Add(terms) => {
                let mut all = terms.iter().map(Expr::as_matrix);
                let first = all.next()??;
                all.try_fold(first, |sum, it| matrix_sum(&sum, &it?))
            }
            Expr::Mul(factors) => {
                // Each factor once: twice would double at every level.
                let all: Vec<_> = factors.iter().map(Expr::as_matrix).collect();
                let scalars = factors.iter().zip(&all).filter(|it| it.1.is_none());
                let scalar = Expr::Mul(scalars.map(|it| it.0.clone()).collect());
                let mut all = all.into_iter().flatten();
                let first = all.next()?;
                let product = all.try_fold(first, |left, it| matrix_product(&left, &it))?;
                Some(product.with_parts(&mut |it| scalar.clone().times(it.clone())))
            }
            _ => None,
        }
    }

    /// The name of a symbol.
    pub(crate) fn symbol(&self) -> Option<&str> {
        if let Expr::Sym { name, .. } = self { Some(name) } else { None }
    }

    pub(crate) fn has_float(&self) -> bool {
        self.any(&mut |it| matches!(it, Expr::Float(_)))
    }

    pub(crate) fn has_symbol(&self) -> bool {
        self.any(&mut |it| matches!(it, Expr::Sym { .. } | Expr::Call(Func::Named(_), _)))
    }
}

fn matrix_sum(left: &Expr, right: &Expr) -> Option<Expr> {
    let (Expr::Matrix { cols, cells }, Expr::Matrix { cols: other, cells: more }) = (left, right)
    else {
        return None;
    };
    let is_same = cols == other && cells.len() == more.len();
    let sum = || cells.iter().zip(more).map(|(a, b)| a.clone().plus(b.clone())).collect();
    is_same.then(|| Expr::Matrix { cols: *cols, cells: sum() })
}

/// Largest product of matrices that is written out, in nodes.
const MAX_MATRIX_NODES: usize = 2_000;

fn matrix_product(left: &Expr, right: &Expr) -> Option<Expr> {
    let (Expr::Matrix { cols: inner, cells: a }, Expr::Matrix { cols, cells: b }) = (left, right)
    else {
        return None;
    };
    let nodes = |cells: &[Expr]| cells.iter().map(Expr::nodes).sum::<usize>();
    let written = nodes(a) * cols + nodes(b) * (a.len() / inner);
    if b.len() != inner * cols || written > MAX_MATRIX_NODES {
        return None;
    }
    let cell = |row: &[Expr], col: usize| {
        let column = b.iter().skip(col).step_by(*cols);
        Expr::Add(row.iter().zip(column).map(|(x, y)| x.clone().times(y.clone())).collect())
    };
    let rows = a.chunks(*inner);
    let cells = rows.flat_map(|row| (0..*cols).map(|col| cell(row, col)).collect::<Vec<_>>());
    Some(Expr::Matrix { cols: *cols, cells: cells.collect() })
}
