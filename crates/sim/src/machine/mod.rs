//! The modelled machine: what it is ([`MachineSpec`]), and how it is at a moment
//! ([`world::World`]): its pages, its nodes, how often each page is accessed, and what goes wrong.

pub mod emulated;
pub mod heat;
pub mod lru;
pub mod memory;
pub mod node;
pub mod rates;
mod spec;
pub mod trouble;
pub mod world;

pub use spec::{Costs, KernelSpec, LruKind, MachineSpec, NODES_MAX, NodeSpec, PAGES_PER_MIB};
