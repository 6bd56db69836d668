//! How a cell of a heatmap looks on a terminal: a letter that says how much, and a colour that says
//! which tier. Without colours the lower tier has letters of its own.

use crate::top::look::Look;

/// How much of something, in steps; 0 is nothing.
pub const STEPS: usize = 8;

/// The tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// With CPUs.
    Top,
    /// The others.
    Lower,
}

/// Colours that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    None,
    /// The palette of 256.
    Palette,
    /// All, of 24 bits.
    True,
}

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ink {
    utf8: bool,
    depth: Depth,
}

const BLOCKS: [char; STEPS] = ['░', '░', '▒', '▒', '▓', '▓', '█', '█'];
const LETTERS: [char; STEPS] = [':', '-', '=', '+', '*', 'o', '%', '#'];
/// Of the lower tier where there is no colour.
const DIGITS: [char; STEPS] = ['1', '2', '3', '4', '5', '6', '7', '8'];

/// From almost nothing to the most; both ends can be told from a dark and from a light background.
const TOP_PALETTE: [u8; STEPS] = [24, 25, 31, 32, 38, 39, 45, 51];
const LOWER_PALETTE: [u8; STEPS] = [94, 130, 136, 166, 172, 202, 208, 214];
const TOP_ENDS: [[f64; 3]; 2] = [[0.0, 80.0, 120.0], [70.0, 220.0, 255.0]];
const LOWER_ENDS: [[f64; 3]; 2] = [[130.0, 70.0, 0.0], [255.0, 175.0, 40.0]];

impl Ink {
    /// As the environment says, by its variables; no colour goes into a pipe.
    pub fn of(variable: impl Fn(&str) -> Option<String>, is_terminal: bool) -> Ink {
        let look = Look::of(&variable);
        let is = |name, value: &str| variable(name).is_some_and(|found| found == value);
        let depth = match is_terminal && look.colour && !is("TERM", "dumb") {
            false => Depth::None,
            true if is("COLORTERM", "truecolor") || is("COLORTERM", "24bit") => Depth::True,
            true => Depth::Palette,
        };
        Ink {
            utf8: look.utf8,
            depth,
        }
    }

    /// The same for text without colour.
    pub fn look(self) -> Look {
        Look {
            utf8: self.utf8,
            colour: false,
        }
    }

    /// The lines of an axis: upwards, and from left to right.
    pub fn axis(self) -> (char, char, char) {
        match self.utf8 {
            true => ('│', '└', '─'),
            false => ('|', '+', '-'),
        }
    }

    /// What was looked at and not touched.
    pub fn untouched(self) -> char {
        if self.utf8 { '·' } else { '.' }
    }

    /// The letter of a step from 1 on.
    fn letter(self, tier: Tier, step: usize) -> char {
        let letters = match (self.depth, tier, self.utf8) {
            (Depth::None, Tier::Lower, _) => DIGITS,
            (_, _, true) => BLOCKS,
            (_, _, false) => LETTERS,
        };
        letters[step.clamp(1, STEPS) - 1]
    }

    /// So many cells of a step, in their colour.
    pub fn cells(self, tier: Tier, step: usize, count: usize) -> String {
        if step == 0 {
            return self.untouched().to_string().repeat(count);
        }
        let letters = self.letter(tier, step).to_string().repeat(count);
        let at = step.min(STEPS) - 1;
        match self.depth {
            Depth::None => letters,
            Depth::Palette => {
                let palette = match tier {
                    Tier::Top => TOP_PALETTE,
                    Tier::Lower => LOWER_PALETTE,
                };
                format!("\x1b[38;5;{}m{letters}\x1b[0m", palette[at])
            }
            Depth::True => {
                let [low, high] = match tier {
                    Tier::Top => TOP_ENDS,
                    Tier::Lower => LOWER_ENDS,
                };
                let share = at as f64 / (STEPS - 1) as f64;
                let [red, green, blue] =
                    [0, 1, 2].map(|n| (low[n] + (high[n] - low[n]) * share) as u8);
                format!("\x1b[38;2;{red};{green};{blue}m{letters}\x1b[0m")
            }
        }
    }

    /// All letters of a tier, for a legend.
    pub fn ramp(self, tier: Tier) -> String {
        let every = if self.utf8 && self.letter(tier, 1) == '░' {
            2
        } else {
            1
        };
        let steps = (1..=STEPS).skip(every - 1).step_by(every);
        steps.map(|step| self.cells(tier, step, 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ink(variables: &[(&str, &str)], is_terminal: bool) -> Ink {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Ink::of(find, is_terminal)
    }

    #[test]
    fn colours_are_those_that_the_terminal_has() {
        let utf8 = ("LANG", "C.UTF-8");
        let cell = |ink: Ink| ink.cells(Tier::Lower, 8, 2);
        assert_eq!(cell(ink(&[], false)), "88");
        assert_eq!(cell(ink(&[utf8, ("TERM", "dumb")], true)), "88");
        assert_eq!(cell(ink(&[("NO_COLOR", "1")], true)), "88");
        assert_eq!(cell(ink(&[], true)), "\x1b[38;5;214m##\x1b[0m");
        let palette = ink(&[utf8], true);
        assert_eq!(cell(palette), "\x1b[38;5;214m██\x1b[0m");
        let full = ink(&[utf8, ("COLORTERM", "truecolor")], true);
        assert_eq!(cell(full), "\x1b[38;2;255;175;40m██\x1b[0m");
        assert_eq!(full.cells(Tier::Top, 0, 3), "···");
    }

    #[test]
    fn without_colours_the_tiers_have_letters_of_their_own() {
        for variables in [&[][..], &[("LANG", "C.UTF-8")]] {
            let ink = ink(variables, false);
            let (top, lower) = (ink.ramp(Tier::Top), ink.ramp(Tier::Lower));
            assert!(!top.chars().any(|letter| lower.contains(letter)), "{top}");
        }
        assert!(ink(&[], false).ramp(Tier::Top).is_ascii());
    }
}
