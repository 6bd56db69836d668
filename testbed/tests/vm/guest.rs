//! A guest that runs a real Debian with systemd, and what it has in settings of the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{DEBIAN_FILES, Debian, Kernel, Machine, Spec, Vm};

/// Starting the daemon and waiting for a watchdog, on a busy host.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// For all of the test.
const LIFE: Duration = Duration::from_secs(1800);

/// Settings by folder: all that pghot might change, and what stands beside it.
const SETTINGS: &str = "grep --recursive --no-messages . /proc/sys/kernel /proc/sys/vm \
                        /sys/kernel/debug/sched /sys/kernel/mm/numa /sys/kernel/mm/lru_gen";

/// Files of these that change by themselves.
const RESTLESS: [&str; 8] = [
    "/proc/sys/kernel/random/",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/kernel/pty/nr",
    "/proc/sys/kernel/keys/",
    "/proc/sys/kernel/perf_event_max_sample_rate",
    "/proc/sys/kernel/tainted",
    "/sys/kernel/debug/sched/debug",
    "/sys/kernel/debug/sched/domains",
];

/// The guest.
pub struct Guest {
    /// The machine.
    pub vm: Vm,
    /// Before anything was done to it.
    pub settings_before: String,
}

impl Guest {
    /// Boots it with these files of the host, and takes down its settings.
    pub fn boot(kernel: &str, image: Debian, files: &[PathBuf]) -> Result<Guest> {
        let machine = Machine::load("tiered3-debian")?;
        let kernel = Kernel::find(kernel)?;
        let vm = Vm::boot(&Spec {
            debian: Some(image),
            limit: LIFE,
            ..Spec::new(&machine, &kernel, files)
        })?;
        let mut guest = Guest {
            vm,
            settings_before: String::new(),
        };
        // "degraded" is as good: a guest without a network may fail a unit.
        guest
            .vm
            .wait_until("systemd has started all", PATIENCE, || {
                let state = guest.vm.exec(&["systemctl", "is-system-running"])?;
                Ok(["running\n", "degraded\n"].contains(&state.stdout.as_str()))
            })?;
        guest.run(&["chmod", "755", DEBIAN_FILES])?;
        guest.settings_before = guest.settings()?;
        for known in [
            "numa_balancing",
            "scan_size_mb",
            "demotion_enabled",
            "hot_threshold_ms",
        ] {
            ensure!(
                guest.settings_before.contains(known),
                "{known} is not looked at"
            );
        }
        Ok(guest)
    }

    /// Runs a program of the guest to its good end, and returns what it wrote.
    pub fn run(&self, argv: &[&str]) -> Result<String> {
        let path = format!("/usr/sbin:/usr/bin:/sbin:/bin:{DEBIAN_FILES}");
        let env = [
            ("PATH", path.as_str()),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("LC_ALL", "C.UTF-8"),
        ];
        let output = self.vm.exec_with(argv, &env, b"")?;
        Ok(output.success().with_context(|| argv.join(" "))?.stdout)
    }

    /// Runs a line of shell.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-c", script])
    }

    /// The settings of the kernel.
    pub fn settings(&self) -> Result<String> {
        // grep fails for files that cannot be read, and for empty ones.
        let all = self.shell(&format!("{SETTINGS} || true"))?;
        let is_restless = |line: &&str| RESTLESS.iter().any(|path| line.starts_with(path));
        let mut lines: Vec<&str> = all.lines().filter(|line| !is_restless(line)).collect();
        lines.sort_unstable();
        Ok(lines.join("\n"))
    }

    /// Fails with those settings that are not as they were.
    pub fn ensure_settings_are_back(&self) -> Result<()> {
        let now = self.settings()?;
        let before: BTreeSet<&str> = self.settings_before.lines().collect();
        let now: BTreeSet<&str> = now.lines().collect();
        let changed: Vec<&str> = now.symmetric_difference(&before).copied().collect();
        ensure!(
            changed.is_empty(),
            "settings differ: {}",
            changed.join("; ")
        );
        Ok(())
    }

    /// Waits for something that may take a busy emulator long.
    pub fn wait(&self, what: &str, condition: impl Fn() -> Result<bool>) -> Result<()> {
        let mut failed = None;
        let waited = self.vm.wait_until(what, PATIENCE, || {
            Ok(condition().unwrap_or_else(|error| {
                failed = Some(error);
                true
            }))
        });
        failed.map_or(Ok(()), Err)?;
        Ok(waited?)
    }
}

/// What `make package` made last, by how its name ends.
pub fn newest(end: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let out = root.context("the testbed lies in a folder")?.join("out");
    let entries = fs::read_dir(&out).into_iter().flatten().flatten();
    let packages = entries.map(|entry| entry.path());
    let packages = packages.filter(|path| path.extension().is_some_and(|it| it == end));
    let newest = packages.max_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok());
    newest.with_context(|| format!("no .{end} in {}: run `make package`", out.display()))
}
