//! Why a text is not read.

/// Deepest nesting that is read. Deeper texts are first folded by [`super::fold`], then refused.
pub(crate) const MAX_DEPTH: usize = 96;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// The text does not fit the grammar.
    Syntax,
    /// Nested deeper than [`MAX_DEPTH`], chained or spelled out beyond the bounds.
    Depth,
    /// The text fits the grammar but has no value, as an operation on the wrong kind of operand.
    Meaning,
}

pub(crate) type ParseResult<T> = Result<T, ParseError>;
