//! Tells pghot which memory of this process will be used soon, for pghot's source `app_hint`.
//!
//! A hint counts as one access of each page in it. So with `freq_threshold` 1 a hint promotes, and
//! with 2 it takes two hints, or a hint and an access that another source sees. A hint is never
//! waited for, and a program that runs without pghot loses nothing but hints.
//!
//! ```no_run
//! use pghot_hint::{DEFAULT_SOCKET, Hints, Range};
//!
//! let table = vec![0u8; 1 << 20];
//! // Not there? Then there is nobody to tell.
//! if let Ok(hints) = Hints::connect(DEFAULT_SOCKET.as_ref()) {
//!     hints.send(&[Range::of(&table)]).ok();
//! }
//! ```
//!
//! Who hints too often for a system call each uses a [`Ring`] in shared memory instead:
//!
//! ```no_run
//! # use pghot_hint::{DEFAULT_SOCKET, Range, Ring};
//! # let table = vec![0u8; 1 << 20];
//! if let Ok(ring) = Ring::connect(DEFAULT_SOCKET.as_ref()) {
//!     ring.push(Range::of(&table)).ok();
//! }
//! ```
//!
//! After a fork or an exec, connect again: the daemon knows a connection's process by who
//! connected.

mod client;
pub mod ring;
pub mod socket;
pub mod wire;

pub use client::Hints;
pub use ring::Ring;
pub use socket::{connect, peer_address};
pub use wire::{Answer, RANGES_MAX, Range};

/// Where the daemon listens unless it is told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/pghot/hint.sock";
