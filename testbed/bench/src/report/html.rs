//! The page: one file that works offline. For each workload a verdict, bars of modelled time, how the
//! share of the top tier grew, and a table of all measures.

use std::fmt::Write as _;

use super::Results;
use crate::cell::Outcome;
use crate::measures::{MEASURES, Measure};
use crate::summary::{Group, Line};

mod kernel;
mod plots;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
padding:0 1rem;color:#1c2733}h1{font-size:1.6rem}h2{margin-top:2.5rem;border-top:1px solid #d5dde5;\
padding-top:1rem}.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.85rem}\
td,th{padding:.25rem .5rem;text-align:right;border-bottom:1px solid #e6ebf0;white-space:nowrap}\
td:first-child,th:first-child{text-align:left}.loose td,.loose th{white-space:normal}.verdict{font-weight:600}\
.note{color:#5a6b7b;font-size:.9rem;font-weight:400}.plots{display:flex;gap:1rem}\
.plots svg{flex:1;min-width:0;height:auto}";

/// The whole page.
pub fn page(results: &Results<'_>, outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>pghot bench</title><style>{STYLE}</style></head>\
         <body><h1>Who keeps hot pages near</h1>\
         <p>pghot {}, {}, machine {}. Each cell ran in an emulated machine of its own, with a real \
         kernel. An independent witness in the emulator saw every access of the workload and which \
         node served it. Time is modelled from what was counted, with the costs at the end of this \
         page: an emulator's own times are no machine's. Medians of all seeds, with smallest and \
         largest; who wins by less than that does not win.</p>",
        text(results.version),
        text(results.emulator),
        text(results.machine),
    );
    verdicts(&mut page, results.groups);
    for group in results.groups {
        section(&mut page, group, outcomes);
    }
    page += &super::published::section(results.published);
    page += &kernel::section(results.kernel_tables);
    if !results.failures.is_empty() {
        page += "<h2>What failed or is missing</h2><table>";
        for failure in results.failures {
            let (cell, why) = (text(&failure.cell), text(&failure.why));
            let _ = write!(page, "<tr><td>{cell}</td><td>{why}</td></tr>");
        }
        page += "</table>";
    }
    legend(&mut page, results);
    page + "</body></html>"
}

pub(super) fn text(raw: &str) -> String {
    let raw = raw.replace('&', "&amp;").replace('<', "&lt;");
    raw.replace('>', "&gt;").replace('"', "&quot;")
}

fn verdicts(page: &mut String, groups: &[Group]) {
    *page += "<table><tr><th>workload</th><th>kernel</th><th style=\"text-align:left\">verdict</th></tr>";
    for group in groups {
        let _ = write!(
            page,
            "<tr><td>{}, {}</td><td>{}</td><td style=\"text-align:left;white-space:normal\">{}</td></tr>",
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
        "<h2>{} <span class=\"note\">{}, kernel {}</span></h2><p class=\"note\">{}</p>\
         <p class=\"verdict\">{}.</p><div class=\"plots\">{}{}</div><div class=\"wide\"><table><tr>\
         <th>system</th>",
        text(&group.workload),
        text(&group.backing),
        text(&group.kernel),
        text(doc),
        text(&group.verdict),
        plots::bars(group),
        plots::curves(group, outcomes),
    );
    for Measure { title, doc, .. } in shown() {
        let _ = write!(page, "<th title=\"{}\">{}</th>", text(doc), text(title));
    }
    *page += "</tr>";
    for line in &group.lines {
        row(page, line);
    }
    let _ = write!(
        page,
        "<tr><td>oracle</td><td>{:.4}</td></tr></table></div>",
        group.oracle_s
    );
}

/// Measures with a column.
fn shown() -> impl Iterator<Item = &'static Measure> {
    MEASURES.iter().filter(|measure| !measure.title.is_empty())
}

fn row(page: &mut String, line: &Line) {
    let _ = write!(page, "<tr><td>{}</td>", text(&line.system));
    for Measure { name, digits, .. } in shown() {
        let _ = match line.get(name) {
            Some(spread) => write!(
                page,
                "<td title=\"{:.digits$} – {:.digits$}\">{:.digits$}</td>",
                spread.min, spread.max, spread.median
            ),
            None => write!(page, "<td>–</td>"),
        };
    }
    *page += "</tr>";
}

fn legend(page: &mut String, results: &Results<'_>) {
    *page += "<h2>What the columns mean</h2><table>";
    for Measure { title, doc, .. } in shown() {
        let _ = write!(
            page,
            "<tr><td>{}</td><td style=\"text-align:left;white-space:normal\">{}</td></tr>",
            text(title),
            text(doc)
        );
    }
    let costs = serde_json::to_string(results.costs).unwrap_or_default();
    let _ = write!(
        page,
        "<tr><td>oracle</td><td style=\"text-align:left;white-space:normal\">The most accessed pages \
         in the top tier from the first access on, at no cost.</td></tr></table>\
         <h2>Stated costs</h2><p class=\"note\">In ns, the same for all systems: {}</p>",
        text(&costs)
    );
}
