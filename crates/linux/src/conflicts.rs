//! Finds what on this machine would work against pghot: one table, printed by `pghot doctor`.

use crate::probe::{Finding, Level};
use crate::root::{SysRoot, numbered_entries, read_optional};
use crate::topology::Topology;
use crate::watermarks::Watermarks;

/// One thing that may conflict with pghot.
pub struct Conflict {
    /// Stable name.
    pub id: &'static str,
    /// Looks at the machine.
    pub look: fn(&SysRoot) -> Verdict,
}

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How much it matters.
    pub level: Level,
    /// What was found and what it means.
    pub meaning: String,
    /// What to do about it; may be empty.
    pub advice: &'static str,
}

/// Every conflict, in the order `doctor` prints them.
pub const CONFLICTS: &[Conflict] = &[
    Conflict {
        id: "kernel_promotion",
        look: look_numa_balancing,
    },
    Conflict {
        id: "free_space_shortcut",
        look: look_shortcut,
    },
    Conflict {
        id: "demotion_enabled",
        look: look_demotion,
    },
    Conflict {
        id: "damon",
        look: look_damon,
    },
    Conflict {
        id: "damon_stat",
        look: look_damon_stat,
    },
    Conflict {
        id: "zone_reclaim_mode",
        look: look_zone_reclaim,
    },
];

/// Those of the kernel that clear accessed bits now.
pub fn readers_of_accessed_bits(root: &SysRoot) -> Vec<Finding> {
    let readers = ["damon", "damon_stat"];
    let mut found = conflicts(root);
    found.retain(|fight| readers.contains(&fight.id) && fight.level != Level::Ok);
    found
}

/// Looks for all [`CONFLICTS`].
pub fn conflicts(root: &SysRoot) -> Vec<Finding> {
    let find = |conflict: &Conflict| {
        let Verdict {
            level,
            meaning,
            advice,
        } = (conflict.look)(root);
        Finding {
            id: conflict.id,
            level,
            meaning,
            advice,
        }
    };
    CONFLICTS.iter().map(find).collect()
}

fn ok(meaning: impl Into<String>) -> Verdict {
    Verdict {
        level: Level::Ok,
        meaning: meaning.into(),
        advice: "",
    }
}

fn warn(meaning: impl Into<String>, advice: &'static str) -> Verdict {
    Verdict {
        level: Level::Warn,
        meaning: meaning.into(),
        advice,
    }
}

/// Not being able to look is worth a warning: the conflict may be there.
fn unknown(error: impl std::fmt::Display) -> Verdict {
    warn(error.to_string(), "run `pghot doctor` as root")
}

fn look_numa_balancing(root: &SysRoot) -> Verdict {
    let value = match read_optional(&root.sysctl("kernel.numa_balancing")) {
        Err(error) => return unknown(error),
        Ok(value) => value,
    };
    match value.as_deref() {
        None => ok("this kernel has no NUMA balancing"),
        Some("0") => ok("kernel.numa_balancing is 0: the kernel neither balances nor promotes"),
        Some("1") => ok(
            "kernel.numa_balancing is 1: the kernel balances between nodes of one \
             tier, and goes on doing so while pghot runs",
        ),
        Some("2" | "3") => warn(
            "kernel.numa_balancing has the tiering bit: the kernel promotes by itself, in the \
             faulting threads",
            "nothing: pghot turns that promotion off while it runs and on again after",
        ),
        Some(other) => warn(
            format!("kernel.numa_balancing is {other}, which pghot does not know"),
            "set kernel.numa_balancing to 0, 1, 2 or 3",
        ),
    }
}

fn look_shortcut(root: &SysRoot) -> Verdict {
    let (topology, watermarks) = match (Topology::read(root), Watermarks::open(root)) {
        (Ok(topology), Ok(watermarks)) => (topology, watermarks),
        (Err(error), _) | (_, Err(error)) => return unknown(error),
    };
    let nids: Vec<String> = topology
        .top_tier_nodes()
        .filter(|node| watermarks.free_space_shortcut(node.nid))
        .map(|node| node.nid.to_string())
        .collect();
    if nids.is_empty() {
        return ok("no top-tier node has so much free memory that the kernel promotes regardless");
    }
    warn(
        format!(
            "top-tier node {} has more than max(1 GiB, 1/16 of its memory) free: the kernel \
             promotes there at the first hint fault, whatever its limits",
            nids.join(", ")
        ),
        "nothing: it is harmless, pghot counts it and takes over when the node fills",
    )
}

fn look_demotion(root: &SysRoot) -> Verdict {
    const ADVICE: &str = "echo true > /sys/kernel/mm/numa/demotion_enabled";
    match read_optional(&root.sys.join("kernel/mm/numa/demotion_enabled")) {
        Err(error) => unknown(error),
        Ok(None) => warn(
            "this kernel cannot demote: once the top tier is full, promotion stops",
            "use a kernel with CONFIG_NUMA and CONFIG_MIGRATION",
        ),
        Ok(Some(value)) if value == "true" => ok("reclaim demotes cold pages to the lower tier"),
        Ok(Some(_)) => warn(
            "demotion is off: once the top tier is full, promotion stops",
            ADVICE,
        ),
    }
}

fn look_damon(root: &SysRoot) -> Verdict {
    let dir = root.sys.join("kernel/mm/damon/admin/kdamonds");
    // The directory also holds `nr_kdamonds`; its entries are numbers.
    let kdamonds = match numbered_entries(&dir, "") {
        Err(error) => return unknown(error),
        Ok(kdamonds) => kdamonds,
    };
    let running: Vec<String> = kdamonds
        .iter()
        .filter(|id| {
            let state = read_optional(&dir.join(format!("{id}/state")));
            matches!(state, Ok(Some(state)) if state == "on")
        })
        .map(u64::to_string)
        .collect();
    if running.is_empty() {
        return ok("no DAMON thread is running");
    }
    warn(
        format!(
            "DAMON thread {} is running: its schemes may move the same pages, also back down",
            running.join(", ")
        ),
        "echo off > /sys/kernel/mm/damon/admin/kdamonds/N/state",
    )
}

fn look_damon_stat(root: &SysRoot) -> Verdict {
    match read_optional(&root.sys.join("module/damon_stat/parameters/enabled")) {
        Err(error) => unknown(error),
        Ok(Some(value)) if value == "Y" => warn(
            "DAMON_STAT is on: it clears accessed bits, which sources that read page tables would \
             miss",
            "echo N > /sys/module/damon_stat/parameters/enabled",
        ),
        Ok(_) => ok("DAMON_STAT is off"),
    }
}

fn look_zone_reclaim(root: &SysRoot) -> Verdict {
    match read_optional(&root.sysctl("vm.zone_reclaim_mode")) {
        Err(error) => unknown(error),
        Ok(Some(value)) if value != "0" => warn(
            format!(
                "vm.zone_reclaim_mode is {value}: a top-tier node reclaims before it lets an \
                 allocation go elsewhere, so promoted pages are pushed out again"
            ),
            "sysctl vm.zone_reclaim_mode=0",
        ),
        Ok(_) => ok("vm.zone_reclaim_mode is 0"),
    }
}
