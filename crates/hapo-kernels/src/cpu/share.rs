//! One output slice, written by several tasks at once.
//!
//! Purpose: tiles of a matrix and heads of a row are interleaved in memory, which `chunks_mut` cannot express.
//!
//! Price: the caller promises that tasks write disjoint elements; bounds are still checked.

use std::marker::PhantomData;

/// A mutable slice that tasks share.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a, T = f32> {
    pointer: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `part`, whose callers promise disjoint ranges between threads.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements `offset..offset + len`.
    ///
    /// # Safety
    /// No other reference to any of these elements is alive while the result is.
    pub(super) unsafe fn part(&self, offset: usize, len: usize) -> &'a mut [T] {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "a part inside the shared slice"
        );
        // SAFETY: in bounds by the assertion, unaliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(offset), len) }
    }

    /// A pointer to element `offset`, for a product that writes a tile of `rows` rows `stride` apart,
    /// each `width` long.
    pub(super) fn tile(&self, offset: usize, rows: usize, stride: usize, width: usize) -> *mut T {
        assert!(
            rows == 0 || offset + (rows - 1) * stride + width <= self.len,
            "a tile inside the shared slice"
        );
        self.pointer.wrapping_add(offset)
    }
}
