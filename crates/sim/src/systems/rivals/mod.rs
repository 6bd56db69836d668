//! Models of pghot's rivals: the kernel's tiering, what was proposed to it, DAMON, no balancing.

pub(super) mod damon;
pub(super) mod fault_count;
pub(super) mod none;
pub(super) mod numab2;
pub(super) mod proposal;
