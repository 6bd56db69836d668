//! `migrate`: the threads that move the folios of a region between two nodes, and what came of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;

use crate::first_folio::Tracing;
use crate::numa_maps;
use crate::region::Region;
use crate::spread::Spread;
use crate::sys;

/// A status that the kernel never stores.
const UNTOLD: i32 = i32::MAX;

/// How often folios that do not come back are asked to, before the run is given up.
const RETURNS: u32 = 10;

/// The folios of a region, moved by so many threads, so many in a call.
pub struct Migration<'a> {
    /// The memory.
    pub region: &'a Region,
    /// Where it is before and after.
    pub from: u32,
    /// Where it goes.
    pub to: u32,
    /// Threads; each moves a part of its own.
    pub threads: usize,
    /// Folios handed to one call.
    pub batch: usize,
}

/// What calls came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls of `move_pages`.
    pub calls: u64,
    /// Folios that the kernel did not move, by the name of the error.
    pub refused: BTreeMap<String, u64>,
    /// Folios of which the kernel said nothing, since one of their batch was refused.
    pub untold: u64,
}

/// What was measured of one combination of threads and batch.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// Threads.
    pub threads: usize,
    /// Folios in a call.
    pub batch: usize,
    /// 10^9 bytes moved in a second, over the repeats.
    pub gb_per_s: Option<Spread>,
    /// Base pages moved, in all repeats.
    pub moved_pages: u64,
    /// Folios refused, by error.
    pub refused: BTreeMap<String, u64>,
    /// Folios of which the kernel said neither.
    pub untold: u64,
    /// Calls, in all repeats.
    pub calls: u64,
    /// Time until the first folio of a call is mapped again; null if it cannot be seen.
    pub first_folio_us: Option<Spread>,
    /// How many times that is from.
    pub first_folio_samples: usize,
    /// Why it cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Migration<'_> {
    /// Moves all there and back `repeat` times, and then, traced, one batch of each thread as
    /// often.
    pub fn measure(&self, repeat: u32) -> Result<Speed> {
        let folios = self.folios();
        let mut tally = Tally::default();
        let mut rates = Vec::new();
        let mut moved_pages = 0;
        self.come_back()?;
        for _ in 0..repeat {
            let seconds = self.move_parts(&self.parts(&folios), &mut tally)?;
            let moved = self.pages_on(self.to)?;
            let bytes = moved * self.region.page_bytes() as u64;
            rates.push(bytes as f64 / 1e9 / seconds);
            moved_pages += moved;
            self.come_back()?;
        }
        let (waits, note) = match Tracing::start() {
            Ok(tracing) => (self.first_folios(&tracing, &folios, repeat)?, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}"))),
        };
        Ok(Speed {
            threads: self.threads,
            batch: self.batch,
            gb_per_s: Spread::of(rates),
            moved_pages,
            refused: tally.refused,
            untold: tally.untold,
            calls: tally.calls,
            first_folio_samples: waits.len(),
            first_folio_us: Spread::of(waits),
            note,
        })
    }

    /// Each thread makes one call at a time here: the trace tells calls apart by their threads.
    fn first_folios(&self, tracing: &Tracing, folios: &[usize], repeat: u32) -> Result<Vec<f64>> {
        let parts = self.parts(folios);
        let mut waits = Vec::new();
        for turn in 0..repeat as usize {
            let nth = |part: &&[usize]| part.chunks(self.batch).count();
            let batches = parts.iter().map(|part| {
                let turn = turn % nth(part).max(1);
                part.chunks(self.batch).nth(turn).unwrap_or_default()
            });
            let batches: Vec<_> = batches.collect();
            let moves = || self.move_parts(&batches, &mut Tally::default());
            waits.extend(tracing.measure_us(moves)?.1);
            self.come_back()?;
        }
        Ok(waits)
    }

    /// The first address of each folio.
    fn folios(&self) -> Vec<usize> {
        let folio_bytes = self.region.unit_pages() as usize * self.region.page_bytes();
        self.region.range().step_by(folio_bytes).collect()
    }

    /// A part for each thread. With few folios the last threads have nothing to do.
    fn parts<'f>(&self, folios: &'f [usize]) -> Vec<&'f [usize]> {
        folios
            .chunks(folios.len().div_ceil(self.threads).max(1))
            .collect()
    }

    /// Moves the parts at the same time; returns the seconds from the first call to the last's end.
    fn move_parts(&self, parts: &[&[usize]], tally: &mut Tally) -> Result<f64> {
        let barrier = &Barrier::new(parts.len());
        let done: Vec<_> = thread::scope(|scope| {
            let movers: Vec<_> = parts
                .iter()
                .map(|part| {
                    scope.spawn(move || {
                        let mut tally = Tally::default();
                        barrier.wait();
                        let start = Instant::now();
                        let moved = move_all(part, self.to, self.batch, &mut tally);
                        moved.map(|()| (start, Instant::now(), tally))
                    })
                })
                .collect();
            let join = |mover: thread::ScopedJoinHandle<'_, _>| {
                mover.join().map_err(|_| anyhow!("a mover panicked"))?
            };
            movers.into_iter().map(join).collect::<Result<_>>()
        })?;
        let start = done.iter().map(|(start, ..)| *start).min();
        let end = done.iter().map(|(_, end, _)| *end).max();
        for (.., part) in done {
            tally.add(part);
        }
        let (start, end) = start.zip(end).context("there is nothing to move")?;
        Ok((end - start).as_secs_f64())
    }

    /// Brings all pages back, or fails: what did not start on `from` would not be measured.
    fn come_back(&self) -> Result<()> {
        let folios = self.folios();
        let pages = u64::from(self.region.pages());
        let mut there = 0;
        for _ in 0..RETURNS {
            there = self.pages_on(self.from)?;
            if there == pages {
                return Ok(());
            }
            let mut refused = Tally::default();
            move_all(&folios, self.from, folios.len(), &mut refused)?;
        }
        bail!(
            "{} of {pages} pages do not go back to node {}; is it full, or does anybody else move \
             pages?",
            pages - there,
            self.from
        )
    }

    fn pages_on(&self, node: u32) -> Result<u64> {
        let nodes = numa_maps::read(&self.region.range())?;
        Ok(nodes.get(&node).copied().unwrap_or(0))
    }
}

