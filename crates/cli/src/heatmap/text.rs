//! A heatmap as text: rows of memory with the lowest addresses at the bottom, columns of time.

use pghot_page::plot::round_step;
use pghot_profile::grid::{Cell, Grid};
use pghot_profile::{Process, Profile};

use super::ink::{Ink, STEPS, Tier};
use crate::top::look::wrap;
use crate::units::bytes;

/// Bytes of a MiB.
const MIB: f64 = 1048576.0;

/// Columns from one label of the time to the next, at least.
const LABEL_COLUMNS: f64 = 10.0;

/// Rows from one label of the memory to the next.
const LABEL_ROWS: usize = 4;

/// Both tiers in one line of the legend.
const LEGEND_COLUMNS: usize = "top tier    lower tier ".len() + 2 * STEPS;

/// The whole map.
pub fn map(profile: &Profile, process: &Process, ink: Ink, rows: usize, width: usize) -> String {
    let look_s = f64::from(profile.interval_ms) / 1000.0;
    let all_mib = mib(process.pages());
    let label_width = place(all_mib, all_mib).len();
    let columns = width.saturating_sub(label_width + 2).max(1);
    let grid = Grid::new(profile, process, rows, columns);
    // Where there are more columns than intervals, each is as wide as several.
    let repeat = (columns / grid.columns()).max(1);
    let title = format!(
        "{}: {} in {:.0} s, looked at every {look_s:.1} s",
        process.name,
        bytes(u64::from(process.pages()) << 12),
        f64::from(profile.intervals) * look_s,
    );
    let mut text = sentence(&title, ink, width);
    text += &sentence("MiB, by address without gaps", ink, width);
    let (upwards, corner, across) = ink.axis();
    let hottest = grid.hottest();
    for (number, row) in grid.rows().enumerate().rev() {
        let at = mib(number as u32 * grid.row_pages);
        let label = match number % LABEL_ROWS {
            0 => place(at, all_mib),
            _ => String::new(),
        };
        let cells: String = (row.iter())
            .map(|cell| letters(cell, hottest, ink, repeat))
            .collect();
        text += &format!("{label:>label_width$} {upwards}{}\n", cells.trim_end());
    }
    let line = across.to_string().repeat(grid.columns() * repeat);
    text += &format!("{:label_width$} {corner}{line}\n", "");
    let column_s = f64::from(grid.column_intervals) * look_s / repeat as f64;
    let seconds = times(column_s, grid.columns() * repeat);
    text += &format!("{:label_width$}  {seconds}\n", "");
    text + &legend(ink, hottest, width)
}

/// The names of what is not shown.
pub fn others(others: &[&Process], ink: Ink, width: usize) -> String {
    let mut names: Vec<&str> = others.iter().map(|process| process.name.as_str()).collect();
    names.dedup();
    names.truncate(8);
    let text = format!(
        "Not shown: {} more ({}). --program chooses, --html shows several.",
        others.len(),
        names.join(", ")
    );
    sentence(&text, ink, width)
}

fn mib(pages: u32) -> f64 {
    f64::from(pages) * 4096.0 / MIB
}

/// A place in memory as its axis tells it: short, and each differs from the next.
fn place(mib: f64, all_mib: f64) -> String {
    match all_mib < 64.0 {
        true => format!("{mib:.1}"),
        false => format!("{mib:.0}"),
    }
}

fn letters(cell: &Cell, hottest: f64, ink: Ink, count: usize) -> String {
    let tier = match cell.lower_share() > 0.5 {
        true => Tier::Lower,
        false => Tier::Top,
    };
    match cell.heat() {
        None => " ".repeat(count),
        // Whatever is not nothing can be told from it.
        Some(heat) if heat > 0.0 => {
            let step = (heat / hottest * STEPS as f64).ceil() as usize;
            ink.cells(tier, step, count)
        }
        Some(_) => ink.cells(tier, 0, count),
    }
}

/// The axis of time, in seconds, of so many columns.
fn times(column_s: f64, columns: usize) -> String {
    let step_s = round_step((LABEL_COLUMNS * column_s).max(f64::MIN_POSITIVE));
    let mut line = String::new();
    for label in 0.. {
        let at_s = f64::from(label) * step_s;
        let column = (at_s / column_s).round() as usize;
        let text = match step_s < 1.0 {
            true => format!("{at_s:.1} s"),
            false => format!("{at_s:.0} s"),
        };
        if column + text.len() > columns {
            return line;
        }
        line += &" ".repeat(column - line.len().min(column));
        line += &text;
    }
    line
}

/// What the letters stand for.
fn legend(ink: Ink, hottest: f64, width: usize) -> String {
    let tiers = [(Tier::Top, "top tier"), (Tier::Lower, "lower tier")];
    let ramps = tiers.map(|(tier, name)| format!("{name} {}", ink.ramp(tier)));
    let between = match width < LEGEND_COLUMNS {
        true => "\n",
        false => "   ",
    };
    let text = ramps.join(between) + "\n";
    let most = format!(
        "{} not touched; the most: {:.0} % of the pages at a look",
        ink.untouched(),
        100.0 * hottest
    );
    text + &sentence(&most, ink, width)
}

/// A sentence in lines of at most so many columns.
fn sentence(text: &str, ink: Ink, width: usize) -> String {
    let lines = wrap(ink.look(), text, width, usize::MAX);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_labelled_where_they_are() {
        assert_eq!(times(1.0, 25), "0 s       10 s      20 s");
        assert_eq!(times(0.02, 12), "0.0 s");
        assert_eq!(times(30.0, 30), "0 s              500 s");
    }
}
