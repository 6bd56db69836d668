//! Page migration with copies in batches and by engines: throughput, and the wait for the first
//! folio.

use serde::Deserialize;

/// A table: what was measured of each row's and column's setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name, and what it shows.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What was measured.
    pub measure: Measure,
    /// By how much figures differ that should be the same, in percent.
    #[serde(default)]
    pub noise_percent: Option<f64>,
    /// Holds for all cells that say nothing else.
    #[serde(default)]
    pub all: Setting,
    /// The columns.
    pub column: Vec<Column>,
    /// The rows.
    pub row: Vec<Row>,
    /// What there is to say of it.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A column.
#[derive(Debug, Deserialize)]
pub struct Column {
    /// Its head.
    pub name: String,
    /// What its cells have in common.
    #[serde(flatten)]
    pub setting: Setting,
}

/// A row.
#[derive(Debug, Deserialize)]
pub struct Row {
    /// Its head.
    pub name: String,
    /// A figure for each column.
    pub values: Vec<f64>,
    /// The spread of each, where that was published.
    #[serde(default)]
    pub plus_minus: Vec<f64>,
    /// Names of the columns whose cell gave the simulator's model a number.
    #[serde(default)]
    pub calibration: Vec<String>,
    /// What its cells have in common.
    #[serde(flatten)]
    pub setting: Setting,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// In GB/s, of 2^30 bytes.
    Throughput,
    /// Until the first folio of a batch can be accessed again, in µs.
    FirstFolio,
    /// Share of the time that is spent copying, in percent.
    CopyShare,
}

/// What was moved and how. What a column leaves open, its row says, or the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Setting {
    /// A folio has 2^order pages.
    pub order: Option<u32>,
    /// Folios in a call.
    pub folios: Option<u64>,
    /// Pages that are unmapped together.
    pub batch_pages: Option<u64>,
    /// Threads that copy.
    pub threads: Option<u32>,
    /// DMA channels that copy.
    pub channels: Option<u32>,
}

impl Setting {
    /// What is left open is as in `other`.
    pub fn or(self, other: Setting) -> Setting {
        Setting {
            order: self.order.or(other.order),
            folios: self.folios.or(other.folios),
            batch_pages: self.batch_pages.or(other.batch_pages),
            threads: self.threads.or(other.threads),
            channels: self.channels.or(other.channels),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    table: Vec<Table>,
}

/// Reads the file, which is part of the program.
pub fn load() -> Vec<Table> {
    let text = include_str!("../figures/migration.toml");
    crate::parse::<File>("migration.toml", text).table
}

/// The figure of a stock kernel that moves so many base pages in a call.
pub fn stock_call(tables: &[Table], measure: Measure, folios: u64) -> Option<f64> {
    let is_it = |table: &&Table| table.title.starts_with("2A, order 0") && table.measure == measure;
    let table = tables.iter().find(is_it)?;
    let is_column = |column: &Column| column.setting.folios == Some(folios);
    let column = table.column.iter().position(is_column)?;
    table.row.first()?.values.get(column).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_figure_for_each_column() {
        for table in load() {
            let columns = table.column.len();
            for row in &table.row {
                let name = format!("{}, {}", table.title, row.name);
                assert_eq!(row.values.len(), columns, "{name}");
                assert!([0, columns].contains(&row.plus_minus.len()), "{name}");
                let is_column = |wanted: &String| table.column.iter().any(|c| c.name == *wanted);
                assert!(row.calibration.iter().all(is_column), "{name}");
            }
        }
    }

    #[test]
    fn a_call_is_found_by_its_folios() {
        let tables = load();
        let first_us = |folios| stock_call(&tables, Measure::FirstFolio, folios);
        assert_eq!(first_us(512), Some(264.0));
        assert_eq!(first_us(7), None);
        assert_eq!(stock_call(&tables, Measure::Throughput, 1), Some(0.04));
    }
}
