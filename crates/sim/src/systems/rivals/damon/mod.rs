//! DAMON's tiering as its authors' sample module `mtier` sets it up: hot regions of the lower tier
//! go up, cold ones of the top tier go down, both at most 200 MiB a second, and as much of that as
//! a goal for the top tier's used or free memory asks for.
//!
//! After `core.c`, `paddr.c` and `ops-common.c` of 7.2. The regions are in [`regions`]. In the
//! statistical mode DAMON does not clear anything: it remembers since when it wants to know, for a
//! sample by itself and for the page filter by block and node, and draws for that time. So samples
//! that share a block do not disturb each other, nor reclaim; and a filter that stops within a
//! block takes the whole block for visited.
//!
//! Left out: the tuning of the intervals, the time quota, watermarks, and the cost of finding who
//! maps a page.

mod regions;

use serde_json::{Value, json};

use crate::Error;
use crate::machine::memory::{ACTIVE, HUGE_PAGES, Page};
use crate::machine::world::World;
use crate::systems::system::{Descriptor, Setting, System};
use crate::traffic::task::Task;
use regions::{ACCESSES_MAX, AGGREGATION_NS, Monitor, Region, SAMPLE_NS, folios_on};

pub(in crate::systems) const DESCRIPTOR: Descriptor = Descriptor {
    name: "damon",
    doc: "DAMON's migrate_hot and migrate_cold, as its mtier sample sets them up.",
    make: |world, settings| Ok(Box::new(Damon::new(world, settings)?)),
};

/// From one application of a scheme to the next, and the window of its quota.
const APPLY_NS: u64 = 1_000_000_000;
const PAGE_BYTES: u64 = 4096;
/// Scores go from 0 to this.
const SCORE_MAX: usize = 99;
/// A goal that is reached, and a quota in parts of a byte.
const ONE_BP: u64 = 10_000;

/// How the quota follows the goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tuner {
    /// A little more or less each time, by how far the goal is.
    Consist,
    /// All of it until the goal is reached.
    Temporal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    MigrateHot,
    MigrateCold,
}

/// One kernel thread: a monitor with a scheme.
struct Context {
    monitor: Monitor,
    action: Action,
    /// The top-tier node that the goal is about, and where hot pages go.
    top: usize,
    /// When the filter looked at each block, in ns.
    seen_ns: Vec<u64>,
    /// What the tuner allows, in parts of a byte.
    quota_bp: u64,
    /// Where the quota was used up.
    resume_at: Option<Page>,
    tried_pages: u64,
    moved_pages: u64,
}

struct Damon {
    contexts: Vec<Context>,
    tuner: Tuner,
    quota_bytes: u64,
    used_goal_bp: u64,
    free_goal_bp: u64,
    sample_due_ns: u64,
    aggregation_due_ns: u64,
    apply_due_ns: u64,
}

impl Damon {
    fn new(world: &World, settings: &[Setting]) -> Result<Damon, Error> {
        let mut damon = Damon {
            contexts: Vec::new(),
            tuner: Tuner::Consist,
            quota_bytes: 200 << 20,
            used_goal_bp: 9970,
            free_goal_bp: 50,
            sample_due_ns: world.now_ns + SAMPLE_NS,
            aggregation_due_ns: world.now_ns + AGGREGATION_NS,
            apply_due_ns: world.now_ns + APPLY_NS,
        };
        for (name, value) in settings {
            damon.change(name, value)?;
        }
        let end = world.memory.end();
        let context = |action, nid: usize, top| Context {
            // Each thread has random numbers of its own.
            monitor: Monitor::new(nid, end, world.now_ns, nid as u64 + 1),
            action,
            top,
            seen_ns: vec![0; end.div_ceil(HUGE_PAGES) as usize],
            quota_bp: 0,
            resume_at: None,
            tried_pages: 0,
            moved_pages: 0,
        };
        for nid in world.spec.lower_tier() {
            let top = world.spec.nearest_top_tier(nid) as usize;
            damon
                .contexts
                .push(context(Action::MigrateHot, nid as usize, top));
        }
        let has_lower = !damon.contexts.is_empty();
        for (nid, node) in world.nodes.iter().enumerate() {
            if node.is_top_tier && has_lower {
                damon.contexts.push(context(Action::MigrateCold, nid, nid));
            }
        }
        Ok(damon)
    }

