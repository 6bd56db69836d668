//! `demo.html`: one page that tells and plots what `demo.json` holds.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::chart::{Axis, Chart, round_step};
use super::super::html::{self, text};
use super::{Demo, ROWS, elapsed_s, series, system};
use crate::cell::Outcome;
use crate::measures::with_commas;
use crate::summary::Line;

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

impl Demo<'_> {
    /// The whole page.
    pub(super) fn page(&self) -> String {
        let mut body = self.intro();
        if let Some((pghot, numab2)) = self.rivals() {
            body += &self.cards(pghot, numab2);
        }
        body += &self.plots();
        body += &self.numbers();
        html::page("pghot demo", &(body + &self.small_print()))
    }

    fn intro(&self) -> String {
        format!(
            "<h1>pghot <span>demo</span></h1>\n\
             <p class=\"lead\">A workload keeps touching {} MiB of memory, all of which starts in \
             the lower, slow tier. How soon is it in the top tier, and what does the workload pay \
             for that? The same run, {} times each: with no balancing, with the stock kernel's \
             <code>numa_balancing=2</code>, and with pghot on that same unpatched kernel.</p>\n",
            (self.pages() << 12) >> 20,
            self.rounds,
        )
    }

    /// pghot's three numbers, each beside the stock kernel's.
    fn cards(&self, pghot: &Line, numab2: &Line) -> String {
        let mut html = String::from("<section class=\"cards\">\n");
        for (name, meaning) in HEADLINES {
            let _ = writeln!(
                html,
                "<div class=\"card\"><p class=\"who\">pghot</p><b>{}</b><p>{meaning}</p>\
                 <p class=\"rival\">stock kernel: {}<span>{}</span></p></div>",
                text(&self.median_text(name, pghot)),
                text(&self.median_text(name, numab2)),
                text(&self.ratio_text(name, pghot, numab2)),
            );
        }
        html += "</section>\n";
        if let Some(daemon_s) = pghot.get("daemon_cpu_s") {
            let _ = writeln!(
                html,
                "<p class=\"quiet\">pghot does its work in a process of its own, which used {:.2} \
                 s of CPU time meanwhile.</p>",
                daemon_s.median
            );
        }
        html
    }

    fn plots(&self) -> String {
        let fast_nodes = self.fast_nodes();
        let mut html = String::from("<h2>Where the pages are, over time</h2>\n<p class=\"key\">");
        for node in 0..self.machine.nodes.len() {
            let tier = match fast_nodes.contains(&node) {
                true => "top tier",
                false => "lower tier",
            };
            let class = node_class(node, &fast_nodes);
            let _ = write!(
                html,
                "<span class=\"{class}\"><i></i>node {node}, {tier}</span>"
            );
        }
        html += "<span class=\"quiet\">bold: the median run; faint: the others</span></p>\n";
        html += "<section class=\"plots\">\n";
        for line in &self.group.lines {
            let _ = writeln!(
                html,
                "<figure><figcaption>{}<small>{}</small></figcaption>\n{}</figure>",
                system(line).title,
                text(&system(line).how()),
                self.plot(line, &fast_nodes)
            );
        }
        html + "</section>\n"
    }

    /// Pages per node over time: the median run bold, the others faint.
    fn plot(&self, line: &Line, fast_nodes: &[usize]) -> String {
        let longest_s = self.outcomes.iter().map(elapsed_s).fold(1.0, f64::max);
        let (end_s, pages) = (longest_s.ceil(), self.pages().max(1) as f64);
        let seconds = Axis {
            name: "seconds",
            end: end_s,
            step: round_step(end_s / 7.0),
            label: |value| format!("{value}"),
        };
        let count = Axis {
            name: "pages",
            end: pages,
            step: pages / 4.0,
            label: with_commas,
        };
        let label = format!("pages per node over time, {}", system(line).title);
        let mut chart = Chart::new(&label, &seconds, &count);
        let mut runs: Vec<&Outcome> = self.runs(line).collect();
        // The one in the middle stands for all: by the time to promote all, and among those that
        // never did by the pages that they left.
        let t100_s = |run: &Outcome| run.done["t100_s"].as_f64().unwrap_or(f64::INFINITY);
        let left = |run: &Outcome| run.done["hot_left"].as_u64();
        runs.sort_by(|a, b| t100_s(a).total_cmp(&t100_s(b)).then(left(a).cmp(&left(b))));
        let middle = runs.len().saturating_sub(1) / 2;
        // The bold one last, so that it lies on top.
        let order = (0..runs.len()).filter(|n| *n != middle).chain([middle]);
        for n in order.filter(|n| *n < runs.len()) {
            let weight = if n == middle { "bold" } else { "faint" };
            for node in 0..self.machine.nodes.len() {
                let curve = curve(runs[n], node);
                // A node that never held a page would be a line on the axis.
                if curve.iter().any(|(_, pages)| *pages > 0.0) {
                    chart.curve(&format!("{weight} {}", node_class(node, fast_nodes)), curve);
                }
            }
        }
        if let Some(run) = runs.get(middle) {
            let at_s = t100_s(run);
            match at_s.is_finite() {
                true => chart.mark(at_s, true, &format!("all after {at_s:.2} s")),
                false => {
                    let promoted = run.done["hot_promoted"].as_f64().unwrap_or(0.0);
                    // Rounded down: 99.9 % is not all.
                    let percent = (promoted / pages * 100.0).floor();
                    let note = format!("{percent:.0} % after {:.0} s", elapsed_s(run));
                    chart.mark(elapsed_s(run), false, &note);
                }
            }
        }
        chart.finish()
    }

    fn numbers(&self) -> String {
        let mut html = format!(
            "<h2>All numbers</h2>\n<p class=\"quiet\">Medians of {} runs; below them the smallest \
             and the largest value.</p>\n<div class=\"scroll\"><table>\n<thead><tr><th></th>",
            self.rounds
        );
        for line in &self.group.lines {
            let _ = write!(html, "<th>{}</th>", system(line).title);
        }
        if self.rivals().is_some() {
            html += "<th>pghot to stock kernel</th>";
        }
        html += "</tr></thead>\n<tbody>\n";
        for (name, label, note) in ROWS {
            let _ = write!(html, "<tr><th>{label}<small>{note}</small></th>");
            for line in &self.group.lines {
                let median = self.median_text(name, line);
                let spread = self.spread_text(name, line);
                let _ = write!(html, "<td>{}<small>{spread}</small></td>", text(&median));
            }
            if let Some((pghot, numab2)) = self.rivals() {
                let ratio = self.ratio_text(name, pghot, numab2);
                let _ = write!(html, "<td>{}</td>", text(&ratio));
            }
            html += "</tr>\n";
        }
        html + "</tbody></table></div>\n"
    }

    fn small_print(&self) -> String {
        format!(
            "<h2>What this is, and what it is not</h2>\n\
             <p>The machine is emulated (QEMU without hardware virtualisation). What is real: the \
             kernel, which pages it moved, how many faults it took. What is not: speed. Compare \
             the columns, and do not take a second here for a second on your server.</p>\n\
             <p>One thing favours pghot here: moving a page takes tens of microseconds instead of \
             a few. The stock kernel moves it inside the fault, and takes only pages that are \
             touched within a second of being looked at; slow moves push the other faults past \
             that second, and they wait for the next round. Expect a smaller gap in time on a \
             fast machine.</p>\n\
             <p>pghot runs with <code>freq_threshold=1</code>: one hint fault makes a page hot, \
             as it does for the stock kernel. Its default, 2, asks for two within three seconds; \
             the emulated kernel is so slow that it looks at a page less often than that.</p>\n\
             <p>Rounds are interleaved after a warm-up round that is not counted, and the order \
             changes from round to round. A run ends when all is promoted, or is cut off: \
             \u{201c}&gt; 8 s\u{201d} is one that was. A difference smaller than the spread is no \
             difference.</p>\n\
             <p class=\"quiet\">Kernel {} as shipped. Machine {} ({}). Workload: one thread on \
             CPU 0, {} pages of 4 KiB, random loads and stores. Every single value is in \
             <code>demo.json</code> next to this page.</p>\n",
            text(self.kernel()),
            text(&self.machine.name),
            text(&self.nodes().join("; ")),
            with_commas(self.pages() as f64),
        )
    }
}

/// A node's pages over time.
fn curve(run: &Outcome, node: usize) -> Vec<(f64, f64)> {
    let node = node.to_string();
    let pages = |sample: &Value| sample["nodes"][&node].as_f64().unwrap_or(0.0);
    series(run)
        .map(|(t_s, sample)| (t_s, pages(sample)))
        .collect()
}

/// The style's class of a node: one for each of the top tier's, one for the others.
fn node_class(node: usize, fast_nodes: &[usize]) -> String {
    match fast_nodes.iter().position(|fast| *fast == node) {
        Some(index) => format!("fast{}", index.min(1)),
        None => "slow".to_owned(),
    }
}
