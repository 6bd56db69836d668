//! Whose memory moves: counted by cgroup and by process as the kernel has it, and never of those
//! that a policy excludes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Vm};
use serde_json::Value;

use crate::rig::{Daemon, end_hog, go, hold_hotset_in};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new(
    "an_excluded_cgroup_stays_and_all_are_counted",
    "tiered3",
    two_cgroups,
)];

const MOUNT: &str = "/sys/fs/cgroup";
const CONFIG: &str = "/tmp/policies.toml";
const POLICIES: &str = "[[policy]]\ncgroup = \"/kep?\"\nexclude = true\n";

/// What memory grows by between two looks, at most: page tables, the stack.
const SLACK_BYTES: u64 = 1 << 20;

type Bytes = BTreeMap<String, u64>;

/// Bytes by node, of words such as `N2=512` that count units of so many bytes.
fn by_node<'a>(words: impl Iterator<Item = &'a str>, unit_bytes: u64) -> Bytes {
    let node = |word: &str| {
        let (nid, number) = word.strip_prefix('N')?.split_once('=')?;
        let number: u64 = number.parse().ok()?;
        nid.parse::<u32>().ok()?;
        Some((nid.to_owned(), number * unit_bytes))
    };
    let mut bytes = Bytes::new();
    for (nid, number) in words.filter_map(node) {
        *bytes.entry(nid).or_default() += number;
    }
    bytes
}

fn of_cgroup(vm: &Vm, name: &str) -> Result<Bytes> {
    let stat = vm.read(&format!("{MOUNT}/{name}/memory.numa_stat"))?;
    let is_kind = |line: &&str| line.starts_with("anon ") || line.starts_with("file ");
    Ok(by_node(
        stat.lines().filter(is_kind).flat_map(str::split_whitespace),
        1,
    ))
}

/// All of the workload's pages are small.
fn of_process(vm: &Vm, pid: i32) -> Result<Bytes> {
    let maps = vm.read(&format!("/proc/{pid}/numa_maps"))?;
    Ok(by_node(maps.split_whitespace(), 4096))
}

fn owners(vm: &Vm, by: &str) -> Result<Vec<Value>> {
    let told = vm
        .exec(&["pghot", "status", "--by", by, "--json"])?
        .success()?;
    let told: Value = serde_json::from_str(&told.stdout)?;
    Ok(told["rows"].as_array().context("no rows")?.clone())
}

fn find(rows: &[Value], key: &str, value: &Value) -> Result<Value> {
    let found = rows.iter().find(|row| row[key] == *value).cloned();
    found.with_context(|| format!("no row where {key} is {value}: {rows:#?}"))
}

fn same(row: &Value, kernel: &Bytes) -> Result<()> {
    let told: Bytes = serde_json::from_value(row["bytes"].clone())?;
    for (nid, bytes) in kernel {
        let said = told.get(nid).copied().unwrap_or(0);
        let is_same = said.abs_diff(*bytes) <= SLACK_BYTES;
        ensure!(
            is_same,
            "node {nid}: {said} and {bytes} of the kernel: {row:#}"
        );
    }
    Ok(())
}

/// Pages of all owners with an outcome.
fn sum(owners: &Value, outcome: &str) -> u64 {
    let owners = owners.as_array().into_iter().flatten();
    let pages = owners.map(|owner| match outcome {
        "moved" => &owner["promoted_pages"],
        outcome => &owner["not_moved"][outcome],
    });
    pages.filter_map(Value::as_u64).sum()
}

fn path(name: &str) -> Value {
    Value::from(format!("/{name}"))
}

/// What is told of the programs, each in its cgroup, is what the kernel says.
fn compare(vm: &Vm, programs: &[(&str, Process)]) -> Result<()> {
    let (groups, processes) = (owners(vm, "cgroup")?, owners(vm, "process")?);
    for (name, program) in programs {
        same(&find(&groups, "name", &path(name))?, &of_cgroup(vm, name)?)?;
        let row = find(&processes, "pid", &program.pid().into())?;
        same(&row, &of_process(vm, program.pid())?)?;
        ensure!(
            row["cgroup"] == path(name) && row["name"] == "hotset",
            "{row:#}"
        );
    }
    Ok(())
}

/// What is told may be some seconds old.
fn told_as_the_kernel_has_it(vm: &Vm, programs: &[(&str, Process)]) -> Result<()> {
    let mut same = Ok(());
    let limit = Duration::from_secs(30);
    let waited = vm.wait_until("all is told as the kernel has it", limit, || {
        same = compare(vm, programs).and_then(|()| metrics_are_sums(vm));
        Ok(same.is_ok())
    });
    waited.with_context(|| format!("{same:?}"))
}