    fn change(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let number = value.parse::<u64>().ok();
        match (name, value, number) {
            ("goal_tuner", "consist", _) => self.tuner = Tuner::Consist,
            ("goal_tuner", "temporal", _) => self.tuner = Tuner::Temporal,
            ("quota_mib", _, Some(n)) if (1..=1 << 20).contains(&n) => self.quota_bytes = n << 20,
            // The sample refuses 0.
            ("mem_used_bp", _, Some(n)) if (1..=ONE_BP).contains(&n) => self.used_goal_bp = n,
            ("mem_free_bp", _, Some(n)) if (1..=ONE_BP).contains(&n) => self.free_goal_bp = n,
            ("goal_tuner" | "quota_mib" | "mem_used_bp" | "mem_free_bp", _, _) => {
                return Err(Error::field(name, format!("it cannot be `{value}`")));
            }
            _ => return Err(Error::field(name, "this system has no such setting")),
        }
        Ok(())
    }

    fn apply(&mut self, world: &mut World) {
        for context in &mut self.contexts {
            let goal_bp = match context.action {
                Action::MigrateHot => self.used_goal_bp,
                Action::MigrateCold => self.free_goal_bp,
            };
            let quota_bytes = context.tune(world, self.tuner, goal_bp, self.quota_bytes);
            let spent_ns = context.apply(world, quota_bytes / PAGE_BYTES);
            world.counters.daemon_ns += spent_ns;
        }
    }
}

/// `damon_feed_loop_next_input()`: a goal that is twice exceeded leaves the least, a byte.
fn next_quota_bp(last_bp: u64, score_bp: u64) -> u64 {
    let far = u128::from(score_bp.abs_diff(ONE_BP));
    let change = (u128::from(last_bp) * far / u128::from(ONE_BP)).min(1 << 60) as u64;
    match score_bp.cmp(&ONE_BP) {
        std::cmp::Ordering::Less => (last_bp + change).min(1 << 60),
        std::cmp::Ordering::Equal => last_bp,
        std::cmp::Ordering::Greater => last_bp.saturating_sub(change).max(ONE_BP),
    }
}

/// `damon_hot_score()` with equal weights of accesses and age.
fn hot_score(region: &Region) -> usize {
    let frequency = u64::from(region.accesses) * 100 / u64::from(ACCESSES_MAX);
    let age_s = u64::from(region.age) * AGGREGATION_NS / 1_000_000_000;
    let log = match age_s {
        0 => 0,
        _ => i64::from(age_s.ilog2()) + 1,
    };
    let log = if frequency == 0 { -log } else { log };
    let age = (log + 32) * 100 / 64;
    let mean = (frequency as i64 + age) / 2;
    (mean as usize * SCORE_MAX / 100).min(SCORE_MAX)
}

impl Context {
    /// What may be tried in the next window, in bytes.
    fn tune(&mut self, world: &World, tuner: Tuner, goal_bp: u64, most_bytes: u64) -> u64 {
        let node = &world.nodes[self.top];
        let pages = match self.action {
            Action::MigrateHot => node.pages - node.free,
            Action::MigrateCold => node.free,
        };
        let score_bp = pages * ONE_BP / node.pages.max(1) * ONE_BP / goal_bp;
        match tuner {
            Tuner::Temporal if score_bp >= ONE_BP => 0,
            Tuner::Temporal => most_bytes,
            Tuner::Consist => {
                self.quota_bp = next_quota_bp(self.quota_bp.max(ONE_BP), score_bp);
                most_bytes.min(self.quota_bp / ONE_BP)
            }
        }
    }

