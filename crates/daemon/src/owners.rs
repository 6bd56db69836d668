//! Whose pages moved, by cgroup and by process, and the shape of what `pghot status --by` tells.
//! Nothing here names a page frame or an address, so readers may ask, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pghot_engine::owners::{Books, Counts};
use pghot_engine::{Outcome, Program};
use pghot_linux::groups::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Looking for readers may take one part in so many of the time.
const LOOK_PARTS: u32 = 50;

/// What is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Cgroups.
    Cgroup,
    /// Processes.
    Process,
}

/// Pages of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerMoves {
    /// The path of a cgroup, or the name of a process. In parentheses: `(page cache)` that no
    /// process maps, `(nobody)` for pages that no owner was found for, `(unknown)` for processes
    /// that are gone, and `(others)` for all that are not counted apart any more.
    pub name: String,
    /// The process.
    pub pid: Option<u32>,
    /// Its cgroup.
    pub cgroup: Option<String>,
    /// Pages that are hot and wait in the lower tier: an estimate.
    pub ready_pages: u64,
    /// Promoted since the start.
    pub promoted_pages: u64,
    /// Demoted by pghot since the start; `null` for processes, since the kernel demotes by cgroup.
    pub demoted_pages: Option<u64>,
    /// Pages with any other outcome.
    pub not_moved: BTreeMap<String, u64>,
}

/// One owner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerRow {
    /// Its pages.
    #[serde(flatten)]
    pub moves: OwnerMoves,
    /// Its memory by node; `null` where that is not known.
    pub bytes: Option<Bytes>,
    /// Of that, in the lower tier.
    pub lower_bytes: Option<u64>,
    /// And in the top tier.
    pub top_bytes: Option<u64>,
    /// Its part of the top tier's memory that is in use by all rows, from 0 to 1.
    pub top_share: Option<f64>,
    /// What it would have of the top tier if all had as much for their weight. `null` where no
    /// policy sets a weight, and for whom a policy keeps where it is.
    pub share_bytes: Option<u64>,
    /// `memory.max` of the cgroup, if it is limited.
    pub limit_bytes: Option<u64>,
    /// A policy keeps pghot away from it.
    pub excluded: bool,
    /// A policy has it promoted and never demoted.
    pub protected: bool,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnersReport {
    /// What is counted apart.
    pub by: By,
    /// Those with the most hot memory in the lower tier first, then by lower-tier memory.
    pub rows: Vec<OwnerRow>,
    /// What an operator should know, in sentences.
    pub notes: Vec<String>,
}

/// What costs time to read, such as the memory of all cgroups, and until when it is good enough.
#[derive(Debug)]
pub struct Looked<T> {
    until: Option<Instant>,
    found: Option<T>,
}

impl<T> Default for Looked<T> {
    fn default() -> Self {
        let (until, found) = (None, None);
        Looked { until, found }
    }
}

impl<T: Clone> Looked<T> {
    /// What is read now, or what was a moment ago.
    pub fn look(&mut self, read: impl FnOnce() -> T) -> T {
        let now = Instant::now();
        let is_good = self.until.is_some_and(|until| now < until);
        let found = match self.found.take().filter(|_| is_good) {
            Some(found) => found,
            None => {
                let found = read();
                let rest = (now.elapsed() * LOOK_PARTS).max(Duration::from_secs(1));
                self.until = Some(now + rest);
                found
            }
        };
        self.found.insert(found).clone()
    }
}

/// What was counted of an owner of this name.
pub fn moves(name: &str, counts: &Counts) -> OwnerMoves {
    let others = counts.outcomes.iter();
    let others = others.filter(|(outcome, pages)| *outcome != Outcome::Moved && *pages > 0);
    OwnerMoves {
        name: name.to_owned(),
        promoted_pages: counts.outcomes.get(Outcome::Moved),
        demoted_pages: Some(counts.demoted_pages),
        not_moved: others
            .map(|(it, pages)| (it.name().to_owned(), pages))
            .collect(),
        ..OwnerMoves::default()
    }
}

/// All that are not counted apart any more.
pub const OTHERS: &str = "(others)";

/// By cgroup, in the order of their names. The others are always there: a metric that appears with
/// a value has no rate.
pub fn cgroups(books: &Books) -> Vec<OwnerMoves> {
    let counted = books.cgroups.iter();
    let counted = counted.map(|(path, counts)| (path.clone(), moves(path, counts)));
    let mut rows: BTreeMap<String, OwnerMoves> = counted.collect();
    rows.insert(OTHERS.to_owned(), moves(OTHERS, &books.cgroups.others));
    for (program, pages) in books.hot.values().flatten() {
        let path = &program.cgroup;
        let row = rows.entry(path.clone());
        row.or_insert_with(|| moves(path, &Counts::default()))
            .ready_pages += pages;
    }
    rows.into_values().collect()
}

/// By process, in the order of their numbers.
pub fn processes(books: &Books) -> Vec<OwnerMoves> {
    let of = |program: &Program, counts: &Counts| OwnerMoves {
        pid: (program.pid != 0).then_some(program.pid),
        cgroup: (program.pid != 0).then(|| program.cgroup.clone()),
        demoted_pages: None,
        ..moves(&program.name, counts)
    };
    let counted = books.programs.iter();
    let counted = counted.map(|(program, counts)| (program, of(program, counts)));
    let mut rows: BTreeMap<&Program, OwnerMoves> = counted.collect();
    for (program, pages) in books.hot.values().flatten() {
        let row = rows.entry(program);
        row.or_insert_with(|| of(program, &Counts::default()))
            .ready_pages += pages;
    }
    let mut rows: Vec<OwnerMoves> = rows.into_values().collect();
    if books.programs.others != Counts::default() {
        rows.push(OwnerMoves {
            demoted_pages: None,
            ..moves(OTHERS, &books.programs.others)
        });
    }
    rows
}
