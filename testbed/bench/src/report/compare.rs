//! `bench.html`: for each workload a verdict, bars of modelled time, how the share of the top tier
//! grew, and a table of all measures.

use maud::{Markup, html};
use pghot_page::plot::{self, Axis, Bar, Chart, Curve};
use pghot_page::{Colour, key, page as framed};

use super::{Results, kernel, published};
use crate::cell::Outcome;
use crate::measures::{MEASURES, Measure};
use crate::summary::{Group, Line};
use crate::systems;

/// The whole page.
pub fn page(results: &Results<'_>, outcomes: &[Outcome]) -> String {
    let body = html! {
        h1 { "pghot " span { "bench" } }
        p.lead { "Who keeps hot pages near?" }
        p {
            "pghot " (results.version) ", " (results.emulator) ", machine " (results.machine)
            ". Each cell ran in an emulated machine of its own, with a real kernel. An independent \
             witness in the emulator saw every access of the workload and which node served it. \
             Time is modelled from what was counted, with the costs at the end of this page: an \
             emulator's own times are no machine's. Medians of all seeds, with smallest and \
             largest; nobody is named the winner without a test of five runs."
        }
        (verdicts(results.groups))
        @for group in results.groups { (section(group, outcomes)) }
        (published::section(results.published))
        (kernel::section(results.kernel_tables))
        @if !results.failures.is_empty() {
            h2 { "What failed or is missing" }
            table.words {
                @for failure in results.failures {
                    tr { td { (failure.cell) } td { (failure.why) } }
                }
            }
        }
        (legend(results))
    };
    framed("pghot bench", &body)
}

fn verdicts(groups: &[Group]) -> Markup {
    html! {
        table.words {
            thead { tr { th { "workload" } th { "kernel" } th { "verdict" } } }
            @for Group { workload, backing, kernel, verdict, .. } in groups {
                tr { td { (workload) ", " (backing) } td { (kernel) } td { (verdict) } }
            }
        }
    }
}

fn section(group: &Group, outcomes: &[Outcome]) -> Markup {
    let doc = crate::workloads::find(&group.workload).map_or("", |workload| workload.doc);
    let bounds = [
        ("oracle", Some(group.oracle_s)),
        ("foresight", group.foresight_s),
    ];
    let names = group.lines.iter().enumerate();
    let names = names.map(|(n, line)| (Colour::of_system(&line.system, n), &line.system));
    html! {
        h2 { (group.workload) " " span { (group.backing) ", kernel " (group.kernel) } }
        p.quiet { (doc) }
        p.verdict { (group.verdict) "." }
        (key(names, ""))
        section.plots {
            figure { figcaption { "modelled time, s" } (bars(group)) }
            figure { figcaption { "accesses served by the top tier, %" } (curves(group, outcomes)) }
        }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "system" }
                        @for Measure { title, doc, .. } in shown() { th title=(doc) { (title) } }
                    }
                }
                @for line in &group.lines { (row(line)) }
                @for (name, bound_s) in bounds {
                    @if let Some(bound_s) = bound_s {
                        tr { td { (name) } td { (format!("{bound_s:.4}")) } }
                    }
                }
            }
        }
    }
}

/// Measures with a column.
fn shown() -> impl Iterator<Item = &'static Measure> {
    MEASURES.iter().filter(|measure| !measure.title.is_empty())
}

fn row(line: &Line) -> Markup {
    html! {
        tr {
            td { (line.system) }
            @for measure in shown() {
                @let show = |value| measure.bare(value);
                @match line.get(measure.name) {
                    Some(spread) => td title={ (show(spread.min)) " – " (show(spread.max)) } {
                        (show(spread.median))
                    },
                    None => td { "–" },
                }
            }
        }
    }
}

/// Modelled time of each system, with a whisker from the smallest to the largest, and the oracle as
/// a line.
fn bars(group: &Group) -> Markup {
    let bar = |(n, line): (usize, &'_ Line)| Bar {
        name: systems::find(&line.system).map_or("", |system| system.name),
        colour: Colour::of_system(&line.system, n),
        value: line.total_s.median,
        range: (line.total_s.min, line.total_s.max),
        number: format!("{:.3} s", line.total_s.median),
    };
    let bars: Vec<Bar<'_>> = group.lines.iter().enumerate().map(bar).collect();
    let oracle = ("oracle", group.oracle_s);
    plot::bars("modelled time of each system", &bars, oracle)
}

/// Share of accesses that the top tier served, slice by slice, against the share of all accesses
/// made: the first seed of each system.
fn curves(group: &Group, outcomes: &[Outcome]) -> Markup {
    let axis = |name| Axis {
        name,
        start: 0.0,
        end: 1.0,
        step: 0.25,
        label: |share| format!("{:.0} %", share * 100.0),
    };
    let curve = |(n, line): (usize, &Line)| {
        let is_it = |outcome: &&Outcome| {
            let of = &outcome.setting;
            let is_group = of.workload == group.workload && of.kernel == group.kernel;
            is_group && of.backing == group.backing && of.system == line.system
        };
        let outcome = outcomes.iter().find(is_it)?;
        Some(Curve {
            colour: Colour::of_system(&line.system, n),
            is_faint: false,
            band: Vec::new(),
            points: shares(outcome),
        })
    };
    let (made, near) = ("accesses made", "accesses served by the top tier");
    let chart = Chart {
        label: near,
        x: axis(made),
        y: axis(near),
        curves: group.lines.iter().enumerate().filter_map(curve).collect(),
        mark: None,
    };
    chart.draw()
}

/// For each slice, the share of all accesses that were made at its end, and the share of its
/// accesses that node 0 served.
fn shares(outcome: &Outcome) -> Vec<(f64, f64)> {
    let witness = &outcome.witness;
    let all: u64 = witness.nodes.iter().map(|node| node.accesses()).sum();
    let mut before = (0, 0);
    let mut shares = Vec::new();
    for slice in &witness.slices {
        let made: u64 = slice.nodes.iter().map(|node| node.accesses()).sum();
        let near = slice.nodes.first().map_or(0, |node| node.accesses());
        if made > before.0 && all > 0 {
            let share = (near - before.1) as f64 / (made - before.0) as f64;
            shares.push((made as f64 / all as f64, share));
        }
        before = (made, near);
    }
    shares
}

fn legend(results: &Results<'_>) -> Markup {
    let costs = serde_json::to_string(results.costs).unwrap_or_default();
    html! {
        h2 { "What the columns mean" }
        table.words {
            @for Measure { title, doc, .. } in shown() { tr { td { (title) } td { (doc) } } }
            tr {
                td { "oracle" }
                td {
                    "The most accessed pages in the top tier from the first access on, at no cost."
                }
            }
            tr {
                td { "foresight" }
                td {
                    "Knows how often each page is accessed in each phase, and moves at its \
                     beginning what pays within it; pays for the moves."
                }
            }
        }
        h2 { "Stated costs" }
        p.quiet { "In ns, the same for all systems: " (costs) }
    }
}
