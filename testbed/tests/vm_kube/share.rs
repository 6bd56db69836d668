//! A pod's share of the top tier, under load: two pods that fill a node and use their memory all
//! the time, and a third whose hot pages wait below. Room is made, and by its weight only one pays.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::PATIENCE;
use crate::{Cluster, VALUES};

/// What the node is set to: it demotes, and does not balance between its CPUs' nodes, which would
/// take pages of all pods to and fro.
const SETTINGS: [(&str, &str); 2] = [
    ("/sys/kernel/mm/numa/demotion_enabled", "true"),
    ("/proc/sys/kernel/numa_balancing", "0"),
];

const MIB: f64 = (1 << 20) as f64;

/// Left on node 0 by the two that fill it: with less, starting a pod makes the kernel demote, which
/// knows no weights.
const ROOM_MIB: f64 = 64.0;

/// Hot, and in the lower tier: more than what the node's own services leave idle.
const WAITING_MIB: f64 = 256.0;

/// What the one that pays has given before the test is over.
const PAID_MIB: f64 = 16.0;

/// Who pays is of another quality of service, and the policy is about that alone, as in
/// docs/kubernetes.md. All start on one node, so that there is nowhere else to go.
const POLICY: [&str; 3] = [
    "config.target_nid=0",
    "policies[0].cgroup=/kubepods.slice/kubepods-besteffort.slice*",
    "policies[0].weight=10",
];

/// What a pod asks for to be of another quality of service than `besteffort`.
const BURSTABLE: &str = "cpu: 10m";

/// Installs the chart with the policy on a node without it. The node is not as before afterwards.
pub fn holds(cluster: &Cluster) -> Result<()> {
    for (path, value) in SETTINGS {
        cluster.0.vm.write(path, value)?;
    }
    let told: Vec<&str> = VALUES.iter().chain(&POLICY).copied().collect();
    cluster.helm("install", &told)?;
    cluster.wait_for_daemon("")?;
    only_one_pays(cluster)
}

fn only_one_pays(cluster: &Cluster) -> Result<()> {
    let room = cluster.status()?["top_tier"][0]["room_pages"].clone();
    let room_mib = room.as_f64().context("node 0 has no room")? * 4096.0 / MIB;
    let each_mib = ((room_mib - ROOM_MIB) / 2.0).floor();
    // The one that stays is older: by age alone it would go first.
    start(cluster, "stays", each_mib, 0, BURSTABLE)?;
    start(cluster, "pays", each_mib, 0, "")?;
    start(cluster, "waits", WAITING_MIB, 2, BURSTABLE)?;

    let [stays, pays] = [uid(cluster, "stays")?, uid(cluster, "pays")?];
    let before = owner(&cluster.status()?, &stays)?;
    let mut status = Value::Null;
    let demoted_mib = |row: &Value| row["demoted_pages"].as_f64().unwrap_or(0.0) * 4096.0 / MIB;
    let paid = cluster.0.vm.wait_until("one has paid", 2 * PATIENCE, || {
        status = cluster.status().unwrap_or_default();
        let row = owner(&status, &pays).unwrap_or_default();
        Ok(demoted_mib(&row) >= PAID_MIB)
    });
    paid.with_context(|| format!("{status:#}"))?;

    let [stays, pays] = [owner(&status, &stays)?, owner(&status, &pays)?];
    let all: f64 = rows(&status).map(|row| on_node(row, "0")).sum();
    let lost_mib = on_node(&before, "0") - on_node(&stays, "0");
    println!(
        "of {all:.0} MiB on node 0 and {each_mib:.0} of each pod, the one that stays lost \
         {lost_mib:.1}, and of the other pghot demoted {:.1}",
        demoted_mib(&pays)
    );
    ensure!(
        100.0 * lost_mib / all <= 2.0 && demoted_mib(&stays) < 0.1 * demoted_mib(&pays),
        "its share does not hold: {stays:#}\n{pays:#}"
    );
    for name in ["pays", "stays", "waits"] {
        // All of them at work until now.
        let phase = cluster.kubectl(&format!(
            "get pod {name} --output jsonpath={{.status.phase}}"
        ))?;
        ensure!(phase == "Running", "{name} is {phase}");
    }
    Ok(())
}

/// Starts a pod, and waits until all of its memory is there. On node 0 it touches a tenth at random
/// and all else every 30 s.
fn start(cluster: &Cluster, name: &str, mib: f64, home: u32, requests: &str) -> Result<()> {
    let load = match home {
        0 => r#"--hot-percent, "10", --cold-sweep-seconds, "30", --busy-percent, "5", --cpus, "0""#,
        _ => r#"--cpus, "1""#,
    };
    let arguments = format!(r#"--size-mib, "{mib}", --home, "{home}", --seconds, "3600", {load}"#);
    cluster.write_pod(name, &arguments, requests)?;
    cluster.kubectl(&format!("apply --filename /tmp/{name}.yaml"))?;
    let mut said = String::new();
    let ready = cluster
        .0
        .vm
        .wait_until("its memory is there", PATIENCE, || {
            said = cluster.kubectl(&format!("logs {name}")).unwrap_or_default();
            Ok(said.contains("\"ready\""))
        });
    ready.with_context(|| format!("{name} says {said:?}"))?;
    Ok(())
}

/// As the node names the pod's cgroup.
fn uid(cluster: &Cluster, name: &str) -> Result<String> {
    let uid = cluster.kubectl(&format!(
        "get pod {name} --output jsonpath={{.metadata.uid}}"
    ))?;
    Ok(uid.replace('-', "_"))
}

fn rows(status: &Value) -> impl Iterator<Item = &Value> {
    status["cgroups"].as_array().into_iter().flatten()
}

/// The row with most memory among those of a pod: its container, not the pause beside it.
fn owner(status: &Value, uid: &str) -> Result<Value> {
    let is_pods = |row: &&Value| row["name"].as_str().is_some_and(|name| name.contains(uid));
    let found = rows(status).filter(is_pods);
    let bytes = |row: &&Value| row["top_bytes"].as_u64().max(row["lower_bytes"].as_u64());
    let found = found.max_by_key(bytes);
    found
        .cloned()
        .with_context(|| format!("no cgroup of pod {uid}: {status:#}"))
}

fn on_node(row: &Value, nid: &str) -> f64 {
    row["bytes"][nid].as_f64().unwrap_or(0.0) / MIB
}
