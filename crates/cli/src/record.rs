//! `pghot record`: an access profile of what runs on this machine, for the simulator.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use pghot_engine::{Pattern, Turns};
use pghot_linux::conflicts::readers_of_accessed_bits;
use pghot_linux::probe::{Answer, FEATURES};
use pghot_linux::{SysRoot, bpf};
use pghot_profile::part::Part;
use pghot_profile::{Profile, file, rotation};
use pghot_sim::machine::PAGES_PER_MIB;
use pghot_sources::recorder::{Order, Recorder, bytes_per_s, opened_by_root};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{config, option_arg, paths};
use crate::exit::Failure;
use crate::output::say;
use crate::progress::Progress;
use crate::record_beside::{Paused, warn_of_the_kernels_readers};

/// The command.
pub fn command() -> Command {
    let pid = Arg::new("pid")
        .long("pid")
        .value_name("PID")
        .action(ArgAction::Append)
        .value_parser(value_parser!(i32).range(1..))
        .help("A process to record, again for more; all of 8 MiB or more without");
    let cgroup = Arg::new("cgroup")
        .long("cgroup")
        .value_name("PATTERN")
        .action(ArgAction::Append)
        .value_parser(|text: &str| Pattern::of_cgroup(text))
        .help(
            "A control group to record with what is below it, again for more: a path below the \
             mount such as /system.slice/postgres*; all without",
        );
    let names = Arg::new("no-names")
        .long("no-names")
        .action(ArgAction::SetTrue)
        .help("Leave out the names of programs and control groups");
    let keep = Arg::new("keep")
        .long("keep")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..=100_000))
        .help(
            "Begin another profile when one is done, until Ctrl-C, and keep so many: FILE is the \
             newest, FILE.1 the one before, and so on",
        );
    let out = Arg::new("out")
        .long("out")
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .default_value("pghot.profile")
        .help("Where the profile goes");
    Command::new("record")
        .about(
            "Record which memory programs touch, over time, for `pghot sim replay` and `heatmap`",
        )
        .long_about(
            "Record which memory programs touch, over time, for `pghot sim replay` and `pghot \
             heatmap`. It clears and reads accessed bits in page tables, as the source pgtscan \
             does, of all tiers; it needs root, and no lower tier. The profile has neither \
             contents nor addresses. Processes that are opted out of scanning are left out. \
             Ctrl-C ends the recording and keeps it.",
        )
        .args([pid, cgroup, names, out, keep])
        .args(how())
}

/// How to record, for every command that does.
pub fn how() -> [Arg; 8] {
    let number = |id: &'static str, value, default, help| {
        Arg::new(id)
            .long(id)
            .value_name(value)
            .value_parser(value_parser!(u32).range(1..=3_600_000))
            .default_value(default)
            .help(help)
    };
    let pause = Arg::new("pause-sources")
        .long("pause-sources")
        .action(ArgAction::SetTrue)
        .help(
            "Switch those of the daemon's sources off for the recording that read the same \
             accessed bits; without, it refuses to record beside them",
        );
    [
        number("seconds", "S", "60", "How long to record"),
        number(
            "interval-ms",
            "MS",
            "1000",
            "Time between two looks at a process",
        ),
        number(
            "stall-max-ms",
            "MS",
            "10",
            "How long clearing may keep a process from changing its mappings; where that is too \
             short, a way is taken that does not see shared pages",
        ),
        Arg::new("cpu-max-percent")
            .long("cpu-max-percent")
            .value_name("PERCENT")
            .value_parser(percent)
            .help(
                "Use at most so much of one CPU, 0.5 for example, on average: after an interval \
                 that took more nothing is looked at for a while, so there are fewer",
            ),
        Arg::new("day-max-mb")
            .long("day-max-mb")
            .value_name("MB")
            .value_parser(value_parser!(u32).range(1..=1_000_000))
            .help(
                "Record at most so many MB a day, 50 for example, on average: after an interval \
                 that took more nothing is looked at for a while",
            ),
        pause,
        config(),
        option_arg("socket"),
    ]
}

/// More than nothing, and at most all of a CPU.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|it| (0.01..=100.0).contains(it));
    number.ok_or_else(|| "it is a number from 0.01 to 100".to_owned())
}

/// Records.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("out");
    let path = path.ok_or_else(|| anyhow!("--out is missing"))?;
    let keep = matches.get_one::<u32>("keep");
    let mut watch = Watch::begin(matches)?;
    let mut done = 0;
    loop {
        // Before a minute of recording, not after.
        let part = Part::create(path)?;
        let progress = Progress::new();
        // All day, nobody wants a line every ten seconds.
        let is_told = keep.is_none() || stderr().is_terminal();
        let profile = watch.observe(who(matches), &mut |at, _| {
            if is_told {
                progress.tell(at.share, &at.sentence);
            }
        });
        let profile = match profile {
            // It had hardly begun another one.
            Err(_) if done > 0 && watch.is_stopped() => return Ok(()),
            profile => profile?,
        };
        let bytes = file::encode(&profile);
        let Some(keep) = keep else {
            part.keep(&bytes)?;
            return say(&summary(&profile, bytes.len(), path));
        };
        rotation::make_way(path, *keep)?;
        part.keep(&bytes)?;
        done += 1;
        say(&headline(&profile, bytes.len(), path))?;
        if watch.is_stopped() {
            return Ok(());
        }
    }
}

