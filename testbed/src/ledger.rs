//! How steady each test is: what its last first attempts came to, over many runs of the suite.
//!
//! A test that fails is run once more, because emulated machines on a busy host miss a deadline now
//! and then. So that no defect hides behind that, first attempts are counted here, and a test that
//! needed its repetition three times in its last ten runs fails. Only runs of the whole suite
//! count.
//!
//! Why three: of some two hundred tests, each of which misses its deadline by chance once in a
//! hundred runs, one has done so twice in ten runs in every sixth run of the suite, and three times
//! in less than one of a hundred. A defect that strikes in every third run is found all the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::kernel::cache_dir;
use crate::qemu::lock;

/// So many runs of a test are remembered.
const RUNS_KEPT: usize = 10;
/// So many of them may have needed a repetition.
const REPEATED_MAX: usize = 2;

/// A first attempt that passed, and one that did not.
const PASSED: char = '.';
const FAILED: char = 'x';

/// The file, and what is in it: for each test its last first attempts, the newest last.
pub struct Ledger {
    path: PathBuf,
    attempts: Mutex<BTreeMap<String, String>>,
}

impl Ledger {
    /// The ledger of this host, which lies beside its kernels.
    pub fn of_host() -> Ledger {
        Ledger::open(&cache_dir())
    }

    /// A new one if there is none, or none that can be read.
    fn open(folder: &Path) -> Ledger {
        let path = folder.join("test-ledger.json");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let attempts = serde_json::from_str(&text).unwrap_or_default();
        Ledger {
            path,
            attempts: Mutex::new(attempts),
        }
    }

    /// Notes the first attempt of a test. The error says that it failed, and not for the first time
    /// lately.
    pub fn note(&self, test: &str, has_passed: bool) -> Result<(), String> {
        let mut attempts = lock(&self.attempts);
        let runs = attempts.entry(test.to_owned()).or_default();
        runs.push(if has_passed { PASSED } else { FAILED });
        if runs.len() > RUNS_KEPT {
            runs.remove(0);
        }
        let (repeated, all) = (repeated(runs), runs.len());
        let text = serde_json::to_string_pretty(&*attempts).map_err(|error| error.to_string())?;
        fs::write(&self.path, text + "\n")
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        match has_passed || repeated <= REPEATED_MAX {
            true => Ok(()),
            false => Err(format!(
                "it needed its second attempt in {repeated} of its last {all} runs"
            )),
        }
    }

    /// What there is to say at the end: tests that needed a repetition lately, the worst first.
    pub fn lines(&self) -> Vec<String> {
        let attempts = lock(&self.attempts);
        let unsteady = attempts.iter().filter(|(_, runs)| repeated(runs) > 0);
        let mut unsteady: Vec<(&String, &String)> = unsteady.collect();
        unsteady.sort_by_key(|(_, runs)| Reverse(repeated(runs)));
        let line = |(test, runs): &(&String, &String)| {
            let (count, all) = (repeated(runs), runs.len());
            format!("ledger: {test} needed its second attempt in {count} of {all} runs ({runs})")
        };
        unsteady.iter().map(line).collect()
    }
}

fn repeated(runs: &str) -> usize {
    runs.chars().filter(|run| *run == FAILED).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_is_forgiven_and_three_times_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let first = Ledger::open(folder.path());
        first.note("a", true).unwrap();
        first.note("a", false).unwrap();
        first.note("a", false).unwrap();
        first.note("b", false).unwrap();
        let again = Ledger::open(folder.path());
        let why = again.note("a", false).unwrap_err();
        assert_eq!(why, "it needed its second attempt in 3 of its last 4 runs");
        let lines = again.lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("ledger: a ") && lines[0].ends_with("(.xxx)"));
        again.note("a", true).unwrap();
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path());
        ledger.note("a", false).unwrap();
        for _ in 0..RUNS_KEPT {
            ledger.note("a", true).unwrap();
        }
        assert!(ledger.lines().is_empty());
        fs::write(folder.path().join("test-ledger.json"), "{").unwrap();
        let broken = Ledger::open(folder.path());
        assert!(broken.lines().is_empty(), "a broken one is a new one");
    }
}
