//! The source's thread: asks the kernel for agings as the schedule says, one by one, and counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use memmap2::MmapMut;
use pghot_engine::Turns;
use pghot_events::event;
use pghot_hotness::mirror;
use pghot_linux::SysRoot;
use pghot_linux::host::monotonic;
use pghot_linux::lru_gen::{self, Commands, Key, Listed, Mode, Refusal};
use pghot_linux::thread_cpu;

use super::generations::{Generations, Moment};
use crate::Config;
use crate::kernel::worker::Pace;
use crate::mglru::schedule::{Pass, Schedule};
use crate::young::Young;

/// The shortest sleep between two rounds: each reads the list of all memcgs.
const ROUND_MIN: Duration = Duration::from_millis(100);

/// What the thread and its source share.
pub struct Shared {
    config: Mutex<Config>,
    counters: [AtomicU64; COUNTERS.len()],
}

/// Names a counter in [`Shared`].
#[derive(Debug, Clone, Copy)]
enum Counter {
    Rounds,
    RoundsLruGenOff,
    RoundsUnreadable,
    Agings,
    AgingsNotReported,
    AgingUsMax,
    Lruvecs,
    LruvecsResting,
    LruvecsGone,
    RefusedMemcgGone,
    RefusedOvertaken,
    RefusedOther,
    RoundsOverBudget,
    NewPages,
    RecentPages,
}

/// The names in `status`, in the order of [`Counter`].
const COUNTERS: [&str; 15] = [
    "rounds",
    "rounds_lru_gen_off",
    "rounds_lru_gen_unreadable",
    "agings",
    "agings_not_reported",
    "aging_us_max",
    "lruvecs",
    "lruvecs_resting",
    "lruvecs_gone",
    "refused_memcg_gone",
    "refused_overtaken",
    "refused_other",
    "rounds_over_budget",
    "new_pages",
    "recent_pages",
];

impl Shared {
    /// Nothing counted yet.
    pub fn new(config: &Config) -> Arc<Shared> {
        Arc::new(Shared {
            config: Mutex::new(config.clone()),
            counters: Default::default(),
        })
    }

    /// The thread takes it over in its next round.
    pub fn configure(&self, config: &Config) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config.clone();
    }

    fn config(&self) -> Config {
        let config = self.config.lock();
        config.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All counters by name.
    pub fn details(&self) -> BTreeMap<String, u64> {
        let counters = COUNTERS.iter().zip(&self.counters);
        counters
            .map(|(name, count)| (name.to_string(), count.load(Ordering::Relaxed)))
            .collect()
    }

    fn add(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    fn set(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].store(n, Ordering::Relaxed);
    }

    fn max(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_max(n, Ordering::Relaxed);
    }
}

mirror! {
    /// Tells the program whose aging is to be reported, and what it found. See mglru.bpf.c.
    pub(crate) struct AgingState = "aging" {
        thread: AtomicU64,
        nid: AtomicU64,
        now_ms: AtomicU64,
        previous_ms: AtomicU64,
        leave_hinted: AtomicU64,
        recorded_pages: AtomicU64,
        ready_folios: AtomicU64,
        new_pages: AtomicU64,
        recent_pages: AtomicU64,
        folio: AtomicU64,
    }
}

/// The array `agings` of the program.
pub struct Aging(MmapMut);

impl Aging {
    /// `memory` maps the array.
    pub fn new(memory: MmapMut) -> Aging {
        Aging(memory)
    }

    fn state(&self) -> &AgingState {
        // SAFETY: the mapping is page-aligned and holds one; both sides access it by aligned 64-bit
        // accesses.
        unsafe { &*self.0.as_ptr().cast::<AgingState>() }
    }

    /// The agings of the calling thread are reported from now on. Its id is that in the initial PID
    /// namespace, where the daemon must live anyway to move other processes' pages.
    fn begin(&self, nid: u32, now: Duration, previous: Duration, leave_hinted: bool) {
        let state = self.state();
        let set = |field: &AtomicU64, value| field.store(value, Ordering::Relaxed);
        set(&state.nid, nid.into());
        set(&state.now_ms, now.as_millis() as u64);
        set(&state.previous_ms, previous.as_millis() as u64);
        set(&state.leave_hinted, leave_hinted.into());
        // SAFETY: gettid takes nothing and always succeeds.
        set(&state.thread, unsafe { libc::gettid() } as u64);
    }

