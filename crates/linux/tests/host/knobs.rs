//! Settings are put back, whatever happens in between.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use pghot_linux::hint_fault_knobs::{
    balancing_values, mark, plan, tiering_off, tiering_without_kernel_promotion,
};
use pghot_linux::knobs::{Knobs, KnobsError, RestoreOutcome, Restored};

use crate::fake::{FakeTree, content};

const RATE_LIMIT: &str = "kernel.numa_balancing_promote_rate_limit_MBps";

/// A fake machine with the settings of hint faults, and this process running on it.
pub struct Host {
    pub tree: FakeTree,
    pub state: PathBuf,
    pub balancing: PathBuf,
    pub rate_limit: PathBuf,
    pub hot_threshold: PathBuf,
    pub scan_delay: PathBuf,
    pub scan_period_min: PathBuf,
    pub scan_period_max: PathBuf,
    pub scan_size: PathBuf,
}

impl Host {
    pub fn new(balancing: &str) -> Self {
        let tree = FakeTree::new();
        tree.proc("sys/kernel/random/boot_id", "boot-1\n");
        let balancing = tree.proc("sys/kernel/numa_balancing", balancing);
        let rate_limit = tree.proc(&format!("sys/{}", RATE_LIMIT.replace('.', "/")), "65536\n");
        let debugfs = |name: &str, value: &str| {
            tree.sys(&format!("kernel/debug/sched/numa_balancing/{name}"), value)
        };
        let hot_threshold = debugfs("hot_threshold_ms", "1000\n");
        let scan_delay = debugfs("scan_delay_ms", "1000\n");
        let scan_period_min = debugfs("scan_period_min_ms", "1000\n");
        let scan_period_max = debugfs("scan_period_max_ms", "60000\n");
        let scan_size = debugfs("scan_size_mb", "256\n");
        let state = tree.dir().join("run/pghot/state.json");
        let host = Self {
            tree,
            state,
            balancing,
            rate_limit,
            hot_threshold,
            scan_delay,
            scan_period_min,
            scan_period_max,
            scan_size,
        };
        host.process("S", 5000);
        host
    }

    /// What the scanner is told: delay, shortest and longest period, size.
    pub fn scanner(&self) -> [String; 4] {
        [
            &self.scan_delay,
            &self.scan_period_min,
            &self.scan_period_max,
            &self.scan_size,
        ]
        .map(|path| content(path))
    }

    /// What /proc says about this process; a command name made to confuse.
    fn process(&self, state: &str, start_ticks: u64) {
        let pid = std::process::id();
        let zeros = "0 ".repeat(18);
        let stat = format!("{pid} (a) S (b) {state} {zeros}{start_ticks} 0 0\n");
        self.tree.proc(&format!("{pid}/stat"), &stat);
    }

    /// The process is killed and its pid reused.
    pub fn kill(&self) {
        self.process("S", 6000);
    }

    pub fn open(&self) -> Result<(Knobs, Vec<Restored>), KnobsError> {
        Knobs::open(&self.tree.root, &self.state)
    }

    pub fn running(&self) -> Knobs {
        let (mut knobs, _) = self.open().expect("a free state file");
        tiering_without_kernel_promotion(&mut knobs).expect("settings");
        knobs
    }

    pub fn values(&self) -> [String; 3] {
        [
            content(&self.balancing),
            content(&self.rate_limit),
            content(&self.hot_threshold),
        ]
    }
}

#[test]
fn the_tiering_bit_is_always_switched_on_afresh() {
    assert_eq!(balancing_values(0, 0), [2]);
    assert_eq!(balancing_values(1, 1), [3]);
    assert_eq!(balancing_values(1, 0), [2]);
    assert_eq!(balancing_values(2, 0), [0, 2]);
    assert_eq!(balancing_values(3, 1), [1, 3]);
    assert_eq!(balancing_values(3, 0), [0, 2]);
}

