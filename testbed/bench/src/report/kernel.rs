//! The section about what the kernel itself does.

use std::fmt::Write as _;

use super::html::text;
use crate::kernel_tables::KernelTables;

/// Two tables for each kernel.
pub fn section(all: &[KernelTables]) -> String {
    let mut html = String::new();
    for tables in all {
        let _ = write!(
            html,
            "<h2>The kernel alone <span class=\"quiet\">kernel {}</span></h2>\
             <p class=\"quiet\">Base pages moved by move_pages(2), by pages in a call. Published: \
             on a Zen 3 between DRAM nodes. Other machines: only ratios can be compared.</p>\
             <table><tr><th>pages in a call</th><th>GB/s here</th><th>by that of 512</th>\
             <th>published</th><th>first page away, µs here</th><th>published</th></tr>",
            text(&tables.kernel)
        );
        for row in &tables.batches {
            let _ = write!(
                html,
                "<tr><td>{}</td><td>{:.4}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                text(&row.folios),
                row.gb_per_s,
                number(row.ratio, 3),
                number(row.published_ratio, 3),
                number(row.first_folio_us, 0),
                number(row.published_first_us, 0),
            );
        }
        html += "</table><p class=\"quiet\">autonumabench: share of the threads' memory that is \
                 on their own node at the end, and elapsed time with balancing by that without, \
                 as published in 2012. Times say nothing here, since the emulator's nodes are \
                 alike.</p><table><tr><th>program</th><th>local, no balancing</th><th>local, \
                 numa_balancing=1</th><th>published time ratio</th></tr>";
        for row in &tables.autonuma {
            let _ = write!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                text(&row.program),
                number(row.local_share_off, 3),
                number(row.local_share_on, 3),
                number(row.published_ratio, 3),
            );
        }
        html += "</table>";
    }
    html
}

fn number(number: Option<f64>, digits: usize) -> String {
    number.map_or("–".to_owned(), |number| format!("{number:.digits$}"))
}
