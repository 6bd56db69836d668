//! What each stage of a migration costs, on the one machine of which enough is published.
//!
//! It has two sockets of Zen 3 and the PTDMA engine; `tables/migration.toml` has the figures. There
//! are as many numbers here as cells marked as calibration there, but for three that are said to be
//! assumed. Each is solved from its cell with the others inserted; none is a compromise.
//!
//! Throughputs are published in GB/s of 2^30 bytes, though that is not said: only so a huge folio
//! takes equally long after its copy whatever the number of channels, 2.5 µs (2B, order 9, last
//! row). With 10^9 bytes it would take 14 µs with one channel and 5 with 16.

use serde::{Deserialize, Serialize};

/// The kernel's own work, and its copy on one CPU; what a scenario leaves out is that of [`ZEN3`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelPrices {
    /// A call's own: entering, draining the LRU caches of all CPUs.
    pub call_ns: f64,
    /// The first batch of a call finds nothing in the caches.
    pub cold_ns: f64,
    /// Nor do so many folios at the beginning of a call.
    pub cold_folios: u64,
    /// What such a folio costs more before its copy.
    pub cold_unmap_ns: f64,
    /// And after it.
    pub cold_move_ns: f64,
    /// The flush of the TLB, once a batch.
    pub flush_ns: f64,
    /// Finding room for a folio, locking it and taking it out of its mapping.
    pub unmap_ns: f64,
    /// Moving its state to the copy, and giving the old folio back.
    pub move_ns: f64,
    /// One page-table entry: half of it when it is unmapped, half when it is mapped again.
    pub entry_ns: f64,
    /// What a huge folio costs beyond that of a base page with its one entry, after it is done.
    pub huge_ns: f64,
    /// The end of a batch.
    pub batch_end_ns: f64,
    /// The copy by a CPU.
    pub copy_bytes_per_ns: f64,
}

impl Default for KernelPrices {
    fn default() -> KernelPrices {
        ZEN3
    }
}

/// Solved from the stock kernel's rows, n being the folios of a call and "first" the time to the
/// first.
pub const ZEN3: KernelPrices = KernelPrices {
    // Assumed: one CPU used the pages, so the flush is local.
    flush_ns: 1_000.0,
    // 2A, order 9, n = 512, first 173 µs = flush 1 + cold unmap 0.5 + copy 170.7 + cold move 0.8.
    copy_bytes_per_ns: 12.3,
    // 2A, order 0, n = 262144, first 167 µs = flush 1 + 512 (unmap + entry / 2) + copy 0.3 + move
    // 0.5.
    unmap_ns: 229.0,
    // 1a, 1M: 7.13 GB/s, 137.0 µs a folio = (flush 1 + end 4.6) / 2 + unmap + move + 256 entries
    // + copy 85.4. 16K, 64K and 256K then come out within 1 %.
    entry_ns: 187.0,
    // 1a, 4K: 3.31 GB/s, 1152 ns a page = (flush + end) / 512 + unmap + move + entry + copy 333.
    move_ns: 391.0,
    // 2A, order 9, n = 512: 10.88 GB/s, 179.5 µs a folio; 6.5 of them after "first": end + huge.
    batch_end_ns: 4_620.0,
    // 2A, order 0, n = 1, first 24 µs = cold + flush 1 + one cold page 1.6.
    cold_ns: 21_400.0,
    // Assumed: a stock batch. In longer calls the mean over the batches falls as if only the first
    // were cold.
    cold_folios: 512,
    // 2A, order 0, n = 512, first 264 µs, 97 more than in later batches = cold + 512 cold folios.
    cold_unmap_ns: 147.0,
    // 2A, order 0, n = 512: 2.21 GB/s, 884 µs = call + cold + batch 596 + 512 cold folios.
    cold_move_ns: 266.0,
    // 2A, order 0, n = 16: 0.54 GB/s, 113 µs = call + cold + flush + end + 16 pages 25.
    call_ns: 61_100.0,
    // 1b, 2M, 1 channel: 12.65 GB/s, 154.4 µs a folio = 151.7 up to its copy's end (see the engine)
    // + entry / 2 + move + huge, + 0.4 because all 512 folios are a call's first.
    huge_ns: 1_770.0,
};

/// Threads of the kernel that share the copy of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threads {
    /// Giving them the work and waiting for them, once a batch.
    pub setup_ns: f64,
    /// What all of them together can copy.
    pub limit_bytes_per_ns: f64,
}

/// On the same machine.
pub const ZEN3_THREADS: Threads = Threads {
    // Assumed: a wake-up and a wait, as for the engine.
    setup_ns: 6_520.0,
    // v3, mtcopy 16 threads, 2M: 35.89 GB/s, 54.4 µs a folio, of which the copy 51.2.
    limit_bytes_per_ns: 40.9,
};

/// A DMA engine with channels. What a channel copies takes the channel's time, beside other
/// channels, and that of a part which all share, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Engine {
    /// Asking for channels and waiting for the interrupt, once a batch.
    pub setup_ns: f64,
    /// Mapping a folio for DMA and handing in its descriptor: the CPU does one after the other.
    pub submit_ns: f64,
    /// What a channel needs for a descriptor beyond its bytes.
    pub descriptor_ns: f64,
    /// A channel that copies folios smaller than a huge page, alone or not.
    pub small_bytes_per_ns: f64,
    /// A channel that copies huge folios while no other copies.
    pub alone_bytes_per_ns: f64,
    /// One among several that copy huge folios.
    pub beside_bytes_per_ns: f64,
    /// The part that all channels share.
    pub common_bytes_per_ns: f64,
    /// The driver uses no more channels.
    pub channels_max: u32,
}

/// AMD's engine with the driver `dcbm`. Why a channel is slower with small folios, or beside
/// others, is not published.
///
/// That the common part adds to the channel's time was chosen with the figures for 4 to 12 channels
/// known: a hard limit of all channels, from the same two cells, is 20 % too fast with 8.
pub const PTDMA: Engine = Engine {
    // 2B, order 9, N = 512, 1 channel, first 160 µs, of which 151.7 are the folio's and flush 1,
    // move 0.5.
    setup_ns: 6_520.0,
    // 2B, order 9, N = 262144, 1 channel, first 77694 µs, 151.7 a folio = unmap 0.5 + submit 0.1
    // + descriptor 0.2 + channel 139.3 + common part 11.6.
    alone_bytes_per_ns: 15.05,
    // Both from two cells, 1b, 2M. 2 channels: 14.38 GB/s, 135.8 µs a folio = 3.3 + channel / 2 +
    // common. 16 channels: 65.23 GB/s, 29.9 µs = 3.3 + channel / 16 + common. So they are 242 and
    // 11.6.
    beside_bytes_per_ns: 8.67,
    common_bytes_per_ns: 181.5,
    // 1b, 1M, 1 channel: 4.62 GB/s, 211.4 µs a folio = 48.8 + submit and descriptor 0.3 + common
    // 5.8 + channel 156.5.
    small_bytes_per_ns: 6.7,
    // 2B, order 0, N = 512, first: with 1 channel 639 µs = 173.4 + 512 (submit + common 23 ns + one
    // page in a channel), with 16 channels 253 µs = 173.4 + 512 (the same with 1/16 of the last).
    // One page in a channel is the descriptor and 611 ns of copying.
    submit_ns: 83.0,
    descriptor_ns: 193.0,
    channels_max: 16,
};
