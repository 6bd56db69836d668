//! The migrator of one lower-tier node: what one pass does, in order.

use std::collections::{BTreeMap, HashMap, HashSet};

use pghot_hotness::{Nid, Pfn, Rule, Table};
use serde::{Deserialize, Serialize};

use crate::batch::Batches;
use crate::retry::Retries;
use crate::select::{Candidate, Hottest};
use crate::{
    Batch, Decision, Found, Gate, Held, HotFolio, Journal, Machine, NodeRole, Outcome, Owner,
    Place, Settings, Tally,
};

/// Pages resolved per call: the resolver's batch, and the most that is resolved in vain when a
/// gate closes in between.
const RESOLVE_PAGES: usize = 4096;

/// The most candidates that one pass considers (24 bytes each), whatever the rate limit.
const PICK_PAGES: u64 = 1 << 18;

/// Waiting pages by reason.
pub type HeldPages = BTreeMap<Held, u64>;

/// What a migrator has done since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Passes over the node.
    pub passes: u64,
    /// Hot sections that passes have read.
    pub hot_sections: u64,
    /// Base pages by outcome.
    pub outcomes: Tally,
    /// Large folios among the moved, each counted once.
    pub large_folios_moved: u64,
    /// Batches handed to the machine, and the base pages of the largest.
    pub batches: u64,
    /// Base pages of the largest batch.
    pub batch_pages_max: u32,
    /// The longest that one batch took in the kernel, in ms.
    pub batch_ms_max: u64,
    /// The longest that one pass took, in ms.
    pub pass_ms_max: u64,
    /// Records that left the window.
    pub expired: u64,
    /// Of those, ready pages that went cold before they could move.
    pub expired_ready: u64,
}

/// What one pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassReport {
    /// When it began, `CLOCK_MONOTONIC` ms.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Ready pages it saw.
    pub ready: u64,
    /// Base pages that moved.
    pub moved_pages: u64,
    /// Ready pages that wait, by reason.
    pub held: HeldPages,
    /// The node is offline or not a lower tier any more: nothing was looked at.
    pub node_absent: bool,
}

/// Promotes the hot pages of one lower-tier node.
///
/// ```text
/// age what is due → pick the ready pages of hot sections → keep the hottest that the rate allows
///   → gate by target → resolve → gate by size → batch by owner and target
///   → room? → promote → settle every folio by its outcome
/// ```
///
/// A record is consumed only when its page is settled ([`Outcome::settles`]). Everything else
/// stays ready in the table, which is the only queue: a pass that ends early, a closed gate or a
/// restart loses nothing, and a page is in at most one batch.
pub struct Migrator {
    nid: Nid,
    gates: BTreeMap<Nid, Gate>,
    retries: Retries,
    hottest: Hottest,
    journal: Journal,
    totals: Totals,
}

/// What lives for one pass only.
struct Pass<'a> {
    table: &'a Table,
    settings: &'a Settings,
    rule: &'a Rule,
    machine: &'a mut dyn Machine,
    report: PassReport,
    roles: HashMap<Nid, NodeRole>,
    /// Targets that had no room for a whole batch.
    full: HashSet<Nid>,
    /// Heads of large folios already in a batch: several of their pages may be ready.
    heads: HashSet<Pfn>,
    batches: Batches,
    outcomes: Vec<Outcome>,
}

impl Pass<'_> {
    fn hold(&mut self, held: Held, pages: u64) {
        if pages > 0 {
            *self.report.held.entry(held).or_default() += pages;
        }
    }

    fn role(&mut self, nid: Nid) -> NodeRole {
        *self
            .roles
            .entry(nid)
            .or_insert_with(|| self.machine.role(nid))
    }

    /// Precision mode knows the accessing node; default mode, and a node that left the top tier
    /// meanwhile, take the tunable.
    fn target(&mut self, candidate: &Candidate) -> Option<Nid> {
        let accessing = candidate
            .record
            .nid()
            .filter(|&n| self.role(n) == NodeRole::TopTier);
        let target = accessing.unwrap_or(self.settings.target_nid);
        (self.role(target) == NodeRole::TopTier).then_some(target)
    }
}

impl Migrator {
    /// A migrator for the lower-tier node `nid`.
    pub fn new(nid: Nid) -> Migrator {
        Migrator {
            nid,
            gates: BTreeMap::new(),
            retries: Retries::default(),
            hottest: Hottest::default(),
            journal: Journal::default(),
            totals: Totals::default(),
        }
    }

    /// The node it serves.
    pub fn nid(&self) -> Nid {
        self.nid
    }

