//! No balancing: pages stay where they came to life, and reclaim alone moves them down.

use crate::systems::system::{Descriptor, System, no_settings};

pub(in crate::systems) const DESCRIPTOR: Descriptor = Descriptor {
    name: "none",
    doc: "No balancing; with demotion.",
    make: |_, settings| {
        no_settings(settings)?;
        Ok(Box::new(None))
    },
};

struct None;

impl System for None {
    fn is_tiering(&self) -> bool {
        false
    }
}