#[test]
fn plan_ends_with_the_tiering_bit() {
    let host = Host::new("1\n");
    let steps = plan(&host.tree.root).unwrap();
    let paths: Vec<_> = steps.iter().map(|step| step.path.clone()).collect();
    assert_eq!(
        paths,
        [&host.rate_limit, &host.hot_threshold, &host.balancing].map(PathBuf::clone)
    );
    assert_eq!(steps[2].values, ["3"]);
    assert_eq!(
        host.values(),
        ["1", "65536", "1000"],
        "a plan changes nothing"
    );
}

/// Normal balancing moves pages between nodes with CPUs.
#[test]
fn normal_balancing_ends_where_all_cpus_are_on_one_node() {
    for (with_cpus, running, standing_by) in [("0", "2", "0"), ("0-1", "3", "1"), ("?", "3", "1")] {
        let host = Host::new("1");
        host.tree.sys("devices/system/node/has_cpu", with_cpus);
        let mut knobs = host.running();
        assert_eq!(content(&host.balancing), running, "{with_cpus}");
        assert_eq!(
            mark(&mut knobs, crate::scanner::visits(4)).unwrap(),
            running == "2"
        );
        tiering_off(&mut knobs).unwrap();
        assert_eq!(content(&host.balancing), standing_by, "{with_cpus}");
        knobs.restore().unwrap();
        assert_eq!(host.values(), ["1", "65536", "1000"]);
        assert_eq!(content(&host.scan_size), "256");
    }
}

#[test]
fn set_and_restore_for_every_mode() {
    for (original, running, settings) in
        [("0", "2", 6), ("1", "3", 3), ("2", "2", 6), ("3", "3", 3)]
    {
        let host = Host::new(original);
        let mut knobs = host.running();
        assert_eq!(host.values(), [running, "0", "0"]);
        let report = knobs.restore().unwrap();
        assert_eq!(report.len(), settings);
        assert_eq!(
            report[0].path, host.balancing,
            "the last change is undone first"
        );
        assert_eq!(host.values(), [original, "65536", "1000"]);
        assert!(!host.state.exists());
        assert!(knobs.restore().unwrap().is_empty(), "idempotent");
        assert!(host.open().unwrap().1.is_empty());
    }
}

/// Threads may still run when the settings are back, and one of them may be about to change one.
#[test]
fn what_is_put_back_stays_so() {
    let host = Host::new("1");
    let mut knobs = host.running();
    knobs.restore().unwrap();
    let error = tiering_without_kernel_promotion(&mut knobs).unwrap_err();
    assert!(matches!(error, KnobsError::Over { .. }), "{error}");
    assert!(knobs.put_back().unwrap().is_empty());
    assert_eq!(host.values(), ["1", "65536", "1000"]);
    assert!(!host.state.exists());
}

#[test]
fn standing_by_turns_hint_faults_off_and_on() {
    for (original, standing_by) in [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")] {
        let host = Host::new(original);
        let (mut knobs, _) = host.open().unwrap();
        tiering_off(&mut knobs).unwrap();
        assert_eq!(content(&host.balancing), standing_by);
        tiering_without_kernel_promotion(&mut knobs).unwrap();
        tiering_off(&mut knobs).unwrap();
        assert_eq!(host.values(), [standing_by, "0", "0"]);
        knobs.restore().unwrap();
        assert_eq!(host.values(), [original, "65536", "1000"]);
    }
}

#[test]
fn settings_go_back_and_the_claim_is_kept() {
    let host = Host::new("1");
    let mut knobs = host.running();
    assert_eq!(knobs.changed().len(), 3);
    assert_eq!(knobs.put_back().unwrap().len(), 3);
    assert_eq!(host.values(), ["1", "65536", "1000"]);
    assert!(knobs.changed().is_empty());
    assert!(host.open().is_err(), "the claim is kept");
}

#[test]
fn without_debugfs() {
    let host = Host::new("0");
    fs::remove_dir_all(host.tree.root.sys.join("kernel/debug")).unwrap();
    let mut knobs = host.running();
    assert_eq!(content(&host.rate_limit), "0");
    assert_eq!(knobs.restore().unwrap().len(), 2);
    assert_eq!(
        (content(&host.balancing), content(&host.rate_limit)),
        ("0".into(), "65536".into())
    );
}

