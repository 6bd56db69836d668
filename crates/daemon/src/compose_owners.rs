//! Composes what `pghot status --by` tells: the engine counts, the kernel knows where memory is,
//! and here the two are laid side by side, on request.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use pghot_engine::demoter::shares;
use pghot_engine::owners::{Books, CGROUPS_MAX, Counts};
use pghot_engine::{Policies, Program};
use pghot_linux::groups::{self, Bytes};
use pghot_linux::processes as all_processes;

use crate::lock;
use crate::owners::{By, OTHERS, OwnerMoves, OwnerRow, OwnersReport, cgroups, moves, processes};
use crate::shared::Shared;

/// Composes it now.
pub fn report(shared: &Shared, by: By) -> OwnersReport {
    let books = shared.owners.copy();
    let mut notes = Vec::new();
    let mut rows = match by {
        By::Cgroup => {
            let mut rows = by_cgroup(shared, &books, &mut notes);
            let has_others = books.cgroups.others != Counts::default();
            rows.retain(|row| has_others || row.moves.name != OTHERS);
            rows
        }
        By::Process => by_process(shared, &books, &mut notes),
    };
    sum_tiers(shared, &mut rows);
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

/// For the status and the metrics, by name: the cgroups that the engine counts apart, and of those
/// that it does not, the largest, as far as there is place. All that are left are one row.
pub fn counted_apart(shared: &Shared, books: &Books) -> Vec<OwnerRow> {
    let counted: HashSet<&String> = books.cgroups.iter().map(|(path, _)| path).collect();
    let rows = by_cgroup(shared, books, &mut Vec::new());
    let is_others = |row: &OwnerRow| row.moves.name == OTHERS;
    let (mut others, mut rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_others);
    rows.sort_by_cached_key(|row| {
        let bytes: u64 = row.bytes.iter().flat_map(Bytes::values).sum();
        let is_counted = counted.contains(&row.moves.name);
        Reverse((is_counted, bytes, row.moves.name.clone()))
    });
    let left = rows.split_off(rows.len().min(CGROUPS_MAX));
    for others in &mut others {
        left.iter().for_each(|row| fold(others, row));
    }
    rows.extend(others);
    sum_tiers(shared, &mut rows);
    rows.sort_by(|a, b| a.moves.name.cmp(&b.moves.name));
    rows
}

/// Adds a row that nothing was counted of to the others.
fn fold(others: &mut OwnerRow, row: &OwnerRow) {
    others.moves.ready_pages += row.moves.ready_pages;
    for (nid, bytes) in row.bytes.iter().flatten() {
        *others
            .bytes
            .get_or_insert_default()
            .entry(*nid)
            .or_default() += bytes;
    }
    if let Some(bytes) = row.share_bytes {
        *others.share_bytes.get_or_insert_default() += bytes;
    }
}

fn is_lower(shared: &Shared, nid: u32) -> bool {
    shared.migrators.iter().any(|it| it.nid == nid)
}

fn sum_tiers(shared: &Shared, rows: &mut [OwnerRow]) {
    let sum = |bytes: &Bytes, lower: bool| {
        let nodes = bytes.iter();
        let nodes = nodes.filter(|(nid, _)| is_lower(shared, **nid) == lower);
        nodes.map(|(_, bytes)| bytes).sum::<u64>()
    };
    for row in &mut *rows {
        row.lower_bytes = row.bytes.as_ref().map(|bytes| sum(bytes, true));
        row.top_bytes = row.bytes.as_ref().map(|bytes| sum(bytes, false));
    }
    let all: u64 = rows.iter().filter_map(|row| row.top_bytes).sum();
    for row in rows {
        row.top_share = row.top_bytes.map(|bytes| bytes as f64 / all.max(1) as f64);
    }
}

fn by_cgroup(shared: &Shared, books: &Books, notes: &mut Vec<String>) -> Vec<OwnerRow> {
    let policies = shared.settings().policies;
    let row = |moves| OwnerRow {
        moves,
        ..OwnerRow::default()
    };
    let counted = cgroups(books).into_iter();
    let counted = counted.map(|moves| (moves.name.clone(), row(moves)));
    let mut rows: HashMap<String, OwnerRow> = counted.collect();
    match lock(&shared.groups).look(|| groups::read(&shared.root)) {
        Ok(groups) => {
            for group in groups {
                let new = || row(moves(&group.path, &Counts::default()));
                let row = rows.entry(group.path.clone()).or_insert_with(new);
                row.limit_bytes = group.limit_bytes;
                row.bytes = Some(group.bytes);
            }
        }
        Err(why) => notes.push(format!("memory by cgroup is not known: {why}")),
    }
    let mut rows: Vec<OwnerRow> = rows.into_values().collect();
    for row in &mut rows {
        let policy = policies.of_cgroup(&row.moves.name);
        row.excluded = policy.is_some_and(|policy| policy.exclude);
        row.protected = policy.is_some_and(|policy| policy.protect);
    }
    if policies.has_weights() {
        share_by_weight(&mut rows, &policies, |nid| !is_lower(shared, nid));
    }
    rows
}

/// Of each top-tier node, among those who may go. The demoter takes from the cgroup with the most
/// pages for its weight, which has the highest multiple of its share.
fn share_by_weight(rows: &mut [OwnerRow], policies: &Policies, is_top: impl Fn(u32) -> bool) {
    let mut on_node: BTreeMap<u32, Vec<(usize, u64)>> = BTreeMap::new();
    for (index, row) in rows.iter_mut().enumerate() {
        if row.bytes.is_none() || !policies.may_go(&row.moves.name) {
            continue;
        }
        row.share_bytes = Some(0);
        let bytes = row.bytes.iter().flatten();
        for (nid, bytes) in bytes.filter(|(nid, bytes)| is_top(**nid) && **bytes > 0) {
            on_node.entry(*nid).or_default().push((index, *bytes));
        }
    }
    for here in on_node.values() {
        let held = here
            .iter()
            .map(|(index, bytes)| (rows[*index].moves.name.as_str(), *bytes));
        let shares = shares(&held.collect::<Vec<_>>(), policies);
        for ((index, _), share) in here.iter().zip(shares) {
            *rows[*index].share_bytes.get_or_insert_default() += share;
        }
    }
}

fn by_process(shared: &Shared, books: &Books, notes: &mut Vec<String>) -> Vec<OwnerRow> {
    let policies = shared.settings().policies;
    let row = |moves| OwnerRow {
        moves,
        ..OwnerRow::default()
    };
    let mut rows: Vec<OwnerRow> = processes(books).into_iter().map(row).collect();
    let mut walked = 0;
    for process in lock(&shared.walked).look(|| all_processes::read(&shared.root, None)) {
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
    use pghot_engine::{Pattern, Policy};
    use pghot_linux::SysRoot;

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

    fn group(root: &SysRoot, name: &str, pages: [u64; 2]) {
        let groups = root.sys.join("fs/cgroup");
        write(&groups.join("cgroup.controllers"), "memory\n");
        let [top, lower] = pages.map(|pages| pages * 4096);
        let stat = format!("anon N0={top} N2={lower}\n");
        write(&groups.join(name).join("memory.numa_stat"), &stat);
    }

    #[test]
    fn shares_of_the_top_tier_go_by_weight() {
        let dir = tempfile::tempdir().unwrap();
        let policy = |cgroup: &str| Policy {
            cgroup: Some(Pattern::of_cgroup(cgroup).unwrap()),
            ..Policy::default()
        };
        let heavy = Policy {
            weight: Some(400),
            ..policy("/a")
        };
        let kept = Policy {
            protect: true,
            ..policy("/kept")
        };
        let shared = daemon_with(dir.path(), Policies::new(vec![heavy, kept]));
        for (name, top) in [("a", 600), ("b", 200), ("c", 100), ("kept", 5000)] {
            group(&shared.root, name, [top, 7]);
        }
        let told = report(&shared, By::Cgroup);
        let of = |name: &str| {
            let row = told.rows.iter().find(|row| row.moves.name == name).unwrap();
            (row.share_bytes.map(|bytes| bytes / 4096), row.protected)
        };
        // As in the engine's own test of the demoter's shares.
        assert_eq!(of("/a"), (Some(600), false));
        assert_eq!(
            (of("/b"), of("/c")),
            ((Some(150), false), (Some(150), false))
        );
        assert_eq!(of("/kept"), (None, true));
    }

    /// Cgroups without a move are there, too, and no more of them than are counted apart.
    #[test]
    fn what_is_told_of_many_cgroups_is_bounded_and_sums_up() {
        let dir = tempfile::tempdir().unwrap();
        let shared = daemon_with(dir.path(), Policies::default());
        let many = 2 * CGROUPS_MAX as u64;
        for number in 1..=many {
            group(&shared.root, &format!("g{number}"), [number, 2 * number]);
        }
        shared.owners.note_demoted("/g1", 3, 1);
        let rows = counted_apart(&shared, &shared.owners.copy());
        assert_eq!(rows.len(), CGROUPS_MAX + 1);
        let pages = many * (many + 1) / 2;
        let sum = |of: fn(&OwnerRow) -> Option<u64>| rows.iter().filter_map(of).sum::<u64>() / 4096;
        assert_eq!(sum(|row| row.top_bytes), pages);
        assert_eq!(sum(|row| row.lower_bytes), 2 * pages);
        let has = |name: &str| rows.iter().any(|row| row.moves.name == name);
        assert!(has("/g1") && has(&format!("/g{many}")) && has(OTHERS));
        assert!(!has("/g2"), "it is small, and nothing was counted of it");
        assert!(rows.iter().all(|row| row.share_bytes.is_none()));
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
