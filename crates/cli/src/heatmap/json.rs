//! Heatmaps as JSON, for scripts.

use pghot_profile::grid::{Cell, Grid};
use pghot_profile::{Process, Profile};
use schemars::JsonSchema;
use serde::Serialize;

/// Columns at most.
const COLUMNS: usize = 120;

/// A profile's heatmaps.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Maps<'a> {
    /// The kernel's release.
    kernel: &'a str,
    /// Time from one look at a page to the next.
    interval_ms: u32,
    /// Looks of the whole recording.
    intervals: u32,
    /// Those that touched most come first.
    programs: Vec<Map<'a>>,
}

/// One program's.
#[derive(Debug, Serialize, JsonSchema)]
struct Map<'a> {
    name: &'a str,
    /// Of 4 KiB.
    pages: u32,
    /// Pages of a row; the last row may have fewer.
    row_pages: u32,
    /// Intervals of a column; the last column may have fewer.
    column_intervals: u32,
    /// By row, from the lowest addresses on, and column: looks at pages.
    looked: Vec<Vec<u64>>,
    /// Of those, looks that found a page touched.
    touched: Vec<Vec<u64>>,
    /// Of those, pages that were in the lower tier.
    lower: Vec<Vec<u64>>,
}

/// Of these processes.
pub fn maps<'a>(profile: &'a Profile, processes: &[&'a Process], rows: usize) -> Maps<'a> {
    let map = |process: &&'a Process| {
        let grid = Grid::new(profile, process, rows, COLUMNS);
        let table = |of: fn(&Cell) -> u64| {
            let rows = grid.rows();
            rows.map(|row| row.iter().map(of).collect()).collect()
        };
        Map {
            name: &process.name,
            pages: grid.pages,
            row_pages: grid.row_pages,
            column_intervals: grid.column_intervals,
            looked: table(|cell| cell.looked),
            touched: table(|cell| cell.touched),
            lower: table(|cell| cell.lower),
        }
    };
    Maps {
        kernel: &profile.kernel,
        interval_ms: profile.interval_ms,
        intervals: profile.intervals,
        programs: processes.iter().map(map).collect(),
    }
}
