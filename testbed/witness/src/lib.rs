//! The independent witness: sees every load and store that a workload makes in its measured memory,
//! and which node served it. `testbed/plugin` puts it into QEMU.
//!
//! | module | does |
//! |---|---|
//! | [`options`] | what it is told at the start |
//! | [`witness`] | what is done with each access and each mark |
//! | [`layout`] | from QEMU's RAM addresses to nodes |
//! | [`cache`] | the model of a last-level cache |
//! | [`counts`] | what each vCPU counts by node, and how it adds up |
//! | [`pages`] | what is known of each page |
//! | [`report`] | the JSON file |
//!
//! It counts user-mode accesses of the measured memory and none of the kernel's: what moving pages
//! costs is for others to measure. Or, if asked, everything that any program and the kernel access.
//! Nothing here decides anything.

pub mod cache;
pub mod counts;
pub mod layout;
pub mod options;
pub mod pages;
pub mod report;
pub mod witness;

/// What workload and witness agree on: where the measured memory lies, how phases are told.
pub use pghot_workloads::marks;
