//! Boots stock kernels in QEMU on machines with tiered memory, and talks to them.
//!
//! A [`Vm`] is a [`Machine`] (nodes, tiers, CPU), a [`Kernel`] image fetched by `setup.sh`, and an
//! initramfs that holds an agent as init and the binaries to test. The agent answers on a serial
//! line of its own; the console goes to a file and is shown only when something fails.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use pghot_testbed::{Kernel, Machine, Spec, Vm, guest_binaries};
//! # fn main() -> Result<(), pghot_testbed::Error> {
//! let machine = Machine::load("tiered3")?;
//! let kernel = Kernel::find("6.12")?;
//! let vm = Vm::boot(&Spec::new(&machine, &kernel, &guest_binaries()?))?;
//!
//! vm.write("/proc/sys/kernel/numa_balancing", "2")?;
//! let daemon = vm.spawn(&["pghot", "run"])?;
//! vm.wait_until("a page is promoted", Duration::from_secs(60), || {
//!     Ok(vm.vmstat("pgpromote_success")? > 0)
//! })?;
//! daemon.signal(libc::SIGTERM)?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | its one job |
//! |---|---|
//! | `machine`, `kernel` | what is booted: a machine file, a stock kernel's image |
//! | `initramfs`, `program` | what is in the guest: our binaries, and programs of others |
//! | `debian` | a guest that runs a real Debian |
//! | `qemu`, [`protocol`] | the emulator, and the talk with the agent inside |
//! | `vm`, `process` | the guest as tests see it, and processes in it |
//! | `daemon`, [`damon`] | `pghot run` in a guest, and DAMON |
//! | [`documents`] | the commands of the documents |
//! | `ledger` | how steady each test is |
//!
//! The emulator is right about what the kernel does (page placement, counters, faults) and wrong
//! about how long it takes: judge by counts, never by wall time.

mod daemon;
pub mod damon;
mod debian;
pub mod documents;
mod error;
mod initramfs;
mod kernel;
mod ledger;
mod machine;
mod process;
mod program;
pub mod protocol;
mod qemu;
mod vm;

pub use daemon::{Daemon, kill_with_keeper, number};
pub use debian::{Debian, FILES as DEBIAN_FILES};
pub use error::Error;
pub use kernel::{Kernel, cache_dir};
pub use ledger::Ledger;
pub use machine::{Machine, Node};
pub use process::{Output, Process, Status};
pub use program::program;
pub use qemu::emulator_version;
pub use vm::{Spec, Vm, Watch, guest_binaries, guest_binary};
