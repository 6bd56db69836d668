//! The migrator of one lower-tier node: what one pass does, in order.

use std::collections::{BTreeMap, HashMap};

use pghot_hotness::{Format, Nid, Pfn, Rule, Swept, Table};

use crate::history::{Answer, History};
use crate::looks::Looks;
use crate::owners::{Owners, Sample};
use crate::pass::Pass;
use crate::retry::Retries;
use crate::select::{Candidate, Hottest};
use crate::sizes::Sizes;
use crate::targets::Targets;
use crate::{
    Batch, Decision, Found, Gate, Gates, Held, HotFolio, Journal, Machine, Moved, Outcome, Owner,
    PassReport, Place, Settings, Totals, Waiting,
};

/// Pages resolved per call: the resolver's batch, and the most that is resolved in vain when a
/// gate closes in between.
const RESOLVE_PAGES: usize = 4096;

/// The most candidates that one pass considers (24 bytes each), whatever the rate limit.
const PICK_PAGES: u64 = 1 << 18;

/// Promotes the hot pages of one lower-tier node.
///
/// ```text
/// pick the ready pages of hot sections → keep the hottest that the rate allows
///   → gate by target → resolve → gate by size → batch by owner and target
///   → room? → promote → settle every folio by its outcome
/// ```
///
/// Ageing ([`Table::sweep`]) is not part of it: a move may wait for a slow disk, and times in
/// records are unambiguous for some seconds only. The host calls it, whatever a pass is doing.
///
/// A record is consumed only when its page is settled ([`Outcome::settles`]). Everything else
/// stays ready in the table, which is the only queue: a pass that ends early, a closed gate or a
/// restart loses nothing, and a page is in at most one batch.
pub struct Migrator {
    nid: Nid,
    targets: Targets,
    gates: Gates,
    retries: Retries,
    hottest: Hottest,
    looks: Looks,
    sizes: Sizes,
    /// Ready pages that the last pass saw.
    last_ready: u64,
    history: History,
    journal: Journal,
    totals: Totals,
    /// By the last pass.
    moved: Vec<Moved>,
    /// Where it is counted by owner, if it is.
    owners: Option<Owners>,
    sample: Sample,
}

impl Migrator {
    /// A migrator for the lower-tier node `nid`, with what all of them share. It writes its
    /// decisions into `journal`.
    pub fn new(nid: Nid, history: History, gates: Gates, journal: Journal) -> Migrator {
        Migrator {
            nid,
            targets: Targets::default(),
            gates,
            retries: Retries::default(),
            hottest: Hottest::default(),
            looks: Looks::default(),
            sizes: Sizes::default(),
            last_ready: 0,
            history,
            journal,
            totals: Totals::default(),
            moved: Vec::new(),
            owners: None,
            sample: Sample::default(),
        }
    }

