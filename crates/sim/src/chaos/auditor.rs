//! Looks at the machine after each step, with books of its own: what must hold, whatever goes
//! wrong.

use std::collections::VecDeque;

use pghot_engine::{Outcome, Totals};

use crate::machine::PAGES_PER_MIB;
use crate::memory::{ABSENT, Page, node_of};
use crate::systems::Setting;
use crate::world::{Moved, Why, World};

/// No node: the page is absent.
const NOWHERE: u8 = u8::MAX;
/// Promotions are remembered for so long, to be held against the rate limit.
const REMEMBERED_MS: u64 = 5000;

/// The auditor's books.
pub struct Auditor {
    /// Where each folio is, by its head.
    nodes: Vec<u8>,
    hogged: u64,
    /// The tunables that bound what the engine may do: now, and the largest of the time
    /// remembered.
    rate_limit_mbps: u64,
    batch_pages: u64,
    sleep_ms: u64,
    settings_changed_ms: u64,
    largest_rate_mbps: u64,
    largest_batch_pages: u64,
    largest_sleep_ms: u64,
    /// Pages promoted by the daemon: (when, pages).
    promoted: VecDeque<(u64, u64)>,
    promoted_pages: u64,
    /// What daemons that were killed had promoted.
    earlier_pages: u64,
    /// Promoted when the auditor began.
    counted_before: u64,
}

impl Auditor {
    /// Opens the books.
    pub fn new(world: &World, settings: &[Setting]) -> Auditor {
        let mut auditor = Auditor {
            nodes: Vec::new(),
            hogged: 0,
            rate_limit_mbps: 0,
            batch_pages: 0,
            sleep_ms: 0,
            settings_changed_ms: 0,
            largest_rate_mbps: 0,
            largest_batch_pages: 0,
            largest_sleep_ms: 0,
            promoted: VecDeque::new(),
            promoted_pages: 0,
            earlier_pages: 0,
            counted_before: world.counters.promoted_pages,
        };
        auditor.relearn(world);
        for setting in settings {
            auditor.note_setting(setting);
        }
        auditor
    }

    /// The limit that the engine was told.
    pub fn rate_limit_mbps(&self) -> u64 {
        self.rate_limit_mbps
    }

    /// A tunable was changed. What was allowed before is allowed for as long as it is remembered.
    pub fn note_setting(&mut self, (name, value): &Setting) {
        let number = value.parse().unwrap_or(0);
        let (now, largest) = match name.as_str() {
            "promote_rate_limit_MBps" => (&mut self.rate_limit_mbps, &mut self.largest_rate_mbps),
            "kmigrated_batch_nr" => (&mut self.batch_pages, &mut self.largest_batch_pages),
            "kmigrated_sleep_ms" => (&mut self.sleep_ms, &mut self.largest_sleep_ms),
            _ => return,
        };
        *now = number;
        *largest = number.max(*largest);
        self.settings_changed_ms = self.promoted.back().map_or(0, |(ms, _)| *ms);
    }

    /// So many pages of node 0 are somebody else's.
    pub fn note_hog(&mut self, pages: u64) {
        self.hogged = pages;
    }

    /// The daemon's clock is ahead: by its own account it has earned more.
    pub fn note_clock_jump(&mut self) {
        self.promoted.clear();
    }

    /// The daemon is about to be killed. The next one begins with a full bucket.
    pub fn forget(&mut self, totals: &[Totals]) {
        self.earlier_pages += moved_pages(totals);
        self.promoted.clear();
    }

    /// Memory was freed and taken anew by others than the daemon.
    pub fn relearn(&mut self, world: &World) {
        let states = world.memory.states(0..world.memory.end());
        self.nodes = states.iter().map(|state| place(*state)).collect();
    }

    /// Looks. The error says what is wrong.
    pub fn look(
        &mut self,
        world: &World,
        moved: &[Moved],
        totals: &[Totals],
    ) -> Result<(), String> {
        for moved in moved {
            self.follow(world, moved)?;
        }
        self.places(world)?;
        self.free_pages(world)?;
        self.counters(world, totals)?;
        self.bounds(world, totals)
    }

    fn follow(&mut self, world: &World, moved: &Moved) -> Result<(), String> {
        let known = self.nodes[moved.head as usize];
        if usize::from(known) != moved.from {
            return Err(format!("{moved:?}, but the page was on node {known}"));
        }
        let (from, to) = (&world.nodes[moved.from], &world.nodes[moved.to]);
        if from.is_top_tier && to.is_top_tier {
            return Err(format!("{moved:?} promotes a page of the top tier"));
        }
        self.nodes[moved.head as usize] = moved.to as u8;
        if to.is_top_tier && moved.why == Why::Tiering {
            self.promoted_pages += u64::from(moved.pages);
        }
        Ok(())
    }