    /// What it has done so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Its last decisions.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// One pass over the node. `rule` must be of the table's format.
    pub fn pass(
        &mut self,
        table: &Table,
        settings: &Settings,
        rule: &Rule,
        machine: &mut dyn Machine,
    ) -> PassReport {
        let now_ms = machine.now_ms();
        let mut pass = Pass {
            table,
            settings,
            rule,
            machine,
            report: PassReport {
                started_ms: now_ms,
                ..PassReport::default()
            },
            roles: HashMap::new(),
            full: HashSet::new(),
            heads: HashSet::new(),
            batches: Batches::default(),
            outcomes: Vec::new(),
        };
        self.totals.passes += 1;
        let swept = table.sweep(self.nid, now_ms, rule.ageing_interval_ms(), rule);
        self.totals.expired += swept.expired;
        self.totals.expired_ready += swept.expired_ready;
        if pass.role(self.nid) == NodeRole::LowerTier {
            self.promote_hottest(&mut pass, now_ms);
        } else {
            pass.report.node_absent = true;
        }
        pass.report.ended_ms = pass.machine.now_ms();
        let pass_ms = pass.report.ended_ms.saturating_sub(now_ms);
        self.totals.pass_ms_max = self.totals.pass_ms_max.max(pass_ms);
        pass.report
    }

    fn promote_hottest(&mut self, pass: &mut Pass, now_ms: u64) {
        self.pick(pass, now_ms);
        let picked = self.hottest.finish().to_vec();
        pass.hold(Held::RateLimit, self.hottest.seen() - picked.len() as u64);
        for chunk in picked.chunks(RESOLVE_PAGES) {
            if pass.machine.stop_requested() {
                pass.hold(Held::Stopping, chunk.len() as u64);
            } else {
                self.gate_and_batch(pass, chunk);
            }
        }
        for batch in pass.batches.drain() {
            self.promote(pass, batch);
        }
    }

    /// Collects the hottest ready pages, as many as the rate limit can let through.
    fn pick(&mut self, pass: &mut Pass, now_ms: u64) {
        let (rate, sleep) = (
            pass.settings.promote_rate_limit_mbps,
            pass.settings.kmigrated_sleep_ms as u64,
        );
        self.gates.entry(pass.settings.target_nid).or_default();
        let mut unseen = Gate::default();
        let mut pages = 0;
        for gate in self.gates.values_mut().chain([&mut unseen]) {
            gate.refill(now_ms, rate, sleep);
            pages += gate.tokens_pages();
        }
        self.hottest.start(pages.min(PICK_PAGES) as usize);
        self.retries.expire(now_ms);
        let mut waiting = 0;
        let mut ready = 0;
        self.totals.hot_sections += pass.table.ready_pages(self.nid, &mut |page| {
            // A page that went cold is not picked; the next ageing clears its record.
            if !page.record.is_fresh(now_ms, pass.rule) {
                return;
            }
            ready += 1;
            if self.retries.is_waiting(page.pfn, now_ms) {
                waiting += 1;
            } else {
                self.hottest.push(Candidate::new(page, now_ms));
            }
        });
        pass.report.ready = ready;
        pass.hold(Held::RetryLater, waiting);
    }

    /// The gate of a target, refilled when it is first met.
    fn gate(&mut self, target: Nid, settings: &Settings, now_ms: u64) -> &mut Gate {
        self.gates.entry(target).or_insert_with(|| {
            let mut gate = Gate::default();
            let sleep_ms = settings.kmigrated_sleep_ms as u64;
            gate.refill(now_ms, settings.promote_rate_limit_mbps, sleep_ms);
            gate
        })
    }

