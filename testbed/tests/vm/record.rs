//! Profiles: what is recorded of a program whose hot set is known, on real page tables, and what
//! the simulator makes of it.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Output, Vm, documents};
use serde_json::Value;

use crate::rig::{
    Daemon, UNHURRIED, finish, go, hold_hotset_in, number, source, start_hotset, start_workload,
};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new(
        "a_recorded_program_can_be_replayed",
        "tiered3",
        record_and_replay,
    ),
    Test::new(
        "the_heatmap_shows_how_a_hot_set_moves",
        "tiered3",
        moving_hot_set,
    ),
    Test::new(
        "a_recording_keeps_away_from_other_readers",
        "tiered3",
        one_reader,
    ),
    Test::new(
        "a_recording_that_goes_on_keeps_to_its_share",
        "tiered3",
        goes_on,
    )
    .long(),
    Test::new("the_daemon_records_too", "tiered3", inside),
];

/// Since 6.17; Debian has it on.
const DAMON_STAT: &str = "/sys/module/damon_stat/parameters/enabled";
const PROFILE: &str = "/tmp/hotset.profile";
const SIZE_MIB: f64 = 128.0;
const HOT_MIB: f64 = 12.8;
/// Stacks, programs and libraries, in blocks of 2 MiB.
const OTHER_MIB: f64 = 24.0;

/// In the emulator clearing takes much longer than on a machine.
fn record(vm: &Vm, flags: &[&str]) -> Result<Output> {
    let base = ["pghot", "record", "--stall-max-ms", "300", "--out", PROFILE];
    Ok(vm.exec(&[&base[..], flags].concat())?)
}

/// A tenth is hot, so so much is touched every second.
fn record_and_replay(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let has_stat = vm.exists(DAMON_STAT)?;
    if has_stat {
        // It reads and clears the same bits, of huge pages so often that most are missed.
        vm.write(DAMON_STAT, "N")?;
    }
    let known = [
        "--size-mib",
        "128",
        "--hot-percent",
        "10",
        "--seconds",
        "60",
    ];
    for (backing, layout) in [("thp", "contiguous"), ("anon", "scattered")] {
        let flags = ["--backing", backing, "--layout", layout];
        let (mut process, _) = start_hotset(vm, &[&known[..], UNHURRIED, &flags].concat())?;
        let pid = process.pid().to_string();
        let recorded = record(vm, &["--pid", &pid, "--seconds", "6"])?.success()?;
        process.kill()?;
        let (memory, touched) = summary(&recorded.stdout)?;
        let all = SIZE_MIB..SIZE_MIB + OTHER_MIB;
        ensure!(all.contains(&memory), "{backing}: {}", recorded.stdout);
        // Of six intervals one may have found all in the TLB, and nothing to flush it with. Of huge
        // pages those that the hot set begins and ends in are touched as a whole.
        let hot = 0.8 * HOT_MIB..HOT_MIB + 6.0;
        ensure!(hot.contains(&touched), "{backing}: {}", recorded.stdout);
    }
    if has_stat {
        vm.write(DAMON_STAT, "Y")?;
    }
    replay(vm)
}

/// The top tier has room for a sixth of the memory, which holds a sixth of the hot pages at first;
/// pghot finds others. Not all: the watermarks of so small a node let 30 pages through in each
/// pass.
fn replay(vm: &Vm) -> Result<()> {
    let argv = [
        "pghot", "sim", "replay", PROFILE, "--json", "--misses", "200000",
    ];
    let flags = ["--systems", "none,pghot", "--top-mib", "24"];
    let output = vm.exec(&[&argv[..], &flags].concat())?.success()?;
    let runs: Value = serde_json::from_str(&output.stdout)?;
    let near = |run: usize| -> Result<f64> {
        let of = |name: &str| number(&runs, &format!("/runs/{run}/counters/{name}"));
        Ok(of("near_accesses")? / of("accesses")?)
    };
    ensure!(number(&runs, "/runs/0/counters/promoted_pages")? == 0.0);
    ensure!((0.05..0.35).contains(&near(0)?), "{runs:#}");
    ensure!(near(1)? > near(0)? + 0.05, "{runs:#}");
    let promoted_mib = number(&runs, "/runs/1/counters/promoted_pages")? / 256.0;
    ensure!((2.0..1.3 * HOT_MIB).contains(&promoted_mib), "{runs:#}");
    Ok(())
}

