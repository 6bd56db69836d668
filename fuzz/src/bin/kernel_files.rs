//! What the kernel shows as text. The first byte says which file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pghot_linux::vmstat::Vmstat;
use pghot_linux::{lru_gen, topology, zoneinfo};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    match kind % 4 {
        0 => {
            let mut zones = Vec::new();
            // What was read before an error counts as well.
            let _ = zoneinfo::parse(&text, &mut zones);
            for zone in &zones {
                zone.list_pages(&text, 1);
            }
        }
        1 => drop(Vmstat::parse(&text)),
        2 => {
            let (list, cgroups) = text.split_once('\0').unwrap_or((&text, "0::/a\n"));
            drop(lru_gen::parse(list, |_| true));
            lru_gen::memcg_of(list, cgroups);
        }
        _ => drop(topology::parse_range_list(&text)),
    }
});
