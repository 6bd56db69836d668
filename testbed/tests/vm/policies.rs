//! Who goes down when the top tier makes room, as policies say. Each is tried both ways round, so
//! that no order in which the kernel lists cgroups can pass for a policy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Vm};
use serde_json::Value;

use crate::rig::{Daemon, end_hog, go, hog_in, hold_hotset, is_long, outcome};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("a_protected_cgroup_is_not_demoted", "tiered3", protect)
        .limit(Duration::from_secs(400)),
    Test::new("who_has_most_for_his_weight_goes_first", "tiered3", weight)
        .long()
        .limit(Duration::from_secs(400)),
];

const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
const MOUNT: &str = "/sys/fs/cgroup";
const CONFIG: &str = "/tmp/policies.toml";

/// Base pages.
const MIB: f64 = 256.0;

fn protect(ctx: &mut Ctx) -> Result<()> {
    both_ways(&ctx.vm, |stays, _| {
        format!("[[policy]]\ncgroup = \"/{stays}\"\nprotect = true\n")
    })
}

fn weight(ctx: &mut Ctx) -> Result<()> {
    both_ways(&ctx.vm, |stays, goes| {
        format!(
            "[[policy]]\ncgroup = \"/{stays}\"\nweight = 10000\n\
             [[policy]]\ncgroup = \"/{goes}\"\nweight = 10\n"
        )
    })
}

/// The names of the cgroups, first who stays, make a config. In the short form one way only,
/// against the order in which they were made.
fn both_ways(vm: &Vm, config: impl Fn(&str, &str) -> String) -> Result<()> {
    vm.write(DEMOTION, "true")?;
    vm.write(&format!("{MOUNT}/cgroup.subtree_control"), "+memory")?;
    let mut before = String::new();
    let ways = [["first", "second"], ["second", "first"]];
    for [stays, goes] in ways.into_iter().take(if is_long() { 2 } else { 1 }) {
        vm.write(CONFIG, config(stays, goes))?;
        let said = one_goes(vm, stays, goes);
        said.with_context(|| format!("{stays} is to stay, and {goes} to go\n{before}"))?;
        before = format!("it went well while {goes} was to go");
    }
    vm.write(&format!("{MOUNT}/cgroup.subtree_control"), "-memory")?;
    vm.write(DEMOTION, "false")?;
    vm.exec(&["rm", CONFIG])?.success()?;
    Ok(())
}

/// Two cgroups that touch nothing fill node 0, and a program whose pages are hot waits below.
fn one_goes(vm: &Vm, stays: &str, goes: &str) -> Result<()> {
    let mut hot = hold_hotset(vm, &["--size-mib", "128", "--seconds", "600"])?;
    let flags = ["--freq-threshold", "1", "--target-nid", "0"];
    let daemon = Daemon::start(vm, &[&flags[..], &["--config", CONFIG]].concat())?;
    let hogs = fill(vm, &daemon)?;
    go(vm)?;
    let limit = Duration::from_secs(120);
    let promoted = vm.wait_until("100 MiB are promoted", limit, || {
        let moved = outcome(&daemon.status().unwrap_or_default(), "moved");
        Ok(moved.is_ok_and(|moved| moved >= 100.0 * MIB))
    });
    let status = daemon.status().unwrap_or_default();
    promoted.with_context(|| format!("{status:#}"))?;
    let [kept, gone] = [stays, goes].map(|name| cgroup(&status, name));
    let (kept, gone) = (kept?, gone?);
    println!("{kept:#}\n{gone:#}");
    ensure!(kept["demoted_pages"] == 0, "{kept:#}\n{gone:#}");
    // What waits beyond the room that the hogs have left.
    let demoted = gone["demoted_pages"].as_f64();
    ensure!(demoted >= Some(25.0 * MIB), "{gone:#}");
    hot.kill()?;
    for (name, hog) in hogs {
        end_hog(vm, hog)?;
        vm.exec(&["rmdir", &format!("{MOUNT}/{name}")])?.success()?;
    }
    daemon.stop()?;
    Ok(())
}

/// Each takes half of nearly all that node 0 has free, and keeps it.
fn fill(vm: &Vm, daemon: &Daemon) -> Result<Vec<(&'static str, Process)>> {
    let mut hogs = Vec::new();
    for (name, parts) in [("first", 2.0), ("second", 1.0)] {
        let folder = format!("{MOUNT}/{name}");
        vm.mkdir(&folder)?;
        // Asked for each: who ended before may still be giving memory back.
        let mib = (daemon.number("/top_tier/0/room_pages")? / MIB - 24.0) / parts;
        hogs.push((name, hog_in(vm, &folder, 0, mib)?));
        let file = format!("{folder}/memory.current");
        vm.wait_until("its memory is there", Duration::from_secs(90), || {
            let bytes = vm.read(&file)?.trim().parse().unwrap_or(0.0);
            Ok(bytes >= 0.95 * mib * f64::from(1 << 20))
        })?;
    }
    Ok(hogs)
}

fn cgroup(status: &Value, name: &str) -> Result<Value> {
    let mut all = status["cgroups"].as_array().into_iter().flatten();
    let found = all.find(|it| it["name"] == format!("/{name}"));
    found
        .cloned()
        .with_context(|| format!("no cgroup {name}: {status:#}"))
}
