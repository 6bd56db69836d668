//! A sweep as CSV, and as one page that works offline: how much of the top tier a slowdown costs.

use std::fmt::Write as _;

use plotters::prelude::*;

use crate::Error;
use crate::sweep::{Curve, Row};

const SIZE: (u32, u32) = (640, 360);
/// Of the systems, in the order in which they appear.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x7a, 0x88, 0x96),
    RGBColor(0x0b, 0x7a, 0x75),
    RGBColor(0xc8, 0x55, 0x3d),
    RGBColor(0xe0, 0xa0, 0x30),
    RGBColor(0x4a, 0x6f, 0xa5),
    RGBColor(0x8e, 0x5a, 0xa8),
];
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
padding:0 1rem;color:#1c2733}h1{font-size:1.6rem}table{border-collapse:collapse;font-size:.9rem}\
td,th{padding:.25rem .75rem;text-align:right;border-bottom:1px solid #e6ebf0}\
td:first-child,th:first-child{text-align:left}.plots{display:flex;flex-wrap:wrap;gap:1rem}\
svg{max-width:100%;height:auto}.note{color:#5a6b7b}";

/// One line a run.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "system,settings,top_percent,seed,elapsed_s,slowdown_percent,near_share,promoted_pages,\
         demoted_pages,daemon_s,stolen_s\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{}",
            row.system,
            row.settings,
            row.top_percent,
            row.seed,
            row.elapsed_s,
            row.slowdown_percent,
            row.near_share,
            row.promoted_pages,
            row.demoted_pages,
            row.daemon_s,
            row.stolen_s
        );
    }
    text
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
pub fn page(name: &str, curves: &[Curve], limit_percent: f64) -> Result<String, Error> {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>pghot sim sweep</title><style>{STYLE}</style></head>\
         <body><h1>How much of the top tier does {} need?</h1><p class=\"note\">Modelled. \
         Slowdown is against the same work with everything in the top tier; what the top tier \
         loses, the lower tier gains. Medians of all seeds.</p><ul>",
        escaped(name)
    );
    for answer in answers(curves, limit_percent) {
        let _ = write!(page, "<li>{}</li>", escaped(&answer));
    }
    page += "</ul><div class=\"plots\">";
    let slowdown = |point: &(u32, f64, f64)| point.1;
    let near = |point: &(u32, f64, f64)| point.2 * 100.0;
    page += &plot("slowdown, %", curves, slowdown)?;
    page += &plot("accesses served by the top tier, %", curves, near)?;
    page += "</div><table><tr><th>system</th><th>top tier, %</th><th>slowdown, %</th>\
             <th>near, %</th></tr>";
    for curve in curves {
        for point in &curve.points {
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.1}</td></tr>",
                escaped(&curve.label),
                point.0,
                slowdown(point),
                near(point)
            );
        }
    }
    Ok(page + "</table></body></html>")
}

/// A line for each curve over the size of the top tier.
fn plot(title: &str, curves: &[Curve], of: fn(&(u32, f64, f64)) -> f64) -> Result<String, Error> {
    let mut svg = String::new();
    let drawn = draw(&mut svg, title, curves, of);
    // Text is written as text, so nothing is looked up; only a wrong range could fail.
    drawn.map_err(|error| Error::field("sweep", format!("the plot cannot be drawn: {error}")))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    title: &str,
    curves: &[Curve],
    of: fn(&(u32, f64, f64)) -> f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let highest = points().map(of).fold(1.0, f64::max);
    let sizes = || points().map(|point| point.0);
    let (from, to) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(100));
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(
            f64::from(from)..f64::from(to.max(from + 1)),
            0.0..highest * 1.05,
        )?;
    // Ten labels or so, each of which must differ from the next.
    let decimals = usize::from(highest < 10.0);
    let mesh = &mut chart.configure_mesh();
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|percent| format!("{percent:.decimals$}"))
        .x_desc("size of the top tier, %")
        .draw()?;
    for (curve, n) in curves.iter().zip(0..) {
        let style = COLOURS[n % COLOURS.len()].stroke_width(2);
        let line = curve
            .points
            .iter()
            .map(|point| (f64::from(point.0), of(point)));
        chart
            .draw_series(LineSeries::new(line, style))?
            .label(&curve.label)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
    }
    let labels = &mut chart.configure_series_labels();
    labels
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

fn escaped(raw: &str) -> String {
    let raw = raw.replace('&', "&amp;").replace('<', "&lt;");
    raw.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_line_for_each_system_and_its_answer() {
        let curve = |label: &str| Curve {
            label: label.into(),
            points: vec![(50, 10.0, 0.5), (100, 0.0, 1.0)],
        };
        let page = page("<x>", &[curve("none"), curve("pghot")], 2.0).unwrap();
        assert!(page.contains("pghot: 90 % of the top tier is enough"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.matches("<polyline").count() >= 4 && !page.contains("<x>"));
    }
}
