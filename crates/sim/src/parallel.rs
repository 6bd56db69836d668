//! Independent runs on all CPUs.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// As [`each_of`], on all CPUs.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    run: impl Fn(&T) -> R + Sync,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<R> {
    each_of(items, None, run, progress)
}

/// What `run` makes of each item, in the order of the items, whichever thread was first; `progress`
/// is told how many are done. At most `jobs` run at the same time, or as many as there are CPUs.
pub fn each_of<T: Sync, R: Send>(
    items: &[T],
    jobs: Option<NonZero<usize>>,
    run: impl Fn(&T) -> R + Sync,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return;
            };
            let result = run(item);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push((number, result));
            progress(results.len());
        }
    };
    let jobs = jobs.or_else(|| thread::available_parallelism().ok());
    let threads = jobs.map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        let told = AtomicUsize::new(0);
        let doubled = each(&items, |item| 2 * item, &|done| {
            told.fetch_max(done, Ordering::Relaxed);
        });
        assert_eq!(doubled, (0..100).map(|item| 2 * item).collect::<Vec<_>>());
        assert_eq!(told.into_inner(), 100);
        let alone = each_of(
            &items,
            NonZero::new(1),
            |item| (*item, thread::current().id()),
            &|_| {},
        );
        assert!(alone.windows(2).all(|pair| pair[0].1 == pair[1].1));
        assert!(alone.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(each(&[], |item: &u32| *item, &|_| {}).is_empty());
    }
}