    fn score(&self, region: &Region) -> Option<usize> {
        match (self.action, region.accesses) {
            (Action::MigrateHot, 0) => None,
            (Action::MigrateHot, _) => Some(hot_score(region)),
            (Action::MigrateCold, 0) => Some(SCORE_MAX - hot_score(region)),
            (Action::MigrateCold, _) => None,
        }
    }

    /// The regions with the best scores, in the order of addresses, until so many pages were tried,
    /// whatever became of them. Returns what it took, in ns.
    fn apply(&mut self, world: &mut World, quota_pages: u64) -> f64 {
        if quota_pages == 0 {
            return 0.0;
        }
        let score_min = self.score_that_fills(world, quota_pages);
        let resume_at = self.resume_at.take().unwrap_or(0);
        let (mut left, mut spent_ns) = (quota_pages, 0.0);
        let mut regions = Vec::with_capacity(self.monitor.regions.len() + 1);
        for mut region in std::mem::take(&mut self.monitor.regions) {
            let is_due = region.pages.end > resume_at
                && self.score(&region).is_some_and(|score| score >= score_min);
            if left == 0 || !is_due {
                regions.push(region);
                continue;
            }
            let (end, tried, ns) = self.migrate(world, &region, left);
            left -= tried.min(left);
            spent_ns += ns;
            let rest = (end < region.pages.end).then(|| region.split_off(end));
            region.age = 0;
            regions.push(region);
            if left == 0 {
                self.resume_at = Some(end);
            }
            regions.extend(rest);
        }
        self.monitor.regions = regions;
        spent_ns
    }

    /// The least score such that all regions with that or more fill the quota.
    fn score_that_fills(&self, world: &World, quota_pages: u64) -> usize {
        let mut pages_of = [0u64; SCORE_MAX + 1];
        for region in &self.monitor.regions {
            if let Some(score) = self.score(region) {
                let mut pages = 0;
                let nid = self.monitor.nid;
                folios_on(&world.memory, region.pages.clone(), nid, &mut |_, folio| {
                    pages += u64::from(folio);
                    true
                });
                pages_of[score] += pages;
            }
        }
        let mut sum = 0;
        let fills = |score: &usize| {
            sum += pages_of[*score];
            sum >= quota_pages
        };
        (0..=SCORE_MAX).rev().find(fills).unwrap_or(0)
    }

    /// Tries at most so many pages of a region: up to which page it came, how many it tried, and
    /// what that took, in ns.
    fn migrate(&mut self, world: &mut World, region: &Region, most: u64) -> (Page, u64, f64) {
        let (mut tried, mut end) = (0, region.pages.end);
        let mut folios = Vec::new();
        let nid = self.monitor.nid;
        folios_on(
            &world.memory,
            region.pages.clone(),
            nid,
            &mut |head, pages| {
                // A quota of less than a folio moves it all the same, or none ever would.
                if tried >= most {
                    end = head;
                    return false;
                }
                tried += u64::from(pages);
                folios.push((head, pages));
                true
            },
        );
        let mut spent_ns = folios.len() as f64 * world.spec.costs.accessed_bit_ns;
        let wants_young = self.action == Action::MigrateHot;
        // The whole block is looked at before it counts as seen.
        for block in folios.chunk_by(|a, b| a.0 / HUGE_PAGES == b.0 / HUGE_PAGES) {
            let seen_ns = &mut self.seen_ns[(block[0].0 / HUGE_PAGES) as usize];
            let since_ns = std::mem::replace(seen_ns, world.now_ns);
            for &(head, pages) in block {
                if is_young(world, head, since_ns) == wants_young {
                    spent_ns += self.move_one(world, head, pages);
                }
            }
        }
        self.tried_pages += tried;
        (end, tried, spent_ns)
    }

