//! Published tables that compare systems on one machine, as data: `crates/sim/tables/*.toml` hold
//! the scenario, and for each cell the published figure by its name, and which system and settings
//! it is of.

use std::collections::BTreeMap;
use std::path::Path;

use pghot_published::timed::Times;
use serde::Deserialize;

use super::{Cell, Table};
use crate::Error;
use crate::parallel;
use crate::run::{Run, Simulation};
use crate::scenario::{Scenario, read_toml};
use crate::systems::Setting;

/// A file of tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenario: Scenario,
    table: Vec<TableSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableSpec {
    title: String,
    source: String,
    unit: String,
    #[serde(default)]
    noise_percent: Option<f64>,
    #[serde(default)]
    notes: Vec<String>,
    cell: Vec<CellSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellSpec {
    row: String,
    column: String,
    /// Table, row and column of `pghot_published`.
    figure: [String; 3],
    /// The figure is in units of so many of the measure's.
    #[serde(default = "once")]
    times: f64,
    /// The model's system, with its settings.
    system: String,
    #[serde(default)]
    set: BTreeMap<String, String>,
    measure: Measure,
    /// For what is measured at a moment of the run, in s.
    #[serde(default)]
    at_s: f64,
    #[serde(default)]
    calibration: bool,
}

fn once() -> f64 {
    1.0
}

impl CellSpec {
    fn published(&self, times: &Times) -> Result<f64, Error> {
        let [table, row, column] = &self.figure;
        let figure = times.figure(table, row, column);
        let missing = || Error::field("figure", format!("nobody published {:?}", self.figure));
        figure.map(|figure| figure * self.times).ok_or_else(missing)
    }
}

/// What a cell shows.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Measure {
    /// From the first access to the last, in µs.
    ElapsedUs,
    /// Base pages promoted in all.
    PromotedPages,
    /// Base pages promoted by a moment of the run.
    PromotedAt,
    /// Base pages demoted.
    DemotedPages,
    /// Hint faults.
    HintFaults,
    /// Base pages refused because they were not hot enough.
    RefusedCold,
    /// Base pages that asked to be promoted.
    CandidatePages,
    /// Base pages whose entry was made to fault.
    MarkedPages,
}

impl Measure {
    fn of(self, run: &Run, at_s: f64) -> f64 {
        let counters = &run.counters;
        match self {
            Measure::ElapsedUs => run.elapsed_s * 1e6,
            Measure::PromotedPages => counters.promoted_pages as f64,
            Measure::PromotedAt => {
                // A little after, so that what happens at this very moment counts.
                let until = run
                    .series
                    .iter()
                    .take_while(|sample| sample.t_s <= at_s + 1e-6);
                until
                    .last()
                    .map_or(0.0, |sample| sample.promoted_pages as f64)
            }
            Measure::DemotedPages => counters.demoted_pages as f64,
            Measure::HintFaults => counters.hint_faults as f64,
            Measure::RefusedCold => counters.refused_cold_pages as f64,
            Measure::CandidatePages => counters.candidate_pages as f64,
            Measure::MarkedPages => counters.marked_pages as f64,
        }
    }
}

/// Runs what a file's cells need, each system with the same settings once.
pub fn make(name: &str, text: &str) -> Result<Vec<Table>, Error> {
    let file: File = read_toml(text, Path::new(name))?;
    let mut keys: Vec<_> = (file.table.iter())
        .flat_map(|table| &table.cell)
        .map(|cell| (cell.system.clone(), cell.set.clone()))
        .collect();
    keys.sort();
    keys.dedup();
    let run = |(system, set): &(String, BTreeMap<String, String>)| {
        let settings: Vec<Setting> = set.clone().into_iter().collect();
        let simulation = Simulation::new(&file.scenario, system, &settings)?;
        Ok(simulation.finish(&mut |_, _| {}))
    };
    let runs: Result<Vec<Run>, Error> = parallel::each(&keys, run, &|_| {}).into_iter().collect();
    let runs: BTreeMap<_, _> = keys.into_iter().zip(runs?).collect();
    let (times, mut tables) = (Times::load(), Vec::new());
    for table in file.table {
        let mut cells = Vec::new();
        for cell in table.cell {
            let published = cell.published(&times)?;
            let run = runs.get(&(cell.system, cell.set));
            cells.push(Cell {
                row: cell.row,
                column: cell.column,
                published,
                model: run.map_or(0.0, |run| cell.measure.of(run, cell.at_s)),
                is_calibration: cell.calibration,
            });
        }
        tables.push(Table {
            title: table.title,
            source: table.source,
            unit: table.unit,
            noise_percent: table.noise_percent,
            cells,
            notes: table.notes,
        });
    }
    Ok(tables)
}
