//! Sources on a modelled machine: each reports what it would see of the accesses there, in
//! simulated time. A fake makes its source's own decisions (how often, how much, what counts), by
//! the same code where that is pure, and takes from the model what the real one takes from the
//! kernel.
//!
//! Not in any fake: what page tables say of a page's birth, since a model need not set that bit;
//! stale TLB entries.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::{FAULT_CLASSES, Nid, Pfn, Rule, Table};

use crate::bulk::BulkReporter;
use crate::young::Young;
use crate::{Config, Descriptor, SourceStats};

/// An access, as a source meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolioAccess {
    /// The folio, by its first page.
    pub head: Pfn,
    /// Base pages of the folio.
    pub pages: u64,
    /// The accessing CPU.
    pub cpu: u32,
    /// Its node; for accessed bits, which do not tell, the node to be named.
    pub nid: Nid,
    /// Hint faults see this page: anonymous, and mapped by one process.
    pub is_hinted: bool,
}

/// What a kernel or a CPU notices by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A touch of an entry that NUMA balancing had marked, so long ago.
    HintFault(Duration),
    /// A read of page cache that no process maps, by a system call.
    CacheRead,
    /// The last of so many loads of a CPU that had to wait for memory: what sampling hardware
    /// counts.
    Misses(u64),
    /// A hint of an application.
    Hint,
}

/// Whose accessed bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BitOwner {
    /// A process's page tables.
    Process(u32),
    /// A control group's pages on one lower-tier node.
    Lruvec {
        /// The kernel's id of the group.
        memcg_id: u64,
        /// The node.
        nid: Nid,
    },
}

/// The accessed bits of a modelled machine. Pages are numbered within their owner, in the order of
/// addresses, those of other tiers left out.
pub trait AccessedBits {
    /// Everything that has pages in the lower tier, and how many.
    fn owners(&self) -> Vec<(BitOwner, u64)>;

    /// Clears the bits of these pages of an owner.
    fn clear(&mut self, owner: BitOwner, pages: Range<u64>);

    /// CPU time that all calls took so far: what a source's budget is about.
    fn spent(&self) -> Duration {
        Duration::ZERO
    }

    /// Shows each folio of these pages whose bit is set.
    fn young(&self, owner: BitOwner, pages: Range<u64>, sink: &mut dyn FnMut(&FolioAccess));
}

/// A source on a modelled machine.
pub trait Fake: Send {
    /// Whom it stands in for.
    fn descriptor(&self) -> &'static Descriptor;

    /// Works so from now on.
    fn configure(&mut self, config: &Config);

    /// Something happened. Most sources wait for one kind of event, or for none.
    fn event(&mut self, _event: Event, _access: &FolioAccess, _now: Duration) {}

    /// Of so many misses of a CPU it looks at one: a model that does not know the others need not
    /// show them, if it counts them.
    fn miss_period(&self) -> u64 {
        1
    }

    /// Does what is due, and says how soon it wants to be asked again; `None` for never.
    fn step(&mut self, _bits: &mut dyn AccessedBits, _now: Duration) -> Option<Duration> {
        None
    }

    /// What it reported.
    fn stats(&self) -> SourceStats;

    /// Hint faults that it saw, by [`pghot_hotness::fault_class`].
    fn fault_times(&self) -> [u64; FAULT_CLASSES] {
        [0; FAULT_CLASSES]
    }
}

/// Reports the young pages of an owner that `is_due`, but for those that hint faults report.
pub(crate) fn report_young(
    reporter: &BulkReporter,
    leave_hinted: bool,
    bits: &dyn AccessedBits,
    (owner, pages): (BitOwner, Range<u64>),
    now: Duration,
    is_due: impl Fn(&FolioAccess) -> bool,
) -> Young {
    let ready_before = reporter.stats().became_ready;
    let mut young_pages = 0;
    bits.young(owner, pages, &mut |access| {
        if leave_hinted && access.is_hinted {
            return;
        }
        young_pages += access.pages;
        if is_due(access) {
            reporter.report_folio(access.head, access.nid, access.pages, now);
        }
    });
    Young {
        young_pages,
        ready: reporter.stats().became_ready - ready_before,
    }
}

/// By what rule an event counts as an access of its page, if it does.
pub(crate) type RuleOf = fn(Event, &Config) -> Option<Rule>;

/// The fake of a source that reports events as they come.
pub(crate) struct EventFake {
    descriptor: &'static Descriptor,
    rule_of: RuleOf,
    config: Config,
    reporter: Arc<BulkReporter>,
}

impl EventFake {
    pub(crate) fn boxed(
        descriptor: &'static Descriptor,
        rule_of: RuleOf,
        table: &Arc<Table>,
        config: &Config,
    ) -> Box<dyn Fake> {
        Box::new(EventFake {
            descriptor,
            rule_of,
            config: config.clone(),
            reporter: BulkReporter::new(table, &config.rule),
        })
    }
}

impl Fake for EventFake {
    fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    fn configure(&mut self, config: &Config) {
        self.reporter.set_rule(&config.rule);
        self.config = config.clone();
    }

    fn event(&mut self, event: Event, access: &FolioAccess, now: Duration) {
        if let Some(rule) = (self.rule_of)(event, &self.config) {
            self.reporter
                .report_folio_by(&rule, access.head, access.nid, access.pages, now);
        }
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pghot_engine::Settings;
    use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span};

    use super::*;
    use crate::{Kind, QuickFault, SOURCES, tunables};

