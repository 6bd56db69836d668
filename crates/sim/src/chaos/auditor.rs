//! Looks at the machine after each step, with books of its own: what must hold, whatever goes
//! wrong.

use pghot_engine::{Outcome, Totals};

use super::limit::{Bound, Limit, Slack};
use crate::machine::memory::{ABSENT, node_of};
use crate::machine::world::{Moved, Why, World};
use crate::systems::Setting;

/// No node: the page is absent.
const NOWHERE: u8 = u8::MAX;

/// The auditor's books.
pub struct Auditor {
    /// Where each folio is, by its head.
    nodes: Vec<u8>,
    hogged: u64,
    promote_limit: Limit,
    demote_limit: Limit,
    /// The interval between passes.
    sleep_ms: Bound,
    /// The largest ever, as the engine tells of its largest batch ever.
    batch_pages: u64,
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
            promote_limit: Limit::default(),
            demote_limit: Limit::default(),
            sleep_ms: Bound::default(),
            batch_pages: 0,
            promoted_pages: 0,
            earlier_pages: 0,
            counted_before: world.counters.promoted_pages,
        };
        auditor.relearn(world);
        for setting in settings {
            auditor.note_setting(world.now_ms(), setting);
        }
        auditor
    }

    /// The limits that the engine was told, up and down.
    pub fn limits_mbps(&self) -> (u64, u64) {
        (self.promote_limit.mbps(), self.demote_limit.mbps())
    }

    /// A tunable was changed.
    pub fn note_setting(&mut self, now_ms: u64, (name, value): &Setting) {
        let number = value.parse().unwrap_or(0);
        match name.as_str() {
            "promote_rate_limit_MBps" => self.promote_limit.set(now_ms, number),
            "demote_rate_limit_MBps" => self.demote_limit.set(now_ms, number),
            "kmigrated_sleep_ms" => self.sleep_ms.set(now_ms, number),
            "kmigrated_batch_nr" => self.batch_pages = number.max(self.batch_pages),
            _ => {}
        }
    }

    /// So many pages of node 0 are somebody else's.
    pub fn note_hog(&mut self, pages: u64) {
        self.hogged = pages;
    }

    /// The daemon's clock is ahead: by its own account it has earned more.
    pub fn note_clock_jump(&mut self) {
        self.promote_limit.forget();
        self.demote_limit.forget();
    }

    /// The daemon is about to be killed. The next one begins with a full bucket.
    pub fn forget(&mut self, totals: &[Totals]) {
        self.earlier_pages += moved_pages(totals);
        self.note_clock_jump();
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
        let is_wrong = |(state, known): (&u8, &u8)| place(*state) != *known;
        let pairs = || states.iter().zip(&self.nodes);
        // All are looked at after each step, so without a branch for each.
        if !pairs().fold(false, |any, pair| any | is_wrong(pair)) {
            return Ok(());
        }
        let wrong = pairs().position(is_wrong).unwrap_or_default();
        Err(format!(
            "page {wrong} is on node {} and should be on {}",
            place(states[wrong]),
            self.nodes[wrong]
        ))
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

    /// The rate limits, the room below, and the size of batches. A bucket of promotion holds what
    /// two intervals earn, that of demotion what a second does, and a huge page may overdraw both.
    fn bounds(&mut self, world: &World, totals: &[Totals]) -> Result<(), String> {
        let now_ms = world.now_ms();
        let regions = world.memory.regions().iter();
        let overdrawn = regions.map(|region| region.folio_pages).max();
        let overdrawn_pages = u64::from(overdrawn.unwrap_or(1));
        let up = Slack {
            saved_ms: 2 * self.sleep_ms.largest(now_ms),
            overdrawn_pages,
        };
        let down = Slack {
            saved_ms: 1000,
            overdrawn_pages,
        };
        let by_daemon = self.earlier_pages + moved_pages(totals);
        self.promote_limit
            .look(now_ms, by_daemon, up)
            .map_err(|found| format!("promoted: {found}"))?;
        self.demote_limit
            .look(now_ms, world.counters.demoted_by_request_pages, down)
            .map_err(|found| format!("demoted: {found}"))?;
        if world.counters.swapped_pages > 0 {
            return Err(format!(
                "demotion swapped {} pages out",
                world.counters.swapped_pages
            ));
        }
        let largest = totals
            .iter()
            .map(|totals| u64::from(totals.batch_pages_max))
            .max();
        if largest.is_some_and(|largest| largest > self.batch_pages.max(512)) {
            return Err(format!(
                "a batch had {largest:?} pages, and the limit is {}",
                self.batch_pages
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
