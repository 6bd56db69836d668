//! pghot as it was proposed to the kernel, with the flaws that ours does without: records that
//! forget to age, a page that is refused loses its history, candidates go in the order of
//! addresses.
//!
//! After versions 3 to 7 of the patches. Hint faults report the page and leave it. They can be
//! switched off, and others on: `klruscand`, the page table scanner; `hwhints`, AMD's sampling
//! hardware; and `fma`, the reads of page cache.

use crate::Error;
use crate::kernel::promotion::{KernelGate, has_room};
use crate::machine::memory::{ABSENT, Page};
use crate::machine::world::World;
use crate::systems::system::{Descriptor, Fault, Setting, System, Touch};
use crate::traffic::task::Task;

pub(in crate::systems) const DESCRIPTOR: Descriptor = Descriptor {
    name: "proposal",
    doc: "pghot as proposed to the kernel, with its ageing and its order.",
    make: |world, settings| Ok(Box::new(Proposal::new(world, settings)?)),
};

/// Pages of a section, which is what kmigrated skips or walks.
const SECTION_PAGES: u32 = 1 << 15;
/// Folios that are moved at once.
const BATCH_FOLIOS: usize = 512;
/// From one walk of `klruscand` to the next.
const KLRUSCAND_MS: u64 = 2000;
/// Operations of a CPU from one sample to the next, as the driver of version 7 sets it.
///
/// That is also the number of memory accesses per sample of one, whatever a program does in
/// between: with k operations per access, the sampled operation is the access in one of k times.
const OPS_PER_SAMPLE: u64 = 10_000;
/// Walking one page's record in a hot section, in ns.
const WALK_NS: f64 = 1.0;

/// What the record can tell, by mode; times in ms, as at HZ=1000.
struct Layout {
    freq_max: u8,
    /// The record keeps multiples of this.
    unit_ms: u64,
    /// And forgets multiples of this.
    wrap_ms: u64,
    window_ms: u64,
    /// Two hint faults count, however far apart they are.
    faults_have_no_window: bool,
}

