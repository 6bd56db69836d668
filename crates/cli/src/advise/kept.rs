//! Runs that are done, in a file beside the answer: who is interrupted goes on.
//!
//! ```text
//! pghot advise FORMAT VERSION FINGERPRINT
//! KEY <tab> six numbers and a word, with tabs between
//! ```
//!
//! A number is written so that it is read back to the last bit.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};
use pghot_sim::Error;
use pghot_sim::advise::Kept;
use pghot_sim::advise::point::Came;

/// Grows when the model or what is kept of a run changes: then old runs are of no use.
const FORMAT: u32 = 1;

/// See the head of this file.
pub struct KeptFile {
    path: PathBuf,
    found: HashMap<String, Came>,
    file: Mutex<File>,
}

/// What a file was found to be.
pub enum Before {
    /// There was none.
    Nothing,
    /// So many runs are used.
    Runs(usize),
    /// It is of something else, and is begun anew.
    Other,
}

/// What tells one question from all others, but for its answers: files, and numbers.
pub fn fingerprint(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl KeptFile {
    /// Opens it, or begins it.
    pub fn open(path: &Path, fingerprint: u64) -> Result<(KeptFile, Before)> {
        let version = env!("CARGO_PKG_VERSION");
        let head = format!("pghot advise {FORMAT} {version} {fingerprint:016x}");
        let text = std::fs::read(path);
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (found, before) = match text {
            Ok(text) if text.lines().next() == Some(&head) => {
                let found: HashMap<String, Came> = text.lines().skip(1).filter_map(read).collect();
                let runs = found.len();
                (found, Before::Runs(runs))
            }
            Ok(_) => (HashMap::new(), Before::Other),
            Err(_) => (HashMap::new(), Before::Nothing),
        };
        // Written anew: the last line may be half of one.
        let mut lines: Vec<String> = found.iter().map(|(key, came)| line(key, came)).collect();
        lines.sort_unstable();
        let cannot = |error| anyhow!("cannot write {}: {error}", path.display());
        let whole = format!("{head}\n{}", lines.concat());
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        std::fs::write(&part, whole).map_err(cannot)?;
        std::fs::rename(&part, path).map_err(cannot)?;
        let file = OpenOptions::new().append(true).open(path).map_err(cannot)?;
        let kept = KeptFile {
            path: path.to_owned(),
            found,
            file: Mutex::new(file),
        };
        Ok((kept, before))
    }
}

impl Kept for KeptFile {
    fn find(&self, key: &str) -> Option<Came> {
        self.found.get(key).copied()
    }

    fn keep(&self, key: &str, came: &Came) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line(key, came).as_bytes())
            .map_err(|source| Error::Write {
                path: self.path.clone(),
                source,
            })
    }
}

fn line(key: &str, came: &Came) -> String {
    let Came {
        work_s,
        far_time_share,
        near_share,
        promoted_mib,
        demoted_mib,
        daemon_s,
        is_complete,
    } = came;
    format!(
        "{key}\t{work_s}\t{far_time_share}\t{near_share}\t{promoted_mib}\t{demoted_mib}\t\
         {daemon_s}\t{is_complete}\n"
    )
}

fn read(line: &str) -> Option<(String, Came)> {
    let parts: Vec<&str> = line.split('\t').collect();
    let &[
        key,
        work_s,
        far_time_share,
        near_share,
        promoted,
        demoted,
        daemon_s,
        is_complete,
    ] = parts.as_slice()
    else {
        return None;
    };
    let came = Came {
        work_s: work_s.parse().ok()?,
        far_time_share: far_time_share.parse().ok()?,
        near_share: near_share.parse().ok()?,
        promoted_mib: promoted.parse().ok()?,
        demoted_mib: demoted.parse().ok()?,
        daemon_s: daemon_s.parse().ok()?,
        is_complete: is_complete.parse().ok()?,
    };
    Some((key.to_owned(), came))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(work_s: f64) -> Came {
        Came {
            work_s,
            far_time_share: 1.0 / 3.0,
            near_share: 0.1 + 0.2,
            promoted_mib: u64::MAX,
            demoted_mib: 0,
            daemon_s: 1e-300,
            is_complete: true,
        }
    }

    #[test]
    fn what_was_kept_is_found_to_the_last_bit_and_half_a_line_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept");
        let (kept, before) = KeptFile::open(&path, 7).unwrap();
        assert!(matches!(before, Before::Nothing));
        kept.keep("none  5", &came(std::f64::consts::PI)).unwrap();
        kept.keep("pghot a=1 6", &came(2.0)).unwrap();
        drop(kept);
        let whole = std::fs::read_to_string(&path).unwrap();
        // Of the last run no more than the beginning was written.
        std::fs::write(&path, &whole[..whole.len() - 12]).unwrap();
        let (kept, before) = KeptFile::open(&path, 7).unwrap();
        assert!(matches!(before, Before::Runs(1)));
        assert_eq!(kept.find("none  5"), Some(came(std::f64::consts::PI)));
        assert_eq!(kept.find("pghot a=1 6"), None);
        kept.keep("pghot a=1 6", &came(2.0)).unwrap();
        drop(kept);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        let (kept, before) = KeptFile::open(&path, 8).unwrap();
        assert!(matches!(before, Before::Other) && kept.find("none  5").is_none());
        let (_, before) = KeptFile::open(&path, 7).unwrap();
        assert!(matches!(before, Before::Other), "it was begun anew");
    }
}
