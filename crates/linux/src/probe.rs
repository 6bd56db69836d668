//! Asks what this kernel offers pghot: one table of features, printed by `pghot doctor`.
//!
//! Decided by what is there, never by version numbers. Whether single kernel functions exist is
//! not asked here: that is libbpf's business when it loads the programs.

use std::path::Path;

use crate::bpf::has_function;
use crate::mover::{Kernel, MovePages};
use crate::root::{ReadError, SysRoot, read_text};
use crate::topology::{PAGE_SHIFT, Topology};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// pghot works, but less well or less completely.
    Warn,
    /// pghot cannot promote on this machine as it is.
    Fail,
}

/// Whether the machine has something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has.
    Available,
    /// It has, and this is what nobody knows yet about how well it works.
    Untried(&'static str),
    /// It has not, and this is why, in one clause.
    Unavailable(String),
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Stable name of the check, for scripts.
    pub id: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was found and what it means.
    pub meaning: String,
    /// What to do about it; empty where there is nothing to do.
    pub advice: &'static str,
}

/// Something pghot needs or profits from.
pub struct Feature {
    /// Stable name.
    pub id: &'static str,
    /// What pghot uses it for.
    pub used_for: &'static str,
    /// What its absence means.
    pub without: Level,
    /// How to get it.
    pub advice: &'static str,
    /// Asks the machine.
    pub ask: fn(&SysRoot) -> Answer,
}

impl Feature {
    /// Asks the machine, and weighs the answer.
    pub fn check(&self, root: &SysRoot) -> Finding {
        let (level, meaning, advice) = match (self.ask)(root) {
            Answer::Available => (Level::Ok, format!("available, for {}", self.used_for), ""),
            Answer::Untried(caveat) => (
                Level::Ok,
                format!("available, for {}, but {caveat}", self.used_for),
                "",
            ),
            Answer::Unavailable(reason) => (
                self.without,
                format!("{reason}; pghot uses it for {}", self.used_for),
                self.advice,
            ),
        };
        Finding {
            id: self.id,
            level,
            meaning,
            advice,
        }
    }
}

/// The ids of capabilities begin so.
pub const CAPABILITY: &str = "cap_";

const GRANT: &str = "run pghot as root or grant the capability in its service unit";

/// Every feature, in the order `doctor` prints them.
pub const FEATURES: &[Feature] = &[
    Feature {
        id: "lower_tier",
        used_for: "having pages to promote",
        without: Level::Fail,
        advice: "give it memory on a node of its own that the kernel knows to be slower, such as \
                 CXL or persistent memory; `pghot run --wait-for-lower-tier` waits for it",
        ask: ask_lower_tier,
    },
    Feature {
        id: "memory_blocks",
        used_for: "knowing which page frames are lower tier",
        without: Level::Fail,
        advice: "use a kernel with CONFIG_MEMORY_HOTPLUG",
        ask: |root| ask_file(&root.sys.join("devices/system/memory/block_size_bytes")),
    },
    Feature {
        id: "page_size",
        used_for: "reading PFNs from page table entries",
        without: Level::Fail,
        advice: "use a kernel with 4 KiB base pages",
        ask: ask_page_size,
    },
    Feature {
        id: "move_pages",
        used_for: "moving pages",
        without: Level::Fail,
        advice: "in a container, set `seccompProfile` to `Unconfined`, or run it with \
                 `--security-opt seccomp=unconfined`; else use a kernel with CONFIG_NUMA and \
                 CONFIG_MIGRATION",
        ask: ask_move_pages,
    },
    Feature {
        id: "btf",
        used_for: "loading BPF programs",
        without: Level::Fail,
        advice: "use a kernel with CONFIG_DEBUG_INFO_BTF",
        ask: |root| ask_file(&root.sys.join("kernel/btf/vmlinux")),
    },
    Feature {
        id: "bpf_rcu_read_lock",
        used_for: "finding out who maps a page",
        without: Level::Fail,
        advice: "use Linux 6.12 or later, with which pghot is tested",
        ask: |root| match has_function(root, "bpf_rcu_read_lock") {
            Some(false) => Answer::Unavailable("this kernel has no bpf_rcu_read_lock".to_owned()),
            // Without BTF that is what is missing.
            _ => Answer::Available,
        },
    },
    Feature {
        id: "numa_balancing",
        used_for: "hint faults",
        without: Level::Warn,
        advice: "use a kernel with CONFIG_NUMA_BALANCING, or another hotness source",
        ask: |root| ask_file(&root.sysctl("kernel.numa_balancing")),
    },
    Feature {
        id: "promote_rate_limit",
        used_for: "turning the kernel's own promotion off",
        without: Level::Warn,
        advice: "use Linux 6.1 or later, or another hotness source than hint faults",
        ask: |root| ask_file(&root.sysctl("kernel.numa_balancing_promote_rate_limit_MBps")),
    },
    Feature {
        id: "debugfs",
        used_for: "setting hot_threshold_ms to 0 beside the rate limit, which alone suffices",
        without: Level::Ok,
        advice: "",
        ask: |root| {
            ask_file(
                &root
                    .sys
                    .join("kernel/debug/sched/numa_balancing/hot_threshold_ms"),
            )
        },
    },
    Feature {
        id: "lockdown",
        used_for: "reading kernel memory in BPF programs",
        without: Level::Fail,
        advice: "boot with lockdown=integrity or without Secure Boot",
        ask: ask_lockdown,
    },
    Feature {
        id: "cap_bpf",
        used_for: "loading BPF programs",
        without: Level::Fail,
        advice: GRANT,
        ask: |root| ask_capability(root, 39, "CAP_BPF"),
    },
    Feature {
        id: "cap_perfmon",
        used_for: "attaching BPF programs to kernel functions",
        without: Level::Fail,
        advice: GRANT,
        ask: |root| ask_capability(root, 38, "CAP_PERFMON"),
    },
    Feature {
        id: "cap_sys_ptrace",
        used_for: "moving pages of other users' processes",
        without: Level::Fail,
        advice: GRANT,
        ask: |root| ask_capability(root, 19, "CAP_SYS_PTRACE"),
    },
    Feature {
        id: "cap_sys_nice",
        used_for: "moving pages that several processes map",
        without: Level::Fail,
        advice: GRANT,
        ask: |root| ask_capability(root, 23, "CAP_SYS_NICE"),
    },
    Feature {
        id: "cap_dac_override",
        used_for: "clearing accessed bits of other users' processes (by the keeper)",
        without: Level::Warn,
        advice: GRANT,
        ask: |root| ask_capability(root, 1, "CAP_DAC_OVERRIDE"),
    },
    Feature {
        id: "cap_dac_read_search",
        used_for: "opening files whose page cache is to move",
        without: Level::Warn,
        advice: GRANT,
        ask: |root| ask_capability(root, 2, "CAP_DAC_READ_SEARCH"),
    },
    Feature {
        id: "cap_fowner",
        used_for: "opening them without changing their access time",
        without: Level::Warn,
        advice: GRANT,
        ask: |root| ask_capability(root, 3, "CAP_FOWNER"),
    },
    Feature {
        id: "cap_sys_admin",
        used_for: "changing kernel.numa_balancing",
        without: Level::Warn,
        advice: GRANT,
        ask: |root| ask_capability(root, 21, "CAP_SYS_ADMIN"),
    },
    Feature {
        id: "cap_syslog",
        used_for: "reading kernel symbol addresses, without which no page is resolved",
        without: Level::Fail,
        advice: GRANT,
        ask: |root| ask_capability(root, 34, "CAP_SYSLOG"),
    },
];

