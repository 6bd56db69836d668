//! Against Prometheus itself, as `testbed/setup.sh` leaves it in the cache: it scrapes a daemon
//! whose pages are a fake's, and what alerts, board and document ask for is there.

use std::collections::{BTreeSet, HashSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pghot_engine::marking::MarkingReport;
use pghot_engine::{
    Batch, Found, Gates, History, Journal, Machine, Migrator, Outcome, Pattern, Pid, Place,
    Policies, Policy, Program,
};
use pghot_hotness::{Nid, Pfn, SECTION_PAGES};
use pghot_linux::SysRoot;
use pghot_linux::host::monotonic;
use serde_json::Value;

use super::{Format, Server, render};
use crate::compose;
use crate::lock;
use crate::migrator;
use crate::shared::Shared;
use crate::status::RecordingReport;
use crate::testing::{LOWER_PFN, daemon_of, write};

/// Pages of the lower tier: 256 MiB.
const PAGES: u64 = 2 * SECTION_PAGES;

/// For anything here that takes a moment.
const LIMIT: Duration = Duration::from_secs(60);

/// A program of Debian's package `prometheus`.
fn program(name: &str) -> PathBuf {
    let cache = std::env::var_os("PGHOT_CACHE").map(PathBuf::from);
    let xdg = || Some(PathBuf::from(std::env::var_os("XDG_CACHE_HOME")?).join("pghot"));
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/pghot"));
    let cache = cache.or_else(xdg).or_else(home).unwrap();
    let path = cache.join("bench/prometheus/usr/bin").join(name);
    assert!(
        path.exists(),
        "{} is missing: run testbed/setup.sh, which fetches Debian's package",
        path.display()
    );
    path
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// What promtool says, if all is well.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program("promtool"))
        .args(arguments)
        .current_dir(packaging().join("prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said
}

#[test]
fn promtool_finds_no_fault_with_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon_of(dir.path(), 1);
    let text = render(&compose::status(&shared), Format::Classic);
    assert_eq!(promtool(&["check", "metrics"], &text), "");
}

#[test]
fn alerts_pass_their_tests() {
    let checked = promtool(&["check", "rules", "pghot.rules.yml"], "");
    assert!(checked.contains("SUCCESS"), "{checked}");
    let tested = promtool(&["test", "rules", "pghot.rules.test.yml"], "");
    assert!(tested.contains("SUCCESS"), "{tested}");
    // Each has a test.
    let read = |file: &str| std::fs::read_to_string(packaging().join("prometheus").join(file));
    let tests = read("pghot.rules.test.yml").unwrap();
    for line in read("pghot.rules.yml").unwrap().lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert}");
        }
    }
}

/// A machine whose pages all move, once.
#[derive(Default)]
struct Host {
    gone_up: HashSet<Pfn>,
}

impl Machine for Host {
    fn now_ns(&self) -> u64 {
        monotonic().as_nanos() as u64
    }
    fn top_tier_from(&mut self, _: Nid) -> Option<Vec<Nid>> {
        Some(vec![0])
    }
    fn room_pages(&mut self, _: Nid) -> u64 {
        1 << 30
    }
    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        found.extend(pfns.iter().map(|pfn| match self.gone_up.contains(pfn) {
            true => Found::Unresolved(Outcome::Free),
            false => Found::Folio {
                place: Place::in_process(7, pfn << 12),
                head: *pfn,
                pages: 1,
            },
        }));
    }
    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        for folio in &batch.folios {
            assert!(self.gone_up.insert(folio.pfn), "it is not down there");
            outcomes.push(Outcome::Moved);
        }
    }
    fn program(&mut self, _: Pid) -> Option<Program> {
        None
    }
}

/// A daemon with a fake kernel, which serves its metrics.
struct Daemon {
    shared: Arc<Shared>,
    server: Server,
    passes: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Daemon {
    fn start(address: SocketAddr) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        // The counters of the kernel, one of which not every kernel has, and the room of nodes.
        let proc = SysRoot::under(dir.path()).proc;
        let host_says =
            |file: &str| std::fs::read_to_string(Path::new("/proc").join(file)).unwrap();
        let vmstat = host_says("vmstat").replace("pgpromote_success", "another");
        write(
            &proc.join("vmstat"),
            &format!("{vmstat}pgpromote_success 0\n"),
        );
        write(&proc.join("zoneinfo"), &host_says("zoneinfo"));
        let (shared, _) = daemon_of(dir.path(), 2);
        has_cgroups(&shared);
        *lock(&shared.demoter.marking) = Some(MarkingReport::default());
        *lock(&shared.recording) = Some(RecordingReport::default());
        let mut host = Host::default();
        let passing = Arc::clone(&shared);
        let (history, gates) = (History::default(), Gates::default());
        let migrator = Migrator::new(2, history, gates, Journal::default());
        let passes = thread::spawn(move || {
            migrator::run(&passing, &passing.migrators[0], migrator, &mut host);
        });
        let asked = Arc::clone(&shared);
        let listener = TcpListener::bind(address).unwrap();
        let server = Server::start(listener, move || compose::status(&asked)).unwrap();
        Daemon {
            shared,
            server,
            passes,
            _dir: dir,
        }
    }

