//! A table that tests fill: shown at the end, and written as JSON into `out`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

/// What was measured: objects of the same fields.
pub struct Table {
    file: &'static str,
    rows: Vec<Value>,
}

/// The table of these rows; none if nothing was measured.
pub fn of(file: &'static str, rows: &[impl Serialize]) -> Result<Option<Table>> {
    let rows: Vec<Value> = rows
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()?;
    Ok((!rows.is_empty()).then_some(Table { file, rows }))
}

impl Table {
    /// Prints it and writes it below `root`.
    pub fn publish(mut self, root: &Path) -> Result<()> {
        self.rows.sort_by_key(|row| {
            ["source", "shape", "kernel"].map(|field| row[field].as_str().map(str::to_owned))
        });
        self.print()?;
        let out = root.join("out");
        fs::create_dir_all(&out)?;
        let path = out.join(self.file);
        fs::write(&path, serde_json::to_string_pretty(&self.rows)? + "\n")?;
        println!("all values: {}", path.display());
        Ok(())
    }

    fn print(&self) -> Result<()> {
        let first = self.rows.first().and_then(Value::as_object);
        let names: Vec<&String> = first.context("rows are objects")?.keys().collect();
        let mut lines: Vec<Vec<String>> = vec![names.iter().map(|n| n.to_string()).collect()];
        for row in &self.rows {
            lines.push(names.iter().map(|name| cell(&row[name.as_str()])).collect());
        }
        let width = |column: usize| lines.iter().map(|l| l[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..names.len()).map(width).collect();
        for line in lines {
            let cells = line.iter().zip(&widths);
            let cells: Vec<String> = cells.map(|(c, width)| format!("{c:>width$}")).collect();
            println!("{}", cells.join("  "));
        }
        Ok(())
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if !number.is_f64() => number.to_string(),
        Value::Number(number) => match number.as_f64().unwrap_or(0.0) {
            large if large >= 1000.0 => format!("{large:.0}"),
            small => format!("{small:.3}"),
        },
        other => other.to_string(),
    }
}
