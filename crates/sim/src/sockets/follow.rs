//! CPU follows memory: a thread's home node, from where its hint faults were.
//!
//! Once per pass of the scanner, a thread compares the nodes of its own faults and of those of its
//! process. If it is not where both have most, it looks at one thread on each other node and changes
//! homes with the one where that promises most. The author of the patches calls this broken: expensive,
//! and bouncing.

use pghot_workloads::access::XorShift;

use super::machine::{Limits, NODES};
use super::process::{Process, Thread};

/// Whether threads go where their memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// No.
    Never,
    /// Yes.
    Memory,
    /// Yes, and scans become rarer or more frequent by that.
    MemoryAndAdapt,
}

/// Places a thread after a pass of the scanner.
pub fn place(
    follow: Follow,
    limits: &Limits,
    processes: &mut [Process],
    threads: &mut [Thread],
    number: usize,
    random: &mut XorShift,
) {
    let process = &mut processes[threads[number].process];
    let me = &mut threads[number];
    if me.placed_pass == process.passes {
        return;
    }
    me.placed_pass = process.passes;
    let (mine, all) = (best(&me.faults), best(&process.faults));
    let is_mine_here = mine == me.nid;
    let is_settled = is_mine_here && all == me.nid;
    let (shortest, longest) = (limits.period_min_ms, limits.period_max_ms);
    match follow {
        Follow::MemoryAndAdapt => {
            if is_mine_here {
                me.period_ms = (me.period_ms * 2.0).min(longest);
            }
            // So that a thread which is not where most of its process is never scans more rarely.
            if !is_settled {
                me.period_ms = (me.period_ms / 2.0).max(shortest);
            }
        }
        _ if is_settled => me.period_ms = (me.period_ms * 2.0).min(longest),
        _ => me.period_ms = shortest,
    }
    if is_settled {
        me.home = Some(me.nid);
    } else if let Some(other) = partner(processes, threads, number, random) {
        let (here, there) = (threads[number].nid, threads[other].nid);
        threads[number].home = Some(there);
        threads[other].home = Some(here);
    }
    let fade = |faults: &mut [f64; NODES]| faults.iter_mut().for_each(|count| *count /= 2.0);
    fade(&mut threads[number].faults);
    let process = &mut processes[threads[number].process];
    if process.faded_pass != process.passes {
        process.faded_pass = process.passes;
        fade(&mut process.faults);
    }
}

/// With whom to change homes: of one thread per other node, the one where most is won.
fn partner(
    processes: &[Process],
    threads: &[Thread],
    number: usize,
    random: &mut XorShift,
) -> Option<usize> {
    let me = &threads[number];
    let mut best: Option<(f64, usize)> = None;
    for there in (0..NODES).filter(|&nid| nid != me.nid) {
        let is_there = |thread: &&Thread| thread.is_running && thread.nid == there;
        let count = threads.iter().filter(is_there).count();
        if count == 0 {
            continue;
        }
        let chosen = random.below(count as u32) as usize;
        let found = (0..threads.len())
            .filter(|&other| is_there(&&threads[other]))
            .nth(chosen);
        let Some(other) = found else {
            continue;
        };
        let them = &threads[other];
        // Threads of one process differ by themselves, others by their processes.
        let (my_weight, their_weight) = match me.process == them.process {
            true => (weights(&me.faults), weights(&them.faults)),
            false => (
                weights(&processes[me.process].faults),
                weights(&processes[them.process].faults),
            ),
        };
        let over_them = my_weight[there] - their_weight[there];
        let over_here = my_weight[there] - my_weight[me.nid];
        let gain = over_them + over_here;
        if over_them > 0.0 && over_here > 0.0 && best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, other));
        }
    }
    best.map(|(_, other)| other)
}

fn best(faults: &[f64; NODES]) -> usize {
    (0..NODES).fold(0, |best, nid| match faults[nid] > faults[best] {
        true => nid,
        false => best,
    })
}

fn weights(faults: &[f64; NODES]) -> [f64; NODES] {
    let all: f64 = faults.iter().sum();
    faults.map(|count| 1000.0 * count / all.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::benchmark::BENCHMARKS;

    #[test]
    fn threads_that_have_each_others_memory_change_homes() {
        let limits = Limits::default();
        let benchmark = &BENCHMARKS[2];
        let mut processes = vec![Process::new(benchmark, &limits)];
        processes[0].passes = 1;
        let mut threads: Vec<_> = (0..2)
            .map(|nid| Thread::new(benchmark, 0, nid, nid))
            .collect();
        threads[0].faults[1] = 100.0;
        threads[1].faults[0] = 100.0;
        let mut random = XorShift::new(1);
        let mut place = |threads: &mut Vec<Thread>| {
            let follow = Follow::Memory;
            place(follow, &limits, &mut processes, threads, 0, &mut random);
        };
        place(&mut threads);
        assert_eq!((threads[0].home, threads[1].home), (Some(1), Some(0)));
        assert_eq!(threads[0].faults[1], 50.0, "faded");
        assert_eq!(threads[0].period_ms, limits.period_min_ms);
        threads[0].home = None;
        place(&mut threads);
        assert_eq!(threads[0].home, None, "once per pass");
    }

    #[test]
    fn a_thread_that_is_where_its_memory_is_stays() {
        let limits = Limits::default();
        let benchmark = &BENCHMARKS[2];
        let mut processes = vec![Process::new(benchmark, &limits)];
        processes[0].passes = 1;
        processes[0].faults[1] = 10.0;
        let mut threads = vec![Thread::new(benchmark, 0, 0, 1)];
        threads[0].faults[1] = 100.0;
        threads[0].period_ms = 300.0;
        let random = &mut XorShift::new(1);
        place(
            Follow::Memory,
            &limits,
            &mut processes,
            &mut threads,
            0,
            random,
        );
        assert_eq!((threads[0].home, threads[0].period_ms), (Some(1), 600.0));
    }
}