    /// Has it count by owner, too.
    pub fn count_owners(&mut self, owners: Owners) {
        self.owners = Some(owners);
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

    /// Counts what became of the node's records when they were aged.
    pub fn note_swept(&mut self, swept: Swept) {
        self.totals.expired += swept.expired;
        self.totals.expired_ready += swept.expired_ready;
    }

    /// What the last pass has moved.
    pub fn moved(&self) -> &[Moved] {
        &self.moved
    }

    /// One pass over the node. `rule` must be of the table's format.
    pub fn pass(
        &mut self,
        table: &Table,
        settings: &Settings,
        rule: &Rule,
        machine: &mut dyn Machine,
    ) -> PassReport {
        let mut pass = Pass::new(table, settings, rule, machine);
        pass.counts_owners = self.owners.is_some();
        self.totals.passes += 1;
        self.moved.clear();
        let now_ms = pass.report.started_ms;
        match pass.machine.top_tier_from(self.nid) {
            Some(top_tier) => {
                pass.top_tier = top_tier;
                self.promote_hottest(&mut pass, now_ms);
            }
            None => pass.report.node_absent = true,
        }
        if let Some(owners) = &self.owners {
            std::mem::take(&mut pass.entries).enter(owners, now_ms);
        }
        pass.report.ended_ms = pass.machine.now_ms();
        let pass_ms = pass.report.ended_ms.saturating_sub(now_ms);
        self.totals.pass_ms_max = self.totals.pass_ms_max.max(pass_ms);
        pass.report
    }

    fn promote_hottest(&mut self, pass: &mut Pass, now_ms: u64) {
        let began_ns = pass.machine.now_ns();
        let allowed = pass.allowed();
        let (target, room) =
            (self.targets).choose(allowed, self.sizes.pages(self.last_ready), pass.machine);
        pass.target = target;
        // In precision mode it is not known yet which targets there will be.
        let known = room.filter(|_| pass.settings.mode == Format::Default);
        // Room for less than one folio is no room.
        let known = known.map(|room| if room < self.sizes.pages(1) { 0 } else { room });
        if let Some(saw) = self.looks.in_vain(known, began_ns) {
            pass.report.repeat(saw);
            return;
        }
        self.pick(pass, known, now_ms);
        if let (Some(owners), Some(pfns)) = (&self.owners, self.sample.pfns()) {
            let taken = match pfns {
                [] => HashMap::new(),
                pfns => pass.owners_of(pfns),
            };
            owners.note_hot(self.nid, self.sample.spread(taken));
        }
        let picked = self.hottest.finish().to_vec();
        pass.report.picked = picked.len() as u64;
        let left = self.hottest.seen() - pass.report.picked;
        let held = match pass.scarce.is_empty() {
            true => Held::RateLimit,
            false => Held::NoRoom,
        };
        pass.hold(held, left);
        (self.looks).note(began_ns..pass.machine.now_ns(), &pass.report);
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

    /// Collects the hottest ready pages, as many as the rate limit and the room, where it is known,
    /// can let through: what finds no room is not worth being sorted, or asked where it is.
    fn pick(&mut self, pass: &mut Pass, known: Option<u64>, now_ms: u64) {
        let pages = self.gates.refill(pass.target, now_ms, pass.settings);
        let most = pages.min(PICK_PAGES).min(known.unwrap_or(u64::MAX));
        self.hottest.start(most as usize);
        self.sample.start(now_ms);
        self.retries.drop_old(now_ms);
        let freq_max = pass.settings.mode.freq_max();
        let mut waiting = 0;
        let mut by_target = BTreeMap::<Option<Nid>, Waiting>::new();
        // Neighbours have mostly been accessed from the same node.
        let mut last = (None, Waiting::default());
        self.totals.hot_sections += pass.table.ready_pages(self.nid, &mut |page| {
            // A page that went cold is not picked; the next ageing clears its record.
            if !page.record.is_fresh(now_ms, pass.rule) {
                return;
            }
            self.sample.see(page.pfn);
            if self.retries.is_waiting(page.pfn, now_ms) {
                waiting += 1;
                return;
            }
            if page.record.nid() != last.0 {
                *by_target.entry(last.0).or_default() += last.1;
                last = (page.record.nid(), Waiting::default());
            }
            *last.1.of(page.record.freq() >= freq_max) += 1;
            self.hottest.push(page, now_ms);
        });
        *by_target.entry(last.0).or_default() += last.1;
        by_target.retain(|_, here| here.pages() > 0);
        pass.report.ready = waiting + self.hottest.seen();
        self.last_ready = pass.report.ready;
        pass.hold(Held::RetryLater, waiting);
        for (accessing, here) in by_target {
            let Some(target) = pass.target(accessing) else {
                continue;
            };
            *pass.report.waiting.entry(target).or_default() += here.scaled(&self.sizes);
        }
        for (&target, waiting) in &pass.report.waiting {
            let room = match known {
                Some(room) if Some(target) == pass.target => room,
                _ => pass.machine.room_pages(target),
            };
            if room < waiting.pages() {
                pass.scarce.insert(target);
            }
        }
    }

    /// Lets candidates through the gates that need no size, resolves them, lets the folios
    /// through the rate limit, and sends batches off as they fill.
    fn gate_and_batch(&mut self, pass: &mut Pass, candidates: &[Candidate]) {
        let now_ms = pass.machine.now_ms();
        let mut passed = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let Some(target) = pass.target(candidate.record.nid()) else {
                pass.hold(Held::TargetAbsent, 1);
                continue;
            };
            let gate = |gate: &mut Gate| gate.closed(now_ms);
            let closed = self.gates.with(target, now_ms, pass.settings, gate);
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

    fn admit(&mut self, pass: &mut Pass, candidate: Candidate, meant: Nid, found: Found) {
        let now_ms = pass.machine.now_ms();
        let Candidate { pfn, record, .. } = candidate;
        let (freq, age_ms) = (record.freq(), record.age_ms(now_ms));
        let folio = |address, pages| HotFolio {
            pfn,
            address,
            pages,
            freq,
            age_ms,
        };
        let (place, head, pages) = match found {
            Found::Folio { place, head, pages } => (place, head, pages),
            Found::Unresolved(outcome) => {
                self.settle(pass, None, meant, folio(0, 1), outcome);
                return;
            }
        };
        let (owner, folio) = (place.owner, folio(place.address, pages));
        // A long pass may find that a page went cold, or was consumed, since it was picked.
        let now = pass.table.get(pfn);
        if !now.is_some_and(|r| r.is_ready() && r.is_fresh(now_ms, pass.rule)) {
            return;
        }
        if pages > 1 && !pass.heads.insert(head) {
            self.sizes.note(0);
            pass.table.take(pfn);
            return;
        }
        self.sizes.note(pages);
        if pass.is_excluded(owner) {
            self.settle(pass, Some(owner), meant, folio, Outcome::Excluded);
            return;
        }
        let Some(target) = self.targets.for_owner(owner, meant, now_ms) else {
            self.settle(pass, Some(owner), meant, folio, Outcome::NotAllowed);
            return;
        };
        if target != meant {
            pass.waits_for(target, meant, freq, pages);
        }
        if pass.scarce.contains(&target) {
            let answer = self.history.ask(&place, now_ms);
            if answer == Answer::ComesBack {
                self.totals.returned_pages += pages as u64;
            }
            if answer != Answer::New {
                pass.heads.remove(&head);
                pass.hold(Held::CameBack, pages as u64);
                pass.waits_no_more(target, freq, pages);
                self.retries.refuse(pfn, now_ms);
                return;
            }
        }
        let admit = |gate: &mut Gate| gate.admit(pages, now_ms);
        if let Err(held) = self.gates.with(target, now_ms, pass.settings, admit) {
            pass.heads.remove(&head);
            pass.hold(held, pages as u64);
            return;
        }
        let limit = pass.settings.kmigrated_batch_nr;
        if let Some(full) = pass.batches.add(owner, target, folio, limit) {
            self.promote(pass, full);
        }
    }

    /// The last gate, room, and the move itself.
    fn promote(&mut self, pass: &mut Pass, mut batch: Batch) {
        let now_ms = pass.machine.now_ms();
        let target = batch.target;
        let is_backing_off = |gate: &mut Gate| gate.is_backing_off(now_ms);
        let gates = self.gates.clone();
        let (held, room) = if gates.with(target, now_ms, pass.settings, is_backing_off) {
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
        self.targets.note(batch.owner, target, &outcomes, now_ms);
        gates.with(target, now_ms, pass.settings, |gate| {
            if outcomes.contains(&Outcome::NoMemory) {
                gate.back_off(now_ms);
            } else if outcomes.contains(&Outcome::Moved) {
                gate.relax();
            }
            for (folio, outcome) in batch.folios.iter().zip(&outcomes) {
                if !matches!(outcome, Outcome::Moved | Outcome::WouldMove) {
                    gate.refund(folio.pages);
                }
            }
        });
        for (folio, outcome) in batch.folios.iter().zip(&outcomes) {
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
        let left: u32 = batch.folios.drain(keep..).map(|folio| folio.pages).sum();
        batch.pages -= left;
        let now_ms = pass.report.started_ms;
        (self.gates).with(batch.target, now_ms, pass.settings, |gate| {
            gate.refund(left)
        });
        pass.hold(held, left.into());
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
        let now_ns = pass.machine.now_ns();
        let now_ms = now_ns / 1_000_000;
        self.totals.outcomes.add(outcome, folio.pages as u64);
        pass.count(owner, outcome, folio.pages as u64);
        if let (Some(Owner::File(_)), Outcome::Moved | Outcome::WouldMove) = (owner, outcome) {
            self.totals.cache_pages_moved += folio.pages as u64;
        }
        if outcome == Outcome::Moved {
            self.moved.push(Moved {
                pfn: folio.pfn,
                when_ns: now_ns,
            });
            pass.report.moved_pages += folio.pages as u64;
            self.totals.large_folios_moved += (folio.pages > 1) as u64;
            if let Some(owner) = owner {
                let address = folio.address;
                let place = Place { owner, address };
                (self.history).promoted(&place, folio.pages, target, now_ms);
            }
        }
        if outcome.settles() {
            pass.waits_no_more(target, folio.freq, folio.pages);
            pass.table.take(folio.pfn);
            self.retries.forget(folio.pfn);
        } else if outcome != Outcome::TargetRefused {
            // Refused by its target it may go to another at once.
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
