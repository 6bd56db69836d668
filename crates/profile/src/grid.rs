//! A process's accesses by memory and time: how a heatmap sees a profile.

use std::ops::Range;

use crate::{Process, Profile};

/// Rows of memory times columns of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Pages of a row; the last row may have fewer.
    pub row_pages: u32,
    /// Pages of all rows.
    pub pages: u32,
    /// Intervals of a column; the last column may have fewer.
    pub column_intervals: u32,
    /// Intervals of all columns.
    pub intervals: u32,
    rows: usize,
    columns: usize,
    /// Row by row.
    cells: Vec<Cell>,
}

/// What happened in some memory for some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell {
    /// Looks at pages: pages times intervals in which the process was looked at.
    pub looked: u64,
    /// Of those, looks that found a page touched.
    pub touched: u64,
    /// Of those, pages that were in the lower tier.
    pub lower: u64,
}

impl Cell {
    /// How often a look at a page found it touched, from 0 to 1; none without a look.
    pub fn heat(&self) -> Option<f64> {
        (self.looked > 0).then(|| self.touched as f64 / self.looked as f64)
    }

    /// The part of what was touched that was in the lower tier, from 0 to 1.
    pub fn lower_share(&self) -> f64 {
        self.lower as f64 / self.touched.max(1) as f64
    }
}

impl Grid {
    /// Of a process of a profile, with at most so many rows and columns. All rows have the same
    /// number of pages, all columns the same number of intervals, but for the last ones.
    pub fn new(profile: &Profile, process: &Process, rows: usize, columns: usize) -> Grid {
        let (pages, intervals) = (process.pages().max(1), profile.intervals.max(1));
        let row_pages = pages.div_ceil(rows.max(1) as u32);
        let column_intervals = intervals.div_ceil(columns.max(1) as u32);
        let mut grid = Grid {
            row_pages,
            pages,
            column_intervals,
            intervals,
            rows: pages.div_ceil(row_pages) as usize,
            columns: intervals.div_ceil(column_intervals) as usize,
            cells: Vec::new(),
        };
        grid.cells = vec![Cell::default(); grid.rows * grid.columns];
        for interval in &process.intervals {
            let column = (interval.number / column_intervals) as usize;
            for row in 0..grid.rows {
                let start = row as u32 * row_pages;
                let pages = row_pages.min(pages - start);
                grid.cell_mut(row, column).looked += u64::from(pages);
            }
            for run in interval.touched.runs() {
                grid.add(column, run, |cell, pages| cell.touched += pages);
            }
            for run in interval.lower.runs() {
                grid.add(column, run, |cell, pages| cell.lower += pages);
            }
        }
        grid
    }

    /// Its rows, of which the first has the lowest pages.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &[Cell]> + ExactSizeIterator {
        self.cells.chunks(self.columns)
    }

    /// How many columns each row has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The heat of its hottest cell.
    pub fn hottest(&self) -> f64 {
        self.cells.iter().filter_map(Cell::heat).fold(0.0, f64::max)
    }

    fn cell_mut(&mut self, row: usize, column: usize) -> &mut Cell {
        &mut self.cells[row * self.columns + column]
    }

    /// Counts the pages of a run in the rows that they belong to.
    fn add(&mut self, column: usize, run: Range<u32>, count: impl Fn(&mut Cell, u64)) {
        let mut start = run.start;
        while start < run.end {
            let row = start / self.row_pages;
            let end = run.end.min((row + 1) * self.row_pages);
            count(self.cell_mut(row as usize, column), u64::from(end - start));
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Touched};

    fn profile(intervals: Vec<Interval>) -> Profile {
        Profile {
            kernel: String::new(),
            interval_ms: 1000,
            intervals: 5,
            elapsed_ms: 0,
            disturbed_by: Vec::new(),
            processes: vec![Process {
                name: "x".into(),
                cgroup: String::new(),
                blocks: 2,
                huge_blocks: 0,
                intervals,
            }],
        }
    }

    fn interval(number: u32, touched: Range<u32>, lower: Range<u32>) -> Interval {
        Interval {
            number,
            cpu_us: 0,
            touched: Touched::of(vec![touched]),
            lower: Touched::of(vec![lower]),
        }
    }

    #[test]
    fn every_touched_page_is_counted_where_and_when_it_was() {
        let profile = profile(vec![
            interval(0, 0..300, 200..300),
            interval(1, 0..300, 0..0),
            interval(4, 1000..1024, 1000..1024),
        ]);
        // 1024 pages in rows of 342, five intervals in columns of two.
        let grid = Grid::new(&profile, &profile.processes[0], 3, 3);
        assert_eq!((grid.row_pages, grid.column_intervals), (342, 2));
        let cell = |looked, touched, lower| Cell {
            looked,
            touched,
            lower,
        };
        let rows: Vec<&[Cell]> = grid.rows().collect();
        let idle = Cell::default();
        assert_eq!(rows[0], [cell(684, 600, 100), idle, cell(342, 0, 0)]);
        assert_eq!(rows[2], [cell(680, 0, 0), idle, cell(340, 24, 24)]);
        assert_eq!((idle.heat(), rows[2][0].heat()), (None, Some(0.0)));
        assert_eq!(
            (grid.hottest(), rows[2][2].lower_share()),
            (600.0 / 684.0, 1.0)
        );
    }

    #[test]
    fn no_grid_is_larger_than_its_profile() {
        let profile = profile(vec![interval(0, 0..1024, 0..0)]);
        for (rows, columns) in [(1, 1), (7, 3), (5000, 5000), (0, 0)] {
            let grid = Grid::new(&profile, &profile.processes[0], rows, columns);
            assert!(grid.rows().len() <= rows.clamp(1, 1024));
            assert!(grid.columns() <= columns.clamp(1, 5));
            let touched: u64 = grid.rows().flatten().map(|cell| cell.touched).sum();
            assert_eq!(touched, 1024, "{rows} {columns}");
        }
    }
}
