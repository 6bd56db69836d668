//! From counts to time: what a run would have taken on a machine with stated latencies and costs.
//!
//! The emulator's own times are no machine's: its memory is all alike, and its kernel is 10 to 30
//! times slower than a real one. So time is modelled from what was counted exactly.

use pghot_witness::counts::NodeCounts;
use pghot_witness::report::Report;
use serde::{Deserialize, Serialize};

use crate::cell::Outcome;
use crate::guest::Growth;

/// Base pages of a huge page.
const HUGE_PAGES: f64 = pghot_sim::machine::memory::HUGE_PAGES as f64;

/// What things cost, in ns. The figures are of the order that real machines show; they are stated
/// in the report, and the same for all systems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// An access that a cache served.
    pub hit_ns: f64,
    /// One that memory served, by the node of the CPU, then by the node of the memory.
    pub miss_ns: Vec<Vec<f64>>,
    /// A hint fault, in the thread that takes it.
    pub hint_fault_ns: f64,
    /// Making one page table entry fault, in the thread that runs then.
    pub pte_update_ns: f64,
    /// Moving a page alone, in the thread that faulted.
    pub move_alone_ns: f64,
    /// Moving a page in a batch, in another thread.
    pub move_in_batch_ns: f64,
    /// Moving a huge page, in any thread.
    pub move_huge_ns: f64,
    /// How much longer CPU work takes in the emulator than on a machine: the share of the guest's
    /// time that daemon and kernel threads take is divided by it.
    pub emulator_slowdown: f64,
}

impl Costs {
    /// A machine whose far memory takes two and a half times as long.
    ///
    /// On a Zen 3, `move_pages` of 512 base pages moves 2.2 GB/s, of a huge page 10.9 GB/s, and of
    /// a single page takes 20 µs and more; the kernel's own path in a fault is taken for 3 µs.
    /// The emulated kernel took 18 to 21 µs for an anonymous fault and 19 to 34 µs to move a
    /// page, where machines take about 1 and 1 to 3 µs.
    pub fn stated() -> Costs {
        Costs {
            hit_ns: 5.0,
            miss_ns: vec![vec![100.0, 250.0], vec![250.0, 100.0]],
            hint_fault_ns: 1000.0,
            pte_update_ns: 50.0,
            move_alone_ns: 3000.0,
            move_in_batch_ns: 1850.0,
            move_huge_ns: 193_000.0,
            emulator_slowdown: 20.0,
        }
    }

    /// An access beyond the cache, served by the lower tier.
    pub fn far_ns(&self) -> f64 {
        self.miss_ns(0, 1)
    }

    /// How much sooner the top tier serves it.
    pub fn near_gain_ns(&self) -> f64 {
        self.far_ns() - self.miss_ns(0, 0)
    }

    /// Moving a base page in a batch, or as a part of a huge one.
    pub fn move_ns(&self, is_huge: bool) -> f64 {
        match is_huge {
            true => self.move_huge_ns / HUGE_PAGES,
            false => self.move_in_batch_ns,
        }
    }

    fn miss_ns(&self, cpu_node: usize, node: usize) -> f64 {
        let of_cpu = self.miss_ns.get(cpu_node);
        of_cpu.and_then(|row| row.get(node)).copied().unwrap_or(0.0)
    }
}

/// Modelled times of a run, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Memory accesses, each thread's share at the same time as the others'.
    pub memory_s: f64,
    /// What the workload's threads pay besides: faults, marking, and moves within faults. Marking,
    /// and faults beyond one for each moved page, by the share of time that they take.
    pub stolen_s: f64,
    /// What other threads pay for moving pages.
    pub moving_s: f64,
    /// What the daemon and kernel threads pay for watching: the share of time that they take.
    pub watching_s: f64,
    /// Share of the accesses beyond the cache that the first node served; none without any.
    pub near_share: Option<f64>,
}

impl Score {
    /// The whole: what others do takes a CPU from somebody.
    pub fn total_s(&self) -> f64 {
        self.program_s() + self.moving_s + self.watching_s
    }

    /// What the program itself takes.
    pub fn program_s(&self) -> f64 {
        self.memory_s + self.stolen_s
    }

