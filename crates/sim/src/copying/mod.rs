//! What `move_pages(2)` costs, stage by stage, if the kernel copies folio by folio, or threads or a
//! DMA engine copy a whole batch.
//!
//! The kernel cuts a call into batches. Of a batch it unmaps all folios, flushes the TLB once, and
//! then copies and moves one folio after the other. A copier for batches comes in between: it
//! copies all of them before the first is moved. So a larger batch gives more channels work, and
//! makes the first folio wait longer.

pub mod prices;
pub mod spec;

use serde::{Deserialize, Serialize};

use crate::Error;
use prices::{Engine, KernelPrices, Threads};

/// Bytes of a base page.
const PAGE_BYTES: u64 = 4096;

/// Base pages of a huge folio are two to this power; one page-table entry maps it.
pub const HUGE_ORDER: u32 = 9;

/// Base pages of a stock kernel's batch: `NR_MAX_BATCHED_MIGRATION`.
pub const STOCK_BATCH_PAGES: u64 = 512;

/// Folios to move, all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folios {
    count: u64,
    order: u32,
}

impl Folios {
    /// So many, each of two to the power of `order` base pages.
    pub fn new(count: u64, order: u32) -> Result<Folios, Error> {
        match order {
            0..=HUGE_ORDER => Ok(Folios { count, order }),
            _ => Err(Error::field(
                "order",
                format!("{order} is not from 0 to {HUGE_ORDER}"),
            )),
        }
    }

    fn is_huge(self) -> bool {
        self.order == HUGE_ORDER
    }

    /// Bytes of one.
    fn folio_bytes(self) -> f64 {
        (PAGE_BYTES << self.order) as f64
    }

    /// Bytes of all.
    pub fn bytes(self) -> f64 {
        self.folio_bytes() * self.count as f64
    }

    /// Page-table entries of one.
    fn entries(self) -> f64 {
        match self.is_huge() {
            true => 1.0,
            false => f64::from(1_u32 << self.order),
        }
    }

    /// How many a batch of so many pages holds: the one that crosses the limit is included.
    fn of_batch(self, batch_pages: u64) -> u64 {
        batch_pages.div_ceil(1 << self.order).max(1)
    }
}

/// Who copies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Copier {
    /// The thread that migrates, each folio when it moves it.
    InTurn,
    /// Several threads, each batch before its first folio is moved.
    Threads(u32, Threads),
    /// So many channels of an engine, each batch before its first folio is moved.
    Engine(u32, Engine),
}

/// A kernel that migrates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Migration {
    /// What its own work costs.
    pub kernel: KernelPrices,
    /// Who copies.
    pub copier: Copier,
    /// Base pages of a batch; it holds one folio at least.
    pub batch_pages: u64,
}

/// What the stages of a call took; they follow each other in each batch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Stages {
    /// Entering the kernel and leaving it.
    pub call_ns: f64,
    /// Unmapping all folios.
    pub unmap_ns: f64,
    /// Flushing the TLB.
    pub flush_ns: f64,
    /// Handing the batch to the copier.
    pub setup_ns: f64,
    /// Copying.
    pub copy_ns: f64,
    /// Moving the folios and mapping them again.
    pub move_ns: f64,
    /// The end of each batch.
    pub end_ns: f64,
}

impl Stages {
    /// All of them.
    pub fn total_ns(&self) -> f64 {
        let before_copy = self.call_ns + self.unmap_ns + self.flush_ns + self.setup_ns;
        before_copy + self.copy_ns + self.move_ns + self.end_ns
    }

    fn add(&mut self, other: &Stages) {
        self.call_ns += other.call_ns;
        self.unmap_ns += other.unmap_ns;
        self.flush_ns += other.flush_ns;
        self.setup_ns += other.setup_ns;
        self.copy_ns += other.copy_ns;
        self.move_ns += other.move_ns;
        self.end_ns += other.end_ns;
    }
}

/// One batch of a call.
struct Batch {
    stages: Stages,
    first_folio_ns: f64,
}

/// What a call took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Stage by stage, over all batches.
    pub stages: Stages,
    /// Batches.
    pub batches: u64,
    /// From the beginning of a batch until its first folio is done, on average.
    pub first_folio_ns: f64,
    /// The longest time that a folio can have been inaccessible: the longest batch.
    pub last_folio_ns: f64,
    bytes: f64,
}

