//! The systems that are compared: pghot itself, and models of the others. [`SYSTEMS`] lists them.

mod pghot;
mod rivals;
mod system;

use pghot_engine::names::no_such;

use crate::Error;

pub use system::{Descriptor, Fault, Make, Setting, System, Touch};

/// All of them.
pub const SYSTEMS: &[Descriptor] = &[
    rivals::none::DESCRIPTOR,
    pghot::DESCRIPTOR,
    rivals::numab2::DESCRIPTOR,
    rivals::fault_count::DESCRIPTOR,
    rivals::proposal::DESCRIPTOR,
    rivals::damon::DESCRIPTOR,
];

/// The system of that name.
pub fn find(name: &str) -> Result<&'static Descriptor, Error> {
    let found = SYSTEMS.iter().find(|system| system.name == name);
    found.ok_or_else(|| {
        let names = SYSTEMS.iter().map(|system| system.name);
        Error::field("systems", no_such("system", name, names))
    })
}