    /// Touches the first pages of the lower tier until all have moved. Each moves once.
    fn promote(&self, pages: u64) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.touch(pages);
            self.shared.age();
            self.shared.measure_waits();
            let published = lock(&self.shared.migrators[0].published).clone();
            if published.totals.outcomes.get(Outcome::Moved) == pages {
                return;
            }
            assert!(Instant::now() < deadline, "{published:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn touch(&self, pages: u64) {
        let (settings, rule) = self.shared.settings_and_rule();
        for pfn in LOWER_PFN..LOWER_PFN + pages {
            for _ in 0..settings.freq_threshold {
                let now_ms = monotonic().as_millis() as u64;
                self.shared.table.report(pfn, 0, now_ms, &rule);
            }
        }
    }

    fn passes(&self) -> u64 {
        lock(&self.shared.migrators[0].published).totals.passes
    }

    fn stop(self) {
        self.shared.stop.request();
        self.server.stop();
        self.passes.join().unwrap();
    }
}

/// One with memory, a limit and a weight.
fn has_cgroups(shared: &Shared) {
    let weighty = Policy {
        cgroup: Some(Pattern::of_cgroup("/busy").unwrap()),
        weight: Some(200),
        ..Policy::default()
    };
    let set = shared.change(|settings| {
        settings.policies = Policies::new(vec![weighty]);
        Ok(())
    });
    set.unwrap();
    let groups = shared.root.sys.join("fs/cgroup");
    write(&groups.join("cgroup.controllers"), "memory\n");
    let busy = groups.join("busy");
    write(&busy.join("memory.numa_stat"), "anon N0=4096 N2=8192\n");
    write(&busy.join("memory.max"), "1048576\n");
}

/// A Prometheus that scrapes one address each second.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// For a place in a URL.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