#[test]
fn missing_sysctls_are_named_before_anything_changes() {
    let host = Host::new("0");
    fs::remove_file(&host.rate_limit).unwrap();
    let (mut knobs, _) = host.open().unwrap();
    let error = tiering_without_kernel_promotion(&mut knobs).unwrap_err();
    assert!(matches!(&error, KnobsError::Missing { path, .. } if *path == host.rate_limit));
    assert_eq!(
        (content(&host.balancing), content(&host.hot_threshold)),
        ("0".into(), "1000".into())
    );
}

#[test]
fn kill_9_is_undone_at_the_next_start() {
    let host = Host::new("1");
    drop(host.running());
    assert_eq!(host.values(), ["3", "0", "0"], "dropping restores nothing");
    host.kill();
    let (_knobs, report) = host.open().unwrap();
    assert_eq!(report.len(), 3);
    assert!(
        report
            .iter()
            .all(|knob| matches!(knob.outcome, RestoreOutcome::PutBack))
    );
    assert_eq!(host.values(), ["1", "65536", "1000"]);
}

#[test]
fn kill_9_is_undone_by_recover_alone() {
    let host = Host::new("2");
    drop(host.running());
    host.process("Z", 5000); // a zombie is dead
    let report = Knobs::recover(&host.tree.root, &host.state).unwrap();
    assert!(matches!(report[0].outcome, RestoreOutcome::AlreadyOriginal));
    assert_eq!(host.values(), ["2", "65536", "1000"]);
    assert!(!host.state.exists());
    assert!(
        Knobs::recover(&host.tree.root, &host.state)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn kill_9_between_two_values_is_undone() {
    let host = Host::new("3");
    drop(host.running());
    // As it was on disk while the tiering bit was off.
    let text = fs::read_to_string(&host.state).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        state["knobs"][2]["ours"],
        serde_json::json!(["3"]),
        "one value at rest"
    );
    state["knobs"][2]["ours"] = serde_json::json!(["1", "3"]);
    fs::write(&host.state, state.to_string()).unwrap();
    fs::write(&host.balancing, "1\n").unwrap();
    host.kill();
    host.open().unwrap();
    assert_eq!(host.values(), ["3", "65536", "1000"]);
}

#[test]
fn the_state_file_is_private_and_leaves_no_litter() {
    let host = Host::new("0");
    let _knobs = host.running();
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&host.state), 0o600);
    let dir = host.state.parent().unwrap();
    assert_eq!(mode(&dir.to_path_buf()) & 0o022, 0);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "itself and its lock");
}

#[test]
fn another_boot_is_forgotten() {
    let host = Host::new("0");
    drop(host.running());
    fs::write(host.tree.root.sysctl("kernel.random.boot_id"), "boot-2\n").unwrap();
    let (_knobs, report) = host.open().unwrap();
    assert!(report.is_empty());
    assert_eq!(
        host.values(),
        ["2", "0", "0"],
        "these are that boot's own values"
    );
}

#[test]
fn a_live_daemon_is_not_disturbed() {
    let host = Host::new("0");
    let _knobs = host.running();
    let pid_of_owner = std::process::id();
    for error in [
        host.open().unwrap_err(),
        Knobs::recover(&host.tree.root, &host.state).unwrap_err(),
    ] {
        assert!(matches!(error, KnobsError::AlreadyRunning { pid, .. } if pid == pid_of_owner));
    }
    assert_eq!(host.values(), ["2", "0", "0"]);
}

#[test]
fn a_daemon_that_changed_nothing_yet_holds_the_claim() {
    let host = Host::new("0");
    let (_knobs, _) = host.open().unwrap();
    assert!(matches!(
        host.open(),
        Err(KnobsError::AlreadyRunning { .. })
    ));
}

