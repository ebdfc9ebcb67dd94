//! The steps of a judgement, which the crate's tests count and bound.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts bytes that are scanned, tokens that are looked at, or operations; in tests alone.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    STEPS.with(|it| it.set(it.get() + steps as u64));
    #[cfg(not(test))]
    let _ = steps;
}

/// The steps that `judge` takes, and its result.
#[cfg(test)]
pub(crate) fn counted<T>(judge: impl FnOnce() -> T) -> (u64, T) {
    STEPS.with(|it| it.set(0));
    let result = judge();
    (STEPS.with(std::cell::Cell::get), result)
}
