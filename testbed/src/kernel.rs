//! The stock kernel images that `setup.sh` left in the cache.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;

use crate::Error;

/// One bootable image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in `kernels.toml`.
    pub name: String,
    /// The image itself.
    pub image: PathBuf,
    /// Modules that `setup.sh` kept with it, in the order of loading.
    pub modules: Vec<PathBuf>,
}

impl Kernel {
    /// The cached image of an entry of `kernels.toml`.
    pub fn find(name: &str) -> Result<Self, Error> {
        let dir = cache_dir().join("kernels").join(name);
        let image = dir.join("vmlinuz");
        if !image.is_file() {
            return Err(Error::KernelMissing {
                name: name.to_owned(),
                dir,
            });
        }
        let folder = dir.join("modules");
        let entries = fs::read_dir(&folder).map_err(Error::io(&folder))?;
        let mut modules: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        modules.sort();
        Ok(Self {
            name: name.to_owned(),
            image,
            modules,
        })
    }

    /// The names in `kernels.toml` of those on which everything is tested, whether or not their
    /// images are there.
    pub fn names() -> Result<Vec<String>, Error> {
        let entries = Self::entries()?.into_iter();
        let tested = entries.filter(|entry| !entry.programs_only);
        Ok(tested.map(|entry| entry.name).collect())
    }

    /// The names of those on which only programs are loaded.
    pub fn names_for_programs() -> Result<Vec<String>, Error> {
        let entries = Self::entries()?.into_iter();
        let loaded = entries.filter(|entry| entry.programs_only);
        Ok(loaded.map(|entry| entry.name).collect())
    }

    fn entries() -> Result<Vec<Entry>, Error> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels.toml");
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let file: File = toml::from_str(&text).map_err(|error| Error::Config {
            path,
            problem: error.to_string(),
        })?;
        Ok(file.kernel)
    }
}

#[derive(Deserialize)]
struct File {
    kernel: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    #[serde(default)]
    programs_only: bool,
}

/// Where `setup.sh` puts what it fetches; the two must agree.
pub fn cache_dir() -> PathBuf {
    if let Some(dir) = env::var_os("PGHOT_CACHE") {
        return dir.into();
    }
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    base.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"))
        .join("pghot")
}