impl Tally {
    /// What one call came to, by its result and statuses.
    fn count(&mut self, status: &[i32], result: io::Result<()>) -> Result<()> {
        self.calls += 1;
        if let Err(error) = result {
            // The target is full. Whatever else fails as a whole has never moved a page.
            ensure!(
                error.raw_os_error() == Some(libc::ENOMEM),
                "cannot move pages: {error}"
            );
            *self.refused.entry(errno_name(libc::ENOMEM)).or_default() += status.len() as u64;
            return Ok(());
        }
        for &status in status {
            match status {
                UNTOLD => self.untold += 1,
                ..0 => *self.refused.entry(errno_name(-status)).or_default() += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, other: Tally) {
        self.calls += other.calls;
        self.untold += other.untold;
        for (name, count) in other.refused {
            *self.refused.entry(name).or_default() += count;
        }
    }
}

fn move_all(folios: &[usize], node: u32, batch: usize, tally: &mut Tally) -> Result<()> {
    let mut status = vec![UNTOLD; batch.min(folios.len())];
    for call in folios.chunks(batch) {
        let status = &mut status[..call.len()];
        status.fill(UNTOLD);
        let result = sys::move_pages(call, node, status);
        tally.count(status, result)?;
    }
    Ok(())
}

/// The errors that `move_pages(2)` tells of, by name.
fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EACCES => "EACCES",
        libc::EAGAIN => "EAGAIN",
        libc::EBUSY => "EBUSY",
        libc::EFAULT => "EFAULT",
        libc::EIO => "EIO",
        libc::EINVAL => "EINVAL",
        libc::ENOENT => "ENOENT",
        libc::ENOMEM => "ENOMEM",
        _ => return errno.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Backing;
    use std::path::Path;

    #[test]
    fn statuses_and_failed_calls_are_told_apart() {
        let mut tally = Tally::default();
        let status = [0, 2, -libc::EBUSY, -libc::EBUSY, UNTOLD, -libc::ENOENT];
        tally.count(&status, Ok(())).unwrap();
        let full = || Err(io::Error::from_raw_os_error(libc::ENOMEM));
        tally.count(&[UNTOLD; 3], full()).unwrap();
        let refused = [("EBUSY", 2), ("ENOENT", 1), ("ENOMEM", 3)];
        let refused = refused.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(tally.refused, BTreeMap::from(refused));
        assert_eq!((tally.calls, tally.untold), (2, 1));
        let no_node = Err(io::Error::from_raw_os_error(libc::ENODEV));
        assert!(tally.count(&[UNTOLD], no_node).is_err());
    }

    #[test]
    fn the_parts_of_all_threads_are_all_folios() {
        let region = Region::map(1 << 20, Backing::Anon, 0, Path::new("/")).unwrap();
        let folios: Vec<usize> = (0..10).collect();
        for (threads, sizes) in [(1, &[10][..]), (3, &[4, 4, 2]), (40, &[1; 10])] {
            let (from, to, batch) = (0, 1, 1);
            let region = &region;
            let migration = Migration {
                region,
                from,
                to,
                threads,
                batch,
            };
            let parts = migration.parts(&folios);
            assert_eq!(parts.concat(), folios);
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            assert_eq!(lengths, sizes);
        }
    }
}
