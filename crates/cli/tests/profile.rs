//! `pghot profile`, from outside: what it refuses, and that names can be left out.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use pghot_profile::{Interval, Process, Profile, Touched, file};

fn pghot(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pghot"));
    command.args(line.split_whitespace()).current_dir(dir);
    command.output().unwrap()
}

fn done(dir: &Path, line: &str) -> String {
    let output = pghot(dir, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, line: &str, code: i32, part: &str) {
    let output = pghot(dir, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {stderr}");
    assert!(stderr.contains(part), "{line}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
}

/// A folder with the profiles of the hosts a and b, and the table of both.
fn recorded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let profile = Profile {
        kernel: "6.12.0".into(),
        interval_ms: 1000,
        intervals: 4,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: vec![Process {
            name: "secretd".into(),
            cgroup: "/system.slice/secretd.service".into(),
            blocks: 2,
            huge_blocks: 0,
            intervals: vec![Interval {
                number: 1,
                cpu_us: 500_000,
                touched: Touched::of(std::iter::once(0..512).collect()),
                lower: Touched::of(std::iter::once(256..512).collect()),
            }],
        }],
    };
    for name in ["a.profile", "b.profile"] {
        std::fs::write(dir.join(name), file::encode(&profile)).unwrap();
    }
    done(dir, "profile export a.profile b.profile -o t.parquet");
    folder
}

#[test]
fn profiles_become_a_table_and_come_back() {
    let folder = recorded();
    let dir = folder.path();
    done(dir, "profile import t.parquet --host b -o b.back");
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(read("b.back"), read("b.profile"));
    let shown = done(dir, "profile show t.parquet a.profile");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 4, "{shown}");
    assert!(
        lines[1].contains("secretd") && lines[1].contains(" 2.0 "),
        "{shown}"
    );
    assert_eq!(lines[1], lines[3]);

    done(
        dir,
        "profile export a.profile --host web-7 --no-names -o n.parquet",
    );
    let shown = done(dir, "profile show n.parquet");
    assert!(
        shown.contains("web-7") && shown.contains("process 0"),
        "{shown}"
    );
    assert!(!shown.contains("secretd"));
    let table = std::fs::read(dir.join("n.parquet")).unwrap();
    assert!(
        !table.windows(7).any(|part| part == b"secretd"),
        "nor its group"
    );
}

#[test]
fn a_profile_is_split_by_control_group() {
    let folder = recorded();
    let dir = folder.path();
    let mut profile = file::load(&dir.join("a.profile")).unwrap();
    let first = profile.processes[0].clone();
    let other = |cgroup: &str| Process {
        cgroup: cgroup.into(),
        ..first.clone()
    };
    let more = [other("/"), other(""), other("/system.slice/b")];
    profile.processes.extend(more);
    std::fs::write(dir.join("all"), file::encode(&profile)).unwrap();
    let said = done(dir, "profile split all -o parts");
    let expected = [
        "-.profile",
        "system.slice/b.profile",
        "system.slice/secretd.service.profile",
        "unknown.profile",
    ];
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    for (line, name) in said.lines().zip(expected) {
        assert_eq!(line, format!("parts/{name}: 1 programs"));
        let part = file::load(&dir.join("parts").join(name)).unwrap();
        assert_eq!(part.processes.len(), 1);
    }
    let secret = dir.join("parts/system.slice/secretd.service.profile");
    let whole = std::fs::read(dir.join("a.profile")).unwrap();
    assert!(std::fs::read(secret).unwrap() == whole, "it had been alone");

    profile.processes.push(other("/unknown"));
    std::fs::write(dir.join("all"), file::encode(&profile)).unwrap();
    refused(dir, "profile split all -o parts", 2, "unknown.profile");
    // A profile from somewhere leads nowhere.
    profile.processes[0].cgroup = "/../../etc".into();
    std::fs::write(dir.join("all"), file::encode(&profile)).unwrap();
    refused(dir, "profile split all -o parts", 2, "processes[0].cgroup");
}

#[test]
fn what_is_none_or_not_there_is_refused() {
    let folder = recorded();
    let dir = folder.path();
    refused(
        dir,
        "profile import t.parquet --host c -o x",
        2,
        "t.parquet has no host c",
    );
    refused(
        dir,
        "profile export a.profile b.profile --host h -o x",
        2,
        "--host",
    );
    refused(
        dir,
        "profile export a.profile ./a.profile -o x",
        2,
        "of the host a",
    );
    refused(
        dir,
        "profile export t.parquet -o x",
        2,
        "t.parquet is not a profile",
    );
    refused(dir, "profile show Cargo.toml", 1, "Cargo.toml");
    let whole = std::fs::read(dir.join("t.parquet")).unwrap();
    std::fs::write(dir.join("cut"), &whole[..whole.len() - 9]).unwrap();
    refused(dir, "profile show cut", 2, "cut is not a table of profiles");
    let mut changed = whole;
    changed[40] ^= 1;
    std::fs::write(dir.join("changed"), &changed).unwrap();
    refused(dir, "profile import changed --host a -o x", 2, "checksum");
    assert!(!dir.join("x").exists() && !dir.join("x.part").exists());
}