    /// No more are reported. Returns what was found, and how many young pages were new and recent.
    fn end(&self) -> (Young, u64, u64) {
        let state = self.state();
        let take = |field: &AtomicU64| field.swap(0, Ordering::Relaxed);
        take(&state.thread);
        let (new_pages, recent_pages) = (take(&state.new_pages), take(&state.recent_pages));
        let found = Young {
            young_pages: take(&state.recorded_pages) + new_pages + recent_pages,
            ready: take(&state.ready_folios),
        };
        (found, new_pages, recent_pages)
    }
}

/// Everything the thread works with.
pub struct Ager {
    root: SysRoot,
    commands: Commands,
    /// Whose turn it is to clear accessed bits.
    turns: Turns,
    /// Lower-tier nodes, each with the node that its accesses are reported for.
    nodes: BTreeMap<u32, u32>,
    aging: Aging,
    /// Without a hook.
    generations: Option<Generations>,
    schedule: Schedule,
    shared: Arc<Shared>,
    was_off: bool,
}

impl Ager {
    /// Ages nothing yet.
    pub fn new(
        root: &SysRoot,
        commands: Commands,
        turns: &Turns,
        nodes: BTreeMap<u32, u32>,
        aging: Aging,
        generations: Option<Generations>,
        shared: &Arc<Shared>,
    ) -> Ager {
        Ager {
            root: root.clone(),
            commands,
            turns: turns.clone(),
            nodes,
            aging,
            generations,
            schedule: Schedule::new(&shared.config().rule, monotonic()),
            shared: Arc::clone(shared),
            was_off: false,
        }
    }

    /// Ages until the source is dropped.
    pub fn run(mut self, pace: &Pace) {
        loop {
            self.round(pace);
            let wait = self.schedule.wait(monotonic());
            if !pace.sleep(wait.max(ROUND_MIN)) {
                return;
            }
        }
    }

    /// Makes every pass that is due.
    fn round(&mut self, pace: &Pace) {
        self.shared.add(Counter::Rounds, 1);
        self.schedule.set_rule(&self.shared.config().rule);
        let cpu = thread_cpu();
        let Some(listed) = self.list() else { return };
        let round = monotonic();
        let gone = self.schedule.update(&listed, round);
        self.shared.add(Counter::LruvecsGone, gone);
        self.schedule.spend(thread_cpu().saturating_sub(cpu));
        let turn = self.turns.begin();
        while turn.is_some()
            && let Some(pass) = self.schedule.next(round)
            && !pace.is_ending()
        {
            let max_seq = listed.get(&pass.key).map_or(0, |l| l.max_seq);
            self.pass(pass, max_seq);
        }
        let (lruvecs, resting) = self.schedule.counts();
        self.shared.set(Counter::Lruvecs, lruvecs);
        self.shared.set(Counter::LruvecsResting, resting);
        let over_budget = self.schedule.is_over_budget();
        self.shared
            .add(Counter::RoundsOverBudget, over_budget.into());
    }

    /// The lower tier's lruvecs; none while MGLRU was switched off after the start.
    fn list(&mut self) -> Option<BTreeMap<Key, Listed>> {
        let enabled = std::fs::read_to_string(lru_gen::enabled_path(&self.root));
        let is_off = enabled.is_ok_and(|text| lru_gen::mode(&text) != Mode::Walks);
        if is_off {
            self.shared.add(Counter::RoundsLruGenOff, 1);
        }
        let text = match std::fs::read_to_string(lru_gen::path(&self.root)) {
            Ok(text) if !is_off => Some(text),
            Ok(_) => None,
            Err(_) => {
                self.shared.add(Counter::RoundsUnreadable, 1);
                None
            }
        };
        if text.is_none() && !self.was_off {
            event!(
                mglru_blind,
                "source mglru sees nothing any more: MGLRU or debugfs was switched off; {} and {} \
                 tell",
                lru_gen::enabled_path(&self.root).display(),
                lru_gen::path(&self.root).display()
            );
        }
        self.was_off = text.is_none();
        text.map(|text| lru_gen::parse(&text, |nid| self.nodes.contains_key(&nid)))
    }

