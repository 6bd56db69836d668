//! The simulator agrees with the kernel: the same workload in a guest and in `crates/sim`, and the
//! same pages are promoted at about the same times. What was compared is written to
//! `out/model.json`.
//!
//! What decides here when a page is promoted is policy, which the emulator runs truly: when the
//! scanner comes, how much it marks, what a fault or a pass does with it. So that the kernel's
//! work, which is many times as expensive as on a server, hardly matters, the scanner is told to
//! mark little in a visit.

use std::fmt::Write;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_sim::machine::emulated;
use pghot_sim::machine::{KernelSpec, PAGES_PER_MIB};
use pghot_sim::run::Simulation;
use pghot_sim::scenario::{Mode, PatternName, PhaseSpec, ProcessSpec, Scenario};
use pghot_testbed::{Machine, Node, Spec, Vm, guest_binaries};
use serde::Serialize;

use crate::rig::{Daemon, finish, go, hold_hotset, number};
use crate::table::{self, Table};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new("the_model_agrees", "tiered3", agrees)
    .long()
    .limit(Duration::from_secs(500))];

/// The guest's clock is so many times slower than the host's. At the host's rate, whatever else ran
/// there put visits of the scanner off by up to a second each: the kernel adds 32 times what
/// marking took to the period.
const DILATION: u32 = 4;

const SIZE_MIB: u64 = 40;
/// The first half of the memory; nobody touches the other one.
const HOT_PERCENT: u32 = 50;
/// What the scanner marks in a visit, instead of 256: the hot pages take it five visits, a second
/// apart. Neither half nor 90 % of them is a whole number of visits, or a single page would decide.
const SCAN_SIZE_MIB: u64 = 4;
/// Length of the access phase: the last of these visits, and two more.
const SECONDS: f64 = 7.0;
/// Between two looks.
const STEP: Duration = Duration::from_millis(250);

/// How far the shares of hot and of cold pages in the top tier may be apart at the end.
const SHARE_TOLERANCE: f64 = 0.05;
/// How far the times may be apart: a visit and a look. On a busy host most were less than 0.2 s
/// apart; but on 6.12, in about every other run, a visit came a whole second late, and so did all
/// after it.
const TIME_TOLERANCE_S: f64 = 1.25;

const SCANNER: &str = "/sys/kernel/debug/sched/numa_balancing";
const TIERING: &str = "/proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

const SYSTEMS: [&str; 3] = ["none", "numab2", "pghot"];

/// What is done to a model to make it wrong.
type Damage = fn(&mut KernelSpec);

/// Models that must not agree: what the comparison is able to notice.
const WRONG: [(&str, Damage); 3] = [
    ("a late scanner", |kernel| kernel.scan_delay_ms *= 5),
    ("half a visit", |kernel| kernel.scan_size_mib /= 2),
    ("a double visit", |kernel| kernel.scan_size_mib *= 2),
];

/// A look at a run.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    /// Since the accesses began.
    t_s: f64,
    /// Pages that the scanner has marked since then.
    marked: u64,
    /// Pages that were promoted.
    promoted: u64,
}

/// What a run came to, in the guest or in the model.
struct Ran {
    /// In the order of time, from 0 on.
    looks: Vec<Look>,
    /// Of the hot pages, the share that is in the top tier at the end.
    hot_share: f64,
    /// The same of the cold ones.
    cold_share: f64,
}

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    source: &'static str,
    kernel: String,
    guest_hot_share: f64,
    model_hot_share: f64,
    guest_cold_share: f64,
    model_cold_share: f64,
    guest_t50_s: Option<f64>,
    model_t50_s: Option<f64>,
    guest_t90_s: Option<f64>,
    model_t90_s: Option<f64>,
}

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

