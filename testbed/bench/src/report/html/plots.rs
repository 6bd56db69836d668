//! The plots, as SVG.

use std::fmt::Write as _;

use super::text;
use crate::cell::Outcome;
use crate::summary::Group;

/// Of the systems, in the order in which they appear.
const COLOURS: [&str; 6] = [
    "#7a8896", "#0b7a75", "#c8553d", "#e0a030", "#4a6fa5", "#8e5aa8",
];

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 230.0;
const MARGIN: f64 = 40.0;
/// Room for names at the left of bars.
const NAMES: f64 = 80.0;

fn colour(n: usize) -> &'static str {
    COLOURS[n % COLOURS.len()]
}

/// Modelled time of each system, with a whisker from the smallest to the largest, and the oracle as a
/// line.
pub fn bars(group: &Group) -> String {
    let longest = group.lines.iter().map(|line| line.total_s.max);
    let longest = longest
        .fold(group.oracle_s, f64::max)
        .max(f64::MIN_POSITIVE);
    let x = |seconds: f64| NAMES + seconds / longest * (WIDTH - NAMES - 60.0);
    let step = (HEIGHT - MARGIN) / group.lines.len().max(1) as f64;
    let mut svg = open("modelled time of each system");
    for (n, line) in group.lines.iter().enumerate() {
        let (top, height) = (20.0 + n as f64 * step, (step * 0.6).min(26.0));
        let middle = top + height / 2.0;
        let total = line.total_s;
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{0:.1}\" font-size=\"13\">{1}</text><rect x=\"{NAMES}\" y=\"{top:.1}\" \
             width=\"{2:.1}\" height=\"{height:.1}\" fill=\"{3}\"/><line x1=\"{4:.1}\" x2=\"{5:.1}\" \
             y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#1c2733\" stroke-width=\"2\"/>\
             <text x=\"{6:.1}\" y=\"{0:.1}\" font-size=\"12\">{7:.3} s</text>",
            middle + 4.0,
            text(&line.system),
            x(total.median) - NAMES,
            colour(n),
            x(total.min),
            x(total.max),
            x(total.max) + 6.0,
            total.median,
        );
    }
    let oracle = x(group.oracle_s);
    let _ = write!(
        svg,
        "<line x1=\"{oracle:.1}\" x2=\"{oracle:.1}\" y1=\"14\" y2=\"{0:.1}\" stroke=\"#1c2733\" \
         stroke-dasharray=\"4 3\"/><text x=\"{oracle:.1}\" y=\"10\" font-size=\"12\" \
         text-anchor=\"middle\">oracle</text></svg>",
        HEIGHT - 16.0
    );
    svg
}

/// Share of accesses that the top tier served, slice by slice, against the share of all accesses made:
/// the first seed of each system.
pub fn curves(group: &Group, outcomes: &[Outcome]) -> String {
    let (left, right, bottom) = (MARGIN, WIDTH - 10.0, HEIGHT - MARGIN);
    let top = 30.0;
    let mut svg = open("share of accesses served by the top tier");
    for share in [0.0, 0.5, 1.0] {
        let y = bottom - share * (bottom - top);
        let _ = write!(
            svg,
            "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#d5dde5\"/>\
             <text x=\"{0}\" y=\"{1:.1}\" font-size=\"12\" text-anchor=\"end\">{2:.0} %</text>",
            left - 5.0,
            y + 4.0,
            share * 100.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"14\" font-size=\"12\">accesses served by the top tier</text>\
         <text x=\"{right}\" y=\"{0}\" font-size=\"12\" text-anchor=\"end\">accesses made</text>",
        HEIGHT - 18.0
    );
    for (n, line) in group.lines.iter().enumerate() {
        let is_it = |outcome: &&Outcome| {
            let of = &outcome.setting;
            let is_group = of.workload == group.workload && of.kernel == group.kernel;
            is_group && of.backing == group.backing && of.system == line.system
        };
        let Some(outcome) = outcomes.iter().find(is_it) else {
            continue;
        };
        let point = |(made, near): (f64, f64)| {
            let x = left + made * (right - left);
            format!("{x:.1},{:.1}", bottom - near * (bottom - top))
        };
        let points: Vec<String> = shares(outcome).into_iter().map(point).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            points.join(" "),
            colour(n),
        );
    }
    svg + "</svg>"
}

fn open(label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">")
}

/// For each slice, the share of all accesses that were made at its end, and the share of its accesses
/// that node 0 served.
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
