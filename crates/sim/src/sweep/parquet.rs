//! The runs of a sweep, and those of a shard, as Parquet files: for who has many of them.

use std::io::Cursor;

pub use pghot_profile::columns::Damage;
use pghot_profile::columns::{
    ByteArrayType, DoubleType, Group, Int32Type, Int64Type, Reader, Writer, text,
};

use super::plan::RUNS_MAX;
use super::shard::{Header, Run};
use super::{Outcome, Row};

/// The columns of `sweep.csv`.
const SWEEP: &str = "message sweep {
    required binary system (UTF8);
    required binary settings (UTF8);
    required int64 top_percent;
    required int64 seed (INTEGER(64, false));
    required double elapsed_s;
    required double slowdown_percent;
    required double near_share;
    required int64 promoted_pages;
    required int64 demoted_pages;
    required double daemon_s;
    required double stolen_s;
}";

/// Of a shard: no slowdown yet, and what it is computed from.
const SHARD: &str = "message shard {
    required int32 point;
    required binary system (UTF8);
    required binary settings (UTF8);
    required int64 top_percent;
    required int64 seed (INTEGER(64, false));
    required double elapsed_s;
    required double work_s;
    required double near_share;
    required int64 promoted_pages;
    required int64 demoted_pages;
    required double daemon_s;
    required double stolen_s;
}";

/// What a shard's file tells beside its runs is JSON below this key.
const HEADER: &str = "pghot_shard";

/// A file with all rows, as one group.
pub fn write(rows: &[Row]) -> Result<Vec<u8>, Damage> {
    let mut file = Writer::new(Cursor::new(Vec::new()), SWEEP, &[])?;
    // In the order of the schema; a seed as the bits of an unsigned number.
    file.group(|group| {
        group.column::<ByteArrayType, _>(rows, |row| text(&row.system))?;
        group.column::<ByteArrayType, _>(rows, |row| text(&row.settings))?;
        group.column::<Int64Type, _>(rows, |row| row.top_percent.into())?;
        group.column::<Int64Type, _>(rows, |row| row.seed as i64)?;
        group.column::<DoubleType, _>(rows, |row| row.elapsed_s)?;
        group.column::<DoubleType, _>(rows, |row| row.slowdown_percent)?;
        group.column::<DoubleType, _>(rows, |row| row.near_share)?;
        group.column::<Int64Type, _>(rows, |row| row.promoted_pages as i64)?;
        group.column::<Int64Type, _>(rows, |row| row.demoted_pages as i64)?;
        group.column::<DoubleType, _>(rows, |row| row.daemon_s)?;
        group.column::<DoubleType, _>(rows, |row| row.stolen_s)
    })?;
    Ok(file.finish(&[])?.into_inner())
}

/// A shard's file.
pub(super) fn write_shard(header: &Header, runs: &[Run]) -> Result<Vec<u8>, Damage> {
    let mut file = Writer::new(Cursor::new(Vec::new()), SHARD, &[])?;
    file.group(|group| {
        group.column::<Int32Type, _>(runs, |run| run.point as i32)?;
        group.column::<ByteArrayType, _>(runs, |run| text(&run.system))?;
        group.column::<ByteArrayType, _>(runs, |run| text(&run.settings))?;
        group.column::<Int64Type, _>(runs, |run| run.top_percent.into())?;
        group.column::<Int64Type, _>(runs, |run| run.seed as i64)?;
        group.column::<DoubleType, _>(runs, |run| run.outcome.elapsed_s)?;
        group.column::<DoubleType, _>(runs, |run| run.outcome.work_s)?;
        group.column::<DoubleType, _>(runs, |run| run.outcome.near_share)?;
        group.column::<Int64Type, _>(runs, |run| run.outcome.promoted_pages as i64)?;
        group.column::<Int64Type, _>(runs, |run| run.outcome.demoted_pages as i64)?;
        group.column::<DoubleType, _>(runs, |run| run.outcome.daemon_s)?;
        group.column::<DoubleType, _>(runs, |run| run.outcome.stolen_s)
    })?;
    let header = serde_json::to_string(header).map_err(|error| Damage::Write(error.to_string()))?;
    Ok(file.finish(&[(HEADER, header)])?.into_inner())
}

