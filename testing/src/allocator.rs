//! The largest single allocation of some work, and the most bytes that were held at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Remembers the largest allocation of each thread; to be the `#[global_allocator]` of a test binary.
#[derive(Debug)]
pub struct MeasuringAllocator;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn record(size: usize) {
    let _ = LARGEST.try_with(|it| it.set(it.get().max(size)));
    let held = HELD.fetch_add(size, Ordering::Relaxed) + size;
    MOST.fetch_max(held, Ordering::Relaxed);
}

fn forget(size: usize) {
    HELD.fetch_sub(size, Ordering::Relaxed);
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
        forget(layout.size());
        record(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        forget(layout.size());
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

/// Bytes that all threads hold now; [`most_held`] begins again with them.
pub fn held() -> usize {
    let held = HELD.load(Ordering::Relaxed);
    MOST.store(held, Ordering::Relaxed);
    held
}

/// The most bytes that all threads have held at once since [`held`].
pub fn most_held() -> usize {
    MOST.load(Ordering::Relaxed)
}