    fn pass(&mut self, pass: Pass, max_seq: u64) {
        let (start, cpu) = (monotonic(), thread_cpu());
        if let Some(previous) = pass.previous
            && let Some(target) = self.nodes.get(&pass.key.nid)
        {
            let leave_hinted = self.shared.config().leave_hinted;
            self.aging.begin(*target, start, previous, leave_hinted);
        }
        // What a pass finds that only clears is of no interest.
        let generations = self
            .generations
            .as_ref()
            .filter(|_| pass.previous.is_some());
        if let Some(generations) = generations {
            generations.read(pass.key.nid, max_seq, Moment::Before);
        }
        let result = self.commands.age(pass.key, max_seq);
        if let Some(generations) = generations
            && result.is_ok()
        {
            generations.read(pass.key.nid, max_seq, Moment::After);
        }
        let (seen, new_pages, recent_pages) = self.aging.end();
        let cpu = thread_cpu().saturating_sub(cpu);
        let took = monotonic().saturating_sub(start);

        let shared = &self.shared;
        shared.add(Counter::NewPages, new_pages);
        shared.add(Counter::RecentPages, recent_pages);
        let refused = match result {
            Ok(()) => {
                shared.add(Counter::Agings, 1);
                shared.add(Counter::AgingsNotReported, pass.previous.is_none().into());
                shared.max(Counter::AgingUsMax, took.as_micros() as u64);
                self.schedule.done(pass, start, cpu, seen);
                return;
            }
            Err(Refusal::Gone) => Counter::RefusedMemcgGone,
            Err(Refusal::Overtaken) => Counter::RefusedOvertaken,
            Err(Refusal::Other) => Counter::RefusedOther,
        };
        shared.add(refused, 1);
        self.schedule.spend(cpu);
        self.schedule.refused(pass.key, start);
    }
}

#[cfg(test)]
mod tests {
    use pghot_engine::Settings;
    use pghot_hotness::Format;

    use super::*;

    #[test]
    fn every_counter_has_its_name() {
        let settings = Settings::new(Format::Default);
        let rule = settings.rule().unwrap();
        let shared = Shared::new(&Config::new(&settings, rule, []));
        shared.add(Counter::Rounds, 1);
        shared.max(Counter::AgingUsMax, 7);
        shared.max(Counter::AgingUsMax, 5);
        shared.set(Counter::RefusedOther, 2);
        shared.add(Counter::RecentPages, 3);
        let details = shared.details();
        let of = |name| details[name];
        assert_eq!(details.len(), COUNTERS.len());
        assert_eq!(
            [
                of("rounds"),
                of("aging_us_max"),
                of("refused_other"),
                of("recent_pages")
            ],
            [1, 7, 2, 3]
        );
    }

    #[test]
    fn an_aging_is_ours_from_begin_to_end() {
        let aging = Aging::new(MmapMut::map_anon(4096).unwrap());
        aging.begin(1, Duration::from_secs(3), Duration::from_secs(1), true);
        let state = aging.state();
        assert_ne!(state.thread.load(Ordering::Relaxed), 0);
        state.recorded_pages.store(512, Ordering::Relaxed);
        state.recent_pages.store(2, Ordering::Relaxed);
        state.ready_folios.store(1, Ordering::Relaxed);
        let (found, new_pages, recent_pages) = aging.end();
        assert_eq!((found.young_pages, found.ready), (514, 1));
        assert_eq!((new_pages, recent_pages), (0, 2));
        assert_eq!(state.thread.load(Ordering::Relaxed), 0);
        assert_eq!(aging.end(), (Young::default(), 0, 0));
    }
}