    /// No page is lost, or in two places.
    fn places(&self, world: &World) -> Result<(), String> {
        let states = world.memory.states(0..world.memory.end());
        let pairs = states.iter().zip(&self.nodes).zip(0..);
        let wrong = pairs.map(|((state, known), page)| (page, place(*state), *known));
        match wrong
            .into_iter()
            .find(|(_, is, known): &(Page, u8, u8)| is != known)
        {
            None => Ok(()),
            Some((page, is, known)) => Err(format!(
                "page {page} is on node {is} and should be on {known}"
            )),
        }
    }

    fn free_pages(&self, world: &World) -> Result<(), String> {
        let mut used = vec![0u64; world.nodes.len()];
        used[0] += self.hogged;
        for region in world.memory.regions() {
            let step = region.folio_pages as usize;
            for head in region.pages.clone().step_by(step) {
                if let Some(used) = used.get_mut(usize::from(self.nodes[head as usize])) {
                    *used += u64::from(region.folio_pages);
                }
            }
        }
        for ((node, used), nid) in world.nodes.iter().zip(used).zip(0..) {
            if used > 0 && !node.is_online {
                return Err(format!("node {nid} is offline and has {used} pages"));
            }
            if node.free + used != node.pages {
                return Err(format!(
                    "node {nid}: {} free and {used} used of {} pages",
                    node.free, node.pages
                ));
            }
        }
        Ok(())
    }

    fn counters(&self, world: &World, totals: &[Totals]) -> Result<(), String> {
        let counted = world.counters.promoted_pages - self.counted_before;
        let told =
            self.earlier_pages + moved_pages(totals) + world.counters.promoted_in_fault_pages;
        if counted != told || counted != self.promoted_pages {
            return Err(format!(
                "{counted} pages were promoted, {} moved up, and the engine tells of {told}",
                self.promoted_pages
            ));
        }
        Ok(())
    }

    /// The rate limit and the size of batches. A bucket holds what two intervals earn, and a huge
    /// page may overdraw it.
    fn bounds(&mut self, world: &World, totals: &[Totals]) -> Result<(), String> {
        let now_ms = world.now_ms();
        let by_daemon = self.earlier_pages + moved_pages(totals);
        self.promoted.push_back((now_ms, by_daemon));
        while self
            .promoted
            .front()
            .is_some_and(|(ms, _)| ms + REMEMBERED_MS < now_ms)
        {
            self.promoted.pop_front();
        }
        if now_ms > self.settings_changed_ms + REMEMBERED_MS {
            self.largest_rate_mbps = self.rate_limit_mbps;
            self.largest_sleep_ms = self.sleep_ms;
        }
        let per_ms = (self.largest_rate_mbps * PAGES_PER_MIB) as f64 / 1000.0;
        let folios = world
            .memory
            .regions()
            .iter()
            .map(|region| region.folio_pages);
        let overdrawn = f64::from(folios.max().unwrap_or(1));
        let slack = 2.0 * self.largest_sleep_ms as f64 * per_ms + overdrawn;
        // Each lower-tier node has a migrator with a bucket of its own.
        let lanes = totals.len().max(1) as f64;
        for (ms, before) in &self.promoted {
            let limit = lanes * ((now_ms - ms) as f64 * per_ms + slack);
            let promoted = by_daemon - before;
            if promoted as f64 > limit {
                return Err(format!(
                    "{promoted} pages were promoted in {} ms, and the limit is {limit:.0}",
                    now_ms - ms
                ));
            }
        }
        let largest = totals
            .iter()
            .map(|totals| u64::from(totals.batch_pages_max))
            .max();
        if largest.is_some_and(|largest| largest > self.largest_batch_pages.max(512)) {
            return Err(format!(
                "a batch had {largest:?} pages, and the limit is {}",
                self.largest_batch_pages
            ));
        }
        Ok(())
    }
}

fn place(state: u8) -> u8 {
    match state & ABSENT {
        0 => node_of(state) as u8,
        _ => NOWHERE,
    }
}

fn moved_pages(totals: &[Totals]) -> u64 {
    totals
        .iter()
        .map(|totals| totals.outcomes.get(Outcome::Moved))
        .sum()
}
