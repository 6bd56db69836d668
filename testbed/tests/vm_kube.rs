//! The Helm chart on a cluster: one node in a guest with a lower tier, with a real API server,
//! scheduler, kubelet and containerd. Installed, a pod's pages promoted, killed, upgraded,
//! removed, and once more for a pod's share.
//!
//! It takes `make package` and `testbed/setup.sh --kube` before, and minutes, so it is left to
//! `make kube-test`.

#[path = "vm/by_kernel.rs"]
mod by_kernel;
#[path = "vm/guest.rs"]
mod guest;
#[path = "vm_kube/share.rs"]
mod share;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{DEBIAN_FILES, Debian, cache_dir, guest_binary, number};
use serde_json::Value;

use guest::{Guest, PATIENCE, newest};

/// What a release of the chart is told.
const VALUES: [&str; 1] = ["image.repository=docker.io/library/pghot"];

/// A pod of an ordinary user's with NAME, ARGUMENTS of hotset and REQUESTS, which finds its program
/// and its libraries on the node.
const WORKLOAD: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: NAME }
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers:
    - name: workload
      image: docker.io/library/pause:1
      command: [/programs/hotset, --fast, "0,1", ARGUMENTS]
      resources: { requests: { REQUESTS } }
      securityContext: { runAsUser: 1000 }
      volumeMounts:
        - { name: programs, mountPath: /programs, readOnly: true }
        - { name: lib, mountPath: /lib, readOnly: true }
        - { name: lib64, mountPath: /lib64, readOnly: true }
  volumes:
    - { name: programs, hostPath: { path: /opt/testbed } }
    - { name: lib, hostPath: { path: /usr/lib } }
    - { name: lib64, hostPath: { path: /usr/lib64 } }
"#;

/// All of its memory is hot, and in the lower tier until it is promoted.
const HOT: &str =
    r#"--size-mib, "32", --home, "2", --seconds, "120", --cpus, "0", --until-promoted"#;

/// The chart's pod, but with the profile of the runtime, only to ask what is missing then.
const CONFINED: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: confined }
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  hostPID: true
  containers:
    - name: doctor
      image: docker.io/library/pghot:VERSION
      args: [doctor]
      securityContext:
        capabilities: { drop: [ALL], add: [BPF, PERFMON, SYSLOG, SYS_ADMIN, SYS_NICE, SYS_PTRACE] }
        seccompProfile: { type: RuntimeDefault }
"#;

fn main() -> ExitCode {
    by_kernel::main("tiered3-debian::the_chart_comes_and_goes", comes_and_goes)
}

/// A cluster of one node.
struct Cluster(Guest);