    /// In the kernel's batches, at the price of kswapd's.
    fn move_one(&mut self, world: &mut World, head: Page, pages: u32) -> f64 {
        let to = match self.action {
            Action::MigrateHot => Some(self.top),
            // In the model a page that goes down goes where its number is from.
            Action::MigrateCold => world.memory.region_of(head).map(|r| r.home as usize),
        };
        if !to.is_some_and(|to| world.move_folio(head, pages, to)) {
            return 0.0;
        }
        self.moved_pages += u64::from(pages);
        match pages {
            1 => world.spec.costs.demote_ns,
            _ => world.spec.costs.move_huge_ns,
        }
    }
}

/// The page filter: whether a folio was accessed since the filter saw it last. It is old from now
/// on, but for reclaim, which finds the access in the page's flags.
fn is_young(world: &mut World, head: Page, since_ns: u64) -> bool {
    let World {
        heat,
        memory,
        now_ns,
        ..
    } = world;
    let is_young =
        memory.is_mapped(head) && heat.is_accessed_since(memory, head, since_ns, *now_ns);
    if is_young && heat.clear_one(memory, head) {
        memory.set(head, ACTIVE);
    }
    is_young
}

impl System for Damon {
    fn is_tiering(&self) -> bool {
        false
    }

    fn step(&mut self, world: &mut World, _tasks: &[Task]) {
        if world.now_ns < self.sample_due_ns {
            return;
        }
        self.sample_due_ns = world.now_ns + SAMPLE_NS;
        let mut bits = 0;
        for context in &mut self.contexts {
            bits += context.monitor.check(world);
        }
        if world.now_ns >= self.aggregation_due_ns {
            self.aggregation_due_ns = world.now_ns + AGGREGATION_NS;
            for context in &mut self.contexts {
                context.monitor.end();
            }
            if world.now_ns >= self.apply_due_ns {
                self.apply_due_ns = world.now_ns + APPLY_NS;
                self.apply(world);
            }
            for context in &mut self.contexts {
                context.monitor.begin();
            }
        }
        for context in &mut self.contexts {
            bits += context.monitor.sample(world);
        }
        world.counters.daemon_ns += bits as f64 * world.spec.costs.accessed_bit_ns;
    }

    fn set(&mut self, (name, value): &Setting) -> Result<(), Error> {
        self.change(name, value)
    }

    fn details(&self) -> Value {
        let context = |context: &Context| {
            json!({
                "action": match context.action {
                    Action::MigrateHot => "migrate_hot",
                    Action::MigrateCold => "migrate_cold",
                },
                "nid": context.monitor.nid,
                "regions": context.monitor.regions.len(),
                "tried_pages": context.tried_pages,
                "moved_pages": context.moved_pages,
            })
        };
        self.contexts.iter().map(context).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Run, Simulation};
    use crate::scenario::Scenario;
    use std::path::Path;

    const HOT: &str = "pattern = 'random'\nrange = [0.5, 0.6]\n";

    /// A process with its first pages in a top tier of 64 MiB; it only accesses what the phase
    /// says.
    fn run(mode: &str, near_share: f64, phase: &str, settings: &[(&str, &str)]) -> Run {
        let text = format!(
            "name = 'x'\nmode = '{mode}'\nseconds = 6\n[machine]\n[[machine.node]]\n\
             memory_mib = 64\ncpus = 1\nlatency_ns = [100, 200]\n[[machine.node]]\n\
             memory_mib = 512\n[[process]]\nmemory_mib = 256\nnear_share = {near_share}\n\
             [[process.phase]]\n{phase}accesses = 10_000_000_000\n"
        );
        let scenario = Scenario::parse(&text, Path::new("x")).unwrap();
        let settings: Vec<Setting> = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let simulation = Simulation::new(&scenario, "damon", &settings).unwrap();
        simulation.finish(&mut |_, _| {})
    }

