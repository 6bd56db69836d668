//! The stock kernel with `numa_balancing=2`: the faulting thread promotes a page that faults soon
//! after it was marked.

use crate::kernel::promotion::{KernelGate, promote_in_fault};
use crate::machine::world::World;
use crate::systems::system::{Descriptor, Fault, System, no_settings};

pub(in crate::systems) const DESCRIPTOR: Descriptor = Descriptor {
    name: "numab2",
    doc: "The stock kernel with numa_balancing=2 and demotion.",
    make: |world, settings| {
        no_settings(settings)?;
        let gates = vec![KernelGate::default(); world.nodes.len()];
        Ok(Box::new(Numab2 { gates }))
    },
};

struct Numab2 {
    gates: Vec<KernelGate>,
}

impl System for Numab2 {
    fn is_tiering(&self) -> bool {
        true
    }

    fn hint_fault(&mut self, world: &mut World, fault: &Fault) -> f64 {
        let Fault {
            head, pages, node, ..
        } = *fault;
        let latency_ms = fault.latency_ms();
        let reference_ms = world.spec.kernel.hot_threshold_ms;
        let is_hot = self.gates[node].admit(world, node, pages, latency_ms, reference_ms);
        match is_hot {
            true => promote_in_fault(world, head, pages, node).unwrap_or(0.0),
            false => 0.0,
        }
    }
}
