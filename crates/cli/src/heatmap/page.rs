//! Heatmaps as one page that works offline.

use maud::{Markup, html};
use pghot_page::heat::{Field, Heatmap, ramp};
use pghot_page::plot::{Axis, round_step};
use pghot_page::{Colour, page as framed};
use pghot_profile::grid::Grid;
use pghot_profile::{Process, Profile};

use crate::units::bytes;

/// Rows and columns of a map at most: a page of eight maps stays below a megabyte or two.
const ROWS: usize = 64;
const COLUMNS: usize = 120;

const TOP: Colour = Colour::BLUE;
const LOWER: Colour = Colour::ORANGE;

/// The page, and how many programs are not on it.
pub fn page(profile: &Profile, processes: &[&Process], others: usize) -> String {
    let interval_s = f64::from(profile.interval_ms) / 1000.0;
    let seconds = f64::from(profile.intervals) * interval_s;
    let body = html! {
        h1 { "pghot " span { "heatmap" } }
        p.lead { "Which memory was touched when, and in which tier it was." }
        p {
            "Recorded for " (format!("{seconds:.0}")) " s on Linux " (profile.kernel) ", with a \
             look at each page every " (format!("{interval_s:.1}")) " s. A look finds a page \
             touched, once or a million times, or not. Memory is in the order of its addresses, \
             without the gaps between mappings."
        }
        @if others > 0 {
            p.quiet { "Shown are the programs that touched most; " (others) " more were recorded." }
        }
        @for process in processes { (section(profile, process)) }
    };
    framed("pghot heatmap", &body)
}

fn section(profile: &Profile, process: &Process) -> Markup {
    let grid = Grid::new(profile, process, ROWS, COLUMNS);
    let percent = format!("{:.0} %", 100.0 * grid.hottest());
    html! {
        h2 { (process.name) " " span { (bytes(u64::from(process.pages()) << 12)) } }
        p.key {
            (ramp(TOP, "mostly in the top tier"))
            (ramp(LOWER, "mostly in the lower tier"))
            span.quiet { "the strongest: " (percent) " of the pages touched at a look" }
        }
        figure { (draw(&grid, f64::from(profile.interval_ms) / 1000.0, &process.name)) }
        (table(process))
    }
}

fn draw(grid: &Grid, interval_s: f64, name: &str) -> Markup {
    let mib = |pages: f64| pages / 256.0;
    let (all_s, all_mib) = (
        f64::from(grid.intervals) * interval_s,
        mib(grid.pages.into()),
    );
    let column_s = f64::from(grid.column_intervals) * interval_s;
    let row_mib = mib(grid.row_pages.into());
    let hottest = grid.hottest().max(f64::MIN_POSITIVE);
    let rows = grid.rows().enumerate();
    let fields = rows.flat_map(|(row, cells)| {
        cells.iter().enumerate().map(move |(column, cell)| {
            let (start_s, start_mib) = (column as f64 * column_s, row as f64 * row_mib);
            Field {
                x: start_s..((column + 1) as f64 * column_s).min(all_s),
                y: start_mib..(start_mib + row_mib).min(all_mib),
                colour: match cell.lower_share() > 0.5 {
                    true => LOWER,
                    false => TOP,
                },
                strength: cell.heat().unwrap_or(0.0) / hottest,
            }
        })
    });
    let axis = |name, end: f64| {
        let step = round_step(end / 8.0);
        Axis {
            name,
            start: 0.0,
            end,
            step,
            // Each label must differ from the next.
            label: match step < 1.0 {
                true => |value| format!("{value:.1}"),
                false => |value| format!("{value:.0}"),
            },
        }
    };
    let map = Heatmap {
        label: &format!("memory of {name} touched over time, by tier"),
        x: axis("time, s", all_s),
        y: axis("memory by address, MiB", all_mib),
        fields: fields.collect(),
    };
    map.draw()
}

/// The same in numbers, for all of the recording.
fn table(process: &Process) -> Markup {
    let looks = process.intervals.len().max(1) as f64;
    let sum =
        |of: fn(&pghot_profile::Interval) -> u64| process.intervals.iter().map(of).sum::<u64>();
    let (touched, lower) = (sum(|i| i.touched.pages()), sum(|i| i.lower.pages()));
    let mib = |pages: u64| format!("{:.1} MiB", pages as f64 / looks / 256.0);
    html! {
        table {
            tr { th { "touched at a look, on average" } td { (mib(touched)) } }
            tr { th { "of that in the lower tier" } td { (mib(lower)) } }
        }
    }
}
