//! Writes a made profile of so many GiB, to measure `pghot advise` with: four processes, each with
//! a tenth of its memory in use all the time, half of the pages of it, and a window that moves on.
//! Of the runs in use, so many percent are not touched in a look, others in each; none if not told.
//!
//! ```text
//! cargo run --release -p pghot-sim --example large_profile -- 256 large.profile
//! time pghot advise large.profile
//! ```

use std::error::Error;

use pghot_profile::{Interval, Process, Profile, Touched, file};

const PROCESSES: u32 = 4;
const INTERVALS: u32 = 60;
const BLOCKS_PER_GIB: u32 = 512;
const BLOCK_PAGES: u32 = 512;
/// Of so many pages in a row, half are used.
const RUN_PAGES: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let gib: u32 = arguments.next().ok_or("how many GiB?")?.parse()?;
    let path = arguments.next().ok_or("into which file?")?;
    let missed_percent: u32 = arguments.next().map_or(Ok(0), |it| it.parse())?;
    let blocks = gib * BLOCKS_PER_GIB / PROCESSES;
    let profile = Profile {
        kernel: "made".into(),
        interval_ms: 1000,
        intervals: INTERVALS,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: (0..PROCESSES)
            .map(|number| process(number, blocks, missed_percent))
            .collect(),
    };
    profile.check()?;
    std::fs::write(&path, file::encode(&profile))?;
    Ok(())
}

fn process(number: u32, blocks: u32, missed_percent: u32) -> Process {
    let pages = blocks * BLOCK_PAGES;
    // Not at the beginning: there it would be in the top tier from the start.
    let hot = pages / 10 * (number + 5)..pages / 10 * (number + 6);
    let interval = |at: u32| {
        let window = pages / 100 * (at % 40)..pages / 100 * (at % 40 + 2);
        let halves = hot.clone().step_by(RUN_PAGES as usize);
        // A number that looks random, by Fibonacci hashing.
        let is_missed =
            |page: &u32| (page + 7919 * at).wrapping_mul(0x9e37_79b9) / 42_949_673 < missed_percent;
        let halves = halves.filter(|page| !is_missed(page));
        let halves = halves.map(|page| page..page + RUN_PAGES / 2);
        Interval {
            number: at,
            cpu_us: 4_000_000,
            touched: Touched::of(halves.chain([window]).collect()),
            lower: Touched::default(),
        }
    };
    Process {
        name: format!("made-{number}"),
        cgroup: String::new(),
        blocks,
        huge_blocks: 0,
        intervals: (0..INTERVALS).map(interval).collect(),
    }
}