    /// Lets candidates through the gates that need no size, resolves them, lets the folios
    /// through the rate limit, and sends batches off as they fill.
    fn gate_and_batch(&mut self, pass: &mut Pass, candidates: &[Candidate]) {
        let now_ms = pass.machine.now_ms();
        let mut passed = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let Some(target) = pass.target(candidate) else {
                pass.hold(Held::TargetAbsent, 1);
                continue;
            };
            let closed = self.gate(target, pass.settings, now_ms).closed(now_ms);
            let closed = closed.or(pass.full.contains(&target).then_some(Held::NoRoom));
            match closed {
                Some(held) => pass.hold(held, 1),
                None => passed.push((*candidate, target)),
            }
        }
        if passed.is_empty() {
            return;
        }
        let pfns: Vec<Pfn> = passed.iter().map(|(c, _)| c.pfn).collect();
        let mut found = Vec::with_capacity(pfns.len());
        pass.machine.resolve(&pfns, &mut found);
        assert_eq!(
            found.len(),
            pfns.len(),
            "a machine must answer for every page"
        );
        for ((candidate, target), found) in passed.into_iter().zip(found) {
            self.admit(pass, candidate, target, found);
        }
    }

    fn admit(&mut self, pass: &mut Pass, candidate: Candidate, target: Nid, found: Found) {
        let now_ms = pass.machine.now_ms();
        let Candidate { pfn, record, .. } = candidate;
        let (freq, age_ms) = (record.freq(), record.age_ms(now_ms));
        let (place, head, pages) = match found {
            Found::Folio { place, head, pages } => (place, head, pages),
            Found::Unresolved(outcome) => {
                let folio = HotFolio {
                    pfn,
                    address: 0,
                    pages: 1,
                    freq,
                    age_ms,
                };
                self.settle(pass, None, target, folio, outcome);
                return;
            }
        };
        // A long pass may find that a page went cold, or was consumed, since it was picked.
        let now = pass.table.get(pfn);
        if !now.is_some_and(|r| r.is_ready() && r.is_fresh(now_ms, pass.rule)) {
            return;
        }
        if pages > 1 && !pass.heads.insert(head) {
            pass.table.take(pfn);
            return;
        }
        if let Err(held) = self
            .gate(target, pass.settings, now_ms)
            .admit(pages, now_ms)
        {
            pass.heads.remove(&head);
            pass.hold(held, pages as u64);
            return;
        }
        let folio = HotFolio {
            pfn,
            address: place.address,
            pages,
            freq,
            age_ms,
        };
        let limit = pass.settings.kmigrated_batch_nr;
        if let Some(full) = pass.batches.add(place.owner, target, folio, limit) {
            self.promote(pass, full);
        }
    }

    /// The last gate, room, and the move itself.
    fn promote(&mut self, pass: &mut Pass, mut batch: Batch) {
        let now_ms = pass.machine.now_ms();
        let target = batch.target;
        let gate = self.gate(target, pass.settings, now_ms);
        let (held, room) = if gate.is_backing_off(now_ms) {
            (Held::Backoff, 0)
        } else if pass.machine.stop_requested() {
            (Held::Stopping, 0)
        } else if pass.full.contains(&target) {
            (Held::NoRoom, 0)
        } else {
            (Held::NoRoom, pass.machine.room_pages(target))
        };
        if room < batch.pages as u64 {
            pass.full.insert(target);
            self.hold_back(pass, &mut batch, room, held);
        }
        if batch.folios.is_empty() {
            return;
        }
        self.totals.batches += 1;
        self.totals.batch_pages_max = self.totals.batch_pages_max.max(batch.pages);
        let mut outcomes = std::mem::take(&mut pass.outcomes);
        outcomes.clear();
        pass.machine.promote(&batch, &mut outcomes);
        assert_eq!(
            outcomes.len(),
            batch.folios.len(),
            "a machine must answer for every folio"
        );
        let handed_ms = now_ms;
        let now_ms = pass.machine.now_ms();
        self.totals.batch_ms_max = self.totals.batch_ms_max.max(now_ms - handed_ms);
        let gate = self.gate(target, pass.settings, now_ms);
        if outcomes.contains(&Outcome::NoMemory) {
            gate.back_off(now_ms);
        } else if outcomes.contains(&Outcome::Moved) {
            gate.relax();
        }
        for (folio, outcome) in batch.folios.iter().zip(&outcomes) {
            if !matches!(outcome, Outcome::Moved | Outcome::WouldMove) {
                self.gate(target, pass.settings, now_ms).refund(folio.pages);
            }
            self.settle(pass, Some(batch.owner), target, *folio, *outcome);
        }
        pass.outcomes = outcomes;
    }

    /// Cuts a batch down to its hottest folios that fit into `room` pages; the rest stays ready.
    fn hold_back(&mut self, pass: &mut Pass, batch: &mut Batch, room: u64, held: Held) {
        let mut kept_pages = 0u64;
        let mut fits = |f: &HotFolio| {
            kept_pages += f.pages as u64;
            kept_pages <= room
        };
        let keep = batch.folios.iter().take_while(|&f| fits(f)).count();
        for folio in batch.folios.drain(keep..) {
            batch.pages -= folio.pages;
            if let Some(gate) = self.gates.get_mut(&batch.target) {
                gate.refund(folio.pages);
            }
            pass.hold(held, folio.pages as u64);
        }
    }

    /// Counts and remembers how a folio ended; its record is used up only if that settles it.
    fn settle(
        &mut self,
        pass: &mut Pass,
        owner: Option<Owner>,
        target: Nid,
        folio: HotFolio,
        outcome: Outcome,
    ) {
        let now_ms = pass.machine.now_ms();
        self.totals.outcomes.add(outcome, folio.pages as u64);
        if outcome == Outcome::Moved {
            pass.report.moved_pages += folio.pages as u64;
            self.totals.large_folios_moved += (folio.pages > 1) as u64;
        }
        if outcome.settles() {
            pass.table.take(folio.pfn);
            self.retries.forget(folio.pfn);
        } else {
            self.retries.refuse(folio.pfn, now_ms);
        }
        self.journal.push(Decision {
            when_ms: now_ms,
            pfn: folio.pfn,
            nid: self.nid,
            target,
            place: owner.map(|owner| Place {
                owner,
                address: folio.address,
            }),
            pages: folio.pages,
            freq: folio.freq,
            age_ms: folio.age_ms,
            outcome,
        });
    }
}
