//! CPU follows memory: a thread's home node, from its hint faults.
//!
//! Once per pass of the scanner, at its first hint fault that counts, a thread compares the nodes
//! of its own faults and of those of its process. If it is not where both have most, it looks at
//! the first CPU of each other node and changes homes with the thread there where that promises
//! most.
//!
//! The author of the patches calls this broken: expensive, and bouncing. The reasons are in how
//! faults are counted, which is kept here as it was. Most count for the node where the thread runs,
//! wherever the page is, so a thread's best node is where it has run longest. And each thread of a
//! process that is placed halves the numbers of the process by node, while their total is halved
//! once per pass: so for all but the first few threads the process has no best node, and they are
//! never where it is.

use pghot_workloads::random::XorShift;

use super::machine::{Machine, NODES};
use super::policies::Follow;
use super::process::{Process, Thread};

/// Chooses the home of a thread, if there was a pass of the scanner since it was placed last.
pub fn choose_home(
    follow: Follow,
    machine: &Machine,
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
    if me.faults.total == 0.0 || process.faults.total == 0.0 {
        return;
    }
    let here = Some(me.nid);
    let is_mine_here = best(me.faults.weights()) == here;
    let is_settled = is_mine_here && best(process.faults.weights()) == here;
    process.faults.fade_nodes();
    let (shortest, longest) = (machine.limits.period_min_ms, machine.limits.period_max_ms);
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
        me.home = here;
    } else if let Some((there, other)) = find(machine, processes, threads, number, random) {
        let here = threads[number].nid;
        threads[number].home = Some(there);
        if let Some(other) = other {
            threads[other].home = Some(here);
        }
    }
}

/// A better home, and the thread on its first CPU, if there is one.
fn find(
    machine: &Machine,
    processes: &[Process],
    threads: &[Thread],
    number: usize,
    random: &mut XorShift,
) -> Option<(usize, Option<usize>)> {
    let me = &threads[number];
    let mut best: Option<(f64, usize, Option<usize>)> = None;
    for there in (0..machine.nodes).filter(|&nid| nid != me.nid) {
        let other = first_cpu(machine, threads, there, random);
        // Threads of one process differ by themselves, others by their processes.
        let (mine, theirs) = match other.map(|other| &threads[other]) {
            None => (me.faults.weights(), 0.0),
            Some(them) if them.process == me.process => {
                (me.faults.weights(), them.faults.weights()[there])
            }
            Some(them) => (
                processes[me.process].faults.weights(),
                processes[them.process].faults.weights()[there],
            ),
        };
        let over_them = mine[there] - theirs;
        let over_here = mine[there] - mine[me.nid];
        let gain = over_them + over_here;
        if over_them > 0.0 && over_here > 0.0 && best.is_none_or(|(most, ..)| gain > most) {
            best = Some((gain, there, other));
        }
    }
    best.map(|(_, there, other)| (there, other))
}

/// Who runs on the first CPU of a node, if it is not idle. CPUs are not modelled: it is the first
/// thread of the node, and the CPU idles as often as any other.
fn first_cpu(
    machine: &Machine,
    threads: &[Thread],
    nid: usize,
    random: &mut XorShift,
) -> Option<usize> {
    let is_there = |thread: &&Thread| thread.is_running && thread.nid == nid;
    let count = threads.iter().filter(is_there).count();
    if random.below(machine.cpus) as usize >= count {
        return None;
    }
    threads
        .iter()
        .position(|thread| thread.is_running && thread.nid == nid)
}

fn best(weights: [f64; NODES]) -> Option<usize> {
    let most = weights.into_iter().fold(0.0, f64::max);
    (0..NODES).find(|&nid| most > 0.0 && weights[nid] == most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::BENCHMARKS;

    /// Two threads on two nodes, after a first pass; CPUs are always busy.
    fn two() -> (Machine, Vec<Process>, Vec<Thread>) {
        let benchmark = &BENCHMARKS[2];
        let machine = Machine {
            cpus: 1,
            ..Machine::default()
        };
        let mut process = Process::new(benchmark, &machine.limits);
        process.passes = 1;
        let threads = (0..2).map(|nid| Thread::new(benchmark, 0, nid, nid));
        (machine, vec![process], threads.collect())
    }

    #[test]
    fn threads_that_ran_on_each_others_node_change_homes() {
        let (machine, mut processes, mut threads) = two();
        threads[0].faults.add([0.0, 100.0, 0.0, 0.0]);
        threads[1].faults.add([100.0, 0.0, 0.0, 0.0]);
        processes[0].faults.add([100.0, 100.0, 0.0, 0.0]);
        let mut random = XorShift::new(1);
        let mut place = |threads: &mut Vec<Thread>| {
            let follow = Follow::Memory;
            choose_home(follow, &machine, &mut processes, threads, 0, &mut random);
        };
        place(&mut threads);
        assert_eq!((threads[0].home, threads[1].home), (Some(1), Some(0)));
        assert_eq!(threads[0].period_ms, machine.limits.period_min_ms);
        threads[0].home = None;
        place(&mut threads);
        assert_eq!(threads[0].home, None, "once per pass");
    }

    #[test]
    fn a_thread_that_is_where_its_faults_were_stays() {
        let (machine, mut processes, mut threads) = two();
        processes[0].faults.add([0.0, 2000.0, 0.0, 0.0]);
        threads[1].faults.add([0.0, 100.0, 0.0, 0.0]);
        threads[1].period_ms = 300.0;
        let mut random = XorShift::new(1);
        let mut place = |processes: &mut Vec<Process>, threads: &mut Vec<Thread>| {
            let follow = Follow::Memory;
            choose_home(follow, &machine, processes, threads, 1, &mut random);
        };
        place(&mut processes, &mut threads);
        assert_eq!((threads[1].home, threads[1].period_ms), (Some(1), 600.0));
        // Each thread that is placed halves the process's numbers by node, and soon it has no best
        // one.
        for _ in 0..10 {
            threads[1].placed_pass = 0;
            place(&mut processes, &mut threads);
        }
        assert_eq!(threads[1].period_ms, machine.limits.period_min_ms);
    }
}
