//! The Python package in `fleet/`, on a Ray cluster of this machine, with this very binary. What it
//! needs is where `testbed/setup.sh` puts it.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn cache() -> PathBuf {
    let cache = std::env::var_os("PGHOT_CACHE").map(PathBuf::from);
    let xdg = || Some(PathBuf::from(std::env::var_os("XDG_CACHE_HOME")?).join("pghot"));
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/pghot"));
    cache.or_else(xdg).or_else(home).unwrap()
}

#[test]
fn the_fleet_package_passes_its_tests() {
    let python = cache().join("fleet/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run testbed/setup.sh, which installs Ray and Optuna",
        python.display()
    );
    let output = Command::new(python)
        .args(["-m", "unittest", "discover", "-s", "tests", "-v"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fleet"))
        .env("PGHOT", env!("CARGO_BIN_EXE_pghot"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("OK") && !said.contains("skipped"), "{said}");
}
