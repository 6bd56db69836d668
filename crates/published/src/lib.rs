//! What others measured of promotion, page migration and NUMA balancing, as data: each figure once,
//! with where it was published and what is known of its noise.
//!
//! The simulator's tables and the comparison in guests hold their own numbers against these. The
//! files of `figures/` are part of the program, and a test reads each of them, so loading them does
//! not fail.

pub mod autonuma;
pub mod migration;
pub mod timed;

use serde::de::DeserializeOwned;

/// Reads a file of `figures/`.
///
/// # Panics
///
/// If the file is not as its types say: file and types are built together.
fn parse<T: DeserializeOwned>(name: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|error| panic!("figures/{name}: {error}"))
}
