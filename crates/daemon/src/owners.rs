//! Whose memory is where, and whose pages moved: what `pghot status --by` tells.
//!
//! The engine counts, the kernel knows where memory is; here the two are laid side by side, on
//! request. Nothing here names a page frame or an address, so readers may ask, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pghot_engine::owners::{Books, Counts};
use pghot_engine::{Outcome, Program};
use pghot_linux::groups::{self, Bytes};
use pghot_linux::processes::{self, Process};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lock;
use crate::shared::Shared;

/// Walking page tables for readers may take one part in so many of the time.
const WALK_PARTS: u32 = 50;

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
    /// `memory.max` of the cgroup, if it is limited.
    pub limit_bytes: Option<u64>,
    /// A policy keeps pghot away from it.
    pub excluded: bool,
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

/// The largest processes with their memory by node, and until when they are good enough.
#[derive(Debug, Default)]
pub struct Walked {
    until: Option<Instant>,
    processes: Vec<Process>,
}

impl Walked {
    fn look(&mut self, shared: &Shared) -> Vec<Process> {
        let now = Instant::now();
        if self.until.is_none_or(|until| until <= now) {
            self.processes = processes::read(&shared.root, None);
            let rest = (now.elapsed() * WALK_PARTS).max(Duration::from_secs(1));
            self.until = Some(now + rest);
        }
        self.processes.clone()
    }
}

