//! One daemon a machine, whatever state files, sockets and containers they are told to use: two
//! would move the same pages and put back each other's settings.
//!
//! The claim is a BPF map with a certain name. Maps are the kernel's own, so they are seen from
//! every container, they take no place in a file system, and they are gone with their process. Of
//! two daemons that start at once the one with the lower map id goes on. Listing maps takes Linux
//! 4.13 and CAP_SYS_ADMIN.

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapHandle, MapType};

/// Names of maps have up to 15 bytes.
const NAME: &str = "pghot_daemon";

/// Held for as long as the daemon runs.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "it is there")] MapHandle);

/// The machine could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another daemon has it.
    #[error(
        "another pghot daemon runs on this machine, maybe in a container: end it first; \
         `bpftool map show id {id}` tells which process it is"
    )]
    Taken {
        /// The id of its map.
        id: u32,
    },
    /// The kernel refused the map.
    #[error("cannot claim this machine for one pghot daemon: {0}")]
    Bpf(#[from] libbpf_rs::Error),
}

impl Claim {
    /// Claims the machine, until dropped.
    pub fn take() -> Result<Claim, ClaimError> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some(NAME), 4, 4, 1, &options)?;
        let own = map.info()?.info.id;
        let of_daemons = MapInfoIter::default().filter(|it| it.name == NAME);
        match of_daemons.map(|it| it.id).find(|&id| id < own) {
            Some(id) => Err(ClaimError::Taken { id }),
            None => Ok(Claim(map)),
        }
    }
}
