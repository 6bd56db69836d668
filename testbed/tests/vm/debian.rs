//! A guest that runs a real Debian, with what the package's tests ask of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{DEBIAN_FILES, Kernel, Machine, Spec, Vm, guest_binary, program};
use serde_json::Value;

/// Starting the daemon and waiting for a watchdog, on a busy host.
const PATIENCE: Duration = Duration::from_secs(240);

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

/// Where installing anything leaves traces.
const TRACES: [&str; 9] = [
    "/etc/group",
    "/etc/gshadow",
    "/etc/.pwd.lock",
    "/var/cache/",
    "/var/lib/apt/",
    "/var/lib/dpkg/",
    "/var/log/",
    "/run/systemd/",
    "/run/log/",
];

/// The guest.
pub struct Host {
    pub vm: Vm,
    /// The package, in the guest.
    pub package: String,
    /// Before it was installed.
    pub settings_before: String,
    files_before: BTreeSet<String>,
}

impl Host {
    /// Boots it, and takes down how it is.
    pub fn boot(kernel: &str) -> Result<Host> {
        let package = newest_package()?;
        let machine = Machine::load("tiered3-debian")?;
        let kernel = Kernel::find(kernel)?;
        let (hotset, pagecache) = (guest_binary("hotset")?, guest_binary("pagecache")?);
        let prometheus = program("prometheus")?;
        let binaries = [hotset, pagecache, prometheus, package.clone()];
        let vm = Vm::boot(&Spec {
            debian: true,
            limit: LIFE,
            ..Spec::new(&machine, &kernel, &binaries)
        })?;
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        let mut host = Host {
            vm,
            package: format!("{DEBIAN_FILES}/{name}"),
            settings_before: String::new(),
            files_before: BTreeSet::new(),
        };
        // "degraded" is as good: a guest without a network may fail a unit.
        host.vm
            .wait_until("systemd has started all", PATIENCE, || {
                let state = host.vm.exec(&["systemctl", "is-system-running"])?;
                Ok(["running\n", "degraded\n"].contains(&state.stdout.as_str()))
            })?;
        host.run(&["chmod", "755", DEBIAN_FILES])?;
        host.settings_before = host.settings()?;
        for known in [
            "numa_balancing",
            "scan_size_mb",
            "demotion_enabled",
            "hot_threshold_ms",
        ] {
            ensure!(
                host.settings_before.contains(known),
                "{known} is not looked at"
            );
        }
        host.files_before = host.files()?;
        Ok(host)
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

    /// The same as a user without rights, in this group.
    pub fn run_as(&self, group: &str, argv: &[&str]) -> Result<String> {
        let group = format!("--regid={group}");
        let user = ["setpriv", "--reuid=1000", &group, "--clear-groups"];
        self.run(&[&user, argv].concat())
    }

    /// Runs a line of shell.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-c", script])
    }

