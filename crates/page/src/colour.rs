//! The colours of pages and plots, each in light and in dark.

use plotters::style::RGBColor;

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    name: &'static str,
    light: u32,
    dark: u32,
}

const fn colour(name: &'static str, light: u32, dark: u32) -> Colour {
    Colour { name, light, dark }
}

impl Colour {
    const PAPER: Colour = colour("paper", 0xfbfbfa, 0x14171a);
    const CARD: Colour = colour("card", 0xffffff, 0x1c2024);
    /// Text.
    pub const INK: Colour = colour("ink", 0x1c1f23, 0xe6e9ec);
    /// Text that matters less, and axes.
    pub const QUIET: Colour = colour("quiet", 0x667079, 0x98a2ab);
    /// Lines of tables and grids.
    pub const RULE: Colour = colour("rule", 0xe2e5e8, 0x30363c);
    /// Who does nothing.
    pub const GREY: Colour = colour("grey", 0x7a8896, 0x8d9ba9);
    /// The first to look at.
    pub const BLUE: Colour = colour("blue", 0x1668c7, 0x62a8f5);
    /// What stands against it.
    pub const ORANGE: Colour = colour("orange", 0xd9730d, 0xf0a04b);
    /// One more.
    pub const GREEN: Colour = colour("green", 0x12947f, 0x4fcbb4);
    const VIOLET: Colour = colour("violet", 0x8e5aa8, 0xc08fd9);
    const GOLD: Colour = colour("gold", 0xb8860b, 0xdcb74e);
    const RED: Colour = colour("red", 0xc2394a, 0xf07f8c);
    const BROWN: Colour = colour("brown", 0x7b5a3c, 0xc4a183);

    const SERIES: [Colour; 8] = [
        Colour::GREY,
        Colour::BLUE,
        Colour::ORANGE,
        Colour::GREEN,
        Colour::VIOLET,
        Colour::GOLD,
        Colour::RED,
        Colour::BROWN,
    ];
    const SURFACES: [Colour; 5] = [
        Colour::PAPER,
        Colour::CARD,
        Colour::INK,
        Colour::QUIET,
        Colour::RULE,
    ];

    /// That of the n-th of several; after eight they come again.
    pub fn nth(n: usize) -> Colour {
        Colour::SERIES[n % Colour::SERIES.len()]
    }

    /// That of a system, the same in all pictures; of one without a colour of its own, that of the
    /// n-th of several.
    pub fn of_system(name: &str, n: usize) -> Colour {
        match name {
            "none" => Colour::GREY,
            "pghot" => Colour::BLUE,
            "numab2" => Colour::ORANGE,
            _ => Colour::SERIES[3 + n % 5],
        }
    }

    /// Its class in a key.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// As plots are written; the style replaces it by what it is on the reader's screen.
    pub(crate) fn rgb(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// The part of the style that knows colours.
pub(crate) fn css() -> String {
    let all = || Colour::SURFACES.into_iter().chain(Colour::SERIES);
    let variables = |shade: fn(Colour) -> u32| -> String {
        all()
            .map(|colour| format!("--{}:#{:06x};", colour.name, shade(colour)))
            .collect()
    };
    let rules = all().map(|Colour { name, light, .. }| {
        format!(
            ".key .{name}{{color:var(--{name})}}\n\
             svg [fill=\"#{light:06X}\"]{{fill:var(--{name})}}\n\
             svg [stroke=\"#{light:06X}\"]{{stroke:var(--{name})}}\n"
        )
    });
    format!(
        ":root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n{}",
        variables(|colour| colour.light),
        variables(|colour| colour.dark),
        rules.collect::<String>()
    )
}
