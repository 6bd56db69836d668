//! Intervals as files have them since version 5: what changed since the interval before, where that
//! is shorter. What is in use is touched in every interval, and then takes no room.
//!
//! In front of them all, and of those of each process, stand the other fields and how many follow.

use serde::{Deserialize, Serialize};

use crate::file::Damage;
use crate::{Interval, Process, Profile, Touched};

/// Numbers of all sets of a profile, unpacked: 4 GiB. Few changes, again and again, of a large set
/// may be a small file.
pub(crate) const NUMBERS_MAX: usize = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Head {
    kernel: String,
    interval_ms: u32,
    intervals: u32,
    elapsed_ms: u64,
    disturbed_by: Vec<String>,
    processes: u32,
}

#[derive(Serialize, Deserialize)]
struct ProcessHead {
    name: String,
    cgroup: String,
    blocks: u32,
    huge_blocks: u32,
    intervals: u32,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    number: u32,
    cpu_us: u64,
    is_change: bool,
    touched: Touched,
    lower: Touched,
}

impl Stored {
    fn of(interval: &Interval, before: Option<&Interval>) -> Stored {
        let change = change(interval, before);
        let is_change = change.is_some();
        let whole = || (interval.touched.clone(), interval.lower.clone());
        let (touched, lower) = change.unwrap_or_else(whole);
        Stored {
            number: interval.number,
            cpu_us: interval.cpu_us,
            is_change,
            touched,
            lower,
        }
    }

    fn unpacked(self, before: Option<&Interval>) -> Interval {
        let Stored {
            number,
            cpu_us,
            is_change,
            touched,
            lower,
        } = self;
        let (touched, lower) = match before.filter(|_| is_change) {
            Some(before) => (before.touched.change(&touched), before.lower.change(&lower)),
            None => (touched, lower),
        };
        Interval {
            number,
            cpu_us,
            touched,
            lower,
        }
    }
}

/// What has changed since the interval before, if that is shorter than the sets themselves.
fn change(interval: &Interval, before: Option<&Interval>) -> Option<(Touched, Touched)> {
    let before = before?;
    let touched = interval.touched.change(&before.touched);
    let lower = interval.lower.change(&before.lower);
    let is_shorter =
        touched.bytes() + lower.bytes() < interval.touched.bytes() + interval.lower.bytes();
    is_shorter.then_some((touched, lower))
}

/// What the sets of an interval take in a file behind another one of the same process.
pub(crate) fn bytes(interval: &Interval, before: Option<&Interval>) -> u64 {
    match change(interval, before) {
        Some((touched, lower)) => touched.bytes() + lower.bytes(),
        None => interval.touched.bytes() + interval.lower.bytes(),
    }
}

/// Behind `bytes`, a profile.
pub(crate) fn encode(profile: &Profile, bytes: &mut Vec<u8>) {
    let Profile {
        kernel,
        interval_ms,
        intervals,
        elapsed_ms,
        disturbed_by,
        processes,
    } = profile;
    let head = Head {
        kernel: kernel.clone(),
        interval_ms: *interval_ms,
        intervals: *intervals,
        elapsed_ms: *elapsed_ms,
        disturbed_by: disturbed_by.clone(),
        processes: processes.len() as u32,
    };
    append(&head, bytes);
    for process in processes {
        let head = ProcessHead {
            name: process.name.clone(),
            cgroup: process.cgroup.clone(),
            blocks: process.blocks,
            huge_blocks: process.huge_blocks,
            intervals: process.intervals.len() as u32,
        };
        append(&head, bytes);
        let mut before = None;
        for interval in &process.intervals {
            append(&Stored::of(interval, before), bytes);
            before = Some(interval);
        }
    }
}

fn append(value: &impl Serialize, bytes: &mut Vec<u8>) {
    let so_far = std::mem::take(bytes);
    // Nothing in a profile is beyond postcard.
    *bytes = postcard::to_extend(value, so_far).unwrap_or_default();
}

/// The other way round. Whether the profile makes sense is not looked at.
pub(crate) fn decode(bytes: &[u8]) -> Result<Profile, Damage> {
    decode_within(bytes, NUMBERS_MAX)
}

fn decode_within(mut bytes: &[u8], mut room: usize) -> Result<Profile, Damage> {
    let head: Head = take(&mut bytes)?;
    let mut processes = Vec::new();
    for _ in 0..head.processes {
        processes.push(process(&mut bytes, &mut room)?);
    }
    if !bytes.is_empty() {
        return Err(Damage::Contents);
    }
    Ok(Profile {
        kernel: head.kernel,
        interval_ms: head.interval_ms,
        intervals: head.intervals,
        elapsed_ms: head.elapsed_ms,
        disturbed_by: head.disturbed_by,
        processes,
    })
}

fn process(bytes: &mut &[u8], room: &mut usize) -> Result<Process, Damage> {
    let head: ProcessHead = take(bytes)?;
    let mut intervals: Vec<Interval> = Vec::new();
    for _ in 0..head.intervals {
        let stored: Stored = take(bytes)?;
        let interval = stored.unpacked(intervals.last());
        let numbers = interval.touched.numbers() + interval.lower.numbers();
        *room = room.checked_sub(numbers).ok_or(Damage::TooLarge)?;
        intervals.push(interval);
    }
    Ok(Process {
        name: head.name,
        cgroup: head.cgroup,
        blocks: head.blocks,
        huge_blocks: head.huge_blocks,
        intervals,
    })
}

fn take<'a, T: Deserialize<'a>>(bytes: &mut &'a [u8]) -> Result<T, Damage> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|_| Damage::Contents)?;
    *bytes = rest;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(number: u32, pages: &[u32]) -> Interval {
        let ranges = pages.iter().map(|page| *page..page + 1);
        Interval {
            number,
            cpu_us: 0,
            touched: Touched::of(ranges.collect()),
            lower: Touched::default(),
        }
    }

    fn profile(intervals: Vec<Interval>) -> Profile {
        Profile {
            kernel: "6.12".into(),
            interval_ms: 1000,
            intervals: 1000,
            elapsed_ms: 0,
            disturbed_by: Vec::new(),
            processes: vec![Process {
                name: "x".into(),
                cgroup: String::new(),
                blocks: 1 << 20,
                huge_blocks: 0,
                intervals,
            }],
        }
    }

    #[test]
    fn what_stays_in_use_takes_no_room() {
        let hot: Vec<u32> = (0..10_000).map(|page| 3 * page).collect();
        let with = |page: u32| [&hot[..], &[40_000 + 2 * page]].concat();
        let same = profile((0..100).map(|n| interval(n, &with(n))).collect());
        let mut bytes = Vec::new();
        encode(&same, &mut bytes);
        assert!((20_000..25_000).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), same);
        let (first, second) = (&same.processes[0].intervals[0], interval(1, &[7]));
        assert!(super::bytes(first, None) >= 20_000);
        assert!(super::bytes(&second, Some(first)) < 10, "other pages");
    }

    #[test]
    fn a_small_file_of_a_giant_is_refused() {
        let hot: Vec<u32> = (0..1000).map(|page| 3 * page).collect();
        let giant = profile((0..600).map(|number| interval(number, &hot)).collect());
        let mut bytes = Vec::new();
        encode(&giant, &mut bytes);
        assert!(bytes.len() < 10_000, "{}", bytes.len());
        let numbers = 600 * 2000;
        assert_eq!(decode_within(&bytes, numbers), Ok(giant));
        assert_eq!(decode_within(&bytes, numbers - 1), Err(Damage::TooLarge));
    }
}