/// The memory of the only program, and what it touched a second, in MiB, as a recording says.
fn summary(stdout: &str) -> Result<(f64, f64)> {
    let line = stdout
        .lines()
        .find(|line| line.trim_start().starts_with("hotset"));
    let line = line.with_context(|| format!("no line of hotset: {stdout}"))?;
    let numbers: Vec<f64> = (line.split_ascii_whitespace().skip(1))
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok((numbers[0], numbers[1]))
}

/// How long a moving hot set is recorded.
const RECORDING_S: f64 = 40.0;

/// So many looks must have seen it move.
const LOOKS_MIN: usize = 10;

/// One region after the other of 32 MiB in the lower tier, behind 96 MiB that lie idle in the top
/// tier: the rows that are hot rise.
fn moving_hot_set(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let load = [
        "overcommit",
        "--size-mib",
        "128",
        "--near-mib",
        "96",
        "--home",
        "2",
        "--cpus",
        "0",
        "--accesses",
    ];
    // As many accesses as go into the recording on this host: it must see most of the way.
    let (few, _) = start_workload(vm, "load", &[&load[..], &["4000000"]].concat())?;
    let took_s = number(&finish(few)?, "/elapsed_s")?;
    let mut accesses = 4e6 * RECORDING_S / took_s;
    let has_stat = vm.exists(DAMON_STAT)?;
    if has_stat {
        vm.write(DAMON_STAT, "N")?;
    }
    let draw = |flags: &str| {
        let flags: Vec<&str> = flags.split(' ').collect();
        let drawn = vm.exec(&[&["pghot", "heatmap", PROFILE], &flags[..]].concat());
        drawn.and_then(Output::success)
    };
    let mut path = Vec::new();
    for _ in 0..3 {
        let count = format!("{accesses:.0}");
        let (mut process, _) = start_workload(vm, "load", &[&load[..], &[&count]].concat())?;
        let pid = process.pid().to_string();
        let seconds = RECORDING_S.to_string();
        record(vm, &["--pid", &pid, "--seconds", &seconds])?.success()?;
        process.kill()?;
        let maps: Value = serde_json::from_str(&draw("--rows 64 --json")?.stdout)?;
        path = hottest_rows(&maps)?;
        // Other guests may have slowed what was timed: the program ended long before the recording.
        if path.len() >= LOOKS_MIN {
            break;
        }
        accesses *= 2.0;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let sample = draw("--rows 14 --width 48")?.stdout;
    documents::put_sample(&page, "heatmap", &sample)?;
    if has_stat {
        vm.write(DAMON_STAT, "Y")?;
    }
    ensure!(path.len() >= LOOKS_MIN, "{path:?}");
    let rises = path.windows(2).filter(|pair| pair[1] >= pair[0]).count();
    let (first, last) = (path[1], path[path.len() - 2]);
    ensure!(
        last > first + 2 && 10 * rises >= 9 * (path.len() - 1),
        "{path:?}"
    );
    Ok(())
}

/// The row that is hottest in the lower tier, look by look; most that is touched must lie there.
/// Without looks that came late, beside other guests, and those after the program's end.
fn hottest_rows(maps: &Value) -> Result<Vec<usize>> {
    let map = &maps["programs"][0];
    ensure!(map["name"] == "load", "{maps:#}");
    let touched: Vec<Vec<u64>> = serde_json::from_value(map["touched"].clone())?;
    let lower: Vec<Vec<u64>> = serde_json::from_value(map["lower"].clone())?;
    let sum = |cells: &[Vec<u64>]| cells.iter().flatten().sum::<u64>();
    ensure!(2 * sum(&lower) > sum(&touched), "{maps:#}");
    let hottest = |column: usize| {
        let rows = (0..lower.len()).filter(|row| lower[*row][column] > 0);
        rows.max_by_key(|row| lower[*row][column])
    };
    let columns = 0..lower.first().map_or(0, Vec::len);
    Ok(columns.filter_map(hottest).collect())
}

/// Two that clear accessed bits would each miss what the other has seen, so the second one is
/// refused.
fn one_reader(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    // Of another test.
    vm.exec(&["rm", "-f", PROFILE])?.success()?;
    let (mut process, _) = start_hotset(vm, &["--size-mib", "64", "--seconds", "90"])?;
    let pid = process.pid().to_string();
    let short = ["--pid", pid.as_str(), "--seconds", "1"];
    let daemon = Daemon::start(vm, &["--enabled-sources", "0x5"])?;
    let refused = record(vm, &short)?;
    let advice = "pghot set enabled_sources hint_fault`";
    ensure!(refused.stderr.contains(advice), "{refused:?}");
    ensure!(!vm.exists(PROFILE)?, "a profile, although it was refused");
    vm.exec(&["pghot", "set", "enabled_sources", "hint_fault"])?
        .success()?;
    let recorded = record(vm, &short)?.success()?;
    if vm.exists(DAMON_STAT)? {
        ensure!(
            recorded.stderr.contains("damon_stat clears accessed bits"),
            "{recorded:?}"
        );
    }
    // By itself, and back again afterwards.
    vm.exec(&["pghot", "set", "enabled_sources", "0x5"])?
        .success()?;
    vm.exec(&["rm", "-f", PROFILE])?.success()?;
    let paused = [&short[..], &["--pause-sources"]].concat();
    record(vm, &paused)?.success()?;
    ensure!(vm.exists(PROFILE)?, "no profile was written");
    let enabled = daemon.number("/settings/enabled_sources/value")?;
    ensure!(enabled == 5.0, "{enabled} are on after the recording");
    let status = daemon.status()?;
    let pgtscan = source(&status, "pgtscan")?;
    ensure!(pgtscan["state"] == "running", "{pgtscan:#}");
    daemon.stop()?;
    process.kill()?;
    // Gone now.
    let gone = record(vm, &short)?;
    ensure!(
        gone.stderr.contains(&format!("there is no process {pid}")),
        "{gone:?}"
    );
    Ok(())
}

/// Of one control group, with a small share of a CPU; of its profiles the newest two stay.
fn goes_on(ctx: &mut Ctx) -> Result<()> {
    const GROUP: &str = "/sys/fs/cgroup/recorded";
    const NEWEST: &str = "/tmp/on.profile";
    const PERCENT: f64 = 10.0;
    let vm = &ctx.vm;
    vm.mkdir(GROUP)?;
    // Scattered pages, which take some thousand bytes in a file.
    let flags = "--size-mib 64 --hot-percent 10 --seconds 300";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let mut outside = start_hotset(vm, &flags)?.0;
    let mut inside = hold_hotset_in(vm, GROUP, &flags)?;
    go(vm)?;
    let percent = PERCENT.to_string();
    let flags = [
        "--cgroup",
        "/recorded",
        "--keep",
        "2",
        "--seconds",
        "3",
        "--interval-ms",
        "500",
        "--stall-max-ms",
        "300",
        "--cpu-max-percent",
        &percent,
        "--out",
        NEWEST,
    ];
    let mut recording = vm.spawn(&[&["pghot", "record"], &flags[..]].concat())?;
    let stat = format!("/proc/{}/stat", recording.pid());
    // To load its program takes a second of an emulated CPU.
    vm.wait_until("a profile is there", Duration::from_secs(90), || {
        Ok(vm.exists(NEWEST)? || recording.try_wait()?.is_some())
    })?;
    let before = cpu_time(vm, &stat)?;
    sleep(Duration::from_secs(40));
    let after = cpu_time(vm, &stat)?;
    recording.signal(libc::SIGINT)?;
    let said = recording.wait(Duration::from_secs(30))?.success()?;
    few_bytes(vm)?;
    outside.kill()?;
    inside.kill()?;
    let took = 100.0 * (after.1 - before.1) / (after.0 - before.0);
    ensure!(took < 1.2 * PERCENT, "{took} % of a CPU: {said:?}");
    let profiles = said
        .stdout
        .lines()
        .filter(|line| line.contains(" intervals of "));
    ensure!(profiles.count() >= 2, "{said:?}");
    newest_two(vm, NEWEST)
}

/// With 230 bytes a second, one look has to be paid for longer than this recording lasts.
fn few_bytes(vm: &Vm) -> Result<()> {
    let flags = "--cgroup /recorded --seconds 8 --interval-ms 500 --day-max-mb 20";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let said = record(vm, &flags)?.success()?.stdout;
    ensure!(said.contains(" 1 intervals of "), "{said}");
    Ok(())
}

/// In turns with what else it does: it scans page tables and promotes meanwhile.
fn inside(ctx: &mut Ctx) -> Result<()> {
    const NEWEST: &str = "/tmp/own.profile";
    let vm = &ctx.vm;
    let flags = "--record-file /tmp/own.profile --record-seconds 2 --record-keep 1 \
                 --enabled-sources pgtscan --scan-stall-max-ms 300";
    let (mut process, _) = start_hotset(vm, &["--size-mib", "16", "--seconds", "600"])?;
    let daemon = Daemon::start(vm, &flags.split_whitespace().collect::<Vec<_>>())?;
    let limit = Duration::from_secs(90);
    let recorded = || daemon.number("/recording/profiles");
    // A second one would take minutes: an emulator rests so long after each look.
    let done = vm.wait_until("a profile is recorded", limit, || {
        Ok(recorded().is_ok_and(|profiles| profiles >= 1.0))
    });
    done.with_context(|| match daemon.status() {
        Ok(status) => format!("{:#}", status["recording"]),
        Err(error) => error.to_string(),
    })?;
    let said = record(vm, &["--seconds", "1"])?;
    ensure!(
        said.stderr.contains("the daemon records already"),
        "{said:?}"
    );
    vm.wait_until("it is promoted", limit, || {
        let moved = daemon.number("/lower_tier/0/totals/outcomes/moved");
        Ok(moved.is_ok_and(|pages| pages > 0.9 * 16.0 * 256.0))
    })?;
    daemon.stop()?;
    process.kill()?;
    let there = ["", ".1", ".part"].map(|end| vm.exists(&format!("{NEWEST}{end}")));
    let there: Vec<bool> = there.into_iter().collect::<Result<_, _>>()?;
    ensure!(there == [true, false, false], "{there:?}");
    let shown = vm.exec(&["pghot", "profile", "show", NEWEST, "--json"])?;
    let shown: Value = serde_json::from_str(&shown.success()?.stdout)?;
    let rows = shown["profiles"].as_array().context("no rows")?;
    let row = rows.iter().find(|row| row["command"] == "hotset");
    let row = row.with_context(|| format!("no program: {shown:#}"))?;
    ensure!(number(row, "/touched_mib_per_s")? > 10.0, "{shown:#}");
    Ok(())
}

/// By the guest's clock, and of a process, in s.
fn cpu_time(vm: &Vm, stat: &str) -> Result<(f64, f64)> {
    let up = vm.read("/proc/uptime")?;
    let up = up.split(' ').next().context("no uptime")?.parse()?;
    let stat = vm.read(stat).context("the recording has ended")?;
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok((up, ticks / 100.0))
}

/// There are two, and the older one is of the program in the group.
fn newest_two(vm: &Vm, newest: &str) -> Result<()> {
    let there = ["", ".1", ".2"].map(|end| vm.exists(&format!("{newest}{end}")));
    let there: Vec<bool> = there.into_iter().collect::<Result<_, _>>()?;
    ensure!(there == [true, true, false], "{there:?}");
    let older = format!("{newest}.1");
    let shown = vm
        .exec(&["pghot", "profile", "show", &older, "--json"])?
        .success()?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    let rows = shown["profiles"].as_array().context("no rows")?;
    let row = rows
        .first()
        .with_context(|| format!("no program: {shown:#}"))?;
    ensure!(rows.len() == 1 && row["cgroup"] == "/recorded", "{shown:#}");
    ensure!(number(row, "/touched_mib_per_s")? > 3.0, "{shown:#}");
    vm.exec(&["pghot", "profile", "split", &older, "-o", "/tmp/split"])?
        .success()?;
    ensure!(
        vm.exists("/tmp/split/recorded.profile")?,
        "it was not split"
    );
    Ok(())
}
