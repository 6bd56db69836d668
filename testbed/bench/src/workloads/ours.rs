//! Our own programs: plans of `load`, whose accesses are known before they are made, `bfs`,
//! `hotset`.

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Status, Vm};
use serde_json::Value;

use super::{Job, Prepared, Ran, mount, unmount};
use crate::setting::Setting;

/// Where the guest's disk is mounted.
const FOLDER: &str = "/data";

/// How long `hotset` goes on at most, if it is not all promoted before, in s of the guest. Where
/// nothing ever is: long enough to know what its thread spends in the kernel by itself. To warm up:
/// long enough for the emulator to translate all code.
const HOTSET_S: u64 = 13;
const HOTSET_NONE_S: u64 = 2;
const HOTSET_WARM_UP_S: u64 = 3;

/// The file that a program waits for.
const GO: &str = "/tmp/go";

/// A program whose memory is in place, and that waits. It says so in lines of JSON.
struct Ours {
    vm: Vm,
    name: String,
    process: Process,
    ran: Ran,
    /// What to unmount at the end.
    mounted: Option<&'static str>,
}

impl Ours {
    /// Starts it, and waits until it has its memory.
    fn start(vm: &Vm, argv: &[&str]) -> Result<Ours> {
        let argv = [argv, &["--hold", GO]].concat();
        let mut ours = Ours {
            vm: vm.clone(),
            name: argv[0].to_owned(),
            process: vm.spawn(&argv)?,
            ran: Ran::default(),
            mounted: None,
        };
        while ours.ran.ready.is_null() {
            let ended = ours.listen(&mut |_| {})?;
            ensure!(!ended, "`{}` did not say `ready`", ours.name);
        }
        Ok(ours)
    }

    /// Waits a moment and takes what it says; returns whether it has ended.
    fn listen(&mut self, listen: &mut dyn FnMut(&Value)) -> Result<bool> {
        // Asked before the output is fetched: after the end no more comes.
        let ended = self.process.wait_a_moment()?;
        for line in self.process.lines()? {
            let event: Value = serde_json::from_str(&line)
                .with_context(|| format!("`{}` said: {line}", self.name))?;
            listen(&event);
            match event["event"].as_str() {
                Some("ready") => self.ran.ready = event,
                Some("begin") => self.ran.begin = event,
                Some("sample") => self.ran.samples.push(event),
                // Who listens has heard it.
                Some("end") => self.vm.write(GO, "")?,
                Some("done") => self.ran.done = event,
                _ => {}
            }
        }
        match ended {
            None => Ok(false),
            Some(Status::Code(0)) => Ok(true),
            Some(status) => anyhow::bail!("{status:?}\n{}", self.process.stderr()?),
        }
    }
}

impl Prepared for Ours {
    fn run(mut self: Box<Self>, listen: &mut dyn FnMut(&Value)) -> Result<Ran> {
        self.vm.write(GO, "")?;
        while !self.listen(listen)? {}
        ensure!(
            !self.ran.done.is_null(),
            "`{}` did not say `done`",
            self.name
        );
        if let Some(folder) = self.mounted {
            unmount(&self.vm, folder)?;
        }
        Ok(self.ran)
    }
}

/// A plan of that name.
pub fn plan(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    let Setting {
        workload, backing, ..
    } = job.setting;
    let mounted = (backing == "file").then_some(FOLDER);
    if let Some(folder) = mounted {
        mount(job.vm, folder)?;
    }
    let folder = ["--dir", mounted.unwrap_or("/tmp")];
    let flags = [["--backing", backing], folder].concat();
    Ok(Box::new(Ours {
        mounted,
        ..load(job, workload, &flags)?
    }))
}

/// The plan `promote` by preads.
pub fn pagecache(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    mount(job.vm, FOLDER)?;
    Ok(Box::new(Ours {
        mounted: Some(FOLDER),
        ..load(job, "promote", &["--pread", "--dir", FOLDER])?
    }))
}

fn load(job: &Job<'_>, plan: &str, flags: &[&str]) -> Result<Ours> {
    let numbers = [
        ("--size-mib", job.size_mib),
        ("--near-mib", job.room_mib),
        ("--accesses", job.setting.accesses),
    ];
    witnessed(job, &["load", plan], &numbers, flags)
}

/// Searches of the largest graph that fits.
pub fn bfs(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    const DEGREE: u64 = 16;
    // Both directions of an edge, 4 bytes each; what vertices take is little beside it.
    const VERTEX_BYTES: u64 = DEGREE * 2 * 4 + 16;
    let scale = ((job.size_mib << 20) / VERTEX_BYTES).max(2).ilog2();
    let edges = (2 * DEGREE) << scale;
    let numbers = [
        ("--scale", scale.into()),
        ("--degree", DEGREE),
        // An operation is taken for an edge that a search looks at.
        ("--searches", (job.setting.accesses / edges).max(1)),
    ];
    let flags = ["--backing", &job.setting.backing];
    Ok(Box::new(witnessed(job, &["bfs"], &numbers, &flags)?))
}

/// One thread, next to the top tier, that touches all of its memory.
pub fn hotset(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    let max_s = match job.setting.system.as_str() {
        "none" => HOTSET_NONE_S,
        _ if job.setting.is_warm_up() => HOTSET_WARM_UP_S,
        _ => HOTSET_S,
    };
    let fast: Vec<String> = job.fast.iter().map(ToString::to_string).collect();
    let fast = fast.join(",");
    let flags = ["--until-promoted", "--cpus", "0", "--fast", &fast];
    let numbers = [
        ("--size-mib", job.size_mib),
        ("--hot-percent", 100),
        ("--threads", 1),
        ("--home", job.home as u64),
        ("--seconds", max_s),
    ];
    Ok(Box::new(ours(job, &["hotset"], &numbers, &flags)?))
}

/// A program that tells the witness when to look.
fn witnessed(
    job: &Job<'_>,
    program: &[&str],
    numbers: &[(&str, u64)],
    flags: &[&str],
) -> Result<Ours> {
    let common = [
        ("--home", job.home as u64),
        ("--threads", job.setting.threads.into()),
        ("--seed", job.setting.seed),
    ];
    let numbers = [numbers, &common].concat();
    let flags = [&["--witness", "--cpus", "0-1"], flags].concat();
    ours(job, program, &numbers, &flags)
}

fn ours(job: &Job<'_>, program: &[&str], numbers: &[(&str, u64)], flags: &[&str]) -> Result<Ours> {
    let values: Vec<String> = numbers
        .iter()
        .map(|(_, number)| number.to_string())
        .collect();
    let numbers = numbers.iter().zip(&values);
    let numbers: Vec<&str> = numbers
        .flat_map(|((name, _), value)| [*name, value])
        .collect();
    Ours::start(job.vm, &[program, flags, &numbers].concat())
}
