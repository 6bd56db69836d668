//! The runs of a sweep as a Parquet file, for who has many of them. Compiled with the feature
//! `parquet` alone: it takes some twenty crates.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::sweep::Row;

/// The columns of `sweep.csv`.
const SCHEMA: &str = "message sweep {
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

type Group<'a> = SerializedRowGroupWriter<'a, File>;

/// Writes all rows, as one row group.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = Arc::new(WriterProperties::new());
    let mut file = SerializedFileWriter::new(File::create(path)?, schema, properties)?;
    let mut group = file.next_row_group()?;
    let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    // In the order of the schema.
    column::<ByteArrayType>(&mut group, rows, |row| text(&row.system))?;
    column::<ByteArrayType>(&mut group, rows, |row| text(&row.settings))?;
    column::<Int64Type>(&mut group, rows, |row| row.top_percent.into())?;
    // The bits of an unsigned number.
    column::<Int64Type>(&mut group, rows, |row| row.seed as i64)?;
    column::<DoubleType>(&mut group, rows, |row| row.elapsed_s)?;
    column::<DoubleType>(&mut group, rows, |row| row.slowdown_percent)?;
    column::<DoubleType>(&mut group, rows, |row| row.near_share)?;
    column::<Int64Type>(&mut group, rows, |row| row.promoted_pages as i64)?;
    column::<Int64Type>(&mut group, rows, |row| row.demoted_pages as i64)?;
    column::<DoubleType>(&mut group, rows, |row| row.daemon_s)?;
    column::<DoubleType>(&mut group, rows, |row| row.stolen_s)?;
    group.close()?;
    file.close()?;
    Ok(())
}

fn column<T: DataType>(
    group: &mut Group<'_>,
    rows: &[Row],
    value: impl Fn(&Row) -> T::T,
) -> Result<()> {
    let next = group.next_column()?;
    let mut column = next.ok_or_else(|| ParquetError::General("a column too many".into()))?;
    let values: Vec<T::T> = rows.iter().map(value).collect();
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::sweep::report::write_csv;

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
        let path = std::env::temp_dir().join(format!("pghot-sweep-{}", std::process::id()));
        write(&path, &rows).unwrap();
        let mut magic = [0; 4];
        File::open(&path).unwrap().read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"PAR1");
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let read = reader.get_row_iter(None).unwrap().map(|row| row.unwrap());
        let lines: Vec<String> = read
            .map(|row| {
                let columns = row.get_column_iter();
                let shown = columns.map(|(_, field)| field.to_string().replace('"', ""));
                shown.collect::<Vec<_>>().join(",")
            })
            .collect();
        write_csv(&path, &rows).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(lines, text.lines().skip(1).collect::<Vec<_>>());
        std::fs::remove_file(&path).unwrap();
    }
}
