//! The published tables, each cell beside what the model says.
//!
//! A model has numbers that no publication gives: how many accesses a benchmark makes, what its
//! program does between two of them. Those are chosen such that the cells marked as calibration,
//! rows of the baseline, come out; every other cell is a prediction and is never fitted.

mod autonuma;
pub mod migration;
pub mod published;
pub mod score;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Error;
use score::Score;

/// One published figure and the model's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cell {
    /// Which row of the table.
    pub row: String,
    /// Which column.
    pub column: String,
    /// As published.
    pub published: f64,
    /// As modelled, in the same unit.
    pub model: f64,
    /// The model was made to fit this cell.
    pub is_calibration: bool,
}

impl Cell {
    /// How far the model is from what was published, as a share of that; none if that is zero.
    pub fn error(&self) -> Option<f64> {
        (self.published != 0.0).then(|| self.model / self.published - 1.0)
    }
}

/// A published table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Of all cells.
    pub unit: String,
    /// By how much figures differ that should be the same, as far as the publication shows; in
    /// percent.
    pub noise_percent: Option<f64>,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// What the model leaves out, and what was chosen for the calibration.
    pub notes: Vec<String>,
}

impl Table {
    /// For a terminal: rows and columns as published; each cell with the model's figure and its
    /// error. A star marks calibration.
    pub fn text(&self) -> String {
        let mut text = format!("{} [{}]\n  {}\n", self.title, self.unit, self.source);
        let width = self
            .cells
            .iter()
            .map(|cell| cell.row.len() + cell.column.len() + 2);
        let width = width.max().unwrap_or(0);
        for cell in &self.cells {
            let error = match cell.error() {
                Some(error) => format!("{:+.1} %", error * 100.0),
                None => String::new(),
            };
            text += &format!(
                "  {:<width$} {:>14} {:>14} {:>9}{}\n",
                format!("{}, {}", cell.row, cell.column),
                short(cell.published),
                short(cell.model),
                error,
                if cell.is_calibration { " *" } else { "" }
            );
        }
        text += &format!("  {}\n", Score::of([self]));
        if let Some(noise) = self.noise_percent {
            text += &format!(
                "  Figures that should be the same differ by up to {noise} % in the publication.\n"
            );
        }
        for note in &self.notes {
            text += &format!("  {note}\n");
        }
        text
    }
}

/// Whole numbers as they are, others with enough digits.
fn short(number: f64) -> String {
    match number.abs() >= 1000.0 || number == number.round() {
        true => format!("{number:.0}"),
        false => format!("{number:.2}"),
    }
}

/// Makes some tables.
pub struct Descriptor {
    /// For `pghot sim tables NAME`.
    pub name: &'static str,
    /// What they show, in one sentence.
    pub doc: &'static str,
    /// Runs the model.
    pub make: fn() -> Result<Vec<Table>, Error>,
}

/// All of them.
pub const TABLES: &[Descriptor] = &[
    Descriptor {
        name: "promotion",
        doc: "Promotion without pressure: 64 threads on 8 GiB of the lower tier; versions 3 to 6 \
              of pghot.",
        make: || {
            published::make(
                "promotion.toml",
                include_str!("../../tables/promotion.toml"),
            )
        },
    },
    Descriptor {
        name: "file",
        doc: "The same of a mapped file; versions 3 and 4 of pghot.",
        make: || published::make("file.toml", include_str!("../../tables/file.toml")),
    },
    Descriptor {
        name: "cache",
        doc: "The same of page cache that is read by system calls; version 4 of pghot.",
        make: || published::make("cache.toml", include_str!("../../tables/cache.toml")),
    },
    Descriptor {
        name: "thp",
        doc: "The same of 64 GiB in huge pages; version 3 of pghot.",
        make: || published::make("thp.toml", include_str!("../../tables/thp.toml")),
    },
    Descriptor {
        name: "overcommit",
        doc: "Promotion into a full top tier, from a working set that fits into a cache; versions \
              4 and 6 of pghot.",
        make: || {
            published::make(
                "overcommit.toml",
                include_str!("../../tables/overcommit.toml"),
            )
        },
    },
    Descriptor {
        name: "chunks",
        doc: "Chunks of 1 GiB that are hot for 5 s each; the fault count proposal of 2024.",
        make: || published::make("chunks.toml", include_str!("../../tables/chunks.toml")),
    },
    migration::DESCRIPTOR,
    autonuma::DESCRIPTOR,
];
