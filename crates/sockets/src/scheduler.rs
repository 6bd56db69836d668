//! The scheduler, as far as it matters where threads run: once a second it evens nodes out, sends
//! threads home if they have one, and now and then swaps two for reasons of its own.

use pghot_workloads::random::XorShift;

use super::machine::{Machine, NODES};
use super::process::Thread;

/// Running threads per node.
pub fn counts(threads: &[Thread]) -> [u32; NODES] {
    let mut counts = [0; NODES];
    for thread in threads.iter().filter(|thread| thread.is_running) {
        counts[thread.nid] += 1;
    }
    counts
}

/// A second is over.
pub fn balance(machine: &Machine, threads: &mut [Thread], random: &mut XorShift) {
    stray(machine, threads, random);
    even_out(machine, threads, random);
    send_home(machine, threads);
}

/// Two threads change places.
fn stray(machine: &Machine, threads: &mut [Thread], random: &mut XorShift) {
    let draw = f64::from(random.below(1_000_000)) * 1e-6;
    if draw >= machine.strays_per_s {
        return;
    }
    let Some(one) = pick(threads, random, |_| true) else {
        return;
    };
    let nid = threads[one].nid;
    if let Some(other) = pick(threads, random, |thread| thread.nid != nid) {
        threads[one].nid = threads[other].nid;
        threads[other].nid = nid;
    }
}

/// One thread goes from the fullest to the emptiest node; of the fullest node, those that are not
/// at home first.
fn even_out(machine: &Machine, threads: &mut [Thread], random: &mut XorShift) {
    let counts = counts(threads);
    let nodes = 0..machine.nodes;
    let fullest = nodes.clone().max_by_key(|&nid| counts[nid]).unwrap_or(0);
    let emptiest = nodes.min_by_key(|&nid| counts[nid]).unwrap_or(0);
    if counts[fullest] <= counts[emptiest] + 1 {
        return;
    }
    let is_away = |thread: &Thread| thread.nid == fullest && thread.home != Some(fullest);
    let mover = pick(threads, random, is_away);
    // Threads that are at home count as cache-hot: they leave only if there are too many for the
    // CPUs.
    let mover = mover.or_else(|| match counts[fullest] > machine.cpus {
        true => pick(threads, random, |thread| thread.nid == fullest),
        false => None,
    });
    if let Some(mover) = mover {
        threads[mover].nid = emptiest;
    }
}

/// Threads go home if their home has less than its share of threads. If all nodes have as many,
/// nobody goes anywhere, since there is no idle CPU to take them; and two whose homes are each
/// other's nodes are not swapped. Both are known problems of the patches.
fn send_home(machine: &Machine, threads: &mut [Thread]) {
    let mut counts = counts(threads);
    let share = counts.iter().sum::<u32>() as f64 / machine.nodes as f64;
    for thread in threads.iter_mut().filter(|thread| thread.is_running) {
        let Some(home) = thread.home else {
            continue;
        };
        if home != thread.nid && f64::from(counts[home]) < share {
            counts[thread.nid] -= 1;
            counts[home] += 1;
            thread.nid = home;
        }
    }
}

/// A random running thread of some kind.
fn pick(
    threads: &[Thread],
    random: &mut XorShift,
    is_kind: impl Fn(&Thread) -> bool,
) -> Option<usize> {
    let is_one = |number: &usize| threads[*number].is_running && is_kind(&threads[*number]);
    let count = (0..threads.len()).filter(is_one).count();
    if count == 0 {
        return None;
    }
    let chosen = random.below(count as u32) as usize;
    (0..threads.len()).filter(is_one).nth(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::BENCHMARKS;

    fn threads(nids: &[usize]) -> Vec<Thread> {
        let thread = |(&nid, number)| Thread::new(&BENCHMARKS[2], 0, number, nid);
        nids.iter().zip(0..).map(thread).collect()
    }

    fn quiet() -> Machine {
        Machine {
            strays_per_s: 0.0,
            ..Machine::default()
        }
    }

    #[test]
    fn nodes_are_evened_out() {
        let mut threads = threads(&[0, 0, 0, 0, 1, 1, 2, 2]);
        let mut random = XorShift::new(1);
        for _ in 0..2 {
            balance(&quiet(), &mut threads, &mut random);
        }
        assert_eq!(counts(&threads), [2, 2, 2, 2]);
        let before: Vec<_> = threads.iter().map(|thread| thread.nid).collect();
        balance(&quiet(), &mut threads, &mut random);
        let after: Vec<_> = threads.iter().map(|thread| thread.nid).collect();
        assert_eq!(before, after, "nothing strays");
    }

    #[test]
    fn threads_go_home_where_threads_are_missing() {
        let machine = quiet();
        let mut threads = threads(&[1; 40]);
        for thread in &mut threads {
            thread.home = Some(0);
        }
        send_home(&machine, &mut threads);
        assert_eq!(counts(&threads)[0], 10, "and then it has its share");
    }
}