    const FIRST: Pfn = SECTION_PAGES;
    const PAGES: u64 = 2048;
    const STEP: Duration = Duration::from_millis(20);
    /// Every cold page is touched once in this time.
    const SWEEP: Duration = Duration::from_secs(20);

    /// One process in one control group; every tenth page is hot, and shared if asked for.
    struct Model {
        young: Vec<bool>,
        is_hinted: bool,
        now: Duration,
    }

    impl Model {
        fn access(&self, page: u64) -> FolioAccess {
            FolioAccess {
                head: FIRST + page,
                pages: 1,
                cpu: 0,
                nid: 0,
                is_hinted: self.is_hinted,
            }
        }

        fn is_hot(page: u64) -> bool {
            page % 10 == 3
        }

        /// The next 20 ms: hot pages are touched, and the sweep goes on.
        fn run(&mut self) -> Vec<u64> {
            let swept = |at: Duration| {
                (PAGES as f64 * at.as_secs_f64() / SWEEP.as_secs_f64()) as u64 % PAGES
            };
            let (from, to) = (swept(self.now), swept(self.now + STEP));
            self.now += STEP;
            let is_touched = |page: &u64| Model::is_hot(*page) || (from..to).contains(page);
            let touched: Vec<u64> = (0..PAGES).filter(is_touched).collect();
            for &page in &touched {
                self.young[page as usize] = true;
            }
            touched
        }
    }

    impl AccessedBits for Model {
        fn owners(&self) -> Vec<(BitOwner, u64)> {
            let lruvec = BitOwner::Lruvec {
                memcg_id: 1,
                nid: 2,
            };
            vec![(BitOwner::Process(7), PAGES), (lruvec, PAGES)]
        }

        fn clear(&mut self, _owner: BitOwner, pages: Range<u64>) {
            self.young[pages.start as usize..pages.end as usize].fill(false);
        }

        fn young(&self, _owner: BitOwner, pages: Range<u64>, sink: &mut dyn FnMut(&FolioAccess)) {
            for page in pages.filter(|&page| self.young[page as usize]) {
                sink(&self.access(page));
            }
        }
    }

    fn config(leave_hinted: bool) -> Config {
        let settings = Settings::new(Format::Default);
        let mut config = tunables::config(&settings, settings.rule().unwrap());
        config.quick_fault = QuickFault::default();
        config.leave_hinted = leave_hinted;
        config
    }

    fn table() -> Arc<Table> {
        let range = PfnRange {
            start: FIRST,
            end: FIRST + SECTION_PAGES,
            nid: 2,
        };
        let span = Span::new(&[range]).unwrap();
        Arc::new(Table::in_memory(Format::Default, span))
    }

    fn model(is_hinted: bool) -> Model {
        Model {
            young: vec![false; PAGES as usize],
            is_hinted,
            now: Duration::from_secs(100),
        }
    }

    /// What is ever ready within 19 s, in which the sweep does not come round.
    fn ready(fake: &mut dyn Fake, table: &Table, model: &mut Model) -> BTreeSet<u64> {
        let rule = config(false).rule;
        let end = model.now + Duration::from_secs(19);
        let mut pages = BTreeSet::new();
        let mut due = Some(model.now);
        while model.now < end {
            for page in model.run() {
                for event in [
                    Event::HintFault(Duration::from_secs(1)),
                    Event::CacheRead,
                    Event::Misses(1),
                    Event::Hint,
                ] {
                    let access = model.access(page);
                    fake.event(event, &access, model.now);
                }
            }
            if due.is_some_and(|due| due <= model.now) {
                let now = model.now;
                due = fake.step(model, now).map(|wait| now + wait);
            }
            // As the migrator does; records that nobody ages are not trusted for long.
            let now_ms = model.now.as_millis() as u64;
            table.sweep(2, now_ms, rule.ageing_interval_ms(), &rule);
            table.ready_pages(2, &mut |page| {
                pages.insert(page.pfn - FIRST);
            });
        }
        pages
    }

    #[test]
    fn every_fake_finds_the_hot_pages_and_no_others() {
        let hot: BTreeSet<u64> = (0..PAGES).filter(|&page| Model::is_hot(page)).collect();
        for source in SOURCES {
            let table = table();
            // It runs alone: no reader of accessed bits sees what late hint faults leave.
            let mut fake = (source.fake)(&table, &config(source.kind == Kind::HintFaults));
            assert_eq!(fake.descriptor().name, source.name);
            let found = ready(&mut *fake, &table, &mut model(false));
            let stats = fake.stats();
            let right = found.intersection(&hot).count() as f64;
            let (recall, precision) = (right / hot.len() as f64, right / found.len() as f64);
            assert!(recall >= 0.95, "{}: recall {recall}", source.name);
            assert!(precision >= 0.95, "{}: precision {precision}", source.name);
            assert_eq!((stats.not_tracked, stats.lost), (0, 0));
        }
    }

    #[test]
    fn readers_of_accessed_bits_leave_to_hint_faults_what_those_see() {
        for source in SOURCES.iter().filter(|s| s.kind == Kind::PageTables) {
            let table = table();
            let mut fake = (source.fake)(&table, &config(true));
            let mut model = model(true);
            assert!(ready(&mut *fake, &table, &mut model).is_empty());
            assert_eq!(fake.stats().recorded, 0);
            fake.configure(&config(false));
            assert!(!ready(&mut *fake, &table, &mut model).is_empty());
        }
    }
}
