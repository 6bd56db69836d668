//! What is measured, by its last commit.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What a guest runs. A later commit that changes documents alone is not another thing to measure.
const MEASURED: [&str; 2] = ["crates", "Cargo.lock"];

/// The last commit that changed something of pghot itself.
pub fn commit() -> Result<String> {
    let output = Command::new("git")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["log", "-1", "--abbrev=12", "--format=%h", "--"])
        .args(MEASURED)
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "this is no git repository");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