    const ALL: (&str, &str) = ("goal_tuner", "temporal");

    #[test]
    fn a_small_hot_range_is_found_and_promoted() {
        for mode in ["exact", "statistical"] {
            let run = run(mode, 0.0, HOT, &[ALL]);
            let hot = 256 * 256 / 10;
            let promoted = run.counters.promoted_pages;
            assert!(promoted * 10 > hot * 9, "{mode}: {promoted} of {hot}");
            assert!(promoted <= hot + 1, "{mode}: pages that nobody accessed");
        }
    }

    #[test]
    fn nothing_is_promoted_that_is_not_accessed() {
        for mode in ["exact", "statistical"] {
            // What it accesses is all in the top tier.
            let phase = "pattern = 'random'\nrange = [0.0, 0.1]\n";
            let run = run(mode, 0.1, phase, &[ALL]);
            assert_eq!(run.counters.promoted_pages, 0, "{mode}");
        }
    }

    #[test]
    fn the_quota_is_kept() {
        for mode in ["exact", "statistical"] {
            let run = run(mode, 0.0, HOT, &[ALL, ("quota_mib", "1")]);
            for pair in run.series.windows(2) {
                let pages = pair[1].promoted_pages - pair[0].promoted_pages;
                assert!(pages <= 256, "{mode}: {pages} in a second");
            }
            assert!(run.counters.promoted_pages > 256, "{mode}");
        }
    }

    #[test]
    fn cold_pages_leave_a_full_top_tier() {
        for mode in ["exact", "statistical"] {
            // Of the free memory that is wanted, reclaim would leave less.
            let settings = [ALL, ("mem_free_bp", "2000")];
            let run = run(mode, 0.24, HOT, &settings);
            let (up, down) = (run.counters.promoted_pages, run.counters.demoted_pages);
            assert!(down > 2000, "{mode}: {down} down, {up} up");
            assert_eq!(run.counters.reclaim_ns, 0.0, "{mode}: reclaim did it");
        }
    }

    #[test]
    fn the_quota_grows_with_the_distance_from_the_goal() {
        assert_eq!(next_quota_bp(10_000, 0), 20_000);
        assert_eq!(next_quota_bp(10_000, 5000), 15_000);
        assert_eq!(next_quota_bp(30_000, 15_000), 15_000);
        assert_eq!(next_quota_bp(1 << 40, 20_000), 10_000, "the least");
        assert_eq!(next_quota_bp(777_777, 10_000), 777_777);
    }

    #[test]
    fn hot_and_long_scores_most() {
        let region = |accesses, age| {
            let mut monitor = Monitor::new(1, 1000, 0, 1);
            let region = &mut monitor.regions[0];
            (region.accesses, region.age) = (accesses, age);
            region.clone()
        };
        assert_eq!(hot_score(&region(20, 0)), 74);
        assert!(hot_score(&region(20, 600)) > hot_score(&region(20, 20)));
        assert!(hot_score(&region(1, 0)) < hot_score(&region(10, 0)));
        assert!(hot_score(&region(0, 600)) < hot_score(&region(0, 20)));
    }

    #[test]
    fn settings_are_checked() {
        let machine = "name = 'x'\n[machine]\n[[machine.node]]\nmemory_mib = 64\ncpus = 1\n\
            latency_ns = [100, 200]\n[[machine.node]]\nmemory_mib = 64\n[[process]]\n\
            memory_mib = 16\nworkload = 'uniform'\naccesses = 1\n";
        let scenario = Scenario::parse(machine, Path::new("x")).unwrap();
        for (name, value) in [("mem_free_bp", "0"), ("goal_tuner", "x"), ("nonsense", "1")] {
            let settings = [(name.to_owned(), value.to_owned())];
            let error = Simulation::new(&scenario, "damon", &settings).err();
            assert!(error.is_some_and(|error| error.to_string().contains(name)));
        }
    }
}
