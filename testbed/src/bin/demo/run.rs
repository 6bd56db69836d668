//! One run of the workload under one system.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use pghot_testbed::{Error, Machine, Process, Status, Vm};
use serde::Deserialize;

use crate::progress::Progress;
use crate::results::{Point, Run};
use crate::systems::System;

/// Memory of the workload, all of it hot.
const SIZE_MIB: u64 = 256;

/// How long a run of the warm-up round takes at most: enough for the emulator to translate all code.
const WARM_UP_S: u32 = 3;

/// How often the workload's output is fetched: often enough for a live display, seldom enough not
/// to disturb the guest.
const POLL: Duration = Duration::from_millis(1000);

/// The workload on a machine: its pages start in the slowest tier, its thread runs next to the
/// fastest.
pub struct Workload {
    home: String,
    fast: String,
}

/// A line of the workload's output, as far as it matters here.
#[derive(Debug)]
enum Event {
    Sample(Sample),
    Done(Done),
    Other,
}

#[derive(Debug, Deserialize)]
struct Sample {
    t_s: f64,
    nodes: BTreeMap<u32, u64>,
    hot_fast: u64,
}

#[derive(Debug, Deserialize)]
struct Done {
    t50_s: Option<f64>,
    t90_s: Option<f64>,
    t100_s: Option<f64>,
    hot_promoted: u64,
    hot_left: u64,
    worker_kernel_s: f64,
    accesses: u64,
    elapsed_s: f64,
    errors: u64,
}

impl Workload {
    /// The workload for `machine`.
    pub fn on(machine: &Machine) -> Self {
        let tiers = machine.tiers();
        let list = |tier: Option<&Vec<usize>>| {
            let ids = tier.into_iter().flatten().map(ToString::to_string);
            ids.collect::<Vec<_>>().join(",")
        };
        let home = tiers
            .last()
            .and_then(|tier| tier.first())
            .copied()
            .unwrap_or_default();
        Self {
            home: home.to_string(),
            fast: list(tiers.first()),
        }
    }

    /// Pages it has.
    pub fn pages(&self) -> u64 {
        SIZE_MIB << 20 >> 12
    }

    fn spawn(&self, vm: &Vm, max_run_s: u32) -> Result<Process, Error> {
        let size = SIZE_MIB.to_string();
        let seconds = max_run_s.to_string();
        vm.spawn(&[
            "hotset",
            "--until-promoted",
            "--size-mib",
            &size,
            "--hot-percent",
            "100",
            "--threads",
            "1",
            "--cpus",
            "0",
            "--home",
            &self.home,
            "--fast",
            &self.fast,
            "--seconds",
            &seconds,
        ])
    }
}

/// Switches `system` on, runs the workload to its end, and switches the system off again.
pub fn run(
    vm: &Vm,
    workload: &Workload,
    system: System,
    round: u32,
    progress: &mut Progress,
) -> Result<Run, Error> {
    let started = system.start(vm)?;
    let daemon_before_s = started.daemon_cpu_s(vm)?;
    let faults_before = vm.vmstat("numa_hint_faults")?;
    let by_kernel_before = vm.vmstat("pgpromote_success")?;

    let max_run_s = if round == 0 { WARM_UP_S } else { u32::MAX }.min(system.max_run_s());
    let mut process = workload.spawn(vm, max_run_s)?;
    let (series, done) = follow(&mut process, progress)?;

    let hint_faults = vm.vmstat("numa_hint_faults")? - faults_before;
    let kernel_promoted_pages = vm.vmstat("pgpromote_success")? - by_kernel_before;
    let daemon_s = started.daemon_cpu_s(vm)?;
    let status = started.status(vm)?;
    started.stop(vm)?;
    Ok(Run {
        system,
        round,
        promoted_pages: done.hot_promoted,
        left_pages: done.hot_left,
        t50_s: done.t50_s,
        t90_s: done.t90_s,
        t100_s: done.t100_s,
        hint_faults,
        kernel_promoted_pages,
        worker_kernel_s: done.worker_kernel_s,
        app_kernel_s: done.worker_kernel_s,
        daemon_cpu_s: daemon_s
            .zip(daemon_before_s)
            .map(|(after, before)| after - before),
        errors: done.errors,
        accesses: done.accesses,
        elapsed_s: done.elapsed_s,
        series,
        status,
    })
}

/// Reads the workload's output until it ends.
fn follow(process: &mut Process, progress: &mut Progress) -> Result<(Vec<Point>, Done), Error> {
    let mut series = Vec::new();
    let mut result = None;
    loop {
        // Asked before the output is fetched: after the end no more output comes.
        let status = process.try_wait()?;
        for line in process.lines()? {
            match parse(&line)? {
                Event::Sample(sample) => {
                    progress.promoted(sample.hot_fast);
                    series.push(Point {
                        t_s: sample.t_s,
                        nodes: sample.nodes,
                    });
                }
                Event::Other => {}
                Event::Done(done) => result = Some(done),
            }
        }
        match (status, result) {
            (Some(Status::Code(0)), Some(done)) => return Ok((series, done)),
            (Some(status), _) => {
                let found = format!("{status:?}\n{}", process.stderr()?);
                return Err(Error::Unexpected {
                    what: "end of the workload".to_owned(),
                    found,
                });
            }
            (None, unfinished) => result = unfinished,
        }
        thread::sleep(POLL);
    }
}

fn parse(line: &str) -> Result<Event, Error> {
    let event = || -> serde_json::Result<Event> {
        let value: serde_json::Value = serde_json::from_str(line)?;
        // By hand: serde's tagged enums cannot read maps with numbers as keys.
        Ok(match value["event"].as_str() {
            Some("sample") => Event::Sample(serde_json::from_value(value)?),
            Some("done") => Event::Done(serde_json::from_value(value)?),
            _ => Event::Other,
        })
    };
    event().map_err(|error| Error::Unexpected {
        what: "line of the workload".to_owned(),
        found: format!("{line} ({error})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_workload_are_understood() {
        let ready = r#"{"event":"ready","pid":7,"base":"0x1","pages":8,"nodes":{"2":8}}"#;
        assert!(matches!(parse(ready).unwrap(), Event::Other));
        let sample = r#"{"event":"sample","t_s":0.5,"nodes":{"0":3,"2":5},"hot_fast":3,"more":1}"#;
        let Event::Sample(sample) = parse(sample).unwrap() else {
            panic!("not a sample");
        };
        assert_eq!(sample.nodes, BTreeMap::from([(0, 3), (2, 5)]));
        assert!(parse(r#"{"event":"sample"}"#).is_err());
        assert!(parse("Segmentation fault").is_err());
    }
}
