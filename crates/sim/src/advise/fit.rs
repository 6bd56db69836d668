//! Whether a recording is good enough to be asked how much memory it needs; what to record instead,
//! if not.

use pghot_profile::Profile;

/// A shorter recording is refused: the kernel's scanner first comes after a second, and its passes
/// and pghot's exchange take several, so all that would be seen is how they begin.
pub const SECONDS_MIN: f64 = 20.0;

/// A recording of less leaves doubts: a minute holds a few passes of the scanner.
pub const SECONDS_FEW: f64 = 60.0;

/// Of fewer intervals the replay cannot tell a page that is touched all the time from one that is
/// touched now and then.
pub const INTERVALS_MIN: u32 = 10;

/// Of fewer it tells them apart badly: a page's rate is known to one part in so many.
pub const INTERVALS_FEW: u32 = 30;

/// A recording whose programs use less CPU than this, on average, is of idle programs: what they
/// would wait for memory is nobody's worry, and other work will need other memory.
pub const CPUS_MIN: f64 = 0.05;

/// If no program uses the CPU in more than this share of the intervals, the recording is more of
/// waiting than of work.
pub const IDLE_SHARE_FEW: f64 = 0.5;

/// If more than this share of the intervals in which a program lived has no look at it, what it
/// touched is not known.
pub const LOST_SHARE_MAX: f64 = 0.1;

/// Less than this share is no matter.
pub const LOST_SHARE_FEW: f64 = 0.01;

/// Each doubt makes the interval wider by this share of its width. Nobody has measured by how much
/// it should; two doubts double it.
const WIDER_SHARE: f64 = 0.5;

/// By what factor the interval is stretched.
pub fn wider(doubts: usize) -> f64 {
    1.0 + WIDER_SHARE * doubts as f64
}

/// What leaves doubts, in sentences that say what to record instead.
///
/// # Errors
///
/// The recording is no basis for an answer.
pub fn check(profile: &Profile) -> Result<Vec<String>, String> {
    let seconds = f64::from(profile.intervals) * f64::from(profile.interval_ms) / 1000.0;
    let intervals = profile.intervals;
    let cpus = cpu_s(profile) / seconds;
    let (idle, lost) = (idle_share(profile), lost_share(profile));
    let refusal = if seconds < SECONDS_MIN || intervals < INTERVALS_MIN {
        Some(format!(
            "intervals: {intervals} of {} ms are too short a recording: record at least {} s of \
             the program's usual work, with `pghot record --seconds 300`",
            profile.interval_ms, SECONDS_MIN
        ))
    } else if cpus < CPUS_MIN {
        Some(format!(
            "cpu_us: the programs used {cpus:.3} CPUs on average, so they were idle: record while \
             they do the work that they are to be sized for"
        ))
    } else if lost > LOST_SHARE_MAX {
        Some(format!(
            "intervals: {:.0} % of the looks at the programs are missing: record again with fewer \
             programs (--pid) or a longer --interval-ms",
            lost * 100.0
        ))
    } else {
        None
    };
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(doubts(profile, seconds, idle, lost)),
    }
}

fn doubts(profile: &Profile, seconds: f64, idle: f64, lost: f64) -> Vec<String> {
    let mut doubts = Vec::new();
    if seconds < SECONDS_FEW || profile.intervals < INTERVALS_FEW {
        doubts.push(format!(
            "The recording is short ({} intervals, {seconds:.0} s), so the interval is wider: \
             record a whole cycle of the load, with `pghot record --seconds 300`.",
            profile.intervals
        ));
    }
    if idle > IDLE_SHARE_FEW {
        doubts.push(format!(
            "The programs used no CPU in {:.0} % of the intervals, so the interval is wider: \
             record at the load that they are to be sized for.",
            idle * 100.0
        ));
    }
    if lost > LOST_SHARE_FEW {
        doubts.push(format!(
            "{:.0} % of the looks at the programs are missing, so the interval is wider: record \
             fewer programs (--pid), or with a longer --interval-ms.",
            lost * 100.0
        ));
    }
    if !profile.disturbed_by.is_empty() {
        doubts.push(format!(
            "{} cleared accessed bits during the recording, so touched pages were missed and the \
             interval is wider: switch it off and record again.",
            profile.disturbed_by.join(" and ")
        ));
    }
    doubts
}