/// Checks all [`FEATURES`].
pub fn features(root: &SysRoot) -> Vec<Finding> {
    FEATURES.iter().map(|feature| feature.check(root)).collect()
}

fn ask_lower_tier(root: &SysRoot) -> Answer {
    match Topology::read(root) {
        Err(error) => Answer::Unavailable(error.to_string()),
        Ok(topology) if topology.tiers.is_empty() => {
            Answer::Unavailable("this kernel reports no memory tiers".into())
        }
        Ok(topology) if topology.lower_tier_nodes().next().is_none() => {
            Answer::Unavailable("all nodes of this machine are in the top tier".into())
        }
        Ok(topology) if topology.top_tier_nodes().next().is_none() => {
            Answer::Unavailable("no node of the top tier has memory to promote to".into())
        }
        Ok(_) => Answer::Available,
    }
}

/// Readable, whatever it holds. An open is what tells: root may lack rights, and lockdown denies.
fn ask_file(path: &Path) -> Answer {
    match std::fs::File::open(path) {
        Ok(_) => Answer::Available,
        Err(source) => Answer::Unavailable(ReadError::io(path, source).to_string()),
    }
}

fn ask_page_size(_: &SysRoot) -> Answer {
    // SAFETY: sysconf takes a number and returns a number.
    match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
        size if size == 1 << PAGE_SHIFT => Answer::Available,
        size => Answer::Unavailable(format!("base pages have {size} bytes, not 4096")),
    }
}

/// Asks about no page at all of this process: fails only if the system call is missing.
fn ask_move_pages(_: &SysRoot) -> Answer {
    match Kernel.move_pages(0, &[], None, &mut []) {
        Ok(_) => Answer::Available,
        // The kernel itself lets everybody ask about no page.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Answer::Unavailable(
            "a seccomp filter forbids move_pages(2), as those of container runtimes do".to_owned(),
        ),
        Err(error) => Answer::Unavailable(format!("move_pages(2) fails: {error}")),
    }
}

/// `/sys/kernel/security/lockdown` marks the mode in force: `none integrity [confidentiality]`.
fn ask_lockdown(root: &SysRoot) -> Answer {
    match read_text(&root.sys.join("kernel/security/lockdown")) {
        Ok(modes) if modes.contains("[confidentiality]") => {
            Answer::Unavailable("kernel lockdown is in confidentiality mode".into())
        }
        // Absent without CONFIG_SECURITY_LOCKDOWN_LSM, which is the common harmless case.
        _ => Answer::Available,
    }
}

/// Bit numbers are those of linux/capability.h.
fn ask_capability(root: &SysRoot, bit: u32, name: &str) -> Answer {
    let path = root.proc.join("self/status");
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(error) => return Answer::Unavailable(error.to_string()),
    };
    let effective = text
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    match effective {
        Some(mask) if mask & (1 << bit) != 0 => Answer::Available,
        Some(_) => Answer::Unavailable(format!("pghot runs without {name}")),
        None => Answer::Unavailable(format!("{} has no CapEff line", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refused_calls::refuse_these;

    #[test]
    fn a_runtime_that_forbids_move_pages_is_told_from_a_kernel_without() {
        let ask = || ask_move_pages(&SysRoot::default());
        assert_eq!(ask(), Answer::Available);
        let contained = std::thread::spawn(move || {
            refuse_these(&[libc::SYS_move_pages]).unwrap();
            ask()
        });
        let Answer::Unavailable(why) = contained.join().unwrap() else {
            panic!("available");
        };
        assert!(why.contains("seccomp"), "{why}");
    }
}
