//! Heatmaps: fields over two axes, each with a colour that says what it is and a strength that says
//! how much. Strength is opacity, so that a map is as readable on a dark screen as on a light one.

use std::ops::Range;

use maud::{Markup, html};
use plotters::prelude::*;

use crate::Colour;
use crate::plot::{Area, Axis, Drawn, TEXT, THIN, svg};

/// Strengths that can be told apart.
const STEPS: f64 = 10.0;

/// A field of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Where it is, from left to right.
    pub x: Range<f64>,
    /// Where it is, upwards.
    pub y: Range<f64>,
    /// What it is.
    pub colour: Colour,
    /// How much, from 0 to 1.
    pub strength: f64,
}

impl Field {
    /// Its strength in steps; 0 is not drawn, and whatever is not nothing is.
    fn step(&self) -> u32 {
        (self.strength.clamp(0.0, 1.0) * STEPS).ceil() as u32
    }
}

/// Fields over two axes.
#[derive(Debug)]
pub struct Heatmap<'a> {
    /// What it shows, for who cannot see it.
    pub label: &'a str,
    /// From left to right.
    pub x: Axis<'a>,
    /// Upwards.
    pub y: Axis<'a>,
    /// In any order, but neighbours from left to right follow each other.
    pub fields: Vec<Field>,
}

impl Heatmap<'_> {
    /// The drawing.
    pub fn draw(&self) -> Markup {
        html! { div.heat { (svg(self.label, |area| self.draw_on(area))) } }
    }

    fn draw_on(&self, area: &Area<'_>) -> Drawn {
        let quiet = Colour::QUIET.rgb();
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_top(24)
            .margin_right(54)
            .x_label_area_size(90)
            .y_label_area_size(160)
            .build_cartesian_2d(self.x.scale(), self.y.scale())?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(quiet.stroke_width(THIN))
            .label_style(("sans-serif", TEXT, &quiet))
            .x_label_formatter(&|value| (self.x.label)(*value))
            .y_label_formatter(&|value| (self.y.label)(*value))
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .draw()?;
        let shapes = self.joined().into_iter().map(|field| {
            let corners = [(field.x.start, field.y.start), (field.x.end, field.y.end)];
            let opacity = f64::from(field.step()) / STEPS;
            Rectangle::new(corners, field.colour.rgb().mix(opacity).filled())
        });
        chart.draw_series(shapes)?;
        Ok(())
    }

    /// The fields that are seen, with neighbours that look the same made one: a page of them stays
    /// small.
    fn joined(&self) -> Vec<Field> {
        let mut joined: Vec<Field> = Vec::new();
        for field in self.fields.iter().filter(|field| field.step() > 0) {
            match joined.last_mut() {
                Some(last)
                    if last.y == field.y
                        && last.x.end == field.x.start
                        && last.colour == field.colour
                        && last.step() == field.step() =>
                {
                    last.x.end = field.x.end;
                }
                _ => joined.push(field.clone()),
            }
        }
        joined
    }
}

/// What a colour stands for, and its strengths from almost nothing to the most.
pub fn ramp(colour: Colour, name: &str) -> Markup {
    html! {
        span class=(format!("ramp {}", colour.name())) {
            @for step in [2, 4, 6, 8, 10] {
                i style=(format!("opacity:{:.1}", f64::from(step) / STEPS)) {}
            }
            (name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str) -> Axis<'_> {
        Axis {
            name,
            start: 0.0,
            end: 4.0,
            step: 2.0,
            label: |value| format!("{value}"),
        }
    }

    fn field(x: f64, y: f64, colour: Colour, strength: f64) -> Field {
        Field {
            x: x..x + 1.0,
            y: y..y + 1.0,
            colour,
            strength,
        }
    }

    #[test]
    fn fields_that_look_the_same_are_one_and_nothing_is_not_drawn() {
        let (blue, orange) = (Colour::BLUE, Colour::ORANGE);
        let map = Heatmap {
            label: "a <map>",
            x: axis("s"),
            y: axis("<MiB>"),
            fields: vec![
                field(0.0, 0.0, blue, 0.51),
                field(1.0, 0.0, blue, 0.59),
                field(2.0, 0.0, orange, 0.59),
                field(3.0, 0.0, orange, 0.0),
                field(0.0, 1.0, orange, 0.001),
                field(1.0, 2.0, blue, f64::NAN),
            ],
        };
        let joined = map.joined();
        assert_eq!((joined.len(), joined[0].x.clone()), (3, 0.0..2.0));
        let drawn = map.draw().into_string();
        let fields = |fill: &str| drawn.matches(fill).count();
        assert_eq!((fields("#1668C7"), fields("#D9730D")), (1, 2), "{drawn}");
        assert!(drawn.contains("&lt;MiB&gt;") && drawn.contains("a &lt;map&gt;"));
        assert!(drawn.contains("opacity=\"0.6\"") && drawn.contains("opacity=\"0.1\""));
    }

    #[test]
    fn a_ramp_rises() {
        let ramp = ramp(Colour::ORANGE, "lower <tier>").into_string();
        assert!(ramp.contains("ramp orange") && ramp.contains("lower &lt;tier&gt;"));
        assert!(ramp.find("opacity:0.2") < ramp.find("opacity:1.0"));
    }
}
