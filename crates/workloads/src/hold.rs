//! A workload whose memory is in place waits until it is let go: what is to be compared can start
//! meanwhile, and sees accesses alone, not how the memory was made.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::numa_maps::NodePages;
use crate::report;

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

/// What one that is held says besides what all say.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    /// What waited begins.
    Begin { nodes: NodePages },
    /// All work is done; what waits looks through its memory then, when it is let go again.
    End { nodes: &'a NodePages },
}

/// Waits for the file before the work, if there is one, and says where the pages are.
pub fn begin(file: Option<&Path>, nodes: impl Fn() -> Result<NodePages>) -> Result<()> {
    if file.is_some() {
        wait(file)?;
        report::print(&Event::Begin { nodes: nodes()? })?;
    }
    Ok(())
}

/// After the work: where the pages are. One that is held says it, and waits again: whoever holds it
/// may look at the kernel's counters before its memory is looked through.
pub fn end(file: Option<&Path>, nodes: impl Fn() -> Result<NodePages>) -> Result<NodePages> {
    let nodes = nodes()?;
    if file.is_some() {
        report::print(&Event::End { nodes: &nodes })?;
        wait(file)?;
    }
    Ok(nodes)
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