    /// Of what the witness and the kernel counted.
    pub fn new(run: &Outcome, costs: &Costs) -> Score {
        let threads = f64::from(run.setting.threads.max(1));
        let counts = Counts::new(&run.growth);
        let misses: u64 = run.witness.nodes.iter().map(|node| node.misses).sum();
        let near = run.witness.nodes.first().map_or(0, |node| node.misses);
        let memory_s = memory_ns(&run.witness, costs) * 1e-9 / threads;
        let looking_share = counts.looking_ns(costs) * 1e-9 / threads / guest_s(run);
        let stolen_s = counts.stolen_ns(costs) * 1e-9 / threads + looking_share * memory_s;
        let moving_s = counts.moving_ns(costs) * 1e-9;
        Score {
            memory_s,
            stolen_s,
            moving_s,
            watching_s: watching_share(run, moving_s, costs) * (memory_s + stolen_s),
            near_share: (misses > 0).then(|| near as f64 / misses as f64),
        }
    }
}

/// The share of a machine's time that daemon and kernel threads would take.
///
/// Scanning, sampling and waking up go by the clock, and the guest's clock goes on much further
/// than the modelled one for the same accesses: so it is the share that carries over, not the
/// seconds. Moves go by the page and have a stated cost. Whoever moves them, daemon, kswapd or
/// kdamond, took CPU time for it, and so much of that time is not counted a second time.
fn watching_share(run: &Outcome, moving_s: f64, costs: &Costs) -> f64 {
    // With a slower clock, all work takes less guest time.
    let slower = f64::from(run.setting.dilation.max(1));
    let others_s = run.growth.cpu_total_s() * slower / costs.emulator_slowdown;
    (others_s - moving_s).max(0.0) / guest_s(run)
}

/// How long it took by the guest's clock; infinite if it does not say, so that shares of it are 0.
fn guest_s(run: &Outcome) -> f64 {
    let elapsed_s = run.done["elapsed_s"].as_f64();
    elapsed_s.filter(|s| *s > 0.0).unwrap_or(f64::INFINITY)
}

/// Of all CPUs together.
fn memory_ns(witness: &Report, costs: &Costs) -> f64 {
    let cpus = witness.vcpus.iter().zip(&witness.cpu_nodes);
    let of_cpu = |(nodes, cpu_node): (&Vec<NodeCounts>, &u64)| -> f64 {
        let of_node = nodes.iter().enumerate().map(|(nid, node)| {
            let hits = node.accesses() - node.misses;
            hits as f64 * costs.hit_ns + node.misses as f64 * costs.miss_ns(*cpu_node as usize, nid)
        });
        of_node.sum()
    };
    cpus.map(of_cpu).sum()
}

/// What tiering did, in base pages and hint faults.
struct Counts {
    /// Moved in the faults of the workload's threads, and by others.
    moved_in_faults: f64,
    moved_by_others: f64,
    /// The share of them that were parts of huge ones.
    huge_share: f64,
    hint_faults: f64,
    pte_updates: f64,
}

impl Counts {
    fn new(growth: &Growth) -> Counts {
        let counter = |name| growth.counter(name) as f64;
        let moved = counter("pgmigrate_success");
        // Only the kernel's own path counts a success as promoted; move_pages and DAMON do not.
        let moved_in_faults = counter("pgpromote_success").min(moved);
        // Counters of pages count the base pages of huge ones.
        let huge = counter("thp_migration_success");
        Counts {
            moved_in_faults,
            moved_by_others: moved - moved_in_faults,
            huge_share: (huge * HUGE_PAGES / moved.max(1.0)).min(1.0),
            hint_faults: counter("numa_hint_faults"),
            pte_updates: counter("numa_pte_updates"),
        }
    }

    fn page_ns(&self, alone_ns: f64, costs: &Costs) -> f64 {
        (1.0 - self.huge_share) * alone_ns + self.huge_share * costs.move_huge_ns / HUGE_PAGES
    }

    /// Of the hint faults one for each page that was moved: they come once, however long it takes.
    fn faults_of_moves(&self) -> f64 {
        (self.moved_in_faults + self.moved_by_others).min(self.hint_faults)
    }

    /// In the workload's threads, for moved pages.
    fn stolen_ns(&self, costs: &Costs) -> f64 {
        self.faults_of_moves() * costs.hint_fault_ns
            + self.moved_in_faults * self.page_ns(costs.move_alone_ns, costs)
    }

    /// In the workload's threads, for looking. Marking goes by the clock as a daemon's work does,
    /// and the faults that tell only that a page is touched go by the marking.
    fn looking_ns(&self, costs: &Costs) -> f64 {
        (self.hint_faults - self.faults_of_moves()) * costs.hint_fault_ns
            + self.pte_updates * costs.pte_update_ns
    }