fn agrees(ctx: &mut Ctx) -> Result<()> {
    let vm = &boot(ctx)?;
    let path = format!("{SCANNER}/scan_size_mb");
    vm.write(&path, SCAN_SIZE_MIB.to_string())?;
    vm.write(DEMOTION, "1")?;
    let kernel = kernel_spec(vm)?;

    let mut access_ns = None;
    let mut wrong = Vec::new();
    for system in SYSTEMS {
        let (guest, ns) = in_guest(vm, system)?;
        // Of the first run, under which nothing but the accesses takes time.
        let access_ns = *access_ns.get_or_insert(ns);
        let compare = |kernel: &KernelSpec| -> Result<(Row, Ran)> {
            let model = in_model(&ctx.machine, kernel, system, access_ns)?;
            Ok((Row::of(system, &ctx.kernel.name, &guest, &model), model))
        };
        let (row, model) = compare(&kernel)?;
        if !row.agrees() {
            wrong.push(format!("{row:#?}\n{}", side_by_side(&guest, &model)?));
        }
        ROWS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(row);
        for (what, damage) in WRONG.iter().filter(|_| system != "none") {
            let mut damaged = kernel.clone();
            damage(&mut damaged);
            let (row, _) = compare(&damaged)?;
            ensure!(
                !row.agrees(),
                "a model with {what} agrees as well: {row:#?}"
            );
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A guest with a slower clock, in which nobody else has left anything.
fn boot(ctx: &Ctx) -> Result<Vm> {
    let binaries = guest_binaries()?;
    let vm = Vm::boot(&Spec {
        dilation: DILATION,
        ..Spec::new(&ctx.machine, &ctx.kernel, &binaries)
    })?;
    vm.write(TIERING, "0")?;
    Ok(vm)
}

impl Row {
    fn of(system: &'static str, kernel: &str, guest: &Ran, model: &Ran) -> Row {
        Row {
            source: system,
            kernel: kernel.to_owned(),
            guest_hot_share: guest.hot_share,
            model_hot_share: model.hot_share,
            guest_cold_share: guest.cold_share,
            model_cold_share: model.cold_share,
            guest_t50_s: guest.time_to(0.5),
            model_t50_s: model.time_to(0.5),
            guest_t90_s: guest.time_to(0.9),
            model_t90_s: model.time_to(0.9),
        }
    }

    fn agrees(&self) -> bool {
        let shares = |a: f64, b: f64| (a - b).abs() <= SHARE_TOLERANCE;
        let times = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= TIME_TOLERANCE_S,
            (None, None) => true,
            _ => false,
        };
        // With nobody at work nothing moves, and with others most of what is hot.
        let is_as_expected = match self.source {
            "none" => self.guest_t50_s.is_none(),
            _ => self.guest_hot_share > 0.5,
        };
        is_as_expected
            && shares(self.guest_hot_share, self.model_hot_share)
            && shares(self.guest_cold_share, self.model_cold_share)
            && times(self.guest_t50_s, self.model_t50_s)
            && times(self.guest_t90_s, self.model_t90_s)
    }
}

impl Ran {
    /// When this part of all the pages promoted in the end was promoted, on a straight line between
    /// two looks; none if nothing was.
    fn time_to(&self, part: f64) -> Option<f64> {
        let wanted = part * self.looks.last()?.promoted as f64;
        let reaches = |pair: &&[Look]| {
            pair[1].promoted > pair[0].promoted && pair[1].promoted as f64 >= wanted
        };
        let pair = self.looks.windows(2).find(reaches)?;
        let [from, to] = [pair[0], pair[1]];
        let way = (wanted - from.promoted as f64) / (to.promoted - from.promoted) as f64;
        Some(from.t_s + way * (to.t_s - from.t_s))
    }

    /// The last look until then.
    fn at(&self, t_s: f64) -> Look {
        let before = self.looks.iter().take_while(|look| look.t_s <= t_s);
        before.last().copied().unwrap_or_default()
    }
}

/// The settings that decide, as the guest has them.
fn kernel_spec(vm: &Vm) -> Result<KernelSpec> {
    let setting = |name: &str| -> Result<u64> {
        let text = vm.read(&format!("{SCANNER}/{name}"))?;
        text.trim()
            .parse()
            .with_context(|| format!("{name}: {text}"))
    };
    Ok(KernelSpec {
        scan_delay_ms: setting("scan_delay_ms")?,
        scan_period_min_ms: setting("scan_period_min_ms")?,
        scan_period_max_ms: setting("scan_period_max_ms")?,
        scan_size_mib: setting("scan_size_mb")?,
        hot_threshold_ms: setting("hot_threshold_ms")?,
        normal_balancing: true,
        ..KernelSpec::default()
    })
}

/// Runs the workload in the guest; also how long an access took, in ns.
fn in_guest(vm: &Vm, system: &str) -> Result<(Ran, f64)> {
    let (size, hot) = (SIZE_MIB.to_string(), HOT_PERCENT.to_string());
    let seconds = SECONDS.to_string();
    let flags = [
        "--size-mib",
        &size,
        "--hot-percent",
        &hot,
        "--layout",
        "contiguous",
        "--seconds",
        &seconds,
        // Looking up every page would cost the guest more than the looks at a counter.
        "--report-ms",
        "3600000",
    ];
    let workload = hold_hotset(vm, &flags)?;
    let daemon = match system {
        "pghot" => {
            // With normal balancing and two nodes with CPUs it leaves the scanner's timing as it
            // is, and as it is modelled.
            vm.write(TIERING, "1")?;
            Some(Daemon::start(vm, &["--freq-threshold", "1"])?)
        }
        "numab2" => {
            vm.write(TIERING, "2")?;
            None
        }
        _ => None,
    };
    let start_s = guest_s(vm)?;
    let before = counters(vm)?;
    go(vm)?;
    let mut looks = vec![Look::default()];
    loop {
        let t_s = guest_s(vm)? - start_s;
        // At its end the workload looks through its pages, cold ones too.
        if t_s >= SECONDS {
            break;
        }
        let [marked, promoted] = counters(vm)?;
        looks.push(Look {
            t_s,
            marked: marked - before[0],
            promoted: promoted - before[1],
        });
        thread::sleep(STEP * DILATION);
    }
    let done = finish(workload)?;
    if let Some(daemon) = daemon {
        daemon.stop()?;
    }
    vm.write(TIERING, "0")?;
    let of = |name: &str| number(&done, name);
    let hot_promoted = of("/hot_promoted")?;
    let hot_pages = hot_promoted + of("/hot_left")?;
    let cold_pages = (SIZE_MIB * PAGES_PER_MIB) as f64 - hot_pages;
    let ran = Ran {
        looks,
        hot_share: hot_promoted / hot_pages,
        cold_share: of("/cold_promoted")? / cold_pages,
    };
    Ok((ran, of("/elapsed_s")? * 1e9 / of("/accesses")?))
}

/// Pages that were marked, and those that moved, whoever moved them; `pgpromote_success` is only
/// what the kernel does by itself.
fn counters(vm: &Vm) -> Result<[u64; 2]> {
    let text = vm.read("/proc/vmstat")?;
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(counter, _)| *counter == name);
        let value = line.and_then(|(_, value)| value.parse().ok());
        value.with_context(|| format!("the kernel does not count {name}"))
    };
    Ok([of("numa_pte_updates")?, of("pgmigrate_success")?])
}

