//! A workload whose memory is in place waits until it is let go: what is to be compared can start
//! meanwhile, and sees accesses alone, not how the memory was made.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// Between two looks.
const STEP: Duration = Duration::from_millis(10);

/// Waits until the file is there, and removes it. Does nothing without one.
pub fn wait(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    loop {
        match fs::remove_file(file) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => thread::sleep(STEP),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot remove {}", file.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_file_and_takes_it_away() {
        let file = std::env::temp_dir().join(format!("pghot-hold-{}", std::process::id()));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(Some(&file)));
            thread::sleep(3 * STEP);
            assert!(!waiting.is_finished());
            fs::write(&file, "").unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert!(!file.exists());
        wait(None).unwrap();
        assert!(
            wait(Some(Path::new("/proc/version"))).is_err(),
            "not ours to remove"
        );
    }
}
