//! Plots as inline SVG: curves over two axes, and bars. They are drawn by `plotters`, in colours
//! that the page's style makes light or dark.

use std::error::Error;
use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Colour;

/// Size of a drawing in its own units, of which it knows only whole ones; the page scales it.
const SIZE: (u32, u32) = (820, 540);
/// Height of a line of text, and about what a character of it takes.
pub(crate) const TEXT: u32 = 32;
const CHARACTER: i32 = 17;
/// Around a chart, and what the labels at its left take.
const MARGIN: u32 = 8;
const Y_LABELS: u32 = 160;
/// Widths of lines.
const BOLD: u32 = 5;
pub(crate) const THIN: u32 = 2;
/// Opacity of a band: three lie on top of each other.
const BAND: f64 = 0.16;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn Error>>;

/// A side with the places of its labels, which plotters would choose by itself.
pub(crate) struct Scale {
    side: RangedCoordf64,
    labels: Vec<f64>,
}

impl Scale {
    fn new(side: Range<f64>, labels: impl Iterator<Item = f64>) -> Scale {
        Scale {
            side: side.into(),
            labels: labels.collect(),
        }
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.side.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.labels.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.side.range()
    }
}

/// One side of a chart.
#[derive(Debug)]
pub struct Axis<'a> {
    /// What is shown, with its unit.
    pub name: &'a str,
    /// Where it begins.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// Between two labels, which are its multiples.
    pub step: f64,
    /// How a value is written.
    pub label: fn(f64) -> String,
}

impl Axis<'_> {
    pub(crate) fn scale(&self) -> Scale {
        // A label at the very end is not lost by rounding.
        let steps = |end: f64| end / self.step;
        let first = (steps(self.start) - 1e-9).ceil() as i64;
        let last = (steps(self.end) + 1e-9).floor() as i64;
        let labels = (first..=last).map(|n| n as f64 * self.step);
        Scale::new(self.start..self.end, labels)
    }
}

/// A curve.
#[derive(Debug)]
pub struct Curve {
    /// Its colour.
    pub colour: Colour,
    /// Others matter more.
    pub is_faint: bool,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// How far it may be off: from left to right, where, from, and to; none if nobody knows.
    pub band: Vec<(f64, f64, f64)>,
}

/// A moment with a note above it.
#[derive(Debug)]
pub struct Mark {
    /// When.
    pub x: f64,
    /// The top was reached then: a line leads to it.
    pub is_reached: bool,
    /// The note.
    pub note: String,
}

/// Curves over two axes.
#[derive(Debug)]
pub struct Chart<'a> {
    /// What it shows, for who cannot see it.
    pub label: &'a str,
    /// From left to right.
    pub x: Axis<'a>,
    /// Upwards.
    pub y: Axis<'a>,
    /// Those that come later lie on top.
    pub curves: Vec<Curve>,
    /// What is to be seen at once.
    pub mark: Option<Mark>,
}