impl Prometheus {
    fn start(target: SocketAddr) -> Prometheus {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n\
             rule_files: ['{}']\n\
             scrape_configs:\n  - job_name: pghot\n    static_configs:\n      \
             - targets: ['{target}']\n",
            packaging().join("prometheus/pghot.rules.yml").display()
        );
        write(&dir.path().join("prometheus.yml"), &config);
        let address = free_address();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(program("prometheus"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Prometheus {
            child,
            address,
            _dir: dir,
        }
    }

    /// Asks its HTTP API; `None` while it does not answer.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        // In 1.0 the answer comes in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// The values of a query, one for each series.
    fn values(&self, query: &str) -> Vec<f64> {
        let Some(answer) = self.get(&format!("/api/v1/query?query={}", escaped(query))) else {
            return Vec::new();
        };
        // Not ready yet, it says so in plain text; from then on only a wrong query fails.
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let value = |series: &Value| series["value"][1].as_str()?.parse().ok();
        let series = answer["data"]["result"].as_array().unwrap();
        series.iter().filter_map(value).collect()
    }

    /// The values of a label, among such series.
    fn label_values(&self, label: &str, series: &str) -> BTreeSet<String> {
        let path = format!(
            "/api/v1/label/{label}/values?match%5B%5D={}",
            escaped(series)
        );
        let values = self.get(&path).unwrap();
        let values = values["data"].as_array().unwrap().iter();
        values.map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a query has one series with a value like that.
    fn wait_for(&self, query: &str, is_it: impl Fn(f64) -> bool) -> f64 {
        let deadline = Instant::now() + LIMIT;
        loop {
            let values = self.values(query);
            match values[..] {
                [value] if is_it(value) => return value,
                _ => assert!(Instant::now() < deadline, "{query}: {values:?}"),
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// All expressions of the document, one on each line of its blocks.
fn documented() -> Vec<String> {
    let path = packaging().join("../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```promql\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines);
    let expressions = lines.map(|line| line.split("  #").next().unwrap().trim());
    expressions.map(str::to_owned).collect()
}

/// Makes comparisons tell 0 or 1 instead of leaving series out: a quiet alert has series too.
fn telling(expression: &str) -> String {
    expression
        .replace("== ", "== bool ")
        .replace("> ", "> bool ")
}

/// All expressions of the alerts.
fn alerts(prometheus: &Prometheus) -> Vec<String> {
    let rules = prometheus.get("/api/v1/rules").unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    let text = |rule: &Value| rule["query"].as_str().unwrap().to_owned();
    rules.iter().map(text).collect()
}

fn board() -> Value {
    let text = std::fs::read_to_string(packaging().join("grafana/pghot.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// All expressions of the board, as Grafana asks them.
fn of_board() -> Vec<String> {
    let board = board();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let noted = board["annotations"]["list"].as_array().unwrap();
    let asked = targets.chain(noted).map(|it| it["expr"].as_str().unwrap());
    let as_asked = |text: &str| {
        let text = text
            .replace("$__rate_interval", "1m")
            .replace("$__range", "1h");
        text.replace("$instance", ".+")
    };
    asked.map(as_asked).collect()
}

#[test]
fn prometheus_sees_every_promotion_and_rates_survive_a_restart() {
    let target = free_address();
    let daemon = Daemon::start(target);
    let prometheus = Prometheus::start(target);
    let promoted = "pghot_promoted_pages_total{nid=\"2\",job=\"pghot\"}";
    prometheus.wait_for(promoted, |pages| pages == 0.0);
    daemon.promote(PAGES);
    let pages = prometheus.wait_for(promoted, |pages| pages >= PAGES as f64);
    assert_eq!(pages, 65_536.0);
    let growth = format!("increase({promoted}[5m])");
    let before = prometheus.wait_for(&growth, |pages| pages >= 65_536.0);

    every_expression_has_series(&prometheus);

    // A storm of scrapes, and the passes go on.
    let passes = daemon.passes();
    for _ in 0..1000 {
        let mut stream = TcpStream::connect(target).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"));
    }
    let deadline = Instant::now() + LIMIT;
    while daemon.passes() < passes + 3 {
        assert!(Instant::now() < deadline, "no pass");
        thread::sleep(Duration::from_millis(5));
    }

    let started = "pghot_start_time_seconds";
    let first_start = prometheus.wait_for(started, |_| true);
    daemon.stop();
    let daemon = Daemon::start(target);
    prometheus.wait_for(promoted, |pages| pages == 0.0);
    prometheus.wait_for(started, |start| start > first_start);
    daemon.promote(1000);
    prometheus.wait_for(promoted, |pages| pages == 1000.0);
    // The counter went from 65,536 to 0 and on: that is no drop, and nothing is counted twice.
    prometheus.wait_for(&format!("resets({promoted}[5m])"), |resets| resets == 1.0);
    let after = prometheus.wait_for(&growth, |_| true);
    assert!(
        (66_000.0..before * 1.5).contains(&after),
        "{before} {after}"
    );
    daemon.stop();
    prometheus.wait_for("up{job=\"pghot\"}", |up| up == 0.0);
}

fn every_expression_has_series(prometheus: &Prometheus) {
    let alerts = alerts(prometheus);
    assert!(alerts.len() >= 8, "{alerts:?}");
    let board = of_board();
    assert!(board.len() >= 20, "{board:?}");
    let documented = documented();
    assert!(documented.len() >= 12, "{documented:?}");
    // Two scrapes are needed for a rate.
    prometheus.wait_for("count_over_time(up{job=\"pghot\"}[5m])", |scrapes| {
        scrapes >= 3.0
    });
    for expression in alerts.iter().chain(&board).chain(&documented) {
        let series = prometheus.values(&telling(expression));
        assert!(!series.is_empty(), "no series: {}", telling(expression));
    }
    every_variable_has_values(prometheus);
    let names = prometheus.label_values("__name__", "{job=\"pghot\"}");
    for metric in super::METRICS {
        let name = match metric.kind {
            super::Kind::Histogram => format!("{}_bucket", metric.name),
            _ => metric.sample_name(),
        };
        assert!(names.contains(&name), "{name} was not scraped");
    }
}

/// The board's variables, as Grafana fills them: `label_values(SERIES, LABEL)`.
fn every_variable_has_values(prometheus: &Prometheus) {
    let board = board();
    let variables = board["templating"]["list"].as_array().unwrap().iter();
    let asks = variables.filter_map(|it| it["query"]["query"].as_str());
    let asks: Vec<&str> = asks.collect();
    assert_eq!(asks.len(), 1, "{asks:?}");
    for ask in asks {
        let inner = ask.strip_prefix("label_values(").unwrap();
        let (series, label) = inner.strip_suffix(')').unwrap().split_once(", ").unwrap();
        let values = prometheus.label_values(label, series);
        assert_eq!(values.len(), 1, "{ask}: {values:?}");
    }
}
