//! Several files of one name: the newest has the name itself, the one before `.1` behind it, and so
//! on, as logrotate(8) does it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file that could not be moved out of the way.
#[derive(Debug, thiserror::Error)]
#[error("cannot rename {} to {}: {source}", from.display(), to.display())]
pub struct RenameError {
    /// The file.
    pub from: PathBuf,
    /// Its next name.
    pub to: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// Moves each file to the next number, so that so many are there when a new one has come. The last
/// goes.
pub fn make_way(newest: &Path, keep: u32) -> Result<(), RenameError> {
    if keep == 1 {
        // The new one takes its place.
        return Ok(());
    }
    // Behind a gap nothing moves.
    let is_there = |number: &u32| numbered(newest, *number).exists();
    let there = (0..keep - 1).take_while(is_there).count() as u32;
    for number in (0..there).rev() {
        let (from, to) = (numbered(newest, number), numbered(newest, number + 1));
        match fs::rename(&from, &to) {
            // Somebody has taken it away.
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(RenameError { from, to, source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn numbered(newest: &Path, number: u32) -> PathBuf {
    let mut name = newest.to_owned().into_os_string();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(dir: &Path, keep: u32, times: u32) -> Vec<(String, String)> {
        let newest = dir.join("p");
        for time in 0..times {
            make_way(&newest, keep).unwrap();
            fs::write(&newest, time.to_string()).unwrap();
        }
        let files = fs::read_dir(dir).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        });
        let mut files: Vec<_> = files.collect();
        files.sort_unstable();
        files
    }

    #[test]
    fn so_many_of_the_newest_are_kept() {
        let files = |names: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = names
                .iter()
                .map(|(name, is)| ((*name).into(), (*is).into()));
            owned.collect()
        };
        let folder = |keep, times| rotated(tempfile::tempdir().unwrap().path(), keep, times);
        assert_eq!(folder(3, 1), files(&[("p", "0")]));
        assert_eq!(folder(3, 2), files(&[("p", "1"), ("p.1", "0")]));
        let expected = files(&[("p", "8"), ("p.1", "7"), ("p.2", "6")]);
        assert_eq!(folder(3, 9), expected);
        assert_eq!(folder(1, 9), files(&[("p", "8")]));
    }

    #[test]
    fn a_gap_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        rotated(dir.path(), 3, 3);
        fs::remove_file(dir.path().join("p")).unwrap();
        let names = rotated(dir.path(), 3, 1).into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["p", "p.1", "p.2"]);
    }
}
