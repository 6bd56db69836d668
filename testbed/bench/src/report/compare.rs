//! `bench.html`: for each workload a verdict, bars of modelled time, how the share of the top tier
//! grew, and a table of all measures.

use std::fmt::Write as _;

use super::chart::{self, Axis, Bar, Chart};
use super::html::{self, text};
use super::{Results, kernel, published};
use crate::cell::Outcome;
use crate::measures::{MEASURES, Measure};
use crate::summary::{Group, Line};
use crate::systems;

/// The whole page.
pub fn page(results: &Results<'_>, outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "<h1>pghot <span>bench</span></h1>\n<p class=\"lead\">Who keeps hot pages near?</p>\n\
         <p>pghot {}, {}, machine {}. Each cell ran in an emulated machine of its own, with a real \
         kernel. An independent witness in the emulator saw every access of the workload and which \
         node served it. Time is modelled from what was counted, with the costs at the end of this \
         page: an emulator's own times are no machine's. Medians of all seeds, with smallest and \
         largest; nobody is named the winner without a test of five runs.</p>\n",
        text(results.version),
        text(results.emulator),
        text(results.machine),
    );
    verdicts(&mut page, results.groups);
    for group in results.groups {
        section(&mut page, group, outcomes);
    }
    page += &published::section(results.published);
    page += &kernel::section(results.kernel_tables);
    if !results.failures.is_empty() {
        page += "<h2>What failed or is missing</h2><table class=\"words\">";
        for failure in results.failures {
            let (cell, why) = (text(&failure.cell), text(&failure.why));
            let _ = write!(page, "<tr><td>{cell}</td><td>{why}</td></tr>");
        }
        page += "</table>";
    }
    legend(&mut page, results);
    html::page("pghot bench", &page)
}

fn verdicts(page: &mut String, groups: &[Group]) {
    *page += "<table class=\"words\"><tr><th>workload</th><th>kernel</th><th>verdict</th></tr>";
    for group in groups {
        let _ = write!(
            page,
            "<tr><td>{}, {}</td><td>{}</td><td>{}</td></tr>",
            text(&group.workload),
            text(&group.backing),
            text(&group.kernel),
            text(&group.verdict),
        );
    }
    *page += "</table>";
}

fn section(page: &mut String, group: &Group, outcomes: &[Outcome]) {
    let doc = crate::workloads::find(&group.workload).map_or("", |workload| workload.doc);
    let _ = write!(
        page,
        "<h2>{} <span>{}, kernel {}</span></h2><p class=\"quiet\">{}</p>\
         <p class=\"verdict\">{}.</p><section \
         class=\"plots\"><figure>{}</figure><figure>{}</figure></section><div \
         class=\"scroll\"><table><tr><th>system</th>",
        text(&group.workload),
        text(&group.backing),
        text(&group.kernel),
        text(doc),
        text(&group.verdict),
        bars(group),
        curves(group, outcomes),
    );
    for Measure { title, doc, .. } in shown() {
        let _ = write!(page, "<th title=\"{}\">{}</th>", text(doc), text(title));
    }
    *page += "</tr>";
    for line in &group.lines {
        row(page, line);
    }
    let bounds = [
        ("oracle", Some(group.oracle_s)),
        ("foresight", group.foresight_s),
    ];
    for (name, bound_s) in bounds {
        if let Some(bound_s) = bound_s {
            let _ = write!(page, "<tr><td>{name}</td><td>{bound_s:.4}</td></tr>");
        }
    }
    *page += "</table></div>";
}

/// Measures with a column.
fn shown() -> impl Iterator<Item = &'static Measure> {
    MEASURES.iter().filter(|measure| !measure.title.is_empty())
}

fn row(page: &mut String, line: &Line) {
    let _ = write!(page, "<tr><td>{}</td>", text(&line.system));
    for measure in shown() {
        let show = |value| measure.bare(value);
        let _ = match line.get(measure.name) {
            Some(spread) => write!(
                page,
                "<td title=\"{} – {}\">{}</td>",
                show(spread.min),
                show(spread.max),
                show(spread.median)
            ),
            None => write!(page, "<td>–</td>"),
        };
    }
    *page += "</tr>";
}

/// The style's class of the n-th system.
fn class(n: usize) -> String {
    const COLOURS: usize = 6;
    format!("system{}", n % COLOURS)
}

/// Modelled time of each system, with a whisker from the smallest to the largest, and the oracle as
/// a line.
fn bars(group: &Group) -> String {
    let bar = |(n, line): (usize, &'_ Line)| Bar {
        name: systems::find(&line.system).map_or("", |system| system.name),
        class: class(n),
        value: line.total_s.median,
        range: (line.total_s.min, line.total_s.max),
        number: format!("{:.3} s", line.total_s.median),
    };
    let bars: Vec<Bar<'_>> = group.lines.iter().enumerate().map(bar).collect();
    let oracle = ("oracle", group.oracle_s);
    chart::bars("modelled time of each system", &bars, oracle)
}

/// Share of accesses that the top tier served, slice by slice, against the share of all accesses
/// made: the first seed of each system.
fn curves(group: &Group, outcomes: &[Outcome]) -> String {
    let axis = |name| Axis {
        name,
        end: 1.0,
        step: 0.25,
        label: |share| format!("{:.0} %", share * 100.0),
    };
    let (made, near) = ("accesses made", "accesses served by the top tier");
    let mut chart = Chart::new(near, &axis(made), &axis(near));
    for (n, line) in group.lines.iter().enumerate() {
        let is_it = |outcome: &&Outcome| {
            let of = &outcome.setting;
            let is_group = of.workload == group.workload && of.kernel == group.kernel;
            is_group && of.backing == group.backing && of.system == line.system
        };
        if let Some(outcome) = outcomes.iter().find(is_it) {
            chart.curve(&format!("bold {}", class(n)), shares(outcome));
        }
    }
    chart.finish()
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

fn legend(page: &mut String, results: &Results<'_>) {
    *page += "<h2>What the columns mean</h2><table class=\"words\">";
    for Measure { title, doc, .. } in shown() {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td></tr>",
            text(title),
            text(doc)
        );
    }
    let costs = serde_json::to_string(results.costs).unwrap_or_default();
    let _ = write!(
        page,
        "<tr><td>oracle</td><td>The most accessed pages \
         in the top tier from the first access on, at no cost.</td></tr>\
         <tr><td>foresight</td><td>Knows how often each page is accessed in each phase, and moves \
         at its beginning what pays within it; pays for the moves.</td></tr></table>\
         <h2>Stated costs</h2><p class=\"quiet\">In ns, the same for all systems: {}</p>",
        text(&costs)
    );
}