impl Call {
    /// Throughput, in 2^30 bytes a second.
    pub fn gib_per_s(&self) -> f64 {
        self.bytes / f64::from(1 << 30) / (self.stages.total_ns() / 1e9)
    }
}

impl Migration {
    /// The stock kernel on the published machine.
    pub fn stock() -> Migration {
        Migration {
            kernel: prices::ZEN3,
            copier: Copier::InTurn,
            batch_pages: STOCK_BATCH_PAGES,
        }
    }

    /// One call that moves these folios.
    pub fn call(&self, folios: Folios) -> Call {
        let mut call = Call {
            stages: Stages {
                call_ns: self.kernel.call_ns,
                ..Stages::default()
            },
            batches: 0,
            first_folio_ns: 0.0,
            last_folio_ns: 0.0,
            bytes: folios.bytes(),
        };
        let batch_folios = folios.of_batch(self.batch_pages);
        let mut done = 0;
        while done < folios.count {
            let count = batch_folios.min(folios.count - done);
            let batch = self.batch(Folios { count, ..folios }, done);
            call.stages.add(&batch.stages);
            call.first_folio_ns += batch.first_folio_ns;
            call.last_folio_ns = call.last_folio_ns.max(batch.stages.total_ns());
            call.batches += 1;
            done += count;
        }
        call.first_folio_ns /= call.batches.max(1) as f64;
        call
    }

    /// The batch after so many folios of the call.
    fn batch(&self, folios: Folios, done: u64) -> Batch {
        let kernel = &self.kernel;
        let count = folios.count as f64;
        let cold = kernel.cold_folios.saturating_sub(done).min(folios.count) as f64;
        let cold_ns = if done == 0 { kernel.cold_ns } else { 0.0 };
        let entries_ns = folios.entries() * kernel.entry_ns / 2.0;
        let huge_ns = if folios.is_huge() {
            kernel.huge_ns
        } else {
            0.0
        };
        let move_ns = kernel.move_ns + entries_ns;
        let (setup_ns, copy_ns) = self.copy(folios);
        let stages = Stages {
            call_ns: 0.0,
            unmap_ns: cold_ns
                + count * (kernel.unmap_ns + entries_ns)
                + cold * kernel.cold_unmap_ns,
            flush_ns: kernel.flush_ns,
            setup_ns,
            copy_ns,
            move_ns: count * (move_ns + huge_ns) + cold * kernel.cold_move_ns,
            end_ns: kernel.batch_end_ns,
        };
        let first_copy_ns = match self.copier {
            Copier::InTurn => copy_ns / count,
            Copier::Threads(..) | Copier::Engine(..) => copy_ns,
        };
        let first_move_ns = move_ns + cold.min(1.0) * kernel.cold_move_ns;
        Batch {
            stages,
            first_folio_ns: stages.unmap_ns
                + stages.flush_ns
                + setup_ns
                + first_copy_ns
                + first_move_ns,
        }
    }

    /// Handing a batch to the copier, and copying it.
    fn copy(&self, folios: Folios) -> (f64, f64) {
        let cpu = self.kernel.copy_bytes_per_ns;
        match self.copier {
            Copier::InTurn => (0.0, folios.bytes() / cpu),
            Copier::Threads(threads, prices) => {
                let threads = u64::from(threads.max(1));
                // Fewer folios than threads are cut into slices; more are dealt as they are.
                let share_bytes = match folios.count < threads {
                    true => folios.bytes() / threads as f64,
                    false => folios.folio_bytes() * folios.count.div_ceil(threads) as f64,
                };
                let limit_ns = folios.bytes() / prices.limit_bytes_per_ns;
                (prices.setup_ns, limit_ns.max(share_bytes / cpu))
            }
            Copier::Engine(channels, engine) => {
                let submit_ns = engine.submit_ns * folios.count as f64;
                (
                    engine.setup_ns + submit_ns,
                    engine.copy_ns(folios, channels),
                )
            }
        }
    }
}

