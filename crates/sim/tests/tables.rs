//! The model against the published tables, as far as docs/simulator.md says that it agrees.

#![allow(clippy::unwrap_used)]

use pghot_sim::tables::score::Score;
use pghot_sim::tables::{TABLES, Table};

fn tables(name: &str) -> Vec<Table> {
    let table = TABLES.iter().find(|table| table.name == name).unwrap();
    (table.make)().unwrap()
}

/// The predicted times; what was calibrated proves nothing.
fn assert_times(tables: &[Table], median: f64, worst: f64) {
    let score = Score::of(tables.iter().filter(|table| table.unit == "us"));
    assert!(score.median_error() <= median, "{score}");
    assert!(score.misses[0].error.abs() <= worst, "{score}");
}

#[test]
fn promotion_of_anonymous_memory() {
    let tables = tables("promotion");
    assert_times(&tables, 0.05, 0.11);
    let curve = tables
        .iter()
        .find(|table| table.title.contains("over time"));
    for cell in &curve.unwrap().cells {
        // One interval of the scan.
        assert!((cell.model - cell.published).abs() <= 65_536.0, "{cell:?}");
    }
}

#[test]
fn promotion_of_a_mapped_file() {
    assert_times(&tables("file"), 0.05, 0.08);
}

#[test]
fn promotion_of_huge_pages() {
    assert_times(&tables("thp"), 0.05, 0.1);
}

#[test]
fn promotion_has_nothing_to_win_from_a_cache() {
    assert_times(&tables("overcommit"), 0.05, 0.1);
}

#[test]
fn counting_faults_promotes_more_of_bursts() {
    let tables = tables("chunks");
    assert_times(&tables, 0.1, 0.1);
    let score = Score::of(&tables);
    assert!(
        score.neighbours >= 10 && score.agreeing == score.neighbours,
        "{score}"
    );
}