const DEFAULT: Layout = Layout {
    freq_max: 3,
    unit_ms: 128,
    wrap_ms: 4096,
    window_ms: 3000,
    faults_have_no_window: false,
};
const PRECISION: Layout = Layout {
    freq_max: 7,
    unit_ms: 1,
    wrap_ms: 16_384,
    window_ms: 5000,
    faults_have_no_window: false,
};
/// Versions 3 and 4: 64 bits a page.
const WIDE: Layout = Layout {
    freq_max: 7,
    unit_ms: 1,
    wrap_ms: 1 << 19,
    window_ms: 5000,
    faults_have_no_window: true,
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Record {
    freq: u8,
    is_ready: bool,
    /// Modulo the layout's wrap.
    time_ms: u32,
}

struct Proposal {
    layout: Layout,
    freq_threshold: u8,
    sleep_ms: u64,
    has_pgtscan: bool,
    has_hint_faults: bool,
    has_samples: bool,
    has_reads: bool,
    /// Accesses of each CPU since its last sample.
    unsampled: Vec<u64>,
    records: Vec<Record>,
    /// Folios that became ready, by section: the sections that kmigrated walks.
    ready: Vec<Vec<Page>>,
    is_active: bool,
    due_ns: u64,
    scan_due_ms: u64,
    gates: Vec<KernelGate>,
    target: usize,
}

impl Proposal {
    fn new(world: &World, settings: &[Setting]) -> Result<Proposal, Error> {
        let pages = world.memory.end();
        let lower = world.spec.lower_tier().next().unwrap_or(0);
        let mut proposal = Proposal {
            layout: DEFAULT,
            freq_threshold: 2,
            sleep_ms: 100,
            has_pgtscan: false,
            has_hint_faults: true,
            has_samples: false,
            has_reads: false,
            unsampled: Vec::new(),
            records: vec![Record::default(); pages as usize],
            ready: vec![Vec::new(); pages.div_ceil(SECTION_PAGES) as usize],
            is_active: false,
            due_ns: 0,
            scan_due_ms: KLRUSCAND_MS,
            gates: vec![KernelGate::default(); world.nodes.len()],
            target: world.spec.nearest_top_tier(lower) as usize,
        };
        let mode = settings.iter().find(|(name, _)| name == "mode");
        proposal.layout = match mode.map(|(_, value)| value.as_str()) {
            Some("precision") => PRECISION,
            Some("wide") => WIDE,
            _ => DEFAULT,
        };
        for (name, value) in settings {
            proposal.set(name, value)?;
        }
        Ok(proposal)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let number = value.parse::<u64>().ok();
        let max = u64::from(self.layout.freq_max);
        match (name, number) {
            ("mode", _) if ["default", "precision", "wide"].contains(&value) => {}
            ("freq_threshold", Some(n)) if (1..=max).contains(&n) => self.freq_threshold = n as u8,
            ("freq_window_ms", Some(n)) if (1..=60_000).contains(&n) => self.layout.window_ms = n,
            ("kmigrated_sleep_ms", Some(n)) if (50..=1000).contains(&n) => self.sleep_ms = n,
            ("pgtscan", Some(n)) if n <= 1 => self.has_pgtscan = n == 1,
            ("hint_faults", Some(n)) if n <= 1 => self.has_hint_faults = n == 1,
            ("hwhints", Some(n)) if n <= 1 => self.has_samples = n == 1,
            ("fma", Some(n)) if n <= 1 => self.has_reads = n == 1,
            (
                "mode" | "freq_threshold" | "freq_window_ms" | "kmigrated_sleep_ms" | "pgtscan"
                | "hint_faults" | "hwhints" | "fma",
                _,
            ) => {
                return Err(Error::field(name, format!("it cannot be `{value}`")));
            }
            _ => return Err(Error::field(name, "this system has no such setting")),
        }
        Ok(())
    }

    /// Since the record's time, as far as it can tell: an old access looks recent again.
    fn latency_ms(&self, record: Record, now_ms: u64) -> u64 {
        let Layout {
            unit_ms, wrap_ms, ..
        } = self.layout;
        let now = now_ms / unit_ms * unit_ms % wrap_ms;
        (now + wrap_ms - u64::from(record.time_ms)) % wrap_ms
    }

    fn report(&mut self, head: Page, now_ms: u64, has_window: bool) {
        let old = self.records[head as usize];
        let is_within = !has_window || self.latency_ms(old, now_ms) <= self.layout.window_ms;
        let freq = match is_within {
            true => (old.freq + 1).min(self.layout.freq_max),
            false => 1,
        };
        let Layout {
            unit_ms, wrap_ms, ..
        } = self.layout;
        // In default mode the bit stays until kmigrated takes it; in precision mode a new window
        // clears it.
        let stays = unit_ms > 1 && old.is_ready;
        let record = Record {
            freq,
            is_ready: freq >= self.freq_threshold || stays,
            time_ms: (now_ms / unit_ms * unit_ms % wrap_ms) as u32,
        };
        self.records[head as usize] = record;
        if record.is_ready {
            self.ready[(head / SECTION_PAGES) as usize].push(head);
            self.is_active = true;
        }
    }

    /// One pass of kmigrated over the hot sections; what it took, in ns.
    fn pass(&mut self, world: &mut World) -> f64 {
        self.is_active = false;
        let mut spent_ns = 0.0;
        for section in 0..self.ready.len() {
            let mut ready = std::mem::take(&mut self.ready[section]);
            if ready.is_empty() {
                continue;
            }
            // The walk meets them by address. Reports since may have made one not ready again, or
            // told twice.
            ready.sort_unstable();
            spent_ns += f64::from(SECTION_PAGES) * WALK_NS;
            let mut batch = Vec::with_capacity(BATCH_FOLIOS);
            for head in ready {
                let Some(pages) = self.take(world, head) else {
                    continue;
                };
                batch.push((head, pages));
                if batch.len() == BATCH_FOLIOS {
                    spent_ns += self.migrate(world, &mut batch);
                }
            }
            spent_ns += self.migrate(world, &mut batch);
        }
        spent_ns
    }

    /// Consumes a ready record, whatever becomes of the page, and returns the folio's pages if it
    /// may go.
    fn take(&mut self, world: &mut World, head: Page) -> Option<u32> {
        let record = self.records[head as usize];
        if !record.is_ready {
            return None;
        }
        self.records[head as usize] = Record::default();
        let is_here = world.memory.state(head) & ABSENT == 0
            && !world.nodes[world.memory.node(head)].is_top_tier;
        let pages = world
            .memory
            .region_of(head)
            .filter(|_| is_here)?
            .folio_pages;
        let latency_ms = self.latency_ms(record, world.now_ms());
        let window_ms = self.layout.window_ms;
        let may_go =
            self.gates[self.target].admit(world, self.target, pages, latency_ms, window_ms);
        (may_go && has_room(world, self.target, pages)).then_some(pages)
    }

    fn migrate(&self, world: &mut World, batch: &mut Vec<(Page, u32)>) -> f64 {
        let mut spent_ns = 0.0;
        for (head, pages) in batch.drain(..) {
            if world.move_folio(head, pages, self.target) {
                spent_ns += match pages {
                    1 => world.spec.costs.demote_ns,
                    _ => world.spec.costs.move_huge_ns,
                };
            }
        }
        spent_ns
    }

    /// `klruscand`: every accessed bit of the lower tier.
    fn scan(&mut self, world: &mut World, tasks: &[Task]) {
        if !self.has_pgtscan || world.now_ms() < self.scan_due_ms {
            return;
        }
        self.scan_due_ms = world.now_ms() + KLRUSCAND_MS;
        let walked = tasks
            .iter()
            .filter(|task| task.is_running() && task.region.backing.is_mapped());
        for task in walked {
            let pages = task.region.pages.clone();
            for head in pages.clone().step_by(task.region.folio_pages as usize) {
                let is_here = world.memory.state(head) & ABSENT == 0
                    && !world.nodes[world.memory.node(head)].is_top_tier;
                if is_here && world.heat.is_accessed(&world.memory, head, world.now_ns) {
                    self.report(head, world.now_ms(), true);
                }
            }
            world.counters.daemon_ns += pages.len() as f64 * world.spec.costs.accessed_bit_ns;
            let World {
                heat,
                memory,
                now_ns,
                ..
            } = world;
            heat.clear(memory, pages, *now_ns);
        }
    }
}

impl System for Proposal {
    fn is_tiering(&self) -> bool {
        self.has_hint_faults
    }

    fn hint_fault(&mut self, world: &mut World, fault: &Fault) -> f64 {
        let has_window = !self.layout.faults_have_no_window;
        self.report(fault.head, world.now_ms(), has_window);
        0.0
    }

    fn miss_period(&self) -> Option<u64> {
        self.has_samples.then_some(OPS_PER_SAMPLE)
    }

    fn miss(&mut self, world: &mut World, touch: &Touch) {
        let cpu = touch.cpu as usize;
        if self.unsampled.len() <= cpu {
            self.unsampled.resize(cpu + 1, 0);
        }
        self.unsampled[cpu] += touch.count;
        if self.unsampled[cpu] < OPS_PER_SAMPLE {
            return;
        }
        self.unsampled[cpu] = 0;
        if !world.nodes[world.memory.node(touch.head)].is_top_tier {
            self.report(touch.head, world.now_ms(), true);
        }
    }

    fn wants_reads(&self) -> bool {
        self.has_reads
    }

    fn read(&mut self, world: &mut World, touch: &Touch) {
        if !world.nodes[world.memory.node(touch.head)].is_top_tier {
            self.report(touch.head, world.now_ms(), true);
        }
    }

    fn step(&mut self, world: &mut World, tasks: &[Task]) {
        self.scan(world, tasks);
        if world.now_ns < self.due_ns {
            return;
        }
        // While reports come, it does not sleep between passes.
        self.due_ns = world.now_ns;
        if self.is_active {
            let spent_ns = self.pass(world);
            world.counters.daemon_ns += spent_ns;
            self.due_ns += spent_ns as u64;
        } else {
            self.due_ns += self.sleep_ms * 1_000_000;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Simulation;
    use crate::scenario::Scenario;
    use std::path::Path;

    fn proposal(settings: &[Setting]) -> Result<Proposal, Error> {
        let text = "name = 'x'\n[machine]\n[[machine.node]]\nmemory_mib = 64\ncpus = 1\n\
            latency_ns = [100, 200]\n[[machine.node]]\nmemory_mib = 64\n[[process]]\n\
            memory_mib = 16\nworkload = 'uniform'\naccesses = 1\n";
        let scenario = Scenario::parse(text, Path::new("x")).unwrap();
        let simulation = Simulation::new(&scenario, "none", &[]).unwrap();
        Proposal::new(simulation.world(), settings)
    }

    #[test]
    fn an_old_access_looks_recent_again() {
        let mut proposal = proposal(&[]).unwrap();
        proposal.report(7, 10_000, true);
        proposal.report(7, 10_000 + 4096 + 500, true);
        assert!(
            proposal.records[7].is_ready,
            "4.6 s look like half a second"
        );
        proposal.report(8, 10_000, true);
        proposal.report(8, 10_000 + 3500, true);
        assert!(!proposal.records[8].is_ready, "but 3.5 s do not");
    }

    #[test]
    fn settings_are_checked() {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let precise = [set("freq_threshold", "7"), set("mode", "precision")];
        let precise = proposal(&precise).unwrap();
        assert_eq!(
            (precise.freq_threshold, precise.layout.wrap_ms),
            (7, 16_384)
        );
        for (name, value) in [("freq_threshold", "4"), ("pgtscan", "x"), ("nonsense", "1")] {
            let error = proposal(&[set(name, value)]).err().map(|e| e.to_string());
            assert!(error.is_some_and(|error| error.contains(name)));
        }
    }
}