#[test]
fn damaged_state_changes_nothing() {
    let host = Host::new("0");
    drop(host.running());
    host.kill();
    let good = fs::read_to_string(&host.state).unwrap();
    for text in [
        "",
        "{",
        &good[..good.len() / 2],
        "{\"version\": 1}",
        "\u{fffd}",
    ] {
        fs::write(&host.state, text).unwrap();
        let error = host.open().unwrap_err();
        assert!(matches!(error, KnobsError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("delete the file"), "{error}");
        assert_eq!(content(&host.state), text.trim(), "the evidence stays");
    }
    fs::write(
        &host.state,
        good.replace("\"version\": 1", "\"version\": 2"),
    )
    .unwrap();
    assert!(matches!(
        host.open(),
        Err(KnobsError::UnknownVersion { found: 2, .. })
    ));
    assert_eq!(host.values(), ["2", "0", "0"]);
}

#[test]
fn somebody_elses_later_change_stands() {
    let host = Host::new("0");
    let mut knobs = host.running();
    fs::write(&host.rate_limit, "100\n").unwrap();
    let report = knobs.restore().unwrap();
    let is_left = |knob: &&Restored| match &knob.outcome {
        RestoreOutcome::LeftAlone { present } => present == "100",
        _ => false,
    };
    let left: Vec<_> = report
        .iter()
        .filter(is_left)
        .map(|knob| &knob.path)
        .collect();
    assert_eq!(left, [&host.rate_limit]);
    assert_eq!(host.values(), ["0", "100", "1000"]);
    assert!(!host.state.exists());
}

#[test]
fn setting_again_keeps_the_first_original() {
    let host = Host::new("0");
    let (mut knobs, _) = host.open().unwrap();
    knobs.set(&host.rate_limit, "10").unwrap();
    knobs.set(&host.rate_limit, "0").unwrap();
    fs::write(&host.hot_threshold, "500\n").unwrap();
    knobs.set(&host.hot_threshold, "0").unwrap();
    knobs.restore().unwrap();
    assert_eq!(host.values(), ["0", "65536", "500"]);
}

#[test]
fn a_refused_write_puts_the_others_back() {
    let host = Host::new("0");
    // A number that can be read and that no one can write, root neither.
    fs::remove_file(&host.balancing).unwrap();
    symlink("/proc/sys/kernel/cap_last_cap", &host.balancing).unwrap();
    let (mut knobs, _) = host.open().unwrap();
    let error = tiering_without_kernel_promotion(&mut knobs).unwrap_err();
    assert!(
        matches!(&error, KnobsError::Write { path, .. } if *path == host.balancing),
        "{error}"
    );
    assert_eq!(
        (content(&host.rate_limit), content(&host.hot_threshold)),
        ("65536".into(), "1000".into())
    );
    assert!(host.state.exists(), "the claim stays");
    assert!(knobs.restore().unwrap().is_empty());
    assert!(!host.state.exists());
}

#[test]
fn what_cannot_be_put_back_stays_on_record() {
    let host = Host::new("0");
    drop(host.running());
    host.kill();
    let hidden = host.tree.root.sys.join("kernel/hidden");
    fs::rename(host.tree.root.sys.join("kernel/debug"), &hidden).unwrap();
    let (mut knobs, report) = host.open().unwrap();
    assert_eq!(
        report
            .iter()
            .filter(|k| matches!(k.outcome, RestoreOutcome::Failed(_)))
            .count(),
        4
    );
    assert!(matches!(
        knobs.restore().unwrap()[0].outcome,
        RestoreOutcome::Failed(_)
    ));
    assert!(host.state.exists());
    fs::rename(&hidden, host.tree.root.sys.join("kernel/debug")).unwrap();
    knobs.restore().unwrap();
    assert_eq!(host.values(), ["0", "65536", "1000"]);
    assert!(!host.state.exists());
}

#[test]
fn an_unwritable_state_file_changes_nothing() {
    let host = Host::new("0");
    let (mut knobs, _) = host.open().unwrap();
    let dir = host.state.parent().unwrap();
    fs::remove_dir_all(dir).unwrap();
    fs::write(dir, "a file in the way").unwrap();
    let error = knobs.set(&host.rate_limit, "0").unwrap_err();
    assert!(matches!(error, KnobsError::StateFile { .. }), "{error}");
    assert_eq!(content(&host.rate_limit), "65536");
}