/// The guest's clock since it was booted.
fn guest_s(vm: &Vm) -> Result<f64> {
    let uptime = vm.read("/proc/uptime")?;
    let first = uptime.split_ascii_whitespace().next();
    Ok(first.context("uptime is empty")?.parse()?)
}

/// Runs the same in the simulator.
fn in_model(machine: &Machine, kernel: &KernelSpec, system: &str, access_ns: f64) -> Result<Ran> {
    let scenario = scenario(machine, kernel, access_ns);
    let settings: &[_] = match system {
        "pghot" => &[("freq_threshold".to_owned(), "1".to_owned())],
        _ => &[],
    };
    let mut simulation = Simulation::new(&scenario, system, settings)?;
    let mut looks = vec![Look::default()];
    let mut next_s = 0.0;
    loop {
        let world = simulation.world();
        let t_s = world.now_ns as f64 * 1e-9;
        if t_s >= SECONDS {
            break;
        }
        if t_s >= next_s {
            looks.push(Look {
                t_s,
                marked: world.counters.marked_pages,
                promoted: world.counters.promoted_pages,
            });
            next_s += STEP.as_secs_f64();
        }
        simulation.step();
    }
    let world = simulation.world();
    let pages = scenario.process[0].pages();
    let hot_pages = pages * HOT_PERCENT / 100;
    let near_share = |pages: Range<u32>| {
        let count = pages.len() as f64;
        let is_near = |page: &u32| world.nodes[world.memory.node(*page)].is_top_tier;
        pages.filter(is_near).count() as f64 / count
    };
    Ok(Ran {
        looks,
        hot_share: near_share(0..hot_pages),
        cold_share: near_share(hot_pages..pages),
    })
}

fn scenario(machine: &Machine, kernel: &KernelSpec, access_ns: f64) -> Scenario {
    let node = |node: &Node| (node.memory_mib, node.cpus);
    let nodes: Vec<_> = machine.nodes.iter().map(node).collect();
    Scenario {
        name: "the testbed".to_owned(),
        mode: Mode::Exact,
        seed: 1,
        seconds: SECONDS,
        slice_us: 1000,
        sample_ms: 1000,
        machine: emulated::machine(
            emulated::nodes(&nodes, None),
            kernel.clone(),
            access_ns,
            DILATION,
        ),
        process: vec![ProcessSpec {
            memory_mib: SIZE_MIB,
            phase: vec![PhaseSpec {
                pattern: PatternName::Random,
                // It ends by the clock.
                accesses: u64::MAX,
                range: [0.0, f64::from(HOT_PERCENT) / 100.0],
                ..PhaseSpec::default()
            }],
            ..ProcessSpec::default()
        }],
    }
}

/// Both curves, for whoever has to find out why they differ.
fn side_by_side(guest: &Ran, model: &Ran) -> Result<String> {
    let mut text =
        "      |      guest      |      model\n  t, s  marked promoted  marked promoted\n"
            .to_owned();
    for guest in &guest.looks {
        let model = model.at(guest.t_s);
        writeln!(
            text,
            "{:6.2} {:7} {:8} {:7} {:8}",
            guest.t_s, guest.marked, guest.promoted, model.marked, model.promoted
        )?;
    }
    Ok(text)
}

/// The table, if it was measured.
pub fn table() -> Result<Option<Table>> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    table::of("model.json", &rows)
}
