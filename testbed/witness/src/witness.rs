//! What is done with each access and each mark.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::counts::Counts;
use crate::layout::{Layout, PAGE_BYTES};
use crate::marks::Mark;
use crate::options::Options;
use crate::pages::{NODES_MAX, Pages};
use crate::report::{Report, Slice};

/// A delay is paid in pieces that are long enough to be measured.
const DELAY_MIN_NS: u64 = 2000;

/// One vCPU's counters, and what it owes in delays.
struct Vcpu {
    counts: Counts,
    owed_ns: u64,
}

/// The witness. Its methods are called by the threads of all vCPUs.
pub struct Witness {
    options: Options,
    layout: Layout,
    /// Whether accesses count now.
    is_on: AtomicBool,
    vcpus: Vec<Mutex<Vcpu>>,
    /// Of the measured memory: there are never more of them than the machine has memory for.
    pages: Pages,
    /// How often each page of all nodes was accessed.
    physical_pages: Vec<AtomicU32>,
    /// By node; empty without a cache.
    caches: Vec<Cache>,
    phase: Mutex<Phase>,
}

#[derive(Default)]
struct Phase {
    started: Option<Instant>,
    slices: Vec<Slice>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Witness {
    /// Sees nothing before the mark that starts a phase. Fails if there are too many nodes.
    pub fn new(options: Options) -> Result<Witness, String> {
        let layout = Layout::new(&options.node_bytes);
        if layout.nodes() > NODES_MAX {
            return Err(format!("there are more than {NODES_MAX} nodes"));
        }
        let vcpu = |_: &u64| {
            Mutex::new(Vcpu {
                counts: Counts::new(layout.nodes()),
                owed_ns: 0,
            })
        };
        let cache = |_: &u64| Cache::new(options.cache_bytes);
        let pages = layout.pages();
        Ok(Witness {
            is_on: AtomicBool::new(false),
            vcpus: options.cpu_nodes.iter().map(vcpu).collect(),
            pages: Pages::new(pages),
            physical_pages: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            caches: options.node_bytes.iter().map(cache).collect(),
            phase: Mutex::default(),
            layout,
            options,
        })
    }

    /// Whether some vCPUs belong to the program, and what they access counts.
    #[inline]
    pub fn is_everywhere(&self) -> bool {
        self.options.program_cpus > 0
    }

    /// Whether an access counts now. Another program's measured memory may have the same addresses:
    /// where the program has vCPUs of its own, these alone tell whose an access is.
    #[inline]
    pub fn counts(&self, vcpu: usize, is_measured: bool) -> bool {
        let is_ours = match self.is_everywhere() {
            true => vcpu < self.options.program_cpus,
            false => is_measured,
        };
        is_ours && self.is_on.load(Ordering::Relaxed)
    }

    /// An access at a guest-physical `address`, none if that is no RAM; in the measured memory, of
    /// its `page`.
    pub fn access(&self, vcpu: usize, page: Option<usize>, address: Option<u64>, is_store: bool) {
        let Some(own) = self
            .vcpus
            .get(vcpu)
            .filter(|_| self.is_on.load(Ordering::Relaxed))
        else {
            return;
        };
        let place = address.and_then(|address| Some((address, self.layout.find(address)?)));
        let Some((address, (node, physical_page))) = place else {
            lock(own).counts.unknown += 1;
            return;
        };
        let near = self.options.cpu_nodes[vcpu] as usize;
        let is_miss = !self.caches[near].access(address);
        let moved = page.and_then(|page| self.pages.count(page, node));
        self.physical_pages[physical_page].fetch_add(1, Ordering::Relaxed);
        let mut own = lock(own);
        own.counts.nodes[node].count(is_store, is_miss);
        if let Some(moved) = moved {
            own.counts.moves.by_nodes[moved.from][moved.to] += 1;
            own.counts.moves.returned += u64::from(moved.is_return);
        }
        if is_miss {
            own.owed_ns += self.options.delay_ns[node];
            if own.owed_ns >= DELAY_MIN_NS {
                let owed_ns = std::mem::take(&mut own.owed_ns);
                drop(own);
                spin(Duration::from_nanos(owed_ns));
            }
        }
    }

    /// The workload says something.
    pub fn mark(&self, mark: Mark) {
        let mut phase = lock(&self.phase);
        match mark {
            Mark::Start => {
                for vcpu in &self.vcpus {
                    lock(vcpu).counts = Counts::new(self.layout.nodes());
                }
                self.pages.clear();
                let physical = self.physical_pages.iter();
                physical.for_each(|count| count.store(0, Ordering::Relaxed));
                *phase = Phase {
                    started: Some(Instant::now()),
                    slices: Vec::new(),
                };
                self.is_on.store(true, Ordering::Relaxed);
            }
            Mark::Slice => self.slice(&mut phase),
            Mark::Stop => {
                self.is_on.store(false, Ordering::Relaxed);
                self.slice(&mut phase);
                self.report(&phase, true);
            }
        }
    }

    /// The guest ended; in the middle of a phase, what was seen so far is worth telling.
    pub fn end(&self) {
        if self.is_on.swap(false, Ordering::Relaxed) {
            self.report(&lock(&self.phase), false);
        }
    }

    fn slice(&self, phase: &mut Phase) {
        let Some(started) = phase.started else { return };
        phase.slices.push(Slice {
            host_ns: started.elapsed().as_nanos() as u64,
            nodes: self.all().nodes,
        });
    }

    /// The counts of all vCPUs.
    fn all(&self) -> Counts {
        let mut all = Counts::new(self.layout.nodes());
        self.vcpus
            .iter()
            .for_each(|vcpu| all.add(&lock(vcpu).counts));
        all
    }

    fn report(&self, phase: &Phase, is_complete: bool) {
        let Counts {
            nodes,
            moves,
            unknown,
        } = self.all();
        let of = |vcpu: &Mutex<Vcpu>| lock(vcpu).counts.nodes.clone();
        let pages = self.pages.snapshot();
        let report = Report {
            is_complete,
            cpu_nodes: self.options.cpu_nodes.clone(),
            vcpus: self.vcpus.iter().map(of).collect(),
            nodes,
            unknown,
            moves,
            slices: phase.slices.clone(),
            page_accesses: pages.iter().map(|page| page.accesses).collect(),
            page_nodes: pages.iter().map(|page| page.node).collect(),
            physical_accesses: self.physical_accesses(),
        };
        if let Err(error) = report.write(&self.options.out) {
            let out = self.options.out.display();
            eprintln!("witness: cannot write {out}: {error}");
        }
    }

    fn physical_accesses(&self) -> Vec<Vec<u32>> {
        let mut rest = &self.physical_pages[..];
        let of_node = |bytes: &u64| {
            let (own, others) = rest.split_at((bytes / PAGE_BYTES) as usize);
            rest = others;
            let counts = own.iter().map(|count| count.load(Ordering::Relaxed));
            counts.filter(|count| *count > 0).collect()
        };
        self.options.node_bytes.iter().map(of_node).collect()
    }
}

fn spin(duration: Duration) {
    let started = Instant::now();
    while started.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_the_marks_counts() {
        let out = std::env::temp_dir().join(format!("witness-{}.json", std::process::id()));
        let out_option = format!("out={}", out.display());
        let options = ["nodes=8192:8192", "cpus=0:1", "llc=1024", &out_option];
        let witness = Witness::new(Options::parse(options).unwrap()).unwrap();
        witness.access(0, Some(0), Some(0), false);
        witness.mark(Mark::Start);
        witness.access(0, Some(0), Some(0), false);
        witness.access(0, Some(0), Some(0), true);
        witness.mark(Mark::Slice);
        witness.access(1, Some(0), Some(8192), true);
        witness.access(1, Some(1), Some(5), true);
        witness.access(1, None, Some(4096), false);
        witness.access(1, Some(1), None, true);
        witness.mark(Mark::Stop);
        let report: Report = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        std::fs::remove_file(&out).unwrap();
        assert!(report.is_complete && !witness.counts(0, true));
        let nodes = report.nodes.iter();
        let seen: Vec<_> = nodes.map(|n| (n.loads, n.stores, n.misses)).collect();
        // Each CPU's node has its own cache.
        assert_eq!(seen, [(2, 2, 3), (0, 1, 1)]);
        assert_eq!((report.unknown, report.slices.len()), (1, 2));
        assert_eq!(report.slices[0].nodes[0].accesses(), 2);
        assert_eq!(report.page_accesses, [3, 1]);
        assert_eq!(report.page_nodes, [Some(1), Some(0)]);
        assert_eq!(report.moves.by_nodes, [[0, 1], [0, 0]]);
        assert_eq!(report.physical_accesses, [vec![3, 1], vec![1]]);
    }

    #[test]
    fn whose_an_access_is_is_told_by_address_or_by_cpu() {
        let counts = |everywhere: &str| {
            let options = ["nodes=4096", "cpus=0:0", "out=/dev/null", everywhere];
            let witness = Witness::new(Options::parse(options).unwrap()).unwrap();
            witness.mark(Mark::Start);
            [(0, true), (0, false), (1, true), (1, false)].map(|(c, m)| witness.counts(c, m))
        };
        assert_eq!(counts("everywhere=0"), [true, false, true, false]);
        assert_eq!(counts("everywhere=1"), [true, true, false, false]);
    }

    #[test]
    fn more_nodes_than_it_knows_are_refused() {
        let nodes = format!("nodes={}", ["4096"; NODES_MAX + 1].join(":"));
        let options = Options::parse([nodes.as_str(), "cpus=0", "out=x"]).unwrap();
        assert!(Witness::new(options).is_err());
    }
}
