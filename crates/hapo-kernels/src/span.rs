//! Flat buffers on a device, and ranges of them.

use std::fmt::Debug;

/// A flat buffer of numbers on a device, in f32 or in a format that it was allocated in.
pub trait Buffer: Send + Sync + Debug + Sized {
    /// Number of elements.
    fn len(&self) -> usize;

    /// True if empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize {
        self.len() * size_of::<f32>()
    }

    /// The elements `offset..offset + len`, to read.
    fn at(&self, offset: usize, len: usize) -> Span<'_, Self> {
        assert!(offset + len <= self.len(), "span inside its buffer");
        Span { buf: self, offset, len }
    }

    /// The elements `offset..offset + len`, to write.
    fn at_mut(&mut self, offset: usize, len: usize) -> SpanMut<'_, Self> {
        assert!(offset + len <= self.len(), "span inside its buffer");
        SpanMut { buf: self, offset, len }
    }

    /// The first `len` elements, to read.
    fn first(&self, len: usize) -> Span<'_, Self> {
        self.at(0, len)
    }

    /// The first `len` elements, to write.
    fn first_mut(&mut self, len: usize) -> SpanMut<'_, Self> {
        self.at_mut(0, len)
    }
}

/// A read-only range of a buffer.
#[derive(Debug)]
pub struct Span<'a, B> {
    /// The whole buffer.
    pub buf: &'a B,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl<B> Clone for Span<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Span<'_, B> {}

impl<B> Span<'_, B> {
    /// The elements `offset..offset + len` of the range.
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "a part inside its span");
        Self { buf: self.buf, offset: self.offset + offset, len }
    }
}

/// A writable range of a buffer.
#[derive(Debug)]
pub struct SpanMut<'a, B> {
    /// The whole buffer.
    pub buf: &'a mut B,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl<B> SpanMut<'_, B> {
    /// The same range again, for one operation of several.
    pub fn again(&mut self) -> SpanMut<'_, B> {
        SpanMut { buf: &mut *self.buf, offset: self.offset, len: self.len }
    }
}
