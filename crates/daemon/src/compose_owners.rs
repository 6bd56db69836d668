//! Composes what `pghot status --by` tells: the engine counts, the kernel knows where memory is,
//! and here the two are laid side by side, on request.

use std::collections::{BTreeSet, HashMap};

use pghot_engine::Program;
use pghot_engine::owners::{Books, Counts};
use pghot_linux::groups::{self, Bytes};

use crate::lock;
use crate::owners::{By, OTHERS, OwnerMoves, OwnerRow, OwnersReport, cgroups, moves, processes};
use crate::shared::Shared;

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
    for process in lock(&shared.walked).look(&shared.root) {
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
