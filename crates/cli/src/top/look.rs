//! What the picture is made of: styles, bars and sparklines, with and without colour and UTF-8.
//!
//! Colours are the terminal's own and few, so that they suit dark and light backgrounds; nothing is
//! said by colour alone.

use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::history::History;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Text.
    Plain,
    /// The head of a block.
    Title,
    /// What matters less.
    Faint,
    /// The top tier, and what goes there.
    Top,
    /// The lower tier, and what goes there.
    Lower,
    /// What an operator should see first.
    Alarm,
}

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Letters beyond ASCII.
    pub utf8: bool,
    /// Colours; without them there is still bold, faint and reversed text.
    pub colour: bool,
}

const UTF8_LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_LEVELS: [&str; 8] = ["_", ".", ":", "-", "=", "+", "*", "#"];

impl Look {
    /// As the environment says, by its variables: `LC_ALL`, `LC_CTYPE` or `LANG`, and `NO_COLOR`.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Look {
        let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
        let locale = locale.unwrap_or_default().to_lowercase();
        Look {
            utf8: locale.contains("utf-8") || locale.contains("utf8"),
            colour: set(&"NO_COLOR").is_none(),
        }
    }

    /// How a piece of text is shown.
    pub fn style(self, role: Role) -> Style {
        let (colour, modifier) = match role {
            Role::Plain => (None, Modifier::empty()),
            Role::Title => (None, Modifier::BOLD),
            Role::Faint => (None, Modifier::DIM),
            Role::Top => (Some(Color::Cyan), Modifier::empty()),
            Role::Lower => (Some(Color::Magenta), Modifier::empty()),
            Role::Alarm => (Some(Color::Red), Modifier::BOLD),
        };
        let style = Style::new().add_modifier(modifier);
        colour
            .filter(|_| self.colour)
            .map_or(style, |colour| style.fg(colour))
    }

    /// A bar of `width` columns, of which a share from 0 to 1 is full: the full part and the rest.
    pub fn bar(self, share: f64, width: usize) -> (String, String) {
        let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
        let (full_letter, rest_letter) = if self.utf8 {
            ("█", "░")
        } else {
            ("#", ".")
        };
        (full_letter.repeat(full), rest_letter.repeat(width - full))
    }

    /// The record of the last minutes in at most `width` columns, the newest at the right. A time
    /// without knowledge is blank.
    pub fn sparkline(self, history: &History, width: usize) -> String {
        let levels = if self.utf8 { UTF8_LEVELS } else { ASCII_LEVELS };
        let columns = history.columns(width);
        let peak = columns.iter().flatten().fold(0.0_f64, |a, b| a.max(*b));
        let level = |value: &Option<f64>| match value {
            None => " ",
            Some(value) if *value <= 0.0 || peak <= 0.0 => levels[0],
            // Whatever is not nothing can be told from it.
            Some(value) => levels[((value / peak * 7.0).ceil() as usize).clamp(1, 7)],
        };
        columns.iter().map(level).collect()
    }

    /// What stands for text that did not fit.
    fn ellipsis(self) -> char {
        if self.utf8 { '…' } else { '~' }
    }

    /// Text in letters that the terminal has.
    pub fn letters(self, text: &str) -> String {
        let ascii = |letter: char| match letter {
            'µ' => 'u',
            letter if letter.is_ascii() => letter,
            _ => '?',
        };
        match self.utf8 || text.is_ascii() {
            true => text.to_owned(),
            false => text.chars().map(ascii).collect(),
        }
    }

    /// The first `width` columns.
    pub fn cut(self, text: &str, width: usize) -> String {
        let text = self.letters(text);
        if text.width() <= width {
            return text;
        }
        // In front of a letter that would not fit any more.
        let fits = |(end, _): &(usize, char)| text[..*end].width() < width;
        let end = text.char_indices().take_while(fits).last();
        match end {
            None => String::new(),
            Some((end, _)) => format!("{}{}", &text[..end], self.ellipsis()),
        }
    }

    /// The last `width` columns: of paths, the end tells most.
    pub fn cut_front(self, text: &str, width: usize) -> String {
        let text = self.letters(text);
        if text.width() <= width {
            return text;
        }
        let fits = |(start, _): &(usize, char)| text[*start..].width() < width;
        let start = text.char_indices().rev().take_while(fits).last();
        let start = start.map_or(text.len(), |(start, _)| start);
        match width {
            0 => String::new(),
            _ => format!("{}{}", self.ellipsis(), &text[start..]),
        }
    }

    /// A column of text, aligned to the left.
    pub fn left(self, text: &str, width: usize) -> String {
        let text = self.cut(text, width);
        let blank = width.saturating_sub(text.width());
        format!("{text}{:blank$}", "")
    }

    /// The same, aligned to the right.
    pub fn right(self, text: &str, width: usize) -> String {
        let text = self.cut(text, width);
        let blank = width.saturating_sub(text.width());
        format!("{:blank$}{text}", "")
    }
}

