//! `demo.html`: one page that tells and plots what `demo.json` holds.

use maud::{Markup, html};
use pghot_page::plot::{Axis, Chart, Curve, Mark, round_step};
use pghot_page::{Colour, key, page as framed};
use serde_json::Value;

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
        let body = html! {
            h1 { "pghot " span { "demo" } }
            p.lead {
                "A workload keeps touching " ((self.pages() << 12) >> 20) " MiB of memory, all of \
                 which starts in the lower, slow tier. How soon is it in the top tier, and what \
                 does the workload pay for that? The same run, " (self.rounds) " times each: with \
                 no balancing, with the stock kernel's " code { "numa_balancing=2" } ", and with \
                 pghot on that same unpatched kernel."
            }
            @if let Some((pghot, numab2)) = self.rivals() { (self.cards(pghot, numab2)) }
            (self.plots())
            (self.numbers())
            (self.small_print())
        };
        framed("pghot demo", &body)
    }

    /// pghot's three numbers, each beside the stock kernel's.
    fn cards(&self, pghot: &Line, numab2: &Line) -> Markup {
        html! {
            section.cards {
                @for (name, meaning) in HEADLINES {
                    div.card {
                        p.who { "pghot" }
                        b { (self.median_text(name, pghot)) }
                        p { (meaning) }
                        p.rival {
                            "stock kernel: " (self.median_text(name, numab2))
                            span { (self.ratio_text(name, pghot, numab2)) }
                        }
                    }
                }
            }
            @if let Some(daemon_s) = pghot.get("daemon_cpu_s") {
                p.quiet {
                    "pghot does its work in a process of its own, which used "
                    (format!("{:.2}", daemon_s.median)) " s of CPU time meanwhile."
                }
            }
        }
    }

    fn plots(&self) -> Markup {
        let fast_nodes = self.fast_nodes();
        let nodes = (0..self.machine.nodes.len()).map(|node| {
            let tier = match fast_nodes.contains(&node) {
                true => "top tier",
                false => "lower tier",
            };
            (colour(node, &fast_nodes), format!("node {node}, {tier}"))
        });
        html! {
            h2 { "Where the pages are, over time" }
            (key(nodes, "bold: the median run; faint: the others"))
            section.plots.three {
                @for line in &self.group.lines {
                    figure {
                        figcaption { (system(line).title) small { (system(line).how()) } }
                        (self.plot(line, &fast_nodes))
                    }
                }
            }
        }
    }

    /// Pages per node over time: the median run bold, the others faint.
    fn plot(&self, line: &Line, fast_nodes: &[usize]) -> Markup {
        let longest_s = self.outcomes.iter().map(elapsed_s).fold(1.0, f64::max);
        let (end_s, pages) = (longest_s.ceil(), self.pages().max(1) as f64);
        let seconds = Axis {
            name: "time, s",
            start: 0.0,
            end: end_s,
            step: round_step(end_s / 7.0),
            label: |value| format!("{value}"),
        };
        let count = Axis {
            name: "pages",
            start: 0.0,
            end: pages,
            step: pages / 4.0,
            label: with_commas,
        };
        let mut runs: Vec<&Outcome> = self.runs(line).collect();
        // The one in the middle stands for all: by the time to promote all, and among those that
        // never did by the pages that they left.
        let t100_s = |run: &Outcome| run.done["t100_s"].as_f64().unwrap_or(f64::INFINITY);
        let left = |run: &Outcome| run.done["hot_left"].as_u64();
        runs.sort_by(|a, b| t100_s(a).total_cmp(&t100_s(b)).then(left(a).cmp(&left(b))));
        let middle = runs.len().saturating_sub(1) / 2;
        // The bold one last, so that it lies on top.
        let order = (0..runs.len()).filter(|n| *n != middle).chain([middle]);
        let mut curves = Vec::new();
        for n in order.filter(|n| *n < runs.len()) {
            for node in 0..self.machine.nodes.len() {
                let points = curve(runs[n], node);
                // A node that never held a page would be a line on the axis.
                if points.iter().any(|(_, pages)| *pages > 0.0) {
                    curves.push(Curve {
                        colour: colour(node, fast_nodes),
                        is_faint: n != middle,
                        band: Vec::new(),
                        points,
                    });
                }
            }
        }
        let mark = runs.get(middle).map(|run| {
            let at_s = t100_s(run);
            if at_s.is_finite() {
                return Mark {
                    x: at_s,
                    is_reached: true,
                    note: format!("all after {at_s:.2} s"),
                };
            }
            let promoted = run.done["hot_promoted"].as_f64().unwrap_or(0.0);
            // Rounded down: 99.9 % is not all.
            let percent = (promoted / pages * 100.0).floor();
            Mark {
                x: elapsed_s(run),
                is_reached: false,
                note: format!("{percent:.0} % after {:.0} s", elapsed_s(run)),
            }
        });
        let chart = Chart {
            label: &format!("pages per node over time, {}", system(line).title),
            x: seconds,
            y: count,
            curves,
            mark,
        };
        chart.draw()
    }

    fn numbers(&self) -> Markup {
        html! {
            h2 { "All numbers" }
            p.quiet {
                "Medians of " (self.rounds) " runs; below them the smallest and the largest value."
            }
            div.scroll {
                table {
                    thead {
                        tr {
                            th {}
                            @for line in &self.group.lines { th { (system(line).title) } }
                            @if self.rivals().is_some() { th { "pghot to stock kernel" } }
                        }
                    }
                    tbody {
                        @for (name, label, note) in ROWS {
                            tr {
                                th { (label) small { (note) } }
                                @for line in &self.group.lines {
                                    td {
                                        (self.median_text(name, line))
                                        small { (self.spread_text(name, line)) }
                                    }
                                }
                                @if let Some((pghot, numab2)) = self.rivals() {
                                    td { (self.ratio_text(name, pghot, numab2)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn small_print(&self) -> Markup {
        html! {
            h2 { "What this is, and what it is not" }
            p {
                "The machine is emulated (QEMU without hardware virtualisation). What is real: the \
                 kernel, which pages it moved, how many faults it took. What is not: speed. \
                 Compare the columns, and do not take a second here for a second on your server."
            }
            p {
                "One thing favours pghot here: moving a page takes tens of microseconds instead of \
                 a few. The stock kernel moves it inside the fault, and takes only pages that are \
                 touched within a second of being looked at; slow moves push the other faults past \
                 that second, and they wait for the next round. Expect a smaller gap in time on a \
                 fast machine."
            }
            p {
                "Both run with their default settings. Where the top tier has room, one hint fault \
                 soon after the mark makes a page hot for either of them."
            }
            p {
                "Rounds are interleaved after a warm-up round that is not counted, and the order \
                 changes from round to round. A run ends when all is promoted, or is cut off: \
                 “> 8 s” is one that was. A difference smaller than the spread is no difference."
            }
            p.quiet {
                "Kernel " (self.kernel()) " as shipped. Machine " (self.machine.name) " ("
                (self.nodes().join("; ")) "). Workload: one thread on CPU 0, "
                (with_commas(self.pages() as f64)) " pages of 4 KiB, random loads and stores. \
                 Every single value is in " code { "demo.json" } " next to this page."
            }
        }
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

/// One for each of the top tier's nodes, one for the others.
fn colour(node: usize, fast_nodes: &[usize]) -> Colour {
    match fast_nodes.iter().position(|fast| *fast == node) {
        Some(0) => Colour::BLUE,
        Some(_) => Colour::GREEN,
        None => Colour::ORANGE,
    }
}