impl Engine {
    /// A batch, from its last submission until its last channel is done. A folio is never split, so
    /// the channel with the most folios decides.
    fn copy_ns(&self, folios: Folios, channels: u32) -> f64 {
        let channels = u64::from(channels.min(self.channels_max))
            .min(folios.count)
            .max(1);
        let bytes_per_ns = match (folios.is_huge(), channels) {
            (false, _) => self.small_bytes_per_ns,
            (true, 1) => self.alone_bytes_per_ns,
            (true, _) => self.beside_bytes_per_ns,
        };
        let folio_ns = self.descriptor_ns + folios.folio_bytes() / bytes_per_ns;
        let busiest_ns = folios.count.div_ceil(channels) as f64 * folio_ns;
        busiest_ns + folios.bytes() / self.common_bytes_per_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prices::{PTDMA, ZEN3, ZEN3_THREADS};

    const GIB_PAGES: u64 = 1 << 18;

    fn folios(count: u64, order: u32) -> Folios {
        Folios::new(count, order).unwrap()
    }

    fn gib(order: u32) -> Folios {
        folios(GIB_PAGES >> order, order)
    }

    fn offload(channels: u32, batch_pages: u64) -> Migration {
        Migration {
            copier: Copier::Engine(channels, PTDMA),
            batch_pages,
            ..Migration::stock()
        }
    }

    #[test]
    fn a_folio_has_at_most_the_order_of_a_huge_page() {
        Folios::new(1, 9).unwrap();
        assert!(Folios::new(1, 10).is_err());
    }

    #[test]
    fn stages_add_up() {
        // By hand: three batches of one huge folio, all of them cold.
        let call = Migration::stock().call(folios(3, 9));
        let k = ZEN3;
        let copy_ns = 3.0 * f64::from(1 << 21) / k.copy_bytes_per_ns;
        let folio_ns = k.unmap_ns + k.move_ns + k.entry_ns + k.huge_ns;
        let cold_ns = k.cold_ns + 3.0 * (k.cold_unmap_ns + k.cold_move_ns);
        let batch_ns = k.flush_ns + k.batch_end_ns;
        let by_hand = k.call_ns + cold_ns + copy_ns + 3.0 * (folio_ns + batch_ns);
        assert!((call.stages.total_ns() - by_hand).abs() < 1e-6);
        assert_eq!(call.stages.copy_ns, copy_ns);
        assert_eq!(call.batches, 3);
        let gib = 3.0 * f64::from(1 << 21) / f64::from(1 << 30);
        assert!((call.gib_per_s() - gib / by_hand * 1e9).abs() < 1e-9);
    }

    #[test]
    fn a_batch_is_the_sum_of_its_stages_and_the_call_of_its_batches() {
        let migration = offload(4, 2048);
        let call = migration.call(folios(5000, 0));
        let batches = [(2048, 0), (2048, 2048), (904, 4096)]
            .map(|(count, done)| migration.batch(folios(count, 0), done));
        let sum: f64 = batches.iter().map(|batch| batch.stages.total_ns()).sum();
        let total = call.stages.total_ns();
        assert!((total - ZEN3.call_ns - sum).abs() < 1e-6 * total);
        let longest = batches[0].stages.total_ns();
        assert_eq!(call.last_folio_ns, longest, "the cold one");
    }

    #[test]
    fn a_call_without_folios_is_entered_and_left() {
        let call = offload(4, 512).call(folios(0, 0));
        assert_eq!(call.stages.total_ns(), ZEN3.call_ns);
        assert_eq!((call.batches, call.first_folio_ns), (0, 0.0));
        assert_eq!(call.gib_per_s(), 0.0);
    }

    #[test]
    fn a_stock_batch_holds_512_base_pages_or_one_huge_folio() {
        assert_eq!(Migration::stock().call(folios(1024, 0)).batches, 2);
        assert_eq!(Migration::stock().call(folios(4, 9)).batches, 4);
        assert_eq!(Migration::stock().call(folios(128, 4)).batches, 4);
        let of_600 = |order| folios(1, order).of_batch(600);
        assert_eq!((of_600(9), of_600(8), of_600(0)), (2, 3, 600));
        assert_eq!(folios(1, 9).of_batch(0), 1);
        assert_eq!(folios(1, 9).of_batch(u64::MAX), u64::MAX.div_ceil(512));
    }

    #[test]
    fn more_channels_are_never_slower() {
        // But for three huge folios on two channels, each of which is then slower than one alone;
        // no batch that is a power of two falls so.
        for order in 0..=HUGE_ORDER {
            for batch_pages in [512, 4096, GIB_PAGES] {
                let total = |channels| {
                    let call = offload(channels, batch_pages).call(gib(order));
                    call.stages.total_ns()
                };
                for channels in 1..20 {
                    let (fewer, more) = (total(channels), total(channels + 1));
                    assert!(more <= fewer, "order {order}, {batch_pages}: {channels}");
                }
            }
        }
    }

    #[test]
    fn only_as_many_channels_work_as_there_are_folios() {
        let copy = |channels, count| PTDMA.copy_ns(folios(count, 9), channels);
        for count in 1..16 {
            let enough = copy(count, u64::from(count));
            assert_eq!(copy(16, u64::from(count)), enough, "{count} folios");
            let fewer = copy(count - 1, u64::from(count));
            assert!(count == 1 || fewer > enough * 1.01, "{count} folios");
        }
        assert_eq!(copy(32, 64), copy(16, 64), "what the driver uses");
        // With stock batches, a huge folio is alone.
        let gib_per_s = |channels| offload(channels, 512).call(gib(9)).gib_per_s();
        assert_eq!(gib_per_s(1), gib_per_s(16));
    }

    #[test]
    fn the_busiest_channel_decides_and_the_common_part_adds_to_it() {
        let copy = |count| PTDMA.copy_ns(folios(count, 9), 4);
        let huge = f64::from(1 << 21);
        let round_ns = PTDMA.descriptor_ns + huge / PTDMA.beside_bytes_per_ns;
        let common_ns = huge / PTDMA.common_bytes_per_ns;
        for (count, rounds) in [(4_u64, 1.0), (5, 2.0), (8, 2.0), (9, 3.0)] {
            let by_hand = rounds * round_ns + count as f64 * common_ns;
            assert!((copy(count) - by_hand).abs() < 1e-6, "{count} folios");
        }
    }

    #[test]
    fn the_first_folio_waits_for_the_batch_with_offload_only() {
        let warm = Migration {
            kernel: KernelPrices {
                cold_ns: 0.0,
                cold_folios: 0,
                ..ZEN3
            },
            ..offload(4, 512)
        };
        for order in [0, 9] {
            let first = |batch_pages: u64| {
                let with = Migration {
                    batch_pages,
                    ..warm
                };
                with.call(folios(batch_pages >> order, order))
                    .first_folio_ns
            };
            // On a straight line: equal steps of the limit, equal steps of the wait.
            let [a, b, c] = [4096, 8192, 12_288].map(first);
            assert!((c - b - (b - a)).abs() < 1e-6 * c, "order {order}");
            assert!((b - a) / a > 0.9, "nearly in proportion");
        }
        let stock = Migration {
            copier: Copier::InTurn,
            ..warm
        };
        let call = stock.call(gib(0));
        let unmap_ns = call.stages.unmap_ns / call.batches as f64;
        let beyond_ns = call.first_folio_ns - unmap_ns - ZEN3.flush_ns;
        let folio_ns = 4096.0 / ZEN3.copy_bytes_per_ns + ZEN3.move_ns + ZEN3.entry_ns / 2.0;
        assert!(
            (beyond_ns - folio_ns).abs() < 1e-3,
            "one folio's copy and move"
        );
    }

    #[test]
    fn few_folios_are_sliced_among_threads_and_many_are_dealt() {
        let copy = |threads, count| {
            let threads = Copier::Threads(threads, ZEN3_THREADS);
            let migration = Migration {
                copier: threads,
                ..Migration::stock()
            };
            migration.copy(folios(count, 9)).1
        };
        let one = copy(1, 1);
        assert!((copy(2, 1) - one / 2.0).abs() < 1e-6, "two slices");
        assert!((copy(2, 3) - one * 2.0).abs() < 1e-6, "two and one");
        let limit_ns = f64::from(1 << 21) / ZEN3_THREADS.limit_bytes_per_ns;
        assert_eq!(copy(64, 1), limit_ns);
    }
}
