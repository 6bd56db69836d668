//! memtierd, Intel's daemon in user space: follows the processes of the workloads, and moves
//! regions of 2 MiB by their heat.
//!
//! Of its trackers only `softdirty` works on Debian's kernels as they are, and it sees stores
//! alone: what is only read stays where it is, or goes down. The others need more:
//!
//! | tracker | what is missing |
//! |---|---|
//! | `idlepage` | `/sys/kernel/mm/page_idle/bitmap`: `CONFIG_IDLE_PAGE_TRACKING` is off |
//! | `damon` | `bpftrace`, which brings LLVM: more than the top tier has room for |
//! | `multi` | a tracker besides `softdirty` to go with it |
//!
//! It sees no page cache that is not mapped. It is in no Debian release: `setup.sh --bench` takes
//! one that the host has. The configuration is that of its authors' test of the heat policy with
//! `softdirty`, but for nodes and processes; it is checked against their documents, not yet by a
//! run.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pghot_testbed::{Process, Vm, program};

use super::Running;

const CONFIG: &str = "/tmp/memtierd.yaml";

/// Where a tracker shows what it needs. Every process has the file, if the kernel can do it.
const CLEAR_REFS: &str = "/proc/self/clear_refs";

/// Whoever ends at once does so by then: a wrong configuration is found while it is read.
const SETTLE: Duration = Duration::from_secs(3);

/// Heat 1 is what was written since the last look, heat 0 is all else. It exits with the end of its
/// input unless told by `-c` that there is none.
const SETTINGS: &str = "\
policy:
  name: heat
  config: |
    intervalms: 4000
    pidwatcher:
      name: filter
      config: |
        source:
          name: proc
          config: |
            intervalms: 1000
        filters:
          - procexeregexp: \".*/(load|hotset|redis-server)$\"
    heatnumas:
      0: [1]
      1: [0]
    heatmap:
      heatmax: 0.01
      heatretention: 0
      heatclasses: 2
    tracker:
      name: softdirty
      config: |
        pagesinregion: 512
        maxcountperregion: 0
        scanintervalms: 500
        regionsupdatems: 0
    mover:
      intervalms: 20
      bandwidth: 100
";

struct Daemon(Process);

/// Starts it, in a guest that has it.
pub fn start(vm: &Vm) -> Result<Box<dyn Running>> {
    if !vm.exists("/bin/memtierd")? {
        // Says why it is not there, if it is not.
        let path = program("memtierd")?;
        bail!("the guest was booted without {}", path.display());
    }
    ensure!(
        vm.exists(CLEAR_REFS)?,
        "memtierd cannot track memory here: the kernel has no {CLEAR_REFS}"
    );
    vm.write(CONFIG, SETTINGS)?;
    let mut process = vm.spawn(&["memtierd", "-config", CONFIG, "-c", ""])?;
    let ended = process.wait(SETTLE);
    match ended {
        Ok(output) => {
            output.success().context("memtierd ended at once")?;
            bail!("memtierd ended at once, without a word");
        }
        Err(pghot_testbed::Error::Never { .. }) => Ok(Box::new(Daemon(process))),
        Err(error) => Err(error.into()),
    }
}

impl Running for Daemon {
    fn stop(mut self: Box<Self>) -> Result<()> {
        // It handles no signal, and leaves nothing behind that matters: soft-dirty bits.
        self.0.kill()?;
        Ok(())
    }
}
