//! The kernel's own tiering.

use anyhow::Result;
use pghot_testbed::Vm;

use super::Running;

const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

struct NumaBalancing(Vm);

/// Switches its tiering mode on.
pub fn start(vm: &Vm) -> Result<Box<dyn Running>> {
    vm.write(NUMA_BALANCING, "2")?;
    Ok(Box::new(NumaBalancing(vm.clone())))
}

impl Running for NumaBalancing {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(self.0.write(NUMA_BALANCING, "0")?)
    }
}
