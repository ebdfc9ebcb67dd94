//! Many completions judged at once, with their judgements in order.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Applies `judge` to all items and returns what it gives in their order: on all cores, or, where a grader names its
/// own number of [workers](crate::Grader::workers), on as many threads. One that cannot be started is done without.
/// After an error of `judge` no further item is begun. Panics where `judge` does.
pub fn in_order<T: Sync, R: Send, E: Send>(
    workers: Option<usize>,
    items: &[T],
    judge: impl Fn(&T) -> Result<R, E> + Sync + Send,
) -> Result<Vec<R>, E> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let workers = workers.unwrap_or_else(cores);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            let result = judge(item);
            if result.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            done.push((index, result));
        }
        done
    };
    let mut done: Vec<(usize, Result<R, E>)> = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let threads: Vec<_> = (1..workers.min(items.len())).filter_map(start).collect();
        let mut all = work();
        for it in threads {
            all.extend(it.join().expect("judging does not panic"));
        }
        all
    });
    done.sort_by_key(|it| it.0);
    done.into_iter().map(|it| it.1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_items_and_the_first_error_ends_it() {
        let items: Vec<u64> = (0..100).collect();
        let square = |it: &u64| Ok::<u64, String>(it * it);
        let squares: Vec<u64> = items.iter().map(|it| it * it).collect();
        for workers in [None, Some(1), Some(7), Some(1000)] {
            assert_eq!(in_order(workers, &items, square).unwrap(), squares);
        }
        let begun = AtomicUsize::new(0);
        let fails = |it: &u64| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *it >= 3 { Err(format!("item {it}")) } else { Ok(*it) }
        };
        assert_eq!(in_order(Some(1), &items, fails).unwrap_err(), "item 3");
        assert_eq!(begun.load(Ordering::Relaxed), 4);
        assert_eq!(in_order::<u64, u64, String>(Some(2), &[], fails).unwrap(), []);
    }
}