    /// In other threads, for moving.
    fn moving_ns(&self, costs: &Costs) -> f64 {
        self.moved_by_others * self.page_ns(costs.move_in_batch_ns, costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, outcome};

    fn grown(counters: &[(&str, u64)]) -> Outcome {
        let mut run = outcome("promote", "pghot");
        let counters = counters.iter();
        run.growth.counters = counters.map(|(n, c)| ((*n).to_owned(), *c)).collect();
        run
    }

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn far_misses_cost_what_is_stated() {
        let costs = Costs::stated();
        let mut run = outcome("promote", "none");
        let nodes = vec![node(1_000_000, 1_000_000), node(2_000_000, 1_000_000)];
        run.witness.nodes = nodes.clone();
        run.witness.vcpus = vec![nodes];
        run.witness.cpu_nodes = vec![0];
        let score = Score::new(&run, &costs);
        assert!(is_close(score.memory_s, 0.100 + 0.250 + 0.005));
        assert_eq!(score.near_share, Some(0.5));
        run.setting.threads = 2;
        let two = Score::new(&run, &costs);
        assert!(is_close(two.memory_s, score.memory_s / 2.0));
        run.witness.cpu_nodes = vec![1];
        run.witness.vcpus[0][1].misses = 0;
        let other = Score::new(&run, &costs);
        assert!(
            is_close(other.memory_s, (0.250 + 0.010) / 2.0),
            "far for that CPU"
        );
    }

    #[test]
    fn who_moves_pages_pays() {
        let costs = Costs::stated();
        let in_faults = grown(&[
            ("pgpromote_success", 1000),
            ("pgmigrate_success", 1000),
            ("numa_hint_faults", 1000),
        ]);
        let score = Score::new(&in_faults, &costs);
        assert!(is_close(score.stolen_s, 0.004) && score.moving_s == 0.0);
        assert_eq!(score.near_share, None);
        let batched = grown(&[("pgmigrate_success", 1000)]);
        let score = Score::new(&batched, &costs);
        assert!(is_close(score.moving_s, 0.00185) && score.stolen_s == 0.0);
        let huge = grown(&[("pgmigrate_success", 5120), ("thp_migration_success", 10)]);
        assert!(is_close(Score::new(&huge, &costs).moving_s, 0.00193));
    }

    /// As long as 40 million accesses of far memory in the model, and ten times in the guest.
    fn ten_seconds(mut run: Outcome) -> Outcome {
        let nodes = vec![node(0, 0), node(40_000_000, 40_000_000)];
        run.witness.nodes = nodes.clone();
        run.witness.vcpus = vec![nodes];
        run.witness.cpu_nodes = vec![0];
        run.done = serde_json::json!({"elapsed_s": 100.0});
        run
    }

    #[test]
    fn faults_that_move_nothing_go_by_the_clock() {
        let costs = Costs::stated();
        let looking = |moved: u64| {
            let faults = [
                ("numa_hint_faults", 1_000_000),
                ("numa_pte_updates", 2_000_000),
            ];
            let run = grown(&[&faults[..], &[("pgmigrate_success", moved)]].concat());
            Score::new(&ten_seconds(run), &costs).stolen_s
        };
        // 1.1 s of 100, of which a machine has ten; of what was moved all.
        assert!(is_close(looking(0), 0.11), "{}", looking(0));
        assert!(is_close(looking(500_000), 0.5 + 0.06));
        assert!(is_close(looking(2_000_000), 1.0 + 0.01));
    }

    #[test]
    fn cpu_time_of_others_counts_by_its_share() {
        let mut run = ten_seconds(outcome("promote", "pghot"));
        run.growth.cpu_s = [("pghot".to_owned(), 15.0), ("kswapd".to_owned(), 5.0)].into();
        let score = Score::new(&run, &Costs::stated());
        assert!(is_close(score.memory_s, 10.0));
        // A fifth of a CPU in the emulator is a hundredth on a machine.
        assert!(is_close(score.watching_s, 0.1) && is_close(score.total_s(), 10.1));
        run.setting.dilation = 10;
        assert!(is_close(Score::new(&run, &Costs::stated()).watching_s, 1.0));
        // Moving 2 million pages has a cost of its own, which is in that CPU time too.
        run.growth.counters = [("pgmigrate_success".to_owned(), 2_000_000)].into();
        let score = Score::new(&run, &Costs::stated());
        assert!(is_close(score.moving_s, 3.7) && is_close(score.watching_s, 0.63));
        run.growth.counters = [("pgmigrate_success".to_owned(), 20_000_000)].into();
        assert_eq!(Score::new(&run, &Costs::stated()).watching_s, 0.0);
    }
}
