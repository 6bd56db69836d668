//! The table of medians and spread, for the terminal.

use crate::metrics::METRICS;
use crate::results::Report;
use crate::systems::System;

/// The whole table, as text.
pub fn render(report: &Report) -> String {
    let rows = rows(report);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();

    let mut text = format!(
        "kernel {}, machine {}, {} pages all hot; median (smallest – largest) of the runs; rounds: {}\n",
        report.kernel, report.machine, report.pages, report.rounds
    );
    for (system, _) in report.in_order() {
        text += &format!("  {}: {}\n", system.title(), system.how());
    }
    text.push('\n');
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - cell.chars().count());
            match column {
                0 => line += &format!("{cell}{padding}"),
                // Medians end in one line, and the spread begins in one.
                _ if column % 2 == 1 => line += &format!("   {padding}{cell}"),
                _ => line += &format!(" {cell}{padding}"),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Label, then median and spread per system, then the ratio.
fn rows(report: &Report) -> Vec<Vec<String>> {
    let rivals = report
        .system(System::Pghot)
        .zip(report.system(System::Numab2));
    let mut head = vec![String::new()];
    for (system, _) in report.in_order() {
        head.extend([system.title().to_owned(), String::new()]);
    }
    if rivals.is_some() {
        head.push("pghot / numa_balancing=2".to_owned());
    }

    let mut rows = vec![head];
    for metric in &METRICS {
        let mut row = vec![metric.label.to_owned()];
        for (_, result) in report.in_order() {
            let spread = metric.spread_text(result);
            row.push(metric.median_text(result));
            row.push(if spread.is_empty() {
                spread
            } else {
                format!("({spread})")
            });
        }
        row.extend(rivals.map(|(pghot, numab2)| metric.ratio_text(pghot, numab2)));
        rows.push(row);
    }
    rows
}