fn cpu_s(profile: &Profile) -> f64 {
    let intervals = profile
        .processes
        .iter()
        .flat_map(|process| &process.intervals);
    intervals
        .map(|interval| interval.cpu_us as f64 * 1e-6)
        .sum()
}

/// Share of the intervals in which no program used the CPU.
fn idle_share(profile: &Profile) -> f64 {
    let mut is_busy = vec![false; profile.intervals as usize];
    for interval in profile
        .processes
        .iter()
        .flat_map(|process| &process.intervals)
    {
        is_busy[interval.number as usize] |= interval.cpu_us > 0;
    }
    let busy = is_busy.iter().filter(|is_busy| **is_busy).count();
    1.0 - busy as f64 / is_busy.len().max(1) as f64
}

/// Share of the intervals between a program's first and last that have no look at it.
fn lost_share(profile: &Profile) -> f64 {
    let (mut lived, mut seen) = (0u64, 0u64);
    for process in &profile.processes {
        let ends = (process.intervals.first(), process.intervals.last());
        if let (Some(first), Some(last)) = ends {
            lived += u64::from(last.number - first.number) + 1;
            seen += process.intervals.len() as u64;
        }
    }
    1.0 - seen as f64 / lived.max(1) as f64
}

#[cfg(test)]
mod tests {
    use pghot_profile::{Interval, Process, Touched};

    use super::*;

    fn profile(intervals: u32, cpu_us: u64) -> Profile {
        let interval = |number| Interval {
            number,
            cpu_us,
            touched: Touched::of(std::iter::once(0..512).collect()),
            lower: Touched::default(),
        };
        Profile {
            kernel: String::new(),
            interval_ms: 1000,
            intervals,
            elapsed_ms: 0,
            disturbed_by: Vec::new(),
            processes: vec![Process {
                name: "x".into(),
                cgroup: String::new(),
                blocks: 4,
                huge_blocks: 0,
                intervals: (0..intervals).map(interval).collect(),
            }],
        }
    }

    #[test]
    fn a_short_an_idle_and_a_lossy_recording_are_refused() {
        assert_eq!(check(&profile(300, 500_000)), Ok(Vec::new()));
        let refused = |profile: &Profile| check(profile).unwrap_err();
        assert!(refused(&profile(5, 500_000)).contains("too short"));
        assert!(refused(&profile(300, 10_000)).contains("idle"));
        let mut few = profile(9, 5_000_000);
        few.interval_ms = 10_000;
        assert!(refused(&few).contains("9 of 10000 ms"));
        let mut lossy = profile(300, 500_000);
        lossy.processes[0]
            .intervals
            .retain(|interval| interval.number % 4 != 1);
        assert!(
            refused(&lossy).contains("25 % of the looks"),
            "{}",
            refused(&lossy)
        );
    }

    #[test]
    fn what_leaves_doubts_is_said_and_widens() {
        let doubts = |profile: &Profile| check(profile).unwrap();
        assert!(doubts(&profile(25, 500_000))[0].contains("short (25 intervals, 25 s)"));
        let mut waiting = profile(300, 500_000);
        for interval in &mut waiting.processes[0].intervals {
            interval.cpu_us *= u64::from(interval.number % 3 == 0);
        }
        assert!(
            doubts(&waiting)[0].contains("no CPU in 67 %"),
            "{:?}",
            doubts(&waiting)
        );
        let mut lossy = profile(300, 500_000);
        lossy.processes[0]
            .intervals
            .retain(|interval| interval.number % 20 != 1);
        assert!(doubts(&lossy)[0].contains("5 % of the looks"));
        lossy.disturbed_by = vec!["damon".into(), "damon_stat".into()];
        let both = doubts(&lossy);
        assert!(
            both.len() == 2 && both[1].starts_with("damon and damon_stat cleared"),
            "{both:?}"
        );
        assert_eq!((wider(0), wider(2)), (1.0, 2.0));
    }
}
