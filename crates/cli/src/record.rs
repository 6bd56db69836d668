//! `pghot record`: an access profile of what runs on this machine, for the simulator.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use pghot_linux::probe::{Answer, FEATURES};
use pghot_linux::{SysRoot, bpf};
use pghot_profile::{Profile, file};
use pghot_sim::machine::PAGES_PER_MIB;
use pghot_sources::recorder::{Order, record};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{config, option_arg, paths};
use crate::exit::Failure;
use crate::output::say;
use crate::progress::Progress;
use crate::record_beside::{Paused, kernels_readers, warn_of_the_kernels_readers};

/// The command.
pub fn command() -> Command {
    let pid = Arg::new("pid")
        .long("pid")
        .value_name("PID")
        .action(ArgAction::Append)
        .value_parser(value_parser!(i32).range(1..))
        .help("A process to record, again for more; all of 8 MiB or more without");
    let names = Arg::new("no-names")
        .long("no-names")
        .action(ArgAction::SetTrue)
        .help("Leave out the programs' names");
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
        .args([pid, names, out])
        .args(how())
}

/// How to record, for every command that does.
pub fn how() -> [Arg; 6] {
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
        pause,
        config(),
        option_arg("socket"),
    ]
}

/// Records.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("out");
    let path = path.ok_or_else(|| anyhow!("--out is missing"))?;
    check_rights(&SysRoot::default())?;
    // Before a minute of recording, not after; and an older profile stays until there is a new one.
    let mut part = path.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut file = create(&part)?;
    let pids = matches.get_many("pid").unwrap_or_default();
    let progress = Progress::new();
    let profile = observe(
        matches,
        pids.copied().collect(),
        !matches.get_flag("no-names"),
        &mut |at, _| progress.tell(at.share, &at.sentence),
    );
    let kept = profile.and_then(|profile| {
        let bytes = file::encode(&profile);
        let written = file
            .write_all(&bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&part, path));
        written.map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
        Ok((profile, bytes.len()))
    });
    let (profile, bytes) = kept.inspect_err(|_| {
        // That it stays is no harm.
        let _ = fs::remove_file(&part);
    })?;
    say(&summary(&profile, bytes, path))
}

/// How far a recording is.
pub struct At {
    /// So much of 1 is done.
    pub share: f64,
    /// What was done.
    pub sentence: String,
}

/// Records these processes, or all if there are none, in the way of [`how`], until that is done or
/// a signal ends it. `each` hears of each interval, and may ask for what is recorded so far.
pub fn observe(
    matches: &ArgMatches,
    pids: Vec<i32>,
    with_names: bool,
    each: &mut dyn FnMut(&At, &dyn Fn() -> Profile),
) -> Result<Profile> {
    check_rights(&SysRoot::default())?;
    let socket = paths(matches)?.socket;
    // Without a log to go to, what libbpf says is not heard; errors say what matters.
    bpf::log_messages();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| anyhow!("cannot wait for signals: {error}"))?;
    }
    // Dropped when all is done, however it ends.
    let _paused = Paused::sources(&socket, matches.get_flag("pause-sources"))?;
    let root = SysRoot::default();
    let mut readers = warn_of_the_kernels_readers(&root);
    let number = |name| matches.get_one::<u32>(name).copied().unwrap_or(1);
    let interval_ms = number("interval-ms");
    let order = Order {
        pids,
        interval: Duration::from_millis(interval_ms.into()),
        intervals: (u64::from(number("seconds")) * 1000)
            .div_ceil(interval_ms.into())
            .min(1_000_000) as u32,
        stall_max: Duration::from_millis(number("stall-max-ms").into()),
        with_names,
    };
    let profile = record(&root, &order, &stop, &mut |at, so_far| {
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
    readers.extend(
        kernels_readers(&root)
            .into_iter()
            .map(|fight| fight.id.to_owned()),
    );
    readers.sort_unstable();
    readers.dedup();
    profile.disturbed_by = readers;
    Ok(profile)
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

/// An empty file that its owner alone can read.
pub fn create(path: &Path) -> Result<File> {
    // What programs do with their memory is nobody else's business.
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| {
            let sentence = format!("cannot write {}: {error}", path.display());
            anyhow::Error::new(error).context(sentence)
        })
}

/// What a profile holds, for people.
pub fn summary(profile: &Profile, bytes: usize, path: &Path) -> String {
    let mut text = format!(
        "{}: {} intervals of {} ms, {} KiB\n  {:<18} {:>11} {:>22} {:>9}\n",
        path.display(),
        profile.intervals,
        profile.interval_ms,
        bytes.div_ceil(1024),
        "program",
        "memory, MiB",
        "touched a second, MiB",
        "CPUs used"
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
