//! A run: one test under one policy, from one visit of a thread to a block to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pghot_workloads::random::XorShift;
use serde::Serialize;

use super::benchmark::{BLOCK_BYTES, Benchmark, First};
use super::budget::Budget;
use super::follow;
use super::machine::{Machine, NODES};
use super::memory::{PIECES, PerNode, node_at};
use super::node::Node;
use super::policies::{Follow, Policy};
use super::process::{Process, Thread, Visit, filter_of};
use super::scheduler;

/// How often the kernel looks at its threads: 250 times a second, as distributions build it.
const TICK_MS: f64 = 4.0;
/// So many ticks are between two looks of the scheduler's balancer.
const BALANCE_TICKS: u64 = 250;

/// What a run came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Until the last thread ended.
    pub elapsed_s: f64,
    /// Time of all threads in the program.
    pub user_s: f64,
    /// And in the kernel.
    pub system_s: f64,
    /// Pages whose entries were marked.
    pub pte_updates: f64,
    /// Pages that were found marked.
    pub hint_faults: f64,
    /// Those on the node of the CPU.
    pub local_faults: f64,
    /// Pages that moved.
    pub migrated_pages: f64,
    /// The most that came to a node in one window.
    pub busiest_window_pages: f64,
    /// Of what was written, the share that went to the node of the CPU.
    pub local_share: f64,
    /// The same when each thread wrote all for the last time.
    pub last_local_share: f64,
}

/// Local and all, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    local: f64,
    all: f64,
}

impl Share {
    fn add(&mut self, visit: &Visit, bytes: f64) {
        self.local += if visit.from == visit.to { bytes } else { 0.0 };
        self.all += bytes;
    }

    fn value(self) -> f64 {
        self.local / self.all.max(1.0)
    }
}

struct Run<'a> {
    machine: &'a Machine,
    policy: &'a Policy,
    benchmark: &'a Benchmark,
    now_s: f64,
    nodes: Vec<Node>,
    budgets: [Budget; NODES],
    processes: Vec<Process>,
    threads: Vec<Thread>,
    /// Running threads per node.
    counts: [u32; NODES],
    /// Ends of work in the kernel, in ns, and threads.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    random: XorShift,
    figures: Figures,
    share: Share,
    last_share: Share,
}

/// Runs a test to its end.
pub fn run(machine: &Machine, policy: &Policy, benchmark: &Benchmark, seed: u64) -> Figures {
    let limits = &machine.limits;
    let node = Node::new(machine.node_bytes_per_s, machine.saturating_threads);
    let processes = (0..benchmark.processes).map(|_| Process::new(benchmark, limits));
    let all = (0..benchmark.processes)
        .flat_map(|process| (0..benchmark.threads).map(move |number| (process, number)));
    // New threads go to the idlest node, which is each in turn. The first of every process is on
    // the first node: without balancing, tests with two processes are as fast as one node's
    // memory is, so both have theirs there.
    let threads = all
        .map(|(process, number)| Thread::new(benchmark, process, number, number % machine.nodes));
    let mut run = Run {
        machine,
        policy,
        benchmark,
        now_s: 0.0,
        nodes: vec![node; machine.nodes],
        budgets: Default::default(),
        processes: processes.collect(),
        threads: threads.collect(),
        counts: [0; NODES],
        timers: BinaryHeap::new(),
        random: XorShift::new(seed),
        figures: Figures::default(),
        share: Share::default(),
        last_share: Share::default(),
    };
    run.counts = scheduler::counts(&run.threads);
    for (thread, number) in run.threads.iter_mut().zip(0u32..) {
        thread.period_ms = limits.period_min_ms;
        // They began one after the other.
        thread.tried_ms = f64::from(number);
    }
    if benchmark.first == First::Main {
        run.write_first();
    }
    run.go();
    run.finish()
}