fn moves(name: &str, counts: &Counts) -> OwnerMoves {
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
const OTHERS: &str = "(others)";

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

/// Composes it now.
pub fn report(shared: &Shared, by: By) -> OwnersReport {
    let books = shared.owners.copy();
    let mut notes = Vec::new();
    let mut rows = match by {
        By::Cgroup => by_cgroup(shared, &books, &mut notes),
        By::Process => by_process(shared, &books, &mut notes),
    };
    let lower: BTreeSet<u32> = shared.migrators.iter().map(|it| it.nid).collect();
    let sum = |bytes: &Bytes, is_lower: bool| {
        let nodes = bytes
            .iter()
            .filter(|(nid, _)| lower.contains(nid) == is_lower);
        nodes.map(|(_, bytes)| bytes).sum::<u64>()
    };
    for row in &mut rows {
        row.lower_bytes = row.bytes.as_ref().map(|bytes| sum(bytes, true));
        row.top_bytes = row.bytes.as_ref().map(|bytes| sum(bytes, false));
    }
    let all: u64 = rows.iter().filter_map(|row| row.top_bytes).sum();
    for row in &mut rows {
        row.top_share = row.top_bytes.map(|bytes| bytes as f64 / all.max(1) as f64);
    }
    rows.sort_by(|a, b| {
        let key = |row: &OwnerRow| {
            (
                row.moves.ready_pages,
                row.lower_bytes,
                row.moves.promoted_pages,
            )
        };
        key(b)
            .cmp(&key(a))
            .then_with(|| a.moves.name.cmp(&b.moves.name))
    });
    OwnersReport { by, rows, notes }
}

fn by_cgroup(shared: &Shared, books: &Books, notes: &mut Vec<String>) -> Vec<OwnerRow> {
    let policies = shared.settings().policies;
    let has_others = books.cgroups.others != Counts::default();
    let counted = cgroups(books).into_iter();
    let counted = counted.filter(|it| has_others || it.name != OTHERS);
    let mut rows: HashMap<String, OwnerRow> = counted
        .map(|moves| {
            let row = OwnerRow {
                moves,
                ..OwnerRow::default()
            };
            (row.moves.name.clone(), row)
        })
        .collect();
    match groups::read(&shared.root) {
        Ok(groups) => {
            for group in groups {
                let path = &group.path;
                let row = rows.entry(path.clone()).or_insert_with(|| OwnerRow {
                    moves: moves(path, &Counts::default()),
                    ..OwnerRow::default()
                });
                row.limit_bytes = groups::limit_bytes(&shared.root, path);
                row.bytes = Some(group.bytes);
            }
        }
        Err(why) => notes.push(format!("memory by cgroup is not known: {why}")),
    }
    for row in rows.values_mut() {
        let policy = policies.of_cgroup(&row.moves.name);
        row.excluded = policy.is_some_and(|policy| policy.exclude);
    }
    rows.into_values().collect()
}

fn by_process(shared: &Shared, books: &Books, notes: &mut Vec<String>) -> Vec<OwnerRow> {
    let policies = shared.settings().policies;
    let row = |moves| OwnerRow {
        moves,
        ..OwnerRow::default()
    };
    let mut rows: Vec<OwnerRow> = processes(books).into_iter().map(row).collect();
    let mut walked = 0;
    for process in lock(&shared.walked).look(shared) {
        walked += usize::from(process.bytes.is_some());
        // One that was renamed has several rows; its memory is told once.
        let is_it = |row: &&mut OwnerRow| row.moves.pid == Some(process.pid);
        let is_named = |row: &&mut OwnerRow| row.moves.name == process.name;
        match rows.iter_mut().filter(is_it).find(is_named) {
            Some(row) => row.bytes = process.bytes,
            None => rows.push(OwnerRow {
                moves: OwnerMoves {
                    name: process.name,
                    pid: Some(process.pid),
                    ..OwnerMoves::default()
                },
                bytes: process.bytes,
                ..OwnerRow::default()
            }),
        }
    }
    notes.push(format!(
        "memory by tier is known of {walked} processes, the largest up to 8 GiB; the kernel \
         demotes by cgroup, so see --by cgroup for what went down"
    ));
    for row in &mut rows {
        let Some(pid) = row.moves.pid else { continue };
        let cgroup = row.moves.cgroup.get_or_insert_with(|| {
            let path = pghot_linux::cgroup::of(&shared.root.proc, pid);
            path.map_or_else(|| Program::UNKNOWN.to_owned(), |path| format!("/{path}"))
        });
        let program = Program {
            pid,
            name: row.moves.name.clone(),
            cgroup: cgroup.clone(),
        };
        let policy = policies.of(&program);
        row.excluded = policy.is_some_and(|policy| policy.exclude);
    }
    rows
}

#[cfg(test)]
mod tests {
    use pghot_engine::{Pattern, Policies, Policy};

    use super::*;
    use crate::testing::{daemon, daemon_with, decide, write};

    /// Process 4242 in /g, whose page the daemon promotes, and /idle.
    fn machine(shared: &Shared) {
        let (proc, groups) = (&shared.root.proc, shared.root.sys.join("fs/cgroup"));
        write(&groups.join("cgroup.controllers"), "memory\n");
        write(
            &groups.join("g/memory.numa_stat"),
            "anon N0=4096 N1=4096 N2=8192\n",
        );
        write(&groups.join("g/memory.max"), "1048576\n");
        write(&groups.join("idle/memory.numa_stat"), "file N0=0 N2=4096\n");
        write(&groups.join("idle/memory.max"), "max\n");
        let process = proc.join("4242");
        write(&process.join("comm"), "busy\n");
        write(&process.join("statm"), "9 4 1 1 0 1 0\n");
        write(&process.join("cgroup"), "0::/g\n");
        write(
            &process.join("numa_maps"),
            "7f default anon=4 N0=2 N2=2 kernelpagesize_kB=4\n",
        );
    }

    #[test]
    fn memory_and_moves_stand_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        let excluded = Policy {
            cgroup: Some(Pattern::of_cgroup("/idle").unwrap()),
            exclude: true,
            ..Policy::default()
        };
        let shared = daemon_with(dir.path(), Policies::new(vec![excluded]));
        machine(&shared);
        decide(&shared);
        shared.owners.note_demoted("/g", 3, 1);
        let told = report(&shared, By::Cgroup);
        let names: Vec<_> = told
            .rows
            .iter()
            .map(|row| row.moves.name.as_str())
            .collect();
        assert_eq!(names, ["/g", "/idle"]);
        let [group, idle] = &told.rows[..] else {
            panic!("{told:#?}")
        };
        assert_eq!(
            (group.moves.promoted_pages, group.moves.demoted_pages),
            (1, Some(3))
        );
        assert_eq!(
            (group.lower_bytes, group.top_bytes),
            (Some(8192), Some(8192))
        );
        assert_eq!(
            (group.limit_bytes, group.top_share),
            (Some(1 << 20), Some(1.0))
        );
        assert_eq!((idle.excluded, idle.limit_bytes), (true, None));
        assert!(!group.excluded && told.notes.is_empty());

        let told = report(&shared, By::Process);
        let [process] = &told.rows[..] else {
            panic!("{told:#?}")
        };
        assert_eq!(
            (process.moves.pid, process.moves.promoted_pages),
            (Some(4242), 1)
        );
        assert_eq!(process.moves.cgroup.as_deref(), Some("/g"));
        assert_eq!(
            (process.lower_bytes, process.moves.demoted_pages),
            (Some(8192), None)
        );
        let json = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<OwnersReport>(&json).unwrap(), told);
    }

    #[test]
    fn without_cgroups_there_is_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let told = report(&shared, By::Cgroup);
        assert!(
            told.rows.is_empty() && told.notes[0].contains("not mounted"),
            "{told:?}"
        );
    }
}
