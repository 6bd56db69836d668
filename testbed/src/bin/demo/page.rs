//! `demo.html`: one self-contained page that tells in words, numbers and plots what happened.

use std::fmt::Write;

use crate::metrics::{METRICS, metric};
use crate::numbers::with_commas;
use crate::plot::{self, Axes};
use crate::results::{Report, SystemResult};
use crate::systems::System;

/// The numbers told first, and what they are.
const HEADLINES: [(&str, &str); 3] = [
    ("t100_s", "until every hot page was in the top tier"),
    (
        "hint_faults",
        "hint faults, each an interruption of the workload",
    ),
    (
        "app_kernel_s",
        "of kernel work taken from the workload's own thread",
    ),
];

/// The whole page.
pub fn render(report: &Report) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n");
    html += "<meta charset=\"utf-8\">\n<title>pghot demo</title>\n";
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    html += "<meta name=\"color-scheme\" content=\"light dark\">\n";
    html += "<style>\n";
    html += include_str!("page.css");
    html += "</style>\n</head>\n<body>\n<main>\n";
    html += &intro(report);
    if let Some((pghot, numab2)) = rivals(report) {
        html += &cards(pghot, numab2);
    }
    html += &plots(report);
    html += &table(report);
    html += &small_print(report);
    html + "</main>\n</body>\n</html>\n"
}

fn rivals(report: &Report) -> Option<(&SystemResult, &SystemResult)> {
    report
        .system(System::Pghot)
        .zip(report.system(System::Numab2))
}

fn intro(report: &Report) -> String {
    format!(
        "<h1>pghot <span>demo</span></h1>\n\
         <p class=\"lead\">A workload keeps touching {} MiB of memory, all of which starts in the \
         lower, slow tier. How soon is it in the top tier, and what does the workload pay for \
         that? The same run, {} times each: with no balancing, with the stock kernel's \
         <code>numa_balancing=2</code>, and with pghot on that same unpatched kernel.</p>\n",
        (report.pages << 12) >> 20,
        report.rounds,
    )
}

/// pghot's three numbers, each beside the stock kernel's.
fn cards(pghot: &SystemResult, numab2: &SystemResult) -> String {
    let mut html = String::from("<section class=\"cards\">\n");
    for (name, meaning) in HEADLINES {
        let Some(metric) = metric(name) else { continue };
        let _ = writeln!(
            html,
            "<div class=\"card\"><p class=\"who\">pghot</p><b>{}</b><p>{meaning}</p>\
             <p class=\"rival\">stock kernel: {}<span>{}</span></p></div>",
            escape(&metric.median_text(pghot)),
            escape(&metric.median_text(numab2)),
            escape(&metric.ratio_text(pghot, numab2)),
        );
    }
    html += "</section>\n";
    if let Some(daemon_s) = pghot.median("daemon_cpu_s") {
        let _ = writeln!(
            html,
            "<p class=\"quiet\">pghot does its work in a process of its own, which used {daemon_s:.2} s of \
             CPU time meanwhile.</p>"
        );
    }
    html
}

fn plots(report: &Report) -> String {
    let axes = Axes::of(report);
    let mut html = String::from("<h2>Where the pages are, over time</h2>\n<p class=\"key\">");
    for node in 0..report.nodes.len() as u32 {
        let tier = if report.fast_nodes.contains(&node) {
            "top tier"
        } else {
            "lower tier"
        };
        let color = plot::node_class(node, &report.fast_nodes);
        let _ = write!(
            html,
            "<span class=\"{color}\"><i></i>node {node}, {tier}</span>"
        );
    }
    html += "<span class=\"quiet\">bold: the median run; faint: the others</span></p>\n";
    html += "<section class=\"plots\">\n";
    for (system, result) in report.in_order() {
        let _ = writeln!(
            html,
            "<figure><figcaption>{}<small>{}</small></figcaption>\n{}</figure>",
            system.title(),
            escape(&system.how()),
            plot::render(result, &axes, &report.fast_nodes, system.title())
        );
    }
    html + "</section>\n"
}

fn table(report: &Report) -> String {
    let mut html = format!(
        "<h2>All numbers</h2>\n<p class=\"quiet\">Medians of {} runs; below them the smallest and \
         the largest value.</p>\n<div class=\"scroll\"><table>\n<thead><tr><th></th>",
        report.rounds
    );
    for (system, _) in report.in_order() {
        let _ = write!(html, "<th>{}</th>", system.title());
    }
    if rivals(report).is_some() {
        html += "<th>pghot to stock kernel</th>";
    }
    html += "</tr></thead>\n<tbody>\n";
    for metric in &METRICS {
        let _ = write!(
            html,
            "<tr><th>{}<small>{}</small></th>",
            metric.label, metric.note
        );
        for (_, result) in report.in_order() {
            let (median, spread) = (metric.median_text(result), metric.spread_text(result));
            let _ = write!(html, "<td>{}<small>{spread}</small></td>", escape(&median));
        }
        if let Some((pghot, numab2)) = rivals(report) {
            let ratio = metric.ratio_text(pghot, numab2);
            let _ = write!(html, "<td>{}</td>", escape(&ratio));
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

fn small_print(report: &Report) -> String {
    format!(
        "<h2>What this is, and what it is not</h2>\n\
         <p>The machine is emulated (QEMU without hardware virtualisation). What is real: the \
         kernel, which pages it moved, how many faults it took. What is not: speed. Compare the \
         columns, and do not take a second here for a second on your server.</p>\n\
         <p>One thing favours pghot here: moving a page takes tens of microseconds instead of a \
         few. The stock kernel moves it inside the fault, and takes only pages that are touched \
         within a second of being looked at; slow moves push the other faults past that second, \
         and they wait for the next round. Expect a smaller gap in time on a fast machine.</p>\n\
         <p>pghot runs with <code>freq_threshold=1</code>: one hint fault makes a page hot, as it does \
         for the stock kernel. Its default, 2, asks for two within three seconds; the emulated \
         kernel is so slow that it looks at a page less often than that.</p>\n\
         <p>Rounds are interleaved after a warm-up round that is not counted, and the order changes \
         from round to round. A run ends when all is promoted, or is cut off: \u{201c}&gt; 8 s\u{201d} \
         is one that was. A difference smaller than the spread is no difference.</p>\n\
         <p class=\"quiet\">Kernel {} as shipped. Machine {} ({}). Workload: one thread on CPU 0, \
         {} pages of 4 KiB, random loads and stores. Every single value is in <code>demo.json</code> \
         next to this page.</p>\n",
        escape(&report.kernel),
        escape(&report.machine),
        escape(&report.nodes.join("; ")),
        with_commas(report.pages as f64),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example_report;

    #[test]
    fn markup_in_names_stays_text() {
        let mut report = example_report();
        report.kernel = "<6.12> & co".to_owned();
        assert!(render(&report).contains("Kernel &lt;6.12&gt; &amp; co"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let html = render(&example_report());
        for foreign in ["http", "<script", "src=", "@import", "url("] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn times_never_reached_are_told_as_such() {
        let html = render(&example_report());
        assert!(
            html.contains("stock kernel: &gt; 8 s<span>&lt; 0.50 ×</span>"),
            "{html}"
        );
        assert!(html.contains("all after 4.00 s"));
        assert!(html.contains("0 % after 8 s"));
    }
}
