//! The `pghot` binary from outside: what it prints, and how it exits.
//!
//! Nothing here needs root, a lower tier or a running daemon; it holds with them as well.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};

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

/// One sentence on the standard error, nothing on the standard output.
fn assert_refused(args: &[&str], code: i32, part: &str) {
    let ran = pghot(args);
    let context = format!("{args:?}: {:?} {}{}", ran.code, ran.stdout, ran.stderr);
    assert_eq!(ran.code, Some(code), "{context}");
    assert!(ran.stderr.contains(part), "{context}");
    assert!(ran.stdout.is_empty(), "{context}");
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{context}");
}

/// What a comparison printed as JSON.
fn runs_of(ran: &Ran) -> serde_json::Value {
    let printed: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    printed["runs"].clone()
}

#[test]
fn the_simulator_compares_and_names_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let sound = "name = 'small'\n[[machine.node]]\nmemory_mib = 64\ncpus = 2\nlatency_ns = [100, \
                 250]\n\
        [[machine.node]]\nmemory_mib = 128\n[[process]]\nworkload = 'promote'\nmemory_mib = 16\n\
        accesses = 20_000_000\n";
    let sound_file = file("sound.toml", sound);
    let one = "pghot.freq_threshold=1";
    let ran = pghot(&[
        "sim",
        "run",
        &sound_file,
        "--systems",
        "none,pghot",
        "--set",
        one,
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let runs = runs_of(&ran);
    let seconds = |n: usize| runs[n]["elapsed_s"].as_f64().unwrap();
    assert!(seconds(1) < 0.8 * seconds(0), "{runs:#}");
    assert!(runs[1]["counters"]["promoted_pages"].as_u64().unwrap() > 2000);

    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let ran = pghot(&["sim", "sweep", &sound_file, "--top", "100,10", "--out", out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("none: ") && ran.stdout.contains("sweep.html"),
        "{}",
        ran.stdout
    );
    let csv = std::fs::read_to_string(dir.path().join("out/sweep.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 2);

    let broken = file(
        "broken.toml",
        &sound.replace("memory_mib = 16", "memory_mib = 0"),
    );
    assert_refused(&["sim", "run", &broken], 2, "process[0].memory_mib");
    let garbage = file("garbage.toml", "name = ");
    assert_refused(&["sim", "run", &garbage], 2, "line 1");
    assert_refused(&["sim", "run", "/nowhere.toml"], 1, "/nowhere.toml");
    assert_refused(
        &["sim", "run", &sound_file, "--systems", "pghott"],
        2,
        "did you mean `pghot`?",
    );
    assert_refused(
        &["sim", "run", &sound_file, "--set", "damon.x=1"],
        2,
        "damon.x=1",
    );
    let nine = "pghot.freq_threshold=9";
    assert_refused(
        &["sim", "run", &sound_file, "--set", nine],
        2,
        "freq_threshold",
    );
    assert_refused(
        &["sim", "sweep", &sound_file, "--vary", "pghot"],
        2,
        "--vary pghot",
    );
    assert_refused(&["sim", "tables", "nonsense"], 2, "nonsense");
}

#[test]
fn a_part_of_a_machine_is_modelled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.toml");
    let file = path.to_str().unwrap();
    let of = |backing: &str| {
        let text = format!(
            "name = 'large'\n[[machine.node]]\nmemory_mib = 64\ncpus = 2\nlatency_ns = [100, 250]\n\
             [[machine.node]]\nmemory_mib = 128\n[[process]]\nworkload = 'promote'\n\
             memory_mib = 16\naccesses = 2_000_000\nbacking = '{backing}'\n"
        );
        std::fs::write(&path, text).unwrap();
    };
    of("anon");
    let thin = ["sim", "run", file, "--systems", "none", "--thin", "2"];
    let runs = runs_of(&pghot(&[&thin[..], &["--json"]].concat()));
    let run = &runs[0];
    assert_eq!(
        (&run["page_weight"], &run["counters"]["accesses"]),
        (&2.into(), &1_000_000.into())
    );
    let text = pghot(&thin).stdout;
    assert!(
        text.contains("2000000 accesses, each page stands for 2\n"),
        "{text}"
    );
    of("thp");
    assert_refused(&thin, 2, "process[0] has huge pages");
}

#[test]
fn profiles_are_replayed_and_damaged_ones_refused() {
    use pghot_profile::{Interval, Process, Profile, Touched, file};
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let interval = |number| Interval {
        number,
        cpu_us: 1_000_000,
        lower: Touched::default(),
        touched: Touched::of(vec![7168..8192, 0..1]),
    };
    let profile = Profile {
        kernel: "x".into(),
        interval_ms: 1000,
        intervals: 8,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: vec![Process {
            name: "late".into(),
            cgroup: String::new(),
            blocks: 16,
            huge_blocks: 0,
            intervals: (0..8).map(interval).collect(),
        }],
    };
    let bytes = file::encode(&profile);
    std::fs::write(path("sound"), &bytes).unwrap();
    std::fs::write(path("cut"), &bytes[..bytes.len() - 3]).unwrap();
    let sound = path("sound");

    let replay = ["sim", "replay", &sound, "--top-mib", "26", "--json"];
    let ran = pghot(&[&replay[..], &["--systems", "none,pghot"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let runs = runs_of(&ran);
    let near = |n: usize| runs[n]["counters"]["near_accesses"].as_u64().unwrap();
    // All that is hot came last and is far; it is four MiB.
    assert!(near(1) > 5 * near(0).max(100_000), "{runs:#}");

    let out = path("out");
    let sweep = ["sim", "sweep", &sound, "--top", "100,50", "--out", &out];
    let ran = pghot(&[&sweep[..], &["--systems", "none"]].concat());
    assert!(ran.stdout.starts_with("none: "), "{}", ran.stderr);

    assert_refused(&["sim", "replay", &path("cut")], 2, "checksum");
    assert_refused(&["sim", "replay", "/etc/passwd"], 2, "pghot record");
    assert_refused(&["sim", "replay", &path("none")], 1, "none");
    assert_refused(&["sim", "replay", &sound, "--misses", "0"], 2, "misses");
    assert_refused(&["sim", "run", &sound], 2, "pghot sim replay");
    assert_refused(&["sim", "sweep", &path("cut")], 2, "checksum");
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let socket = socket.to_str().unwrap();
    assert_refused(
        &["set", "freq", "1", "--socket", socket],
        2,
        "no tunable `freq`: did you mean `freq_",
    );
    assert_refused(&["set", "mode", "precision"], 2, "restart it with --mode");
    assert_refused(
        &["run", "--freq-threshold", "9"],
        2,
        "freq_threshold is 1 to 3",
    );
    assert_refused(
        &["run", "--freq-threshold", "-1"],
        2,
        "a whole number, not `-1`",
    );
    assert_refused(
        &["run", "--mode", "fast"],
        2,
        "`default` or `precision`, not `fast`",
    );
    for args in [
        &["fly"][..],
        &[],
        &["run", "--fast"],
        &["explain"],
        &["explain", "1"],
        &["explain", "1", "xyz"],
        &["explain", "1", "0", "--last", "3"],
        &["explain", "--last", "0"],
    ] {
        let ran = pghot(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn without_a_daemon_the_commands_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let socket = socket.to_str().unwrap();
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["explain", "1", "7f0000000000"],
        &["explain", "--last", "3"],
        &["set", "freq_threshold", "2"],
    ] {
        let args = [args, &["--socket", socket]].concat();
        assert_refused(&args, 3, "start it with `pghot run`");
    }
}

#[test]
fn a_bad_config_file_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    let config = file.to_str().unwrap();
    let table = [
        ("freq_threshold = ", "bad.toml, line 1: this is not TOML"),
        (
            "\nfreq_treshold = 2",
            "bad.toml, line 2: there is no option `freq_treshold`: did you mean `freq_threshold`?",
        ),
        (
            "freq_threshold = 9",
            "bad.toml, line 1: freq_threshold is 1 to 3",
        ),
        (
            "freq_threshold = \"2\"",
            "bad.toml, line 1: freq_threshold takes a whole number",
        ),
    ];
    for (text, part) in table {
        std::fs::write(&file, text).unwrap();
        assert_refused(&["run", "--config", config], 2, part);
        // What only asks the daemon warns of it.
        let socket = ["--socket", "/nonexistent/sock"];
        let ran = pghot(&[&["status", "--config", config][..], &socket].concat());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("warning: {config}, line")));
    }
    assert_refused(
        &["run", "--config", "/nonexistent.toml"],
        1,
        "/nonexistent.toml",
    );
}

#[test]
fn restore_trusts_no_damaged_state_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.json");
    let state_file = file.to_str().unwrap();
    let ran = pghot(&["restore", "--state-file", state_file]);
    assert_eq!(
        (ran.code, ran.stdout.trim()),
        (Some(0), "There is nothing to put back.")
    );
    std::fs::write(
        &file,
        "{\"version\": 1, \"knobs\": [{\"path\": \"/etc/passwd\"",
    )
    .unwrap();
    assert_refused(&["restore", "--state-file", state_file], 1, "is damaged");
    assert!(file.exists(), "the evidence stays");
}

#[test]
fn doctor_exits_by_its_verdict() {
    let ran = pghot(&["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let is_fail = doctor["verdict"] == "fail";
    assert_eq!(ran.code, Some(is_fail as i32));
    for section in ["features", "sources", "fights"] {
        assert!(!doctor[section].as_array().unwrap().is_empty(), "{section}");
    }
    let text = pghot(&["doctor"]).stdout;
    assert!(
        text.starts_with("Linux ") && text.contains("hint_fault"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line == line.trim_end()),
        "no trailing blanks"
    );
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pghot"))
        .arg("doctor")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn generated_files_are_the_same_each_time() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let generate = |dir: &Path| {
        for what in ["man", "completions", "reference"] {
            let ran = pghot(&["generate", what, dir.to_str().unwrap()]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        }
    };
    generate(one.path());
    generate(two.path());
    let mut files = 0;
    for entry in std::fs::read_dir(one.path()).unwrap() {
        let name = entry.unwrap().file_name();
        let read = |dir: &Path| std::fs::read(dir.join(&name)).unwrap();
        assert_eq!(read(one.path()), read(two.path()), "{name:?}");
        files += 1;
    }
    assert!(files >= 10, "{files}");
    let help = pghot(&["--help"]).stdout;
    assert!(!help.contains("generate"), "hidden: it is for packagers");
}