/// Reads a shard's file; what it says is not checked yet.
pub(super) fn read_shard(bytes: Vec<u8>) -> Result<(Header, Vec<Run>), Damage> {
    let file = Reader::of_bytes(bytes, SHARD)?;
    let header = serde_json::from_str(file.metadata(HEADER)?);
    let header: Header = header.map_err(|_| Damage::Metadata(HEADER))?;
    if file.rows() > RUNS_MAX as u64 + 1 {
        return Err(Damage::Unreadable(format!("{} runs", file.rows())));
    }
    let mut runs = Vec::new();
    for group in file.groups() {
        runs.extend(read_runs(&mut group?)?);
    }
    Ok((header, runs))
}

fn read_runs(group: &mut Group<'_>) -> Result<Vec<Run>, Damage> {
    let points = group.column::<Int32Type>()?;
    let (mut systems, mut settings) = (group.texts()?.into_iter(), group.texts()?.into_iter());
    let (top_percents, seeds) = (group.column::<Int64Type>()?, group.column::<Int64Type>()?);
    let [elapsed_s, work_s, near_share] = [(); 3].map(|()| group.column::<DoubleType>());
    let (elapsed_s, work_s, near_share) = (elapsed_s?, work_s?, near_share?);
    let [promoted, demoted] = [(); 2].map(|()| group.column::<Int64Type>());
    let (promoted, demoted) = (promoted?, demoted?);
    let [daemon_s, stolen_s] = [(); 2].map(|()| group.column::<DoubleType>());
    let (daemon_s, stolen_s) = (daemon_s?, stolen_s?);
    // Columns have as many values as the group has rows.
    let run = |n: usize| Run {
        point: points[n] as u32,
        system: systems.next().unwrap_or_default(),
        settings: settings.next().unwrap_or_default(),
        top_percent: u32::try_from(top_percents[n]).unwrap_or(u32::MAX),
        seed: seeds[n] as u64,
        outcome: Outcome {
            elapsed_s: elapsed_s[n],
            work_s: work_s[n],
            near_share: near_share[n],
            promoted_pages: promoted[n] as u64,
            demoted_pages: demoted[n] as u64,
            daemon_s: daemon_s[n],
            stolen_s: stolen_s[n],
        },
    };
    Ok((0..group.rows()).map(run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::report::csv;

    #[test]
    fn a_parquet_file_has_what_the_csv_has() {
        let row = |seed| Row {
            system: "pghot".into(),
            settings: "freq_threshold=2".into(),
            top_percent: 70,
            seed,
            elapsed_s: 12.5,
            slowdown_percent: 1.25,
            near_share: 0.875,
            promoted_pages: 1 << 40,
            demoted_pages: 7,
            daemon_s: 0.5,
            stolen_s: 1.5,
        };
        let rows = [row(1), row(u64::MAX)];
        let bytes = write(&rows).unwrap();
        assert_eq!(&bytes[..4], b"PAR1");
        let file = Reader::of_bytes(bytes, SWEEP).unwrap();
        let mut group = file.groups().next().unwrap().unwrap();
        let [systems, settings] = [(); 2].map(|()| group.texts().unwrap());
        let [tops, seeds] = [(); 2].map(|()| group.column::<Int64Type>().unwrap());
        let [elapsed, slowdown, near] = [(); 3].map(|()| group.column::<DoubleType>().unwrap());
        let [up, down] = [(); 2].map(|()| group.column::<Int64Type>().unwrap());
        let [daemon, stolen] = [(); 2].map(|()| group.column::<DoubleType>().unwrap());
        let line = |n: usize| {
            format!(
                "{},{},{},{},{:?},{},{},{},{},{},{}",
                systems[n],
                settings[n],
                tops[n],
                seeds[n] as u64,
                elapsed[n],
                slowdown[n],
                near[n],
                up[n],
                down[n],
                daemon[n],
                stolen[n]
            )
        };
        let lines: Vec<String> = (0..2).map(line).collect();
        let text = String::from_utf8(csv(&rows).unwrap()).unwrap();
        assert_eq!(lines, text.lines().skip(1).collect::<Vec<_>>());
    }
}