/// Of all cgroups in the metrics, by tier: the kernel's sum, which it keeps at the root.
fn metrics_are_sums(vm: &Vm) -> Result<()> {
    let text = vm.exec(&["pghot", "metrics"])?.success()?.stdout;
    let kernel = of_cgroup(vm, "")?;
    for (tier, nids) in [("top", &["0", "1"][..]), ("lower", &["2"])] {
        let of_tier = |line: &&str| {
            line.starts_with("pghot_cgroup_memory_bytes{")
                && line.contains(&format!("tier=\"{tier}\""))
        };
        let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        let told: u64 = text.lines().filter(of_tier).filter_map(value).sum();
        let bytes: u64 = nids.iter().filter_map(|nid| kernel.get(*nid)).sum();
        let is_same = told.abs_diff(bytes) <= 2 * SLACK_BYTES;
        ensure!(is_same, "{tier}: {told} and {bytes} of the kernel:\n{text}");
    }
    Ok(())
}

/// Between two passes.
fn sums_are_totals(vm: &Vm, daemon: &Daemon) -> Result<()> {
    vm.wait_until("the sums are the totals", Duration::from_secs(30), || {
        let status = daemon.status()?;
        let totals = &status["lower_tier"][0]["totals"]["outcomes"];
        let is_sum = |outcome: &str| {
            let by = |owners: &str| sum(&status[owners], outcome);
            let total = totals[outcome].as_u64().unwrap_or(0);
            by("cgroups") == total && by("processes") == total
        };
        Ok(["moved", "excluded", "busy", "gone", "free"]
            .into_iter()
            .all(is_sum))
    })?;
    Ok(())
}

fn two_cgroups(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    vm.write(CONFIG, POLICIES)?;
    let daemon = Daemon::start(vm, &["--config", CONFIG, "--freq-threshold", "1"])?;
    vm.write(&format!("{MOUNT}/cgroup.subtree_control"), "+memory")?;
    let mut programs = Vec::new();
    for name in ["free", "kept"] {
        vm.mkdir(&format!("{MOUNT}/{name}"))?;
        let flags = ["--size-mib", "32", "--seconds", "600"];
        programs.push((
            name,
            hold_hotset_in(vm, &format!("{MOUNT}/{name}"), &flags)?,
        ));
        go(vm)?;
    }
    let both = || -> Result<[Value; 2]> {
        let rows = owners(vm, "cgroup")?;
        let [free, kept] = ["free", "kept"].map(|name| find(&rows, "name", &path(name)));
        Ok([free?, kept?])
    };
    let mut seen = String::new();
    let limit = Duration::from_secs(120);
    let waited = vm.wait_until("one goes up and one is excluded", limit, || {
        let both = both();
        seen = format!("{both:#?}\n{:#}", daemon.status().unwrap_or_default());
        let Ok([free, kept]) = both else {
            return Ok(false);
        };
        let excluded = kept["not_moved"]["excluded"].as_u64().unwrap_or(0);
        let promoted = free["promoted_pages"].as_u64().unwrap_or(0);
        Ok(promoted >= 8000 && excluded >= 8000)
    });
    waited.context(seen)?;
    let [free, kept] = both()?;
    println!("{free:#}\n{kept:#}");
    ensure!(
        kept["promoted_pages"] == 0 && kept["excluded"] == true,
        "{kept:#}"
    );
    ensure!(free["excluded"] == false, "{free:#}");
    let below = of_cgroup(vm, "kept")?["2"];
    ensure!(
        below >= 32 << 20,
        "{below} bytes of what is excluded are below"
    );

    told_as_the_kernel_has_it(vm, &programs)?;
    let told = vm
        .exec(&["pghot", "status", "--by", "cgroup"])?
        .success()?
        .stdout;
    ensure!(
        told.contains("/kept  (excluded by a policy, excluded "),
        "{told}"
    );

    for (name, program) in programs {
        end_hog(vm, program)?;
        vm.exec(&["rmdir", &format!("{MOUNT}/{name}")])?.success()?;
    }
    sums_are_totals(vm, &daemon)?;
    vm.write(&format!("{MOUNT}/cgroup.subtree_control"), "-memory")?;
    daemon.stop()?;
    vm.exec(&["rm", CONFIG])?.success()?;
    Ok(())
}
