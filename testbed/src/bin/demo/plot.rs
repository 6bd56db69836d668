//! One plot: pages per node over time, as inline SVG whose colours come from the page's CSS.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::numbers::{round_step, with_commas};
use crate::results::{Report, Run, SystemResult};

/// Size of the drawing in its own units; the page scales it.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 260.0;

/// Room around the axes for their labels.
const LEFT: f64 = 50.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;

/// The same for all plots of a page, so that they can be compared by eye.
pub struct Axes {
    end_s: f64,
    end_pages: f64,
}

impl Axes {
    /// Room for every run of the report.
    pub fn of(report: &Report) -> Self {
        let runs = report.systems.values().flat_map(|result| &result.runs);
        let longest_s = runs.map(|run| run.elapsed_s).fold(1.0, f64::max);
        Self {
            end_s: longest_s.ceil(),
            end_pages: report.pages as f64,
        }
    }

    fn x(&self, t_s: f64) -> f64 {
        LEFT + t_s / self.end_s * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, pages: f64) -> f64 {
        HEIGHT - BOTTOM - pages / self.end_pages * (HEIGHT - TOP - BOTTOM)
    }
}

/// The plot of one system: its median run bold, the others faint.
pub fn render(result: &SystemResult, axes: &Axes, fast_nodes: &[u32], title: &str) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"pages per node over time, {title}\">\n"
    );
    grid(&mut svg, axes);
    let median = result.median_run();
    let nodes = nodes_used(&result.runs);
    for run in result
        .runs
        .iter()
        .filter(|run| median.is_none_or(|median| median.round != run.round))
    {
        for &node in &nodes {
            curve(&mut svg, axes, run, node, fast_nodes, "faint");
        }
    }
    if let Some(run) = median {
        for &node in &nodes {
            curve(&mut svg, axes, run, node, fast_nodes, "bold");
        }
        mark_end(&mut svg, axes, run);
    }
    svg + "</svg>\n"
}

/// Nodes that ever held a page. A node that never did would be a line on the axis.
fn nodes_used(runs: &[Run]) -> BTreeSet<u32> {
    let points = runs.iter().flat_map(|run| &run.series);
    let counts = points.flat_map(|point| &point.nodes);
    counts
        .filter(|(_, pages)| **pages > 0)
        .map(|(node, _)| *node)
        .collect()
}

fn grid(svg: &mut String, axes: &Axes) {
    let (left, right) = (LEFT, WIDTH - RIGHT);
    for quarter in 0..=4 {
        let pages = axes.end_pages * f64::from(quarter) / 4.0;
        let y = axes.y(pages);
        let class = if quarter == 0 { "axis" } else { "grid" };
        line(svg, class, (left, y), (right, y));
        text(svg, "tick end", (left - 6.0, y + 4.0), &with_commas(pages));
    }
    let step_s = round_step(axes.end_s / 7.0);
    let base = HEIGHT - BOTTOM;
    for index in 0..=(axes.end_s / step_s) as u32 {
        let t_s = f64::from(index) * step_s;
        let x = axes.x(t_s);
        line(svg, "axis", (x, base), (x, base + 4.0));
        text(svg, "tick middle", (x, base + 17.0), &format!("{t_s}"));
    }
    text(svg, "tick end", (right, HEIGHT - 3.0), "seconds");
    text(svg, "tick", (0.0, 10.0), "pages");
}

/// A node's pages in one run.
fn curve(svg: &mut String, axes: &Axes, run: &Run, node: u32, fast_nodes: &[u32], weight: &str) {
    let mut points = String::new();
    for point in &run.series {
        let pages = point.nodes.get(&node).copied().unwrap_or(0) as f64;
        // A formatting write to a string cannot fail.
        let _ = write!(points, "{:.1},{:.1} ", axes.x(point.t_s), axes.y(pages));
    }
    let color = node_class(node, fast_nodes);
    let points = points.trim_end();
    let _ = writeln!(
        svg,
        "<polyline class=\"{weight} {color}\" points=\"{points}\"/>"
    );
}

/// When all was promoted, or how much was when the run was cut off.
fn mark_end(svg: &mut String, axes: &Axes, run: &Run) {
    let (at_s, note) = match run.t100_s {
        Some(t100_s) => (t100_s, format!("all after {t100_s:.2} s")),
        None => {
            let percent = run.promoted_pages as f64 / axes.end_pages * 100.0;
            // Rounded down: 99.9 % is not all.
            (
                run.elapsed_s,
                format!("{:.0} % after {:.0} s", percent.floor(), run.elapsed_s),
            )
        }
    };
    let (x, y) = (axes.x(at_s), axes.y(axes.end_pages));
    if run.t100_s.is_some() {
        line(svg, "mark", (x, y), (x, HEIGHT - BOTTOM));
        let _ = writeln!(
            svg,
            "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
        );
    }
    // Above the curves, and never beyond the drawing's edges.
    let half_width = 55.0;
    let middle = x.clamp(LEFT + half_width, WIDTH - half_width);
    text(svg, "note middle", (middle, TOP - 11.0), &note);
}

/// The CSS class that colours a node: one for the top tier's, one for the others.
pub fn node_class(node: u32, fast_nodes: &[u32]) -> String {
    match fast_nodes.iter().position(|fast| *fast == node) {
        Some(index) => format!("fast{}", index.min(1)),
        None => "slow".to_owned(),
    }
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), content: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{content}</text>"
    );
}