/// Breaks a sentence into lines of at most `width` columns, `lines` of them at most; what is left
/// over is cut off in the last one.
pub fn wrap(look: Look, sentence: &str, width: usize, lines: usize) -> Vec<String> {
    let sentence = look.letters(sentence);
    let mut wrapped = vec![String::new()];
    for word in sentence.split_whitespace() {
        let at = wrapped.len() - 1;
        let used = wrapped[at].width();
        let is_full = used > 0 && used + 1 + word.width() > width;
        if is_full && wrapped.len() < lines {
            wrapped.push(word.to_owned());
        } else {
            let gap = if used > 0 { " " } else { "" };
            wrapped[at] += &format!("{gap}{word}");
        }
    }
    wrapped.iter().map(|line| look.cut(line, width)).collect()
}

/// Bytes as right-aligned columns need them: one digit behind the point, always.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if bytes == 0 {
        return "0".to_owned();
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A share of 1 in percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTF8: Look = Look {
        utf8: true,
        colour: true,
    };
    const ASCII: Look = Look {
        utf8: false,
        colour: false,
    };

    #[test]
    fn the_environment_decides() {
        let look = |set: &[(&str, &str)]| {
            Look::of(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(look(&[("LANG", "en_US.UTF-8")]).utf8);
        assert!(look(&[("LANG", "C"), ("LC_CTYPE", "C.utf8")]).utf8);
        assert!(!look(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]).utf8);
        assert!(look(&[("LC_ALL", ""), ("LANG", "en_US.UTF-8")]).utf8);
        assert!(!look(&[]).utf8 && look(&[]).colour);
        assert!(!look(&[("NO_COLOR", "1")]).colour);
    }

    #[test]
    fn bars_and_sparklines_have_both_alphabets() {
        assert_eq!(UTF8.bar(0.5, 4), ("██".into(), "░░".into()));
        assert_eq!(ASCII.bar(7.0, 3), ("###".into(), String::new()));
        assert_eq!(ASCII.bar(f64::NAN, 3), (String::new(), "...".into()));
        let mut history = History::default();
        for value in [None, Some(0.0), Some(0.1), Some(5.0), Some(10.0)] {
            history.push(value);
        }
        assert_eq!(UTF8.sparkline(&history, 300), " ▁▂▅█");
        assert_eq!(ASCII.sparkline(&history, 300), " _.=#");
        assert_eq!(UTF8.sparkline(&history, 0), "");
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        assert_eq!(UTF8.cut("abcdef", 4), "abc…");
        assert_eq!(ASCII.cut_front("/a/bcd.service", 8), "~service");
        assert_eq!(
            (UTF8.cut("abc", 3), UTF8.cut("abc", 0)),
            ("abc".into(), String::new())
        );
        assert_eq!(
            wrap(UTF8, "one two three four", 9, 2),
            ["one two", "three fo…"]
        );
        assert_eq!(
            (UTF8.cut("abc", 1), ASCII.cut_front("abc", 0)),
            ("…".into(), String::new())
        );
        assert_eq!(wrap(UTF8, "", 9, 2), [""]);
        assert_eq!(wrap(UTF8, "unbreakable", 4, 2), ["unb…"]);
    }

    /// Columns are counted, not letters, and a letter of two columns is not halved.
    #[test]
    fn letters_that_a_terminal_lacks_or_draws_wide() {
        assert_eq!(UTF8.cut("/日本é", 6), "/日本é");
        assert_eq!(UTF8.cut("/日本é", 5), "/日…");
        assert_eq!(UTF8.cut("/日本é", 3), "/…");
        assert_eq!(UTF8.cut_front("/日本é", 4), "…本é");
        assert_eq!(UTF8.cut_front("/日本é", 3), "…é");
        assert_eq!(ASCII.cut("/日本é", 4), "/???");
        assert_eq!(ASCII.cut_front("/日本é", 3), "~??");
        assert_eq!(ASCII.letters("5.0 µs"), "5.0 us");
        assert_eq!(UTF8.left("日本", 5), "日本 ");
        assert_eq!(UTF8.right("日本", 5), " 日本");
        assert_eq!(UTF8.right("日本", 3), "日…");
        assert_eq!(wrap(UTF8, "日本 日本", 8, 2), ["日本", "日本"]);
    }

    #[test]
    fn sizes_line_up() {
        let sizes = [0, 1 << 12, 999 << 10, 1 << 20, 3 << 29, 1 << 42].map(size);
        assert_eq!(
            sizes,
            ["0", "4.0 KiB", "999.0 KiB", "1.0 MiB", "1.5 GiB", "4.0 TiB"]
        );
    }
}