fn who(matches: &ArgMatches) -> Who {
    let pids = matches.get_many("pid").unwrap_or_default();
    let cgroups = matches.get_many("cgroup").unwrap_or_default();
    Who {
        pids: pids.copied().collect(),
        cgroups: cgroups.cloned().collect(),
        with_names: !matches.get_flag("no-names"),
    }
}

/// Who is recorded.
#[derive(Debug, Default)]
pub struct Who {
    /// The processes; none for all.
    pub pids: Vec<i32>,
    /// Those of these control groups; none for all.
    pub cgroups: Vec<Pattern>,
    /// With the names of programs and control groups.
    pub with_names: bool,
}

/// How far a recording is.
pub struct At {
    /// So much of 1 is done.
    pub share: f64,
    /// What was done.
    pub sentence: String,
}

/// Ready to record in the way of [`how`]: what is needed is there, signals end it, and the daemon's
/// readers of the same bits are off until this is dropped.
pub struct Watch<'a> {
    matches: &'a ArgMatches,
    recorder: Recorder,
    stop: Arc<AtomicBool>,
    /// Of the kernel's, those that were seen since it began.
    readers: BTreeSet<String>,
    _paused: Option<Paused>,
}

impl Watch<'_> {
    /// See there.
    pub fn begin(matches: &ArgMatches) -> Result<Watch<'_>> {
        check_rights(&SysRoot::default())?;
        let socket = paths(matches)?.socket;
        // Without a log to go to, what libbpf says is not heard; errors say what matters.
        bpf::log_messages();
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(|error| anyhow!("cannot wait for signals: {error}"))?;
        }
        let paused = Paused::sources(&socket, matches.get_flag("pause-sources"))?;
        Ok(Watch {
            matches,
            recorder: Recorder::load(opened_by_root(), Turns::default())?,
            stop,
            readers: warn_of_the_kernels_readers(&SysRoot::default()),
            _paused: paused,
        })
    }

    /// Whether a signal has ended it.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Records until that is done or a signal ends it. `each` hears of each interval, and may ask
    /// for what is recorded so far.
    pub fn observe(
        &mut self,
        who: Who,
        each: &mut dyn FnMut(&At, &dyn Fn() -> Profile),
    ) -> Result<Profile> {
        let root = SysRoot::default();
        let number = |name| self.matches.get_one::<u32>(name).copied().unwrap_or(1);
        let interval_ms = number("interval-ms");
        let percent = self.matches.get_one::<f64>("cpu-max-percent");
        let day_max_mb = self.matches.get_one::<u32>("day-max-mb");
        let order = Order {
            pids: who.pids,
            cgroups: who.cgroups,
            interval: Duration::from_millis(interval_ms.into()),
            intervals: (u64::from(number("seconds")) * 1000)
                .div_ceil(interval_ms.into())
                .min(1_000_000) as u32,
            rest: Duration::ZERO,
            cpus_max: percent.map(|percent| percent / 100.0),
            bytes_per_s_max: day_max_mb.map(|mb| bytes_per_s(*mb)),
            stall_max: Duration::from_millis(number("stall-max-ms").into()),
            with_names: who.with_names,
        };
        let recorder = &mut self.recorder;
        let profile = recorder.record(&root, &order, &*self.stop, &mut |at, so_far| {
            let sentence = format!(
                "{} of {} intervals, {} processes touched {} MiB",
                at.intervals,
                order.intervals,
                at.processes,
                at.touched_pages / PAGES_PER_MIB
            );
            let share = f64::from(at.intervals) / f64::from(order.intervals);
            each(&At { share, sentence }, so_far);
        });
        let mut profile = profile?;
        // Also those that began meanwhile.
        let now = readers_of_accessed_bits(&root).into_iter();
        self.readers.extend(now.map(|fight| fight.id.to_owned()));
        profile.disturbed_by = self.readers.iter().cloned().collect();
        Ok(profile)
    }
}

/// What loading the walk and looking into processes takes; without, each step would fail in words
/// of its own.
fn check_rights(root: &SysRoot) -> Result<()> {
    const NEEDED: [&str; 3] = ["cap_bpf", "cap_perfmon", "cap_sys_ptrace"];
    for feature in FEATURES.iter().filter(|it| NEEDED.contains(&it.id)) {
        if let Answer::Unavailable(why) = (feature.ask)(root) {
            let sentence = format!("{why}, and recording needs it: run as root");
            return Err(Failure::Denied(sentence).into());
        }
    }
    Ok(())
}

/// How long a profile is and where it lies, in a line.
fn headline(profile: &Profile, bytes: usize, path: &Path) -> String {
    let looked_ms = u64::from(profile.intervals) * u64::from(profile.interval_ms);
    let rests = match profile.elapsed_ms > looked_ms + u64::from(profile.interval_ms) {
        true => format!(" in {} s", profile.elapsed_ms / 1000),
        false => String::new(),
    };
    format!(
        "{}: {} intervals of {} ms{rests}, {} KiB\n",
        path.display(),
        profile.intervals,
        profile.interval_ms,
        bytes.div_ceil(1024),
    )
}

/// What a profile holds, for people.
pub fn summary(profile: &Profile, bytes: usize, path: &Path) -> String {
    let mut text = headline(profile, bytes, path);
    text += &format!(
        "  {:<18} {:>11} {:>22} {:>9}\n",
        "program", "memory, MiB", "touched a second, MiB", "CPUs used"
    );
    for process in &profile.processes {
        let set = process.working_set(profile.interval_ms);
        text += &format!(
            "  {:<18} {:>11} {:>22.1} {:>9.2}\n",
            process.name, set.memory_mib, set.touched_mib_per_s, set.cpus
        );
    }
    text
}
