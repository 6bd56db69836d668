//! What `pghot explain` tells: where a page is, what its record says, and why it moved or stayed.

use std::cmp::Reverse;

use pghot_engine::{Decision, Owner, Pid, Place};
use pghot_hotness::{Nid, Pfn};
use pghot_linux::host::monotonic;
use pghot_linux::topology::Topology;

use crate::lock;
use crate::page::{self, Mapped, PageError};
use crate::protocol::{DECISIONS_MAX, DecisionReport, Explanation, RecordReport};
use crate::sentences::{Facts, sentences};
use crate::shared::{MigratorState, Shared};

/// A decision, as it is told.
fn report(decision: &Decision, now_ms: u64) -> DecisionReport {
    let (pid, file) = match decision.place.map(|place| place.owner) {
        Some(Owner::Process(pid)) => (Some(pid), None),
        Some(Owner::File(file)) => (None, Some(file.to_string())),
        None => (None, None),
    };
    DecisionReport {
        ago_ms: now_ms.saturating_sub(decision.when_ms),
        pfn: Some(decision.pfn),
        nid: decision.nid,
        target: decision.target,
        pid,
        file,
        address: decision.place.map(|place| place.address),
        pages: decision.pages,
        freq: decision.freq,
        age_ms: decision.age_ms,
        outcome: decision.outcome.name().to_owned(),
        why: decision.outcome.sentence().to_owned(),
    }
}

/// The newest decisions of all migrators, newest first.
pub fn last(shared: &Shared, count: u32) -> Vec<DecisionReport> {
    let count = count.min(DECISIONS_MAX) as usize;
    let newest = |migrator: &MigratorState| migrator.journal.newest(count);
    let mut decisions: Vec<Decision> = shared.migrators.iter().flat_map(newest).collect();
    decisions.sort_by_key(|decision| Reverse(decision.when_ms));
    decisions.truncate(count);
    let now_ms = monotonic().as_millis() as u64;
    decisions
        .iter()
        .map(|decision| report(decision, now_ms))
        .collect()
}

/// Why the page at an address of a process is where it is.
pub fn page(shared: &Shared, pid: Pid, address: u64) -> Result<Explanation, PageError> {
    let mapped = page::find(&shared.root, pid, address)?;
    let now_ms = monotonic().as_millis() as u64;
    let (settings, rule) = shared.settings_and_rule();
    let (pfn, head) = match mapped {
        Mapped::Present { pfn, head } => (Some(pfn), Some(head)),
        Mapped::Swapped | Mapped::Absent => (None, None),
    };
    let lower_nid = head.and_then(|head| shared.table.span().nid(head));
    let record = head.and_then(|head| shared.table.get(head)).map(|record| {
        // A record whose last access left the window is only waiting to be cleared.
        let is_fresh = record.is_fresh(now_ms, &rule);
        RecordReport {
            freq: if is_fresh { record.freq() } else { 0 },
            age_ms: if is_fresh { record.age_ms(now_ms) } else { 0 },
            ready: is_fresh && record.is_ready(),
        }
    });
    let decision = newest_decision(shared, head, Place::in_process(pid, address));
    let mut migrators = shared.migrators.iter();
    let migrator = migrators.find(|migrator| Some(migrator.nid) == lower_nid);
    let last_pass = migrator.map(|migrator| lock(&migrator.published).last_pass.clone());
    let facts = Facts {
        mapped,
        lower_nid,
        record,
        decision,
        last_pass: last_pass.unwrap_or_default(),
        demoter: lock(&shared.demoter.published).clone(),
        now_ms,
        dry_run: shared.dry_run,
    };
    Ok(Explanation {
        pid,
        address,
        pfn,
        nid: lower_nid.or_else(|| pfn.and_then(|pfn| top_nid(shared, pfn))),
        record,
        decision: decision.map(|decision| report(&decision, now_ms)),
        sentences: sentences(&facts, &settings),
    })
}

/// The node of a page outside the lower tier, if its memory blocks tell.
fn top_nid(shared: &Shared, pfn: Pfn) -> Option<Nid> {
    let topology = Topology::read(&shared.root).ok()?;
    let node = topology.nodes.iter().find(|node| {
        let mut ranges = node.memory.iter();
        ranges.any(|range| (range.start..range.end).contains(&pfn))
    });
    node.map(|node| node.nid)
}

/// The newest decision about the page at this place. A decision without a place is about the page
/// frame, and counts only while the page is still there.
fn newest_decision(shared: &Shared, head: Option<Pfn>, place: Place) -> Option<Decision> {
    let of_migrator = |migrator: &MigratorState| {
        let by_place = migrator.journal.about(None, Some(place));
        let by_pfn = migrator.journal.about(head, None);
        let unplaced = by_pfn.filter(|decision| head.is_some() && decision.place.is_none());
        by_place.into_iter().chain(unplaced)
    };
    let all = shared.migrators.iter().flat_map(of_migrator);
    all.max_by_key(|decision| decision.when_ms)
}
