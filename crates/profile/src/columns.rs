//! Parquet files of flat tables, written and read in groups of rows, so that a file may be larger
//! than memory. No compression but Parquet's own encodings: dictionaries, runs and differences.

use std::fs::File;
use std::io::{Cursor, Read, Seek, Write};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::reader::get_typed_column_reader;
pub use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::seal;

/// A file that is no table, or not the one that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// No Parquet, or not all of it.
    #[error("it is no Parquet file, or it was cut off or changed ({0})")]
    Unreadable(String),
    /// Other columns.
    #[error("its columns are not those of one")]
    Columns,
    /// Something that has to be told beside the table is not.
    #[error("its metadata has no {0}, or none that can be read")]
    Metadata(&'static str),
    /// It cannot be written.
    #[error("{0}")]
    Write(String),
}

fn unreadable(error: ParquetError) -> Damage {
    Damage::Unreadable(error.to_string())
}

fn unwritten(error: ParquetError) -> Damage {
    Damage::Write(error.to_string())
}

/// Text as a column holds it.
pub fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

/// A table that is being written.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
}

impl<W: Write + Send> Writer<W> {
    /// An empty one; the schema is in Parquet's own language. The numbers of `rising` columns
    /// hardly ever repeat, and are near those before: of them the differences are stored.
    pub fn new(sink: W, schema: &str, rising: &[&str]) -> Result<Writer<W>, Damage> {
        let schema = parse_message_type(schema).map_err(unwritten)?;
        let mut properties = WriterProperties::builder();
        for name in rising {
            let column = ColumnPath::from(*name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        let properties = Arc::new(properties.build());
        let file = SerializedFileWriter::new(sink, Arc::new(schema), properties);
        file.map(|file| Writer { file }).map_err(unwritten)
    }

    /// Adds a group of rows: `fill` writes each column, in the order of the schema.
    pub fn group(
        &mut self,
        fill: impl FnOnce(&mut GroupWriter<'_, W>) -> Result<()>,
    ) -> Result<(), Damage> {
        let group = self.file.next_row_group().map_err(unwritten)?;
        let mut group = GroupWriter { group };
        fill(&mut group)
            .and_then(|()| group.group.close())
            .map_err(unwritten)?;
        Ok(())
    }

    /// Ends the file; what is told beside the table comes last, and then a checksum.
    pub fn finish(mut self, metadata: &[(&str, String)]) -> Result<W, Damage>
    where
        W: Read + Seek,
    {
        for (key, value) in metadata {
            let pair = KeyValue::new((*key).to_owned(), value.clone());
            self.file.append_key_value_metadata(pair);
        }
        let blank = String::from_utf8_lossy(&seal::BLANK).into_owned();
        let pair = KeyValue::new(seal::KEY.to_owned(), blank);
        self.file.append_key_value_metadata(pair);
        let mut sink = self.file.into_inner().map_err(unwritten)?;
        seal::seal(&mut sink)?;
        Ok(sink)
    }
}

/// A group of rows that is being written.
pub struct GroupWriter<'a, W: Write> {
    group: SerializedRowGroupWriter<'a, W>,
}

impl<W: Write + Send> GroupWriter<'_, W> {
    /// The next column: what it has of each row.
    pub fn column<T: DataType, R>(&mut self, rows: &[R], of: impl Fn(&R) -> T::T) -> Result<()> {
        let next = self.group.next_column()?;
        let mut column = next.ok_or_else(|| ParquetError::General("a column too many".into()))?;
        let values: Vec<T::T> = rows.iter().map(of).collect();
        column.typed::<T>().write_batch(&values, None, None)?;
        column.close()
    }
}

/// A table that is read.
pub struct Reader {
    file: Box<dyn FileReader>,
}

impl Reader {
    /// Of bytes in memory.
    pub fn of_bytes(bytes: Vec<u8>, schema: &str) -> Result<Reader, Damage> {
        seal::check(&mut Cursor::new(&bytes))?;
        let file = SerializedFileReader::new(Bytes::from(bytes)).map_err(unreadable)?;
        let reader = Reader {
            file: Box::new(file),
        };
        reader.check(schema)?;
        Ok(reader)
    }

    /// Of a file, of which only one group is in memory at a time. What columns it has is not known
    /// before they are [checked](Reader::check).
    pub fn of_file(mut file: File) -> Result<Reader, Damage> {
        seal::check(&mut file)?;
        let file = SerializedFileReader::new(file).map_err(unreadable)?;
        Ok(Reader {
            file: Box::new(file),
        })
    }

    /// Whether it has these columns.
    pub fn check(&self, schema: &str) -> Result<(), Damage> {
        let expected = parse_message_type(schema).map_err(unreadable)?;
        match self.file.metadata().file_metadata().schema() == &expected {
            true => Ok(()),
            false => Err(Damage::Columns),
        }
    }

    /// What is told beside the table.
    pub fn metadata(&self, key: &'static str) -> Result<&str, Damage> {
        let pairs = self.file.metadata().file_metadata().key_value_metadata();
        let mut pairs = pairs.into_iter().flatten().filter(|pair| pair.key == key);
        let value = pairs.next().and_then(|pair| pair.value.as_deref());
        value.ok_or(Damage::Metadata(key))
    }

    /// Rows of all groups, by what the file says.
    pub fn rows(&self) -> u64 {
        let groups = self.file.metadata().row_groups().iter();
        groups.map(|group| group.num_rows().max(0) as u64).sum()
    }

    /// The groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = Result<Group<'_>, Damage>> {
        (0..self.file.num_row_groups()).map(|number| {
            let group = self.file.get_row_group(number).map_err(unreadable)?;
            let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            Ok(Group {
                group,
                rows,
                next: 0,
            })
        })
    }
}

/// A group of rows that is read.
pub struct Group<'a> {
    group: Box<dyn RowGroupReader + 'a>,
    rows: usize,
    next: usize,
}

impl Group<'_> {
    /// Its rows, by what the file says.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The next column, in the order of the schema, which says its type.
    pub fn column<T: DataType>(&mut self) -> Result<Vec<T::T>, Damage> {
        let reader = self
            .group
            .get_column_reader(self.next)
            .map_err(unreadable)?;
        self.next += 1;
        let mut reader = get_typed_column_reader::<T>(reader);
        let mut values = Vec::new();
        let read = reader.read_records(self.rows, None, None, &mut values);
        let (records, _, _) = read.map_err(unreadable)?;
        match records == self.rows && values.len() == self.rows {
            true => Ok(values),
            false => Err(Damage::Unreadable("a column is too short".into())),
        }
    }

    /// The next column, of text.
    pub fn texts(&mut self) -> Result<Vec<String>, Damage> {
        let values = self.column::<ByteArrayType>()?.into_iter();
        let text = |value: ByteArray| value.as_utf8().map(str::to_owned).map_err(unreadable);
        values.map(text).collect()
    }
}
