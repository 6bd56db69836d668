//! DAMON in a guest, set up through sysfs: one kdamond for each node that it watches.

use crate::{Error, Vm};

const STAT: &str = "/sys/module/damon_stat/parameters/enabled";
const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// What one kdamond watches, and what it does with what it finds.
#[derive(Debug, Clone)]
pub struct Scheme<'a> {
    /// Whose memory it watches.
    pub node: u32,
    /// `migrate_hot` or `migrate_cold`.
    pub action: &'a str,
    /// Where pages go.
    pub target: u32,
    /// From how many to how many accesses a region must have had.
    pub accesses: (u32, u32),
    /// For how many aggregation intervals it must have been so.
    pub age_min: u32,
    /// Other files of the context, in the order of writing; see [`Setting`].
    pub settings: &'a [Setting<'a>],
}

/// A file below `contexts/0` and what is written there.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The file.
    pub file: &'a str,
    /// Its value.
    pub value: &'a str,
    /// Older kernels lack some: left out where there is no such file.
    pub if_exists: &'a str,
}

/// DAMON at work.
pub struct Damon {
    vm: Vm,
    kdamonds: usize,
    had_stat: bool,
}

impl Damon {
    /// Starts one kdamond for each scheme.
    pub fn start(vm: &Vm, schemes: &[Scheme<'_>]) -> Result<Damon, Error> {
        // DAMON_STAT, on by default since 6.17, excludes all others.
        let had_stat = vm.exists(STAT)? && vm.read(STAT)?.trim() == "Y";
        if had_stat {
            vm.write(STAT, "N")?;
        }
        vm.write(&format!("{ADMIN}/nr_kdamonds"), schemes.len().to_string())?;
        for (scheme, n) in schemes.iter().zip(0..) {
            set_up(vm, scheme, n)?;
        }
        for n in 0..schemes.len() {
            vm.write(&format!("{ADMIN}/{n}/state"), "on")?;
        }
        Ok(Damon {
            vm: vm.clone(),
            kdamonds: schemes.len(),
            had_stat,
        })
    }

    /// Ends it.
    pub fn stop(self) -> Result<(), Error> {
        for n in 0..self.kdamonds {
            self.vm.write(&format!("{ADMIN}/{n}/state"), "off")?;
        }
        self.vm.write(&format!("{ADMIN}/nr_kdamonds"), "0")?;
        if self.had_stat {
            self.vm.write(STAT, "Y")?;
        }
        Ok(())
    }
}

fn set_up(vm: &Vm, scheme: &Scheme<'_>, kdamond: usize) -> Result<(), Error> {
    let contexts = format!("{ADMIN}/{kdamond}/contexts");
    vm.write(&format!("{contexts}/nr_contexts"), "1")?;
    let set = |file: &str, value: &str| vm.write(&format!("{contexts}/0/{file}"), value);
    let (first, end) = physical_range(vm, scheme.node)?;
    let target = scheme.target.to_string();
    let (accesses_min, accesses_max) = scheme.accesses;
    set("operations", "paddr")?;
    set("targets/nr_targets", "1")?;
    set("targets/0/regions/nr_regions", "1")?;
    set("targets/0/regions/0/start", &first.to_string())?;
    set("targets/0/regions/0/end", &end.to_string())?;
    set("schemes/nr_schemes", "1")?;
    set("schemes/0/action", scheme.action)?;
    set("schemes/0/target_nid", &target)?;
    let pattern = |file: &str| format!("schemes/0/access_pattern/{file}");
    set(&pattern("sz/max"), &u64::MAX.to_string())?;
    set(&pattern("nr_accesses/min"), &accesses_min.to_string())?;
    set(&pattern("nr_accesses/max"), &accesses_max.to_string())?;
    set(&pattern("age/min"), &scheme.age_min.to_string())?;
    set(&pattern("age/max"), &u32::MAX.to_string())?;
    for setting in scheme.settings {
        if vm.exists(&format!("{contexts}/0/{}", setting.if_exists))? {
            set(setting.file, setting.value)?;
        }
    }
    Ok(())
}

/// First byte and end of a node's memory.
fn physical_range(vm: &Vm, nid: u32) -> Result<(u64, u64), Error> {
    let node = format!("/sys/devices/system/node/node{nid}");
    let unexpected = |found: &str| Error::Unexpected {
        what: format!("memory blocks of {node}"),
        found: found.to_owned(),
    };
    let size = vm.read("/sys/devices/system/memory/block_size_bytes")?;
    let size = u64::from_str_radix(size.trim(), 16).map_err(|_| unexpected(&size))?;
    let entries = vm.list(&node)?;
    let block = |entry: &String| entry.strip_prefix("memory")?.parse::<u64>().ok();
    let blocks = || entries.iter().filter_map(block);
    match (blocks().min(), blocks().max()) {
        (Some(first), Some(last)) => Ok((first * size, (last + 1) * size)),
        _ => Err(unexpected("none")),
    }
}
