//! The largest single allocation of some work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Remembers the largest allocation of each thread; to be the `#[global_allocator]` of a test binary.
#[derive(Debug)]
pub struct MeasuringAllocator;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn record(size: usize) {
    let _ = LARGEST.try_with(|it| it.set(it.get().max(size)));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for MeasuringAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        record(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Forgets the allocations that this thread has made.
pub fn reset() {
    LARGEST.set(0);
}

/// Bytes of this thread's largest single allocation since [`reset`], where [`MeasuringAllocator`] is the
/// global allocator.
pub fn largest() -> usize {
    LARGEST.get()
}
