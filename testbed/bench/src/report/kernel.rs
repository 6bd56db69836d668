//! The section about what the kernel itself does.

use maud::{Markup, html};

use crate::kernel_tables::KernelTables;

/// Two tables for each kernel.
pub fn section(all: &[KernelTables]) -> Markup {
    html! {
        @for tables in all {
            h2 { "The kernel alone " span.quiet { "kernel " (tables.kernel) } }
            p.quiet {
                "Base pages moved by move_pages(2), by pages in a call. Published: on a Zen 3 \
                 between DRAM nodes. Other machines: only ratios can be compared."
            }
            div.scroll {
                table {
                    thead {
                        tr {
                            th { "pages in a call" } th { "GB/s here" } th { "by that of 512" }
                            th { "published" } th { "first page away, µs here" } th { "published" }
                        }
                    }
                    @for row in &tables.batches {
                        tr {
                            td { (row.folios) }
                            td { (format!("{:.4}", row.gb_per_s)) }
                            td { (number(row.ratio, 3)) }
                            td { (number(row.published_ratio, 3)) }
                            td { (number(row.first_folio_us, 0)) }
                            td { (number(row.published_first_us, 0)) }
                        }
                    }
                }
            }
            p.quiet {
                "autonumabench: share of the threads' memory that is on their own node at the end, \
                 and elapsed time with balancing by that without, as published in 2012. Times say \
                 nothing here, since the emulator's nodes are alike."
            }
            div.scroll {
                table {
                    thead {
                        tr {
                            th { "program" } th { "local, no balancing" }
                            th { "local, numa_balancing=1" } th { "published time ratio" }
                        }
                    }
                    @for row in &tables.autonuma {
                        tr {
                            td { (row.program) }
                            td { (number(row.local_share_off, 3)) }
                            td { (number(row.local_share_on, 3)) }
                            td { (number(row.published_ratio, 3)) }
                        }
                    }
                }
            }
        }
    }
}

fn number(number: Option<f64>, digits: usize) -> String {
    number.map_or("–".to_owned(), |number| format!("{number:.digits$}"))
}
