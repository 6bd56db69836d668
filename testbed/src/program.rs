//! Programs of others that `setup.sh --bench` left in the cache, unpacked with their libraries.

use std::fs;
use std::path::PathBuf;

use crate::Error;
use crate::kernel::cache_dir;

/// Where a program is, to be named among [`Spec::binaries`](crate::Spec::binaries); its libraries
/// come with it. If it could not be had, the error repeats what `setup.sh` said.
pub fn program(name: &str) -> Result<PathBuf, Error> {
    let dir = cache_dir().join("bench");
    let path = dir.join(name).join("usr/bin").join(name);
    if path.is_file() {
        return Ok(path);
    }
    let reason = fs::read_to_string(dir.join(format!("{name}.missing")));
    Err(Error::ProgramMissing {
        name: name.to_owned(),
        reason: reason.map_or_else(
            |_| "it was never fetched".to_owned(),
            |reason| reason.trim().to_owned(),
        ),
        option: "--bench",
    })
}