    /// What `pghot status` says.
    pub fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.run(&["pghot", "status", "--json"])?,
        )?)
    }

    /// Accesses that a source has recorded.
    pub fn recorded(&self, source: &str) -> Result<u64> {
        let status = self.status()?;
        let mut sources = status["sources"].as_array().into_iter().flatten();
        let found = sources
            .find(|s| s["name"] == source)
            .context("no such source")?;
        let recorded = found.pointer("/stats/recorded").and_then(Value::as_u64);
        Ok(recorded.unwrap_or(0))
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

    fn files(&self) -> Result<BTreeSet<String>> {
        let list = self.shell("find / /run /dev/shm /tmp -xdev")?;
        let is_trace = |path: &&str| TRACES.iter().any(|trace| path.starts_with(trace));
        Ok(list
            .lines()
            .filter(|path| !is_trace(path))
            .map(str::to_owned)
            .collect())
    }

    /// Files that were not there before the package was.
    pub fn new_files(&self) -> Result<Vec<String>> {
        let now = self.files()?;
        Ok(now.difference(&self.files_before).cloned().collect())
    }

    /// What the service and systemd said of it.
    pub fn journal(&self) -> String {
        let newest = [
            "journalctl",
            "--unit=pghot",
            "--no-pager",
            "--lines=80",
            "--output=cat",
        ];
        self.run(&newest)
            .unwrap_or_else(|error| format!("{error:#}"))
    }

    fn property(&self, name: &str) -> Result<String> {
        let property = format!("--property={name}");
        let value = self.run(&["systemctl", "show", "--value", &property, "pghot"])?;
        Ok(value.trim().to_owned())
    }

    /// The daemon's process.
    pub fn main_pid(&self) -> Result<String> {
        self.property("MainPID")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        Ok(self.vm.kill(self.main_pid()?.parse()?, signal)?)
    }

    /// Has the unit say something else for now, or what the package says again.
    pub fn override_unit(&self, setting: Option<&str>) -> Result<()> {
        let folder = "/run/systemd/system/pghot.service.d";
        match setting {
            Some(setting) => {
                self.vm.mkdir(folder)?;
                let unit = format!("[Service]\n{setting}\n");
                self.vm.write(&format!("{folder}/test.conf"), unit)?;
            }
            None => drop(self.run(&["rm", "-r", folder])?),
        }
        self.run(&["systemctl", "daemon-reload"])?;
        Ok(())
    }

    /// Stops one thread of the daemon for good: in a control group of its own, which is frozen.
    pub fn freeze_thread(&self, name: &str) -> Result<()> {
        self.shell(&format!(
            "set -e; cd /sys/fs/cgroup/system.slice/pghot.service; mkdir frozen; \
             echo threaded >frozen/cgroup.type; \
             comm=$(grep --files-with-matches --line-regexp {name} /proc/{}/task/*/comm); \
             tid=${{comm%/comm}}; echo ${{tid##*/}} >frozen/cgroup.threads; \
             echo 1 >frozen/cgroup.freeze",
            self.main_pid()?
        ))?;
        Ok(())
    }

    /// How often systemd has started it again.
    pub fn restarts(&self) -> Result<u32> {
        Ok(self.property("NRestarts")?.parse()?)
    }

    /// Waits until the daemon has said that it is ready.
    pub fn wait_active(&self) -> Result<()> {
        self.wait_state("active")
    }

    /// Waits for a state of the service.
    pub fn wait_state(&self, state: &str) -> Result<()> {
        self.wait(&format!("the service is {state}"), || {
            Ok(self.property("ActiveState")? == state)
        })
    }

    /// Waits until systemd has started it once more.
    pub fn wait_restarted(&self, restarts: u32) -> Result<()> {
        self.wait("the service is started again", || {
            Ok(self.restarts()? > restarts && self.property("ActiveState")? == "active")
        })
    }

    fn wait(&self, what: &str, condition: impl Fn() -> Result<bool>) -> Result<()> {
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

    /// The same package with a higher version.
    pub fn make_newer_package(&self) -> Result<String> {
        let newer = "/tmp/newer.deb";
        self.shell(&format!(
            "dpkg-deb --raw-extract {} /tmp/newer && \
             sed --in-place '/^Version: /s/$/+newer/' /tmp/newer/DEBIAN/control && \
             dpkg-deb --root-owner-group --build -Znone /tmp/newer {newer} && rm -r /tmp/newer",
            self.package
        ))?;
        Ok(newer.to_owned())
    }
}

/// What `make package` made last.
fn newest_package() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let out = root.context("the testbed lies in a folder")?.join("out");
    let entries = fs::read_dir(&out).into_iter().flatten().flatten();
    let packages = entries.map(|entry| entry.path());
    let packages = packages.filter(|path| path.extension().is_some_and(|end| end == "deb"));
    let newest = packages.max_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok());
    newest.with_context(|| format!("no package in {}: run `make package`", out.display()))
}
