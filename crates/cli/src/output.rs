//! What commands print.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Result, anyhow};

/// Prints; a reader that has seen enough (`pghot status | head`) is no error.
pub fn say(text: &str) -> Result<()> {
    match stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow!("cannot write to the standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// The same of a value, as JSON.
pub fn say_json(value: &impl serde::Serialize) -> Result<()> {
    say(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a page for its owner, who may show it around, and says where it is.
pub fn write_page(path: &Path, page: &str) -> Result<()> {
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(page.as_bytes()));
    written.map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
    say(&format!("{}\n", path.display()))
}

/// Sentences, one a line.
pub fn lines(sentences: &[String]) -> String {
    sentences
        .iter()
        .map(|sentence| format!("{sentence}\n"))
        .collect()
}
