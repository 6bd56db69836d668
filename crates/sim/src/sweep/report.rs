//! A sweep as CSV, and as one page that works offline: how much of the top tier a slowdown costs.

use maud::{Markup, html};
use pghot_page::plot::{self, Axis, Chart, round_step};
use pghot_page::{Colour, key, page as framed};

use crate::sweep::{Curve, Row};

/// One line a run.
pub fn csv(rows: &[Row]) -> Result<Vec<u8>, csv::Error> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    for row in rows {
        lines.serialize(row)?;
    }
    lines
        .into_inner()
        .map_err(|error| error.into_error().into())
}

/// How much of the top tier each system needs to stay within a slowdown, one sentence each.
pub fn answers(curves: &[Curve], limit_percent: f64) -> Vec<String> {
    let answer = |curve: &Curve| match curve.smallest_top(limit_percent) {
        Some(size) => format!(
            "{}: {size:.0} % of the top tier is enough for a slowdown of {limit_percent} %",
            curve.label
        ),
        None => format!(
            "{}: no size that was run stays within a slowdown of {limit_percent} %",
            curve.label
        ),
    };
    curves.iter().map(answer).collect()
}

/// The page.
pub fn page(name: &str, curves: &[Curve], limit_percent: f64) -> String {
    let slowdown = |point: &(u32, f64, f64)| point.1;
    let near = |point: &(u32, f64, f64)| point.2 * 100.0;
    let body = html! {
        h1 { "pghot " span { "sim sweep" } }
        p.lead { "How much of the top tier does " (name) " need?" }
        p.quiet {
            "Modelled. Slowdown is against the same work with everything in the top tier; what the \
             top tier loses, the lower tier gains. Medians of all seeds."
        }
        ul { @for answer in answers(curves, limit_percent) { li { (answer) } } }
        (key((0..).map(Colour::nth).zip(curves.iter().map(|curve| &curve.label)), ""))
        section.plots {
            (plot("slowdown, %", curves, slowdown))
            (plot("accesses served by the top tier, %", curves, near))
        }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "system" } th { "top tier, %" } th { "slowdown, %" } th { "near, %" }
                    }
                }
                @for curve in curves {
                    @for point in &curve.points {
                        tr {
                            td { (curve.label) }
                            td { (point.0) }
                            td { (format!("{:.2}", slowdown(point))) }
                            td { (format!("{:.1}", near(point))) }
                        }
                    }
                }
            }
        }
    };
    framed("pghot sim sweep", &body)
}

/// A line for each curve over the size of the top tier.
fn plot(title: &str, curves: &[Curve], of: fn(&(u32, f64, f64)) -> f64) -> Markup {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (lowest, highest) = points()
        .map(of)
        .fold((0.0, 1.0), |(lowest, highest), value| {
            (f64::min(lowest, value), f64::max(highest, value))
        });
    let sizes = || points().map(|point| point.0);
    let (from, to) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(100));
    let (from, to) = (f64::from(from), f64::from(to.max(from + 1)));
    let curve = |(n, curve): (usize, &Curve)| plot::Curve {
        colour: Colour::nth(n),
        is_faint: false,
        band: Vec::new(),
        points: curve
            .points
            .iter()
            .map(|point| (f64::from(point.0), of(point)))
            .collect(),
    };
    let chart = Chart {
        label: title,
        x: Axis {
            name: "size of the top tier, %",
            start: from,
            end: to,
            step: round_step((to - from) / 8.0),
            label: |size| format!("{size:.0}"),
        },
        y: Axis {
            name: title,
            start: lowest,
            end: highest * 1.05,
            step: round_step((highest - lowest) / 8.0),
            // Each label must differ from the next.
            label: match highest < 10.0 {
                true => |percent| format!("{percent:.1}"),
                false => |percent| format!("{percent:.0}"),
            },
        },
        curves: curves.iter().enumerate().map(curve).collect(),
        mark: None,
    };
    html! { figure { figcaption { (title) } (chart.draw()) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(label: &str) -> Curve {
        Curve {
            label: label.into(),
            points: vec![(50, 10.0, 0.5), (100, 0.0, 1.0)],
        }
    }

    #[test]
    fn the_page_has_a_line_for_each_system_and_its_answer() {
        let page = page("x", &[curve("none"), curve("pghot")], 2.0);
        assert!(page.contains("pghot: 90 % of the top tier is enough"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.matches("<polyline").count() >= 4);
        assert_eq!(pghot_page::faults::of(&page), [""; 0]);
    }

    #[test]
    fn markup_in_names_stays_text() {
        let page = page("<script>1", &[curve("<script>2")], 2.0);
        assert!(!page.contains("<script"));
        assert!(page.contains("&lt;script&gt;1") && page.contains("&lt;script&gt;2"));
    }
}
