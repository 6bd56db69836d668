//! Metrics for Prometheus: one table says what they are, and how each is read from a [`Status`].
//!
//! They are rendered from a status as it was at one moment, so whoever reads them never waits for a
//! pass, nor a pass for him. `pghot metrics` prints them, [`Server`] serves them over HTTP, and the
//! reference is made from the same table.

pub mod http;
mod metric;
#[cfg(test)]
mod prometheus;
mod render;
mod server;
mod table;

pub use metric::{Kind, Metric};
pub use render::{Format, render};
pub use server::{ListenError, Server, listen};
pub use table::METRICS;

#[cfg(doc)]
use crate::status::Status;
