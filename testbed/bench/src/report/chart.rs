//! Charts as inline SVG, whose colours come from the page's style.

use std::fmt::Write as _;

use super::html::text;

/// Size of a drawing in its own units; the page scales it.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;

/// Room around the axes for their labels.
const LEFT: f64 = 50.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;

/// Room for names at the left of bars, and for numbers at their right.
const NAMES: f64 = 90.0;
const NUMBERS: f64 = 64.0;

/// One side of a chart, from 0 on.
pub struct Axis<'a> {
    /// What is shown.
    pub name: &'a str,
    /// Its largest value.
    pub end: f64,
    /// Between two labels.
    pub step: f64,
    /// How a value is written.
    pub label: fn(f64) -> String,
}

/// Curves over two axes.
pub struct Chart {
    svg: String,
    end: (f64, f64),
}

impl Chart {
    /// An empty one.
    pub fn new(label: &str, x: &Axis<'_>, y: &Axis<'_>) -> Chart {
        let mut chart = Chart {
            svg: open(label),
            end: (x.end, y.end),
        };
        let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in steps(y) {
            let (_, at) = chart.place((0.0, value));
            let class = if value == 0.0 { "axis" } else { "grid" };
            line(&mut chart.svg, class, (LEFT, at), (right, at));
            let place = (LEFT - 6.0, at + 4.0);
            label_at(&mut chart.svg, "tick end", place, &(y.label)(value));
        }
        for value in steps(x) {
            let (at, _) = chart.place((value, 0.0));
            line(&mut chart.svg, "axis", (at, base), (at, base + 4.0));
            let place = (at, base + 17.0);
            label_at(&mut chart.svg, "tick middle", place, &(x.label)(value));
        }
        label_at(&mut chart.svg, "tick end", (right, HEIGHT - 3.0), x.name);
        label_at(&mut chart.svg, "tick", (0.0, 10.0), y.name);
        chart
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (
            LEFT + x / self.end.0 * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / self.end.1 * (HEIGHT - TOP - BOTTOM),
        )
    }

    /// A curve.
    pub fn curve(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let places = points.into_iter().map(|point| self.place(point));
        let points: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        // A formatting write to a string cannot fail, here and below.
        let _ = writeln!(
            self.svg,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    /// A note above a moment, and a line to it if the top was reached then.
    pub fn mark(&mut self, x: f64, is_reached: bool, note: &str) {
        let (x, y) = self.place((x, self.end.1));
        if is_reached {
            line(&mut self.svg, "mark", (x, y), (x, HEIGHT - BOTTOM));
            let _ = writeln!(
                self.svg,
                "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
            );
        }
        // Above the curves, and never beyond the drawing's edges.
        let half_width = 55.0;
        let middle = x.clamp(LEFT + half_width, WIDTH - half_width);
        label_at(&mut self.svg, "note middle", (middle, TOP - 11.0), note);
    }

    /// The drawing.
    pub fn finish(self) -> String {
        self.svg + "</svg>\n"
    }
}

/// A bar: its name, its length, and how far that varies.
pub struct Bar<'a> {
    /// At its left.
    pub name: &'a str,
    /// What it is filled with.
    pub class: String,
    /// Its length.
    pub value: f64,
    /// The smallest and the largest.
    pub range: (f64, f64),
    /// At its right.
    pub number: String,
}

/// Bars with whiskers, and a dashed line that is told by a word.
pub fn bars(label: &str, bars: &[Bar<'_>], (word, dashed): (&str, f64)) -> String {
    let longest = bars.iter().map(|bar| bar.range.1).fold(dashed, f64::max);
    let longest = longest.max(f64::MIN_POSITIVE);
    let x = |value: f64| NAMES + value / longest * (WIDTH - NAMES - NUMBERS);
    let step = (HEIGHT - BOTTOM) / bars.len().max(1) as f64;
    let mut svg = open(label);
    for (n, bar) in bars.iter().enumerate() {
        let (top, height) = (20.0 + n as f64 * step, (step * 0.6).min(26.0));
        let middle = top + height / 2.0;
        let (low, high) = (x(bar.range.0), x(bar.range.1));
        label_at(&mut svg, "tick", (0.0, middle + 4.0), bar.name);
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{NAMES}\" y=\"{top:.1}\" width=\"{:.1}\" \
             height=\"{height:.1}\"/>",
            bar.class,
            x(bar.value) - NAMES,
        );
        line(&mut svg, "whisker", (low, middle), (high, middle));
        label_at(&mut svg, "tick", (high + 6.0, middle + 4.0), &bar.number);
    }
    let at = x(dashed);
    line(&mut svg, "mark", (at, 14.0), (at, HEIGHT - 16.0));
    label_at(&mut svg, "tick middle", (at, 10.0), word);
    svg + "</svg>\n"
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `value`: a step people can read.
pub fn round_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power);
    let mut steps = steps.filter(|step| *step >= value * 0.999);
    steps.next().unwrap_or(10.0 * power)
}

fn steps(axis: &Axis<'_>) -> impl Iterator<Item = f64> {
    let (step, count) = (axis.step, (axis.end / axis.step + 1e-9) as u32);
    (0..=count).map(move |n| f64::from(n) * step)
}

fn open(label: &str) -> String {
    let label = text(label);
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n")
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn label_at(svg: &mut String, class: &str, (x, y): (f64, f64), content: &str) {
    let content = text(content);
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{content}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_readable() {
        for (value, step) in [(0.7, 1.0), (1.2, 2.0), (2.0, 2.0), (2.1, 5.0), (6.0, 10.0)] {
            assert_eq!(round_step(value), step, "{value}");
        }
    }

    #[test]
    fn axes_are_labelled_from_end_to_end() {
        let axis = |name, end| Axis {
            name,
            end,
            step: end / 4.0,
            label: |value| format!("{value}"),
        };
        let mut chart = Chart::new("a <chart>", &axis("s", 8.0), &axis("pages", 4.0));
        chart.curve("bold", [(0.0, 0.0), (8.0, 4.0)]);
        let svg = chart.finish();
        assert_eq!(svg.matches("class=\"tick").count(), 5 + 5 + 2);
        assert!(svg.contains("a &lt;chart&gt;"));
        assert!(svg.contains("points=\"50.0,226.0 378.0,26.0\""), "{svg}");
    }
}
