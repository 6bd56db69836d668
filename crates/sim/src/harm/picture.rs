//! The picture of many scenarios: each system's, from the greatest gain to the greatest harm.

use pghot_page::Colour;
use pghot_page::plot::{Axis, Chart, Curve};

use super::{Outcome, sorted};

/// What is drawn, in percent: who gains more or loses more is at the edge.
const SHOWN: (f64, f64) = (-80.0, 40.0);

/// An SVG file.
pub fn picture(outcomes: &[Outcome]) -> String {
    let [none, numab2, pghot] = ["none", "numab2", "pghot"].map(|name| Colour::of_system(name, 0));
    let curve = |number: usize, colour| {
        let percent = sorted(outcomes, number).into_iter();
        let shown = percent.map(|it| it.clamp(SHOWN.0, SHOWN.1));
        Curve {
            colour,
            is_faint: false,
            points: (1..).map(f64::from).zip(shown).collect(),
            band: Vec::new(),
        }
    };
    let count = outcomes.len().max(2) as f64;
    let nothing = Curve {
        colour: none,
        is_faint: false,
        points: vec![(1.0, 0.0), (count, 0.0)],
        band: Vec::new(),
    };
    let chart = Chart {
        label: "time against no balancing",
        x: Axis {
            name: "scenarios, by what they gain",
            start: 1.0,
            end: count,
            step: (count / 5.0).ceil(),
            label: |value| format!("{value:.0}"),
        },
        y: Axis {
            name: "time against no balancing",
            start: SHOWN.0,
            end: SHOWN.1,
            step: 20.0,
            label: |value| match value {
                0.0 => "0 %".to_owned(),
                _ => format!("{value:+.0} %"),
            },
        },
        curves: vec![nothing, curve(0, numab2), curve(1, pghot)],
        mark: None,
    };
    chart.file(&[
        (none, "no balancing"),
        (numab2, "numa_balancing=2"),
        (pghot, "pghot"),
    ])
}