/// What is done, and what does it.
type Step = (&'static str, fn(&Cluster) -> Result<()>);

fn comes_and_goes(kernel: &str) -> Result<()> {
    let mut cluster = Cluster::boot(kernel)?;
    is_ready(&cluster).with_context(|| cluster.what_it_says())?;
    // The kubelet has changed some.
    cluster.0.settings_before = cluster.0.settings()?;
    let steps: [Step; 7] = [
        ("installing", installs),
        ("promoting", promotes),
        ("a profile of the runtime", is_told_of_the_profile),
        ("kill -9", is_killed),
        ("the upgrade", upgrades),
        ("going", goes),
        ("a share under load", share::holds),
    ];
    for (what, step) in steps {
        let start = Instant::now();
        step(&cluster).with_context(|| format!("{what}; {}", cluster.what_it_says()))?;
        println!(
            "{kernel}: {what} took {:.0} s",
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

impl Cluster {
    fn boot(kernel: &str) -> Result<Cluster> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.context("the testbed lies in a folder")?;
        let work = tempfile::tempdir()?;
        let chart = work.path().join("pghot.tgz");
        let packed = Command::new("tar")
            .arg("-C")
            .arg(root.join("packaging/helm"))
            .arg("-czf")
            .args([&chart, Path::new("pghot")])
            .status()?;
        ensure!(packed.success(), "tar fails with the chart");
        let image = work.path().join("pghot.tar");
        std::fs::copy(newest("tar")?, &image)?;
        let mut files = vec![
            guest_binary("hotset")?,
            chart,
            image,
            cache_dir().join("kube/pause.tar"),
        ];
        let settings = std::fs::read_dir(root.join("testbed/kube/node"))?;
        let settings: Result<Vec<PathBuf>, _> = settings.map(|it| it.map(|it| it.path())).collect();
        files.extend(settings?);
        let guest = Guest::boot(kernel, Debian::Kubernetes, &files)?;
        let confined = CONFINED.replace("VERSION", env!("CARGO_PKG_VERSION"));
        guest.vm.write("/tmp/confined.yaml", confined)?;
        let cluster = Cluster(guest);
        cluster.write_pod("workload", HOT, "")?;
        Ok(cluster)
    }

    /// Writes the file of a pod of this name.
    fn write_pod(&self, name: &str, arguments: &str, requests: &str) -> Result<()> {
        let pod = WORKLOAD.replace("NAME", name);
        let pod = pod.replace("ARGUMENTS", arguments);
        let pod = pod.replace("REQUESTS", requests);
        Ok(self.0.vm.write(&format!("/tmp/{name}.yaml"), pod)?)
    }

    /// Runs a command with the rights of the cluster's administrator.
    fn run(&self, argv: &[&str]) -> Result<String> {
        let kube = "PATH=/opt/kube:/opt/testbed:/usr/sbin:/usr/bin:/sbin:/bin";
        let env = ["env", kube, "KUBECONFIG=/run/kube/config"];
        self.0.run(&[&env[..], argv].concat())
    }

    fn kubectl(&self, arguments: &str) -> Result<String> {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        self.run(&[&["kube", "kubectl"][..], &arguments[..]].concat())
    }

    fn helm(&self, command: &str, more: &[&str]) -> Result<String> {
        let mut argv = vec!["helm", command, "pghot"];
        if command != "uninstall" {
            argv.push("/opt/testbed/pghot.tgz");
        }
        argv.extend(["--namespace", "kube-system"]);
        for value in more {
            argv.extend(["--set", value]);
        }
        self.run(&argv)
    }

    /// What the daemon in its pod says of itself.
    fn status(&self) -> Result<Value> {
        let said = self.kubectl("--namespace kube-system exec ds/pghot -- pghot status --json")?;
        Ok(serde_json::from_str(&said)?)
    }

    /// Waits until the daemon of a pod that is not `old` has the lower tier.
    fn wait_for_daemon(&self, old: &str) -> Result<()> {
        let has_tier = |status: Value| {
            let nodes = status["lower_tier"].as_array();
            nodes.is_some_and(|nodes| !nodes.is_empty())
        };
        // One that is about to be removed answers, too.
        let is_new = |pod: String| !pod.is_empty() && !pod.contains(' ') && pod != old;
        self.0.wait("the daemon is at work in its pod", || {
            Ok(self.pods().is_ok_and(is_new) && self.status().is_ok_and(has_tier))
        })
    }

    /// pghot's processes on the node, the daemon first and then its keeper.
    fn processes(&self) -> Result<Vec<i32>> {
        let found = self
            .0
            .shell("grep --no-messages --line-regexp pghot /proc/[0-9]*/comm || true")?;
        let pid = |line: &str| line.split('/').nth(2)?.parse().ok();
        let mut pids: Vec<i32> = found.lines().filter_map(pid).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// The names of the chart's pods, with a space in between.
    fn pods(&self) -> Result<String> {
        let which = "--selector app.kubernetes.io/name=pghot";
        let names = "jsonpath={.items[*].metadata.name}";
        self.kubectl(&format!(
            "--namespace kube-system get pods {which} --output {names}"
        ))
    }

    /// Runs the pod of a file in the guest until it has ended so, and returns what it said.
    fn run_pod(&self, name: &str, end: &str) -> Result<String> {
        self.kubectl(&format!("apply --filename /tmp/{name}.yaml"))?;
        let ask = format!("get pod {name} --output jsonpath={{.status.phase}}");
        let mut phase = String::new();
        self.0.vm.wait_until("the pod has ended", PATIENCE, || {
            phase = self.kubectl(&ask).unwrap_or_default();
            Ok(["Succeeded", "Failed"].contains(&phase.as_str()))
        })?;
        let said = self.kubectl(&format!("logs {name}"))?;
        ensure!(phase == end, "{name} {phase}: {said}");
        Ok(said)
    }

    /// For whoever has to find out why something failed.
    fn what_it_says(&self) -> String {
        let asked = [
            "kube kubectl get pods,nodes --all-namespaces --output wide",
            "kube kubectl get events --all-namespaces",
            "kube kubectl --namespace kube-system logs ds/pghot --all-containers --tail 40",
            "journalctl --no-pager --lines=20 --output=cat --unit=kubelet --unit=kube-containerd",
        ];
        let said = asked.map(|asked| {
            let argv: Vec<&str> = asked.split(' ').filter(|it| !it.is_empty()).collect();
            let said = self.run(&argv);
            format!(
                "{asked}:\n{}",
                said.unwrap_or_else(|error| format!("{error:#}"))
            )
        });
        said.join("\n")
    }
}

fn is_ready(cluster: &Cluster) -> Result<()> {
    let images = [
        format!("docker.io/library/pause={DEBIAN_FILES}/pause.tar"),
        format!("docker.io/library/pghot={DEBIAN_FILES}/pghot.tar"),
    ];
    cluster.run(&["node.sh", &images[0], &images[1]])?;
    cluster.0.wait("the node is ready", || {
        let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        let said = cluster.kubectl(&format!("get node node --output {ready}"));
        let account = cluster.kubectl("get serviceaccount default");
        Ok(said.is_ok_and(|said| said == "True") && account.is_ok())
    })
}

/// One command, and the daemon is at work, with the rights that the chart gives it.
fn installs(cluster: &Cluster) -> Result<()> {
    cluster.helm("install", &VALUES)?;
    cluster.wait_for_daemon("")?;
    ensure!(
        cluster.0.settings()? != cluster.0.settings_before,
        "pghot has changed no setting"
    );
    let status = cluster.status()?;
    let warnings = status["warnings"].to_string();
    ensure!(!warnings.contains("own memory"), "{warnings}");
    let daemon = *cluster.processes()?.first().context("no daemon runs")?;
    let protection = cluster
        .0
        .vm
        .read(&format!("/proc/{daemon}/oom_score_adj"))?;
    ensure!(protection == "-900\n", "oom_score_adj is {protection}");
    // It fails where something is missing.
    cluster.kubectl("--namespace kube-system exec ds/pghot -- pghot doctor")?;
    Ok(())
}

fn promotes(cluster: &Cluster) -> Result<()> {
    let said = cluster.run_pod("workload", "Succeeded")?;
    let done = said.lines().rev().find(|line| line.contains("\"done\""));
    let done: Value = serde_json::from_str(done.context("the workload did not say `done`")?)?;
    let status = cluster.status()?;
    // On 7 one page of 8,192 stayed below.
    ensure!(number(&done, "/hot_left")? <= 8.0, "{done}\n{status:#}");
    ensure!(done["errors"] == 0, "pages lost their content: {done}");
    let outcome = |name| number(&status, &format!("/lower_tier/0/totals/outcomes/{name}"));
    ensure!(outcome("moved")? >= 8184.0, "not by pghot: {status:#}");
    ensure!(outcome("denied")? == 0.0, "{status:#}");
    // The pod's own, by the name that the host gives its cgroup.
    let has_moved = |row: &Value| {
        let is_pod = row["name"]
            .as_str()
            .is_some_and(|it| it.starts_with("/kubepods.slice/"));
        is_pod && row["promoted_pages"].as_u64() >= Some(8184)
    };
    let cgroups = status["cgroups"].as_array();
    ensure!(
        cgroups.is_some_and(|rows| rows.iter().any(has_moved)),
        "{status:#}"
    );
    Ok(())
}

/// It forbids move_pages(2), and `doctor` says what to do.
fn is_told_of_the_profile(cluster: &Cluster) -> Result<()> {
    let said = cluster.run_pod("confined", "Failed")?;
    ensure!(
        said.contains("a seccomp filter forbids move_pages(2)"),
        "{said}"
    );
    Ok(())
}

/// Another container is started.
fn is_killed(cluster: &Cluster) -> Result<()> {
    let before = cluster.status()?;
    let started = number(&before, "/started_unix_s")?;
    let daemon = *cluster.processes()?.first().context("no daemon runs")?;
    cluster.0.vm.kill(daemon, libc::SIGKILL)?;
    cluster.0.wait("another daemon is at work", || {
        let now = cluster.status();
        Ok(now.is_ok_and(|now| number(&now, "/started_unix_s").is_ok_and(|at| at > started)))
    })
}

/// Another config is another pod, after the old one has put the settings back.
fn upgrades(cluster: &Cluster) -> Result<()> {
    let old = cluster.pods()?;
    let more = [&VALUES[..], &["config.freq_threshold=3"]].concat();
    cluster.helm("upgrade", &more)?;
    cluster.wait_for_daemon(&old)?;
    let status = cluster.status()?;
    ensure!(
        status["settings"]["freq_threshold"]["value"] == 3,
        "{status:#}"
    );
    Ok(())
}

fn goes(cluster: &Cluster) -> Result<()> {
    cluster.helm("uninstall", &[])?;
    cluster.0.wait("the pod is gone", || {
        Ok(cluster.pods().is_ok_and(|pods| pods.is_empty()))
    })?;
    cluster.0.ensure_settings_are_back()?;
    let left = cluster.0.shell("ls -A /run/pghot")?;
    let running = cluster.processes()?;
    // An empty file, as long as the node runs.
    let is_gone = left == "state.json.lock\n" && running.is_empty();
    ensure!(is_gone, "it leaves {left}, {running:?}");
    Ok(())
}