impl Chart<'_> {
    /// The drawing.
    pub fn draw(&self) -> Markup {
        svg(self.label, |area| self.draw_on(area))
    }

    /// The drawing as a file of its own, on white, with the names of its colours at the top.
    pub fn file(&self, key: &[(Colour, &str)]) -> String {
        let drawn = drawn(|area| {
            area.fill(&WHITE)?;
            self.draw_on(area)?;
            let mut left = (MARGIN + Y_LABELS) as i32;
            for (colour, name) in key {
                area.draw(&text(name, (left, 10), colour.rgb(), HPos::Left, VPos::Top))?;
                left += (name.chars().count() as i32 + 2) * CHARACTER;
            }
            Ok(())
        });
        drawn.unwrap_or_else(|error| format!("<!-- cannot be drawn: {error} -->")) + "\n"
    }

    fn draw_on(&self, area: &Area<'_>) -> Drawn {
        let (quiet, rule) = (Colour::QUIET.rgb(), Colour::RULE.rgb());
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_top(48)
            .margin_right(54)
            .x_label_area_size(90)
            .y_label_area_size(Y_LABELS)
            .build_cartesian_2d(self.x.scale(), self.y.scale())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(rule.stroke_width(THIN))
            .axis_style(quiet.stroke_width(THIN))
            .label_style(("sans-serif", TEXT, &quiet))
            .x_label_formatter(&|value| (self.x.label)(*value))
            .y_label_formatter(&|value| (self.y.label)(*value))
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .draw()?;
        for curve in &self.curves {
            let lower = curve.band.iter().map(|(x, low, _)| (*x, *low));
            let upper = curve.band.iter().rev().map(|(x, _, high)| (*x, *high));
            let around: Vec<(f64, f64)> = lower.chain(upper).collect();
            if !around.is_empty() {
                let fill = curve.colour.rgb().mix(BAND).filled();
                chart.draw_series([Polygon::new(around, fill)])?;
            }
        }
        for curve in &self.curves {
            let colour = curve.colour.rgb();
            let style = match curve.is_faint {
                true => colour.mix(0.3).stroke_width(THIN),
                false => colour.stroke_width(BOLD),
            };
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), style))?;
        }
        let Some(Mark {
            x,
            is_reached,
            ref note,
        }) = self.mark
        else {
            return Ok(());
        };
        let (ink, top) = (Colour::INK.rgb(), (x, self.y.end));
        if is_reached {
            let down = [top, (x, self.y.start)];
            chart.draw_series(DashedLineSeries::new(down, 4, 6, ink.stroke_width(THIN)))?;
            chart.draw_series([Circle::new(top, 8, ink.filled())])?;
        }
        // Never beyond the drawing's edges.
        let side = match (x - self.x.start) / (self.x.end - self.x.start) {
            0.8.. => HPos::Right,
            0.2.. => HPos::Center,
            _ => HPos::Left,
        };
        chart
            .draw_series([EmptyElement::at(top) + text(note, (0, -14), ink, side, VPos::Bottom)])?;
        Ok(())
    }
}

/// A bar: its name, its length, and how far that varies.
#[derive(Debug)]
pub struct Bar<'a> {
    /// At its left.
    pub name: &'a str,
    /// What it is filled with.
    pub colour: Colour,
    /// Its length.
    pub value: f64,
    /// The smallest and the largest.
    pub range: (f64, f64),
    /// At its right.
    pub number: String,
}

/// Of the names at the left, in units of the drawing: at least as many as usual names take.
fn names_width(bars: &[Bar<'_>]) -> u32 {
    const USUAL: i32 = 190;
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    (CHARACTER * longest.unwrap_or(0) as i32).max(USUAL) as u32
}

/// Bars with whiskers, and a dashed line that is told by a word.
pub fn bars(label: &str, bars: &[Bar<'_>], (word, dashed): (&str, f64)) -> Markup {
    svg(label, |area| {
        let (ink, quiet) = (Colour::INK.rgb(), Colour::QUIET.rgb());
        let longest = bars.iter().map(|bar| bar.range.1).fold(dashed, f64::max);
        let count = bars.len().max(1) as f64;
        let middles = (0..bars.len()).map(|n| n as f64 + 0.5);
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_top(48)
            .margin_right(150)
            .y_label_area_size(names_width(bars))
            .build_cartesian_2d(
                0.0..longest.max(f64::MIN_POSITIVE),
                Scale::new(count..0.0, middles.clone()),
            )?;
        chart
            .configure_mesh()
            .disable_mesh()
            .disable_x_axis()
            .axis_style(quiet.stroke_width(THIN))
            .label_style(("sans-serif", TEXT, &quiet))
            .y_label_formatter(&|at| bars.get(*at as usize).map_or("", |bar| bar.name).to_owned())
            .draw()?;
        // However few there are, a bar is no block.
        let half = (0.06 * count).min(0.3);
        for (bar, middle) in bars.iter().zip(middles) {
            let ends = [(0.0, middle - half), (bar.value, middle + half)];
            chart.draw_series([Rectangle::new(ends, bar.colour.rgb().filled())])?;
            let (low, high) = ((bar.range.0, middle), (bar.range.1, middle));
            chart.draw_series([PathElement::new([low, high], ink.stroke_width(4))])?;
            let number = text(&bar.number, (12, 0), quiet, HPos::Left, VPos::Center);
            chart.draw_series([EmptyElement::at(high) + number])?;
        }
        let (top, down) = ((dashed, 0.0), (dashed, count));
        chart.draw_series(DashedLineSeries::new(
            [top, down],
            4,
            6,
            ink.stroke_width(THIN),
        ))?;
        let word = text(word, (0, -10), quiet, HPos::Center, VPos::Bottom);
        chart.draw_series([EmptyElement::at(top) + word])?;
        Ok(())
    })
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `value`: a step people can read.
pub fn round_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power);
    let mut steps = steps.filter(|step| *step >= value * 0.999);
    steps.next().unwrap_or(10.0 * power)
}

/// Text beside a point.
fn text(
    words: &str,
    beside: (i32, i32),
    colour: RGBColor,
    h_pos: HPos,
    v_pos: VPos,
) -> Text<'static, (i32, i32), String> {
    let style = ("sans-serif", TEXT).into_font().color(&colour);
    Text::new(words.to_owned(), beside, style.pos(Pos::new(h_pos, v_pos)))
}

