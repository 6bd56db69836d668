//! A guest in which a package is installed, with what the package's tests ask of it.

use std::collections::BTreeSet;
use std::ops::Deref;

use anyhow::{Context, Result};
use pghot_testbed::{DEBIAN_FILES, Debian, guest_binary, program};
use serde_json::Value;

use crate::guest::{Guest, newest};

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
    guest: Guest,
    /// The package, in the guest.
    pub package: String,
    /// Before it was installed.
    files_before: BTreeSet<String>,
}

impl Deref for Host {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl Host {
    /// Boots it, and takes down how it is.
    pub fn boot(kernel: &str) -> Result<Host> {
        let package = newest("deb")?;
        let (hotset, pagecache) = (guest_binary("hotset")?, guest_binary("pagecache")?);
        let files = [hotset, pagecache, program("prometheus")?, package.clone()];
        let guest = Guest::boot(kernel, Debian::Minimal, &files)?;
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        let mut host = Host {
            guest,
            package: format!("{DEBIAN_FILES}/{name}"),
            files_before: BTreeSet::new(),
        };
        host.files_before = host.files()?;
        Ok(host)
    }

    /// Runs a program of the guest as a user without rights, in this group.
    pub fn run_as(&self, group: &str, argv: &[&str]) -> Result<String> {
        let group = format!("--regid={group}");
        let user = ["setpriv", "--reuid=1000", &group, "--clear-groups"];
        self.run(&[&user, argv].concat())
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
