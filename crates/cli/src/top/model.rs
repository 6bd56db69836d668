//! All that is known, to be drawn: the newest of everything, rates, and the last minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pghot_daemon::protocol::DecisionReport;
use pghot_daemon::status::Status;
use pghot_linux::groups::{Bytes, Group, GroupDetail};
use pghot_linux::processes::Process;

use super::history::{History, SAMPLES};
use super::nodes::NodeMemory;
use super::rates::Rates;
use super::watch::{Found, PERIOD, Seen};

/// After so long without a look, the daemon is late.
const LATE: Duration = Duration::from_secs(3);

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The newest status, even if the daemon is gone by now.
    pub status: Option<Status>,
    /// Why there is no newer one.
    pub lost: Option<String>,
    /// Of the newest second.
    pub rates: Rates,
    /// Pages promoted per second.
    pub up: History,
    /// Pages demoted per second.
    pub down: History,
    /// Memory by node.
    pub nodes: Vec<NodeMemory>,
    /// The lower tier's nodes.
    pub lower: BTreeSet<u32>,
    /// Control groups, or why they cannot be told.
    pub groups: Option<Result<Vec<Group>, String>>,
    /// How far memory of a group changed, in bytes per second.
    pub changes: BTreeMap<String, f64>,
    /// The group that was opened, by its path: `None` if it is gone.
    pub group: Option<(String, Option<GroupDetail>, Vec<Process>)>,
    /// Processes.
    pub programs: Option<Vec<Process>>,
    /// Decisions, or why they cannot be told.
    pub decisions: Option<Result<Vec<DecisionReport>, String>>,
    /// What is said of the page at an address of a process.
    pub page: Option<(u32, u64, Vec<String>)>,
    grouped_at: Option<Instant>,
    looked_at: Option<Instant>,
}

impl Model {
    /// Takes note of a look. Looks that came soon after another one, for a key, make no sample.
    pub fn take(&mut self, seen: Seen) {
        let since = self.looked_at.map(|at| seen.at.duration_since(at));
        let periods = since.map_or(1.0, |since| since.as_secs_f64() / PERIOD.as_secs_f64());
        (self.lower, self.nodes) = (seen.lower, seen.nodes);
        if periods > 0.5 {
            self.looked_at = Some(seen.at);
            self.sample(seen.status, periods.round() as usize);
        }
        if let Some(found) = seen.found {
            self.find(found, seen.at);
        }
    }

    /// Nothing was seen for some time up to now: a daemon that is slow has the same rates no more.
    pub fn wait(&mut self, now: Instant) {
        let since = self.looked_at.map(|at| now.duration_since(at));
        if let Some(since) = since.filter(|since| *since > LATE) {
            let sentence = format!("no answer from the daemon for {} s", since.as_secs());
            (self.rates, self.lost) = (Rates::default(), Some(sentence));
        }
    }

    fn sample(&mut self, status: Result<Status, String>, periods: usize) {
        // Time without a sample has no rate.
        for _ in 1..periods.min(SAMPLES) {
            self.up.push(None);
            self.down.push(None);
        }
        match status {
            Ok(status) => {
                let before = self.status.as_ref().filter(|_| self.lost.is_none());
                let rates = before.map(|before| Rates::between(before, &status));
                self.rates = rates.unwrap_or_default();
                (self.status, self.lost) = (Some(status), None);
            }
            Err(sentence) => {
                (self.rates, self.lost) = (Rates::default(), Some(sentence));
            }
        }
        self.up.push(self.rates.up);
        self.down.push(self.rates.down);
    }

    /// Takes note of what was found besides the status.
    pub fn find(&mut self, found: Found, at: Instant) {
        match found {
            Found::Groups(groups) => {
                let since = self.grouped_at.map(|before| at.duration_since(before));
                self.changes = changes(&self.groups, &groups, since, &self.lower);
                (self.groups, self.grouped_at) = (Some(groups), Some(at));
            }
            Found::Group(path, detail, programs) => self.group = Some((path, detail, programs)),
            Found::Programs(programs) => self.programs = Some(programs),
            Found::Decisions(decisions) => self.decisions = Some(decisions),
            Found::Page(pid, address, said) => self.page = Some((pid, address, said)),
        }
    }

    /// Bytes in the lower tier, and elsewhere.
    pub fn far_and_near(&self, bytes: &Bytes) -> (u64, u64) {
        far_and_near(bytes, &self.lower)
    }
}

fn far_and_near(bytes: &Bytes, lower: &BTreeSet<u32>) -> (u64, u64) {
    let sum = |is_far: bool| {
        let nodes = bytes
            .iter()
            .filter(|(nid, _)| lower.contains(nid) == is_far);
        nodes.map(|(_, bytes)| bytes).sum()
    };
    (sum(true), sum(false))
}

/// By path, for groups that are in both.
fn changes(
    before: &Option<Result<Vec<Group>, String>>,
    now: &Result<Vec<Group>, String>,
    since: Option<Duration>,
    lower: &BTreeSet<u32>,
) -> BTreeMap<String, f64> {
    let (Some(Ok(before)), Ok(now), Some(since)) = (before, now, since) else {
        return BTreeMap::new();
    };
    let far = |group: &Group| far_and_near(&group.bytes, lower).0 as f64;
    let before: BTreeMap<&str, f64> = before
        .iter()
        .map(|group| (group.path.as_str(), far(group)))
        .collect();
    let change = |group: &Group| {
        let grown = far(group) - before.get(group.path.as_str())?;
        Some((group.path.clone(), grown / since.as_secs_f64().max(0.1)))
    };
    now.iter().filter_map(change).collect()
}
