//! Writes a tunable into the config file, which keeps all else: comments, order, mode and owner. A
//! reader sees the file before or after, never a part.
//!
//! The parser tells where a value stands, so one value is replaced and no byte beside it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use pghot_engine::{Kind, Tunable};
use toml::de::DeTable;

use crate::config::{ConfigError, parse_file};

/// Of a config file that was not there before.
const NEW_MODE: u32 = 0o644;

/// Why a value is not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The file is wrong as it is, and nobody knows what its author meant.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The system refused.
    #[error(
        "cannot save into {}: {source}; without --save the value is in force until pghot ends",
        path.display()
    )]
    Io {
        /// The config file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A config file about to be replaced; dropped, it stays as it is.
pub struct Save {
    path: PathBuf,
    /// What it has now.
    text: String,
    /// What will be there instead.
    part: PathBuf,
    file: File,
}

impl Save {
    /// Makes sure that the file is right and can be replaced. Changes nothing yet.
    pub fn begin(path: &Path) -> Result<Save, SaveError> {
        let io = |source| SaveError::Io {
            path: path.to_owned(),
            source,
        };
        // A link stays one.
        let real = match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            real => real.map_err(io)?,
        };
        let text = match fs::read_to_string(&real) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(io)?,
        };
        parse_file(path, &text)?;
        let (file, part) = create_beside(&real).map_err(io)?;
        let path = real;
        Ok(Save {
            path,
            text,
            part,
            file,
        })
    }

    /// The file, links followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file by one with this value, as [`Tunable::show`] has it.
    pub fn finish(mut self, tunable: &Tunable, value: &str) -> Result<(), SaveError> {
        let text = with_value(&self.text, tunable.name, &literal(tunable, value));
        let mut replace = || {
            self.file.write_all(text.as_bytes())?;
            self.file.sync_all()?;
            fs::rename(&self.part, &self.path)?;
            File::open(folder(&self.path))?.sync_all()
        };
        replace().map_err(|source| SaveError::Io {
            path: self.path.clone(),
            source,
        })
    }
}

impl Drop for Save {
    fn drop(&mut self) {
        // Renamed, it is gone already.
        let _ = fs::remove_file(&self.part);
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// An empty file beside another one, with its mode and owner.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    fs::create_dir_all(folder(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = folder(path).join(format!(".{name}.{}", std::process::id()));
    let mut new = OpenOptions::new();
    let file = new.write(true).create_new(true).mode(0o600).open(&part)?;
    let owned = match fs::metadata(path) {
        Ok(old) => fchown(&file, Some(old.uid()), Some(old.gid()))
            .and_then(|()| file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))),
        Err(_) => file.set_permissions(Permissions::from_mode(NEW_MODE)),
    };
    match owned {
        Ok(()) => Ok((file, part)),
        Err(error) => {
            // The first error is the one to tell.
            let _ = fs::remove_file(&part);
            Err(error)
        }
    }
}

/// A value as TOML has it.
fn literal(tunable: &Tunable, value: &str) -> String {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    match tunable.kind {
        Kind::Number | Kind::Node if is_number => value.to_owned(),
        _ => format!("{value:?}"),
    }
}

/// The text with another value of one key. A key that is not there yet comes behind its line in the
/// packaged file, where it is commented out, or else to the end.
fn with_value(text: &str, name: &str, literal: &str) -> String {
    let mut text = text.to_owned();
    let table = DeTable::parse(&text).map(|table| {
        let mut entries = table.get_ref().iter();
        entries
            .find(|(key, _)| key.get_ref() == name)
            .map(|(_, value)| value.span())
    });
    if let Ok(Some(span)) = table {
        text.replace_range(span, literal);
        return text;
    }
    let is_default = |line: &str| {
        let behind = line.strip_prefix('#').map(str::trim_start);
        let behind = behind.and_then(|line| line.strip_prefix(name));
        behind.is_some_and(|line| line.trim_start().starts_with('='))
    };
    let mut at = 0;
    let mut place = text.len();
    for line in text.split_inclusive('\n') {
        at += line.len();
        if is_default(line) {
            place = at;
        }
    }
    let newline = match text[..place].ends_with('\n') || place == 0 {
        true => "",
        false => "\n",
    };
    text.insert_str(place, &format!("{newline}{name} = {literal}\n"));
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use pghot_sources::tunables;

    use super::*;

    fn saved(path: &Path, name: &str, value: &str) -> Result<(), SaveError> {
        let tunable = tunables::find(name).unwrap();
        Save::begin(path)?.finish(tunable, value)
    }

    #[test]
    fn one_value_is_replaced_and_no_byte_beside_it() {
        let before = "# mine\r\nfreq_threshold=0x1 # few\nmode = \"default\"\n\n# end";
        let table = [
            (
                ("freq_threshold", "3"),
                "# mine\r\nfreq_threshold=3 # few\nmode = \"default\"\n\n# end",
            ),
            (
                ("target_nid", "1"),
                "# mine\r\nfreq_threshold=0x1 # few\nmode = \"default\"\n\n# end\n\
                 target_nid = 1\n",
            ),
            (
                ("enabled_sources", "\"none\""),
                "# mine\r\nfreq_threshold=0x1 # few\nmode = \"default\"\n\n# end\n\
                 enabled_sources = \"none\"\n",
            ),
        ];
        for ((name, literal), expected) in table {
            assert_eq!(with_value(before, name, literal), expected);
        }
        assert_eq!(with_value("", "target_nid", "1"), "target_nid = 1\n");
        let packaged = "# Doc.\n#target_nid = \"nearest\"\n\n# Doc.\n#kmigrated_sleep_ms = 100\n";
        let expected = "# Doc.\n#target_nid = \"nearest\"\ntarget_nid = 1\n\n# Doc.\n\
                        #kmigrated_sleep_ms = 100\n";
        assert_eq!(with_value(packaged, "target_nid", "1"), expected);
    }

    #[test]
    fn every_tunable_is_saved_as_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/pghot.toml");
        let mut settings = pghot_engine::Settings::new(pghot_hotness::Format::Default);
        for tunable in tunables::all() {
            let (min, _) = (tunable.range)(settings.mode);
            settings.set(tunable, &tunable.show(min)).unwrap();
            saved(&path, tunable.name, &tunable.show(min)).unwrap();
        }
        saved(&path, "target_nid", "nearest").unwrap();
        saved(&path, "target_nid", "0").unwrap();
        let read = crate::config::load(Some(&path), Vec::new()).unwrap();
        assert_eq!(read.settings, settings);
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1, "nothing is left beside it");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, NEW_MODE);
    }

    #[test]
    fn mode_owner_and_links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&path, "freq_threshold = 1\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        let before = fs::metadata(&path).unwrap();
        saved(&link, "freq_threshold", "2").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "freq_threshold = 2\n");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let after = fs::metadata(&path).unwrap();
        let facts = |it: &fs::Metadata| (it.mode(), it.uid(), it.gid());
        assert_eq!(facts(&after), facts(&before));
    }

    #[test]
    fn what_cannot_be_saved_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pghot.toml");
        fs::write(&path, "freq_threshold = ").unwrap();
        let error = saved(&path, "freq_threshold", "2").unwrap_err().to_string();
        assert!(error.contains("line 1: this is not TOML"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "freq_threshold = ");
        fs::write(&path, "freq_threshold = 1").unwrap();
        drop(Save::begin(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // Read-only even for root.
        let error = saved(Path::new("/proc/pghot.toml"), "freq_threshold", "2");
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot save into /proc/pghot.toml: "),
            "{error}"
        );
        assert!(error.contains("without --save"), "{error}");
    }
}