impl Run<'_> {
    /// The main thread writes all memory, alone, before there are others.
    fn write_first(&mut self) {
        let blocks = (self.benchmark.blocks * self.benchmark.processes) as f64;
        let machine = self.machine;
        let rate = machine.node_bytes_per_s / machine.saturating_threads;
        let (user_s, system_s) = (
            blocks * BLOCK_BYTES / rate,
            blocks * machine.costs.zero_ns * 1e-9,
        );
        self.figures.user_s += user_s;
        self.figures.system_s += system_s;
        self.figures.elapsed_s += user_s + system_s;
    }

    fn go(&mut self) {
        for number in 0..self.threads.len() {
            self.arrive(number);
        }
        let mut ticks = 0;
        while self.counts.iter().any(|&count| count > 0) {
            let tick_s = (ticks + 1) as f64 * TICK_MS * 1e-3;
            let timer_s = match self.timers.peek() {
                Some(Reverse((ns, _))) => *ns as f64 * 1e-9,
                None => f64::INFINITY,
            };
            let ends = self.nodes.iter().zip(0..).filter_map(|(node, nid)| {
                let end_s = self.now_s + node.next_end_s()?;
                Some((end_s, nid))
            });
            let (end_s, nid) = ends.fold((f64::INFINITY, 0), |soonest, end| {
                if end.0 < soonest.0 { end } else { soonest }
            });
            let next_s = tick_s.min(timer_s).min(end_s).max(self.now_s);
            for node in &mut self.nodes {
                node.pass(next_s - self.now_s);
            }
            self.now_s = next_s;
            if end_s <= next_s {
                self.leave(nid);
            } else if timer_s <= next_s {
                if let Some(Reverse((_, number))) = self.timers.pop() {
                    self.write(number);
                }
            } else {
                ticks += 1;
                self.tick(ticks);
            }
        }
    }

    fn now_ms(&self) -> f64 {
        self.now_s * 1e3
    }

    /// A thread comes to a block, or to the next marked piece of it.
    fn arrive(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let block = &mut self.processes[thread.process].blocks[thread.block];
        thread.visit.from = thread.nid;
        if !block.is_present {
            block.allocate(thread.nid);
            let costs = &self.machine.costs;
            let zeroed = costs.zeroed_per_racer * self.benchmark.threads as f64;
            // All racers lose this time together, so none is delayed here.
            self.figures.system_s += costs.zero_ns * zeroed.max(1.0) * 1e-9;
        }
        thread.visit.pieces = PIECES - thread.pieces;
        let mut nodes = block.nodes();
        let mut delay_ns = std::mem::take(&mut thread.owed_ns);
        if block.marked_pages() > 0.0 {
            let clear = block.clear_pieces();
            if block.is_huge || block.is_whole || clear <= thread.pieces {
                delay_ns += self.fault(number, &mut nodes);
            } else {
                // Others were here before. It follows them to the first page that is still marked.
                thread.visit.pieces = clear - thread.pieces;
            }
        }
        let place = f64::from(self.random.below(1 << 20)) / f64::from(1 << 20);
        // Pages on several nodes are written as if all were on one of them.
        self.threads[number].visit.to = node_at(nodes, place);
        if delay_ns == 0.0 {
            self.write(number);
            return;
        }
        self.figures.system_s += delay_ns * 1e-9;
        let end_ns = self.now_s * 1e9 + delay_ns;
        self.timers.push(Reverse((end_ns as u64, number)));
    }

    /// It begins to write.
    fn write(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let bytes = thread.visit_bytes(self.benchmark);
        let running = self.counts[thread.nid].max(1);
        let visit = &mut thread.visit;
        visit.since_s = self.now_s;
        visit.cpu = (f64::from(self.machine.cpus) / f64::from(running)).min(1.0);
        let claim = match visit.from == visit.to {
            true => 1.0,
            false => 1.0 / self.machine.remote_ratio,
        };
        visit.weight = claim * visit.cpu;
        self.nodes[visit.to].begin(number, bytes, visit.weight);
    }

    /// The first of a node's visitors is done with what it wrote.
    fn leave(&mut self, nid: usize) {
        let threads = &mut self.threads;
        let Some(number) = self.nodes[nid].end(|number| threads[number].visit.weight) else {
            return;
        };
        let thread = &mut threads[number];
        let visit = thread.visit;
        self.figures.user_s += (self.now_s - visit.since_s) * visit.cpu;
        let bytes = thread.visit_bytes(self.benchmark);
        self.share.add(&visit, bytes);
        if thread.is_in_last_pass(self.benchmark) {
            self.last_share.add(&visit, bytes);
        }
        thread.pieces += visit.pieces;
        if thread.pieces == PIECES {
            thread.go_on(self.benchmark);
        }
        match thread.is_running {
            true => self.arrive(number),
            false => self.counts[thread.nid] -= 1,
        }
    }

    /// A thread takes hint faults of a marked block; returns what they cost, in ns. It then writes
    /// what faulted, and on which `nodes` that is.
    fn fault(&mut self, number: usize, nodes: &mut PerNode) -> f64 {
        let now_ms = self.now_ms();
        let (limits, costs) = (&self.machine.limits, &self.machine.costs);
        let policy = self.policy;
        let thread = &mut self.threads[number];
        let here = thread.nid;
        let block = &mut self.processes[thread.process].blocks[thread.block];
        let filter = filter_of(policy, block.is_whole);
        let huge = match block.is_huge {
            true => block.fault_huge(here, filter),
            false => None,
        };
        let found = huge.unwrap_or_else(|| {
            if !block.is_whole {
                thread.visit.pieces = 1;
            }
            let budget = &mut self.budgets[here];
            let mut admit = |pages: f32| {
                budget.admit(limits, policy.is_limited, now_ms, f64::from(pages)) as f32
            };
            block.fault(here, filter, &mut admit)
        });
        *nodes = found.ended;
        let (faults, moved) = (f64::from(found.faults), f64::from(found.moved));
        self.figures.hint_faults += faults;
        self.figures.local_faults += f64::from(found.local);
        self.figures.migrated_pages += moved;
        let counted: f32 = found.counted.iter().sum();
        if counted > 0.0 && policy.follow != Follow::Never {
            let (processes, threads) = (&mut self.processes, &mut self.threads);
            let random = &mut self.random;
            follow::choose_home(
                policy.follow,
                self.machine,
                processes,
                threads,
                number,
                random,
            );
        }
        let thread = &mut self.threads[number];
        thread.faults.add(found.counted);
        self.processes[thread.process].faults.add(found.counted);
        if policy.is_backing_off {
            let longer = thread.period_ms + limits.back_off_ms * f64::from(counted);
            thread.period_ms = longer.min(limits.period_max_ms);
        }
        let flush_ns = match policy.is_flushing {
            true => costs.flush_ns,
            false => 0.0,
        };
        if moved > 0.0 {
            self.interrupt(number, moved * costs.interrupts_ns);
        }
        faults * (costs.fault_ns + flush_ns) + moved * costs.migrate_ns
    }

    /// The other threads of a thread's process share so much system time.
    fn interrupt(&mut self, number: usize, ns: f64) {
        let process = self.threads[number].process;
        let is_other = |thread: &Thread| thread.is_running && thread.process == process;
        let count = self
            .threads
            .iter()
            .filter(|thread| is_other(thread))
            .count()
            - 1;
        for (thread, other) in self.threads.iter_mut().zip(0..) {
            if other != number && is_other(thread) {
                thread.owed_ns += ns / count as f64;
            }
        }
    }

    fn tick(&mut self, ticks: u64) {
        if self.policy.is_marking {
            self.scan(ticks as f64 * TICK_MS);
        }
        if ticks.is_multiple_of(BALANCE_TICKS) {
            scheduler::balance(self.machine, &mut self.threads, &mut self.random);
            self.counts = scheduler::counts(&self.threads);
        }
    }

    /// Threads whose time has come try to scan; the first one in a process does.
    fn scan(&mut self, now_ms: f64) {
        let limits = &self.machine.limits;
        let budgets = &self.budgets;
        for thread in self.threads.iter_mut().filter(|thread| thread.is_running) {
            // The period as it is now: a shorter one takes effect at once. And no sooner than a
            // tick later than that, so that a thread with a long period, which made all
            // others wait for as long, is not the first one again and again.
            if now_ms <= thread.tried_ms + thread.period_ms {
                continue;
            }
            thread.tried_ms = now_ms;
            let process = &mut self.processes[thread.process];
            if now_ms < process.next_scan_ms {
                continue;
            }
            process.next_scan_ms = now_ms + self.policy.period_factor * thread.period_ms;
            let congested = std::array::from_fn(|nid| budgets[nid].is_congested(limits, now_ms));
            let passes = process.passes;
            let entries = process.mark(self.policy, limits.scan_blocks, congested);
            if process.passes != passes {
                process.faults.fade_total();
                thread.faults.fade_nodes();
                thread.faults.fade_total();
            }
            self.figures.pte_updates += entries;
            thread.owed_ns += entries * self.machine.costs.mark_ns;
        }
    }

    fn finish(mut self) -> Figures {
        let busiest = self.budgets.iter().map(Budget::busiest_pages);
        self.figures.busiest_window_pages = busiest.fold(0.0, f64::max);
        self.figures.elapsed_s += self.now_s;
        self.figures.system_s += self.machine.costs.ticks * self.figures.user_s;
        self.figures.local_share = self.share.value();
        self.figures.last_local_share = self.last_share.value();
        debug_assert!((self.share.all / self.benchmark.bytes() - 1.0).abs() < 1e-6);
        self.figures
    }
}
