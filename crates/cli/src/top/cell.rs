//! A cell of the table: what it holds. Its text is made when it is seen, because there may be
//! thousands of rows of which a screen shows fifty.

use std::cmp::Ordering;

use super::look::{Look, Role, percent, size};
use crate::units::count;

/// What a cell holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Bytes.
    Bytes(u64),
    /// Bytes in a second, more or less than before.
    Change(f64),
    /// A share of 1.
    Share(f64),
    /// How many.
    Count(u64),
    /// The number of a process, or another that is no amount.
    Number(u32),
    /// An address.
    Address(u64),
    /// Seconds ago.
    Ago(f64),
    /// Words.
    Words(String),
    /// What is not known.
    Unknown,
}

/// Columns of the bar of a share; percent follow.
const BAR: usize = 8;

impl Cell {
    /// What is shown.
    pub fn text(&self, look: Look) -> String {
        match self {
            Cell::Bytes(bytes) => size(*bytes),
            Cell::Change(change) if (*change as i64) == 0 => "0".to_owned(),
            Cell::Change(change) => {
                let sign = if *change < 0.0 { "-" } else { "+" };
                format!("{sign}{}", size(change.abs() as u64))
            }
            Cell::Share(share) => {
                let (full, rest) = look.bar(*share, BAR);
                format!("{full}{rest} {:>6}", percent(*share))
            }
            Cell::Count(number) => count(*number),
            Cell::Number(number) => number.to_string(),
            Cell::Address(address) => format!("{address:x}"),
            Cell::Ago(seconds) => format!("{seconds:.1} s"),
            Cell::Words(words) => words.clone(),
            Cell::Unknown => "-".to_owned(),
        }
    }

    /// How it is shown.
    pub fn role(&self) -> Role {
        match self {
            Cell::Unknown => Role::Faint,
            _ => Role::Plain,
        }
    }

    /// Numbers with the greatest first, then words by the alphabet, then what is not known.
    pub fn compare(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Words(a), Cell::Words(b)) => lower(a).cmp(lower(b)),
            _ => {
                let by_number = || other.number().total_cmp(&self.number());
                self.rank().cmp(&other.rank()).then_with(by_number)
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Cell::Words(_) => 1,
            Cell::Unknown => 2,
            _ => 0,
        }
    }

    fn number(&self) -> f64 {
        match self {
            Cell::Bytes(number) | Cell::Count(number) | Cell::Address(number) => *number as f64,
            Cell::Number(number) => f64::from(*number),
            Cell::Change(number) | Cell::Share(number) => *number,
            // The newest first.
            Cell::Ago(seconds) => -seconds,
            Cell::Words(_) | Cell::Unknown => 0.0,
        }
    }
}

/// Letter by letter, so that sorting thousands makes no copies.
fn lower(words: &str) -> impl Iterator<Item = char> {
    words.chars().flat_map(char::to_lowercase)
}
