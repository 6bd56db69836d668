//! `pghot advise` from outside: answers, sums, what is refused, and that an interrupted command
//! goes on.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use pghot_profile::{Interval, Process, Profile, Touched, file};
use serde_json::Value;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn pghot(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_pghot"))
        .args(args)
        .output()
        .unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// One sentence on the standard error that has all parts.
fn assert_refused(args: &[&str], code: i32, parts: &[&str]) {
    let ran = pghot(args);
    let context = format!("{args:?}: {:?} {}{}", ran.code, ran.stdout, ran.stderr);
    assert_eq!(ran.code, Some(code), "{context}");
    assert!(
        parts.iter().all(|part| ran.stderr.contains(part)),
        "{context}"
    );
    assert!(ran.stdout.is_empty(), "{context}");
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{context}");
}

/// 32 MiB, of which the last 8 are used all the time, for so many seconds.
fn profile(seconds: u32, cpu_us: u64) -> Profile {
    let interval = |number| Interval {
        number,
        cpu_us,
        lower: Touched::default(),
        touched: Touched::of(vec![6144..8192, 0..1]),
    };
    Profile {
        kernel: "x".into(),
        interval_ms: 1000,
        intervals: seconds,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: vec![Process {
            name: "late".into(),
            cgroup: String::new(),
            blocks: 16,
            huge_blocks: 0,
            intervals: (0..seconds).map(interval).collect(),
        }],
    }
}

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

const SCENARIO: &str = "name = 'small'\nmode = 'statistical'\n[[machine.node]]\nmemory_mib = 256\n\
    cpus = 2\nlatency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 128\n[[process]]\n\
    memory_mib = 128\n[[process.phase]]\npattern = 'random'\nrange = [0.0, 0.5]\n\
    accesses = 20_000_000\n";

#[test]
fn profiles_and_scenarios_are_answered_and_added_up() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = write(
        dir.path(),
        "web.profile",
        file::encode(&profile(60, 500_000)),
    );
    let described = write(dir.path(), "small.toml", SCENARIO);
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let args = [
        "advise",
        &recorded,
        &described,
        "--slowdown",
        "2%",
        "--out",
        out,
    ];
    let ran = pghot(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for part in [
        "web.profile: ",
        "small: ",
        "together: ",
        "advise.html",
        "numa_balancing=2",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(
        ran.stdout.lines().all(|line| line == line.trim_end()),
        "{}",
        ran.stdout
    );
    let ran = pghot(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let answers = json["answers"].as_array().unwrap();
    let mib = |answer: &Value, of: &str| answer[of]["mib"].as_u64().unwrap();
    // 8 MiB and a page are touched.
    assert_eq!(answers[0]["working_set_mib"], 9, "{json:#}");
    assert_eq!(answers[1]["working_set_mib"], 64);
    assert!((60..=72).contains(&mib(&answers[1], "top")), "{json:#}");
    for (sum, of) in [("top_mib", "top"), ("low_mib", "low"), ("high_mib", "high")] {
        let all = mib(&answers[0], of) + mib(&answers[1], of);
        assert_eq!(json["together"][sum].as_u64(), Some(all), "{json:#}");
    }
    for answer in answers {
        assert!(mib(answer, "low") <= mib(answer, "top"));
        assert!(mib(answer, "top") <= mib(answer, "high"));
    }
}

#[test]
fn an_interrupted_command_goes_on_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "small.toml", SCENARIO);
    let out = dir.path().join("out");
    let args = ["advise", &file, "--json", "--out", out.to_str().unwrap()];
    let whole = pghot(&args);
    assert_eq!((whole.code, whole.stderr.as_str()), (Some(0), ""));
    let page = || std::fs::read(out.join("advise.html")).unwrap();
    let (first, runs) = (page(), out.join("small.toml.runs"));
    let text = std::fs::read_to_string(&runs).unwrap();
    let half: String = text.split_inclusive('\n').take(30).collect();
    std::fs::write(&runs, &half[..half.len() - 5]).unwrap();
    let rest = pghot(&args);
    assert!(
        rest.stderr.contains("28 finished runs are used"),
        "{}",
        rest.stderr
    );
    assert_eq!(rest.stdout, whole.stdout);
    assert!(page() == first, "the page, to the byte");
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(
        lines(&std::fs::read_to_string(&runs).unwrap()),
        lines(&text)
    );
    // Another scenario of the same name.
    std::fs::write(&file, SCENARIO.replace("20_000_000", "21_000_000")).unwrap();
    let other = pghot(&args);
    assert!(other.stderr.contains("are not used"), "{}", other.stderr);
    assert_eq!(other.code, Some(0));
    // Another pghot's.
    let text = std::fs::read_to_string(&runs).unwrap();
    std::fs::write(&runs, text.replace("pghot advise 1 ", "pghot advise 0 ")).unwrap();
    assert!(pghot(&args).stderr.contains("another pghot"));
}

#[test]
fn what_is_no_basis_for_an_answer_is_refused_with_what_to_record() {
    let dir = tempfile::tempdir().unwrap();
    let encoded = |name, profile: &Profile| write(dir.path(), name, file::encode(profile));
    let short = encoded("short", &profile(5, 500_000));
    assert_refused(
        &["advise", &short],
        2,
        &["short: intervals: 5", "pghot record"],
    );
    let idle = encoded("idle", &profile(60, 1000));
    assert_refused(&["advise", &idle], 2, &["idle: cpu_us", "record while"]);
    let sound = file::encode(&profile(60, 500_000));
    let cut = write(dir.path(), "cut", &sound[..sound.len() - 3]);
    assert_refused(&["advise", &cut], 2, &["cut", "checksum"]);
    // The good one before it is not begun.
    let good = write(dir.path(), "good", &sound);
    assert_refused(&["advise", &good, &cut], 2, &["cut"]);
    assert_refused(&["advise", &good, "--misses", "0"], 2, &["good: misses: 0"]);
}

#[test]
fn wrong_input_is_named_by_file_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name, text: &str| write(dir.path(), name, text);
    let sound = file("sound.toml", SCENARIO);
    for slowdown in ["nan", "-1", "inf", "0", "fast", "1e9%", ""] {
        let args = ["advise", &sound, "--slowdown", slowdown];
        assert_refused(&args, 2, &["--slowdown", "percentage"]);
    }
    let large = file(
        "large.toml",
        &SCENARIO.replace(
            "memory_mib = 128\n[[process.",
            "memory_mib = 999\n[[process.",
        ),
    );
    let parts = ["large.toml: process", "memory_mib", "999"];
    assert_refused(&["advise", &large], 2, &parts);
    let one = SCENARIO.replace("[100, 250]\n[[machine.node]]\nmemory_mib = 128", "[100]");
    let one = file("one.toml", &one);
    assert_refused(
        &["advise", &one],
        2,
        &["one.toml: machine.node", "no lower tier"],
    );
    assert_refused(
        &["advise", "/etc/passwd"],
        2,
        &["/etc/passwd is not a scenario"],
    );
    let noise = write(dir.path(), "noise", vec![0xff; 64]);
    assert_refused(
        &["advise", &noise],
        2,
        &["noise is not a scenario: it is no text", "no profile"],
    );
    assert_refused(&["advise", "/nowhere"], 1, &["/nowhere"]);
    let profile = write(
        dir.path(),
        "p",
        pghot_profile::file::encode(&profile(60, 500_000)),
    );
    let args = ["advise", &profile, "--machine", &large];
    assert_refused(&args, 2, &["large.toml: process"]);
    let nowhere = ["advise", &sound, "--out", "/proc/nowhere"];
    assert_refused(&nowhere, 1, &["/proc/nowhere"]);
}