pub(crate) fn svg(label: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Markup {
    html! {
        div role="img" aria-label=(label) {
            @match drawn(draw) {
                Ok(svg) => (PreEscaped(svg)),
                // Text is written as text, so nothing is looked up; only a wrong range could fail.
                Err(error) => { "The plot cannot be drawn: " (error) }
            }
        }
    }
}

fn drawn(draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw(&area).and_then(|()| Ok(area.present()?))?;
    drop(area);
    Ok(svg)
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

    fn axis(name: &str, start: f64, end: f64) -> Axis<'_> {
        Axis {
            name,
            start,
            end,
            step: 2.0,
            label: |value| format!("<{value}>"),
        }
    }

    #[test]
    fn axes_are_labelled_from_end_to_end_and_markup_stays_text() {
        let chart = Chart {
            label: "a <script>",
            x: axis("s", 3.0, 8.0),
            y: axis("<pages>", 0.0, 4.0),
            curves: vec![Curve {
                colour: Colour::BLUE,
                is_faint: false,
                points: vec![(3.0, 0.0), (8.0, 4.0)],
                band: vec![(3.0, 0.0, 1.0), (8.0, 3.0, 4.0)],
            }],
            mark: Some(Mark {
                x: 8.0,
                is_reached: true,
                note: "<b>".into(),
            }),
        };
        let svg = chart.draw().into_string();
        // Three and three labels, two names, a note.
        assert_eq!(svg.matches("<text").count(), 3 + 3 + 2 + 1, "{svg}");
        for value in ["4", "6", "8", "0", "2", "pages", "b"] {
            assert!(svg.contains(&format!("&lt;{value}&gt;")), "{value}: {svg}");
        }
        assert!(svg.contains("a &lt;script&gt;") && svg.contains("stroke=\"#1668C7\""));
        assert_eq!(svg.matches("<polygon").count(), 1, "{svg}");
    }

    #[test]
    fn every_colour_of_a_plot_is_one_of_the_style() {
        let bar = Bar {
            name: "<none>",
            colour: Colour::nth(7),
            value: 2.0,
            range: (1.0, 3.0),
            number: "2 s".into(),
        };
        let svg = bars("bars", &[bar], ("oracle", 1.5)).into_string();
        assert!(svg.contains("&lt;none&gt;") && svg.contains("oracle") && svg.contains("2 s"));
        let css = crate::colour::css();
        for attribute in ["fill", "stroke"] {
            for found in svg.split(&format!("{attribute}=\"#")).skip(1) {
                let rule = format!("svg [{attribute}=\"#{}\"]", &found[..6]);
                assert!(css.contains(&rule), "{rule}");
            }
        }
    }
}
