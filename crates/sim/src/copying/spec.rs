//! How the modelled kernel copies the pages that a call of `move_pages` moves, as a scenario file
//! says it.

use serde::{Deserialize, Serialize};

use super::prices::{KernelPrices, PTDMA, ZEN3_THREADS};
use super::{Copier, Folios, HUGE_ORDER, Migration, STOCK_BATCH_PAGES};
use crate::error::{Error, check_times};

/// The largest batch that anybody has measured, in base pages.
const BATCH_PAGES_MAX: u64 = 1 << 18;

/// Threads or channels that there may be.
const CHANNELS_MAX: u32 = 64;

/// Who copies, and how much at once; by default as stock kernels do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MigrationSpec {
    /// Who copies.
    pub copier: CopierKind,
    /// Threads, or channels of the engine.
    pub channels: u32,
    /// Base pages that the kernel unmaps, copies and maps again at once.
    pub batch_pages: u64,
    /// What its own work costs, and a copy by one CPU.
    pub kernel: KernelPrices,
}

/// See [`Copier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopierKind {
    /// The thread that migrates, folio by folio: stock kernels.
    #[default]
    InTurn,
    /// Threads of the kernel.
    Threads,
    /// A DMA engine.
    Engine,
}

impl Default for MigrationSpec {
    fn default() -> MigrationSpec {
        MigrationSpec {
            copier: CopierKind::default(),
            channels: 1,
            batch_pages: STOCK_BATCH_PAGES,
            kernel: KernelPrices::default(),
        }
    }
}

impl MigrationSpec {
    /// Names the first field that cannot be.
    pub fn check(&self) -> Result<(), Error> {
        if self.channels == 0 || self.channels > CHANNELS_MAX {
            return Err(Error::field(
                "machine.migration.channels",
                format!("{} is not from 1 to {CHANNELS_MAX}", self.channels),
            ));
        }
        if self.batch_pages == 0 || self.batch_pages > BATCH_PAGES_MAX {
            return Err(Error::field(
                "machine.migration.batch_pages",
                format!("{} is not from 1 to {BATCH_PAGES_MAX}", self.batch_pages),
            ));
        }
        let kernel = &self.kernel;
        let prices = [
            ("call_ns", kernel.call_ns),
            ("cold_ns", kernel.cold_ns),
            ("cold_unmap_ns", kernel.cold_unmap_ns),
            ("cold_move_ns", kernel.cold_move_ns),
            ("flush_ns", kernel.flush_ns),
            ("unmap_ns", kernel.unmap_ns),
            ("move_ns", kernel.move_ns),
            ("entry_ns", kernel.entry_ns),
            ("huge_ns", kernel.huge_ns),
            ("batch_end_ns", kernel.batch_end_ns),
        ];
        check_times("machine.migration.kernel", &prices)?;
        let copy = kernel.copy_bytes_per_ns;
        if !(copy.is_finite() && copy > 0.0) {
            return Err(Error::field(
                "machine.migration.kernel.copy_bytes_per_ns",
                format!("{copy} is not above 0"),
            ));
        }
        Ok(())
    }

    /// The same with its prices.
    pub fn migration(&self) -> Migration {
        Migration {
            copier: match self.copier {
                CopierKind::InTurn => Copier::InTurn,
                CopierKind::Threads => Copier::Threads(self.channels, ZEN3_THREADS),
                CopierKind::Engine => Copier::Engine(self.channels, PTDMA),
            },
            batch_pages: self.batch_pages,
            kernel: self.kernel,
        }
    }

    /// What a call takes that moves so many base pages and so many huge ones, in ns. The two kinds
    /// are priced as a call each, as if the second were not there.
    pub fn call_ns(&self, base_folios: u64, huge_folios: u64) -> f64 {
        let migration = self.migration();
        let of = |count, order| match count {
            0 => 0.0,
            _ => {
                let folios = Folios { count, order };
                migration.call(folios).stages.total_ns()
            }
        };
        of(base_folios, 0) + of(huge_folios, HUGE_ORDER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_call_costs_what_was_measured() {
        // GiB/s by base pages of a call, of which 64 is the farthest from what the model was solved
        // from.
        let stock = MigrationSpec::default();
        let gib_s = |pages: u64| {
            pages as f64 * 4096.0 / f64::from(1 << 30) / (stock.call_ns(pages, 0) * 1e-9)
        };
        for (pages, measured) in [(1, 0.04), (64, 1.15), (512, 2.21), (4096, 2.74)] {
            let error = gib_s(pages) / measured - 1.0;
            assert!(error.abs() < 0.15, "{pages}: {} {error}", gib_s(pages));
        }
        assert_eq!(stock.call_ns(0, 0), 0.0);
        let both = stock.call_ns(3, 0) + stock.call_ns(0, 2);
        assert_eq!(stock.call_ns(3, 2), both);
    }

    #[test]
    fn channels_copy_faster_in_larger_batches() {
        let engine = |channels, batch_pages| MigrationSpec {
            copier: CopierKind::Engine,
            channels,
            batch_pages,
            ..MigrationSpec::default()
        };
        let huge_ns = |spec: MigrationSpec| spec.call_ns(0, 64);
        assert!(huge_ns(engine(8, 8192)) < huge_ns(engine(1, 8192)) / 3.0);
        assert!(huge_ns(engine(8, 8192)) < huge_ns(engine(8, 512)) / 3.0);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (name, channels, batch_pages) in [
            ("channels", 0, 512),
            ("channels", 65, 512),
            ("batch_pages", 1, 0),
            ("batch_pages", 1, 1 << 40),
        ] {
            let spec = MigrationSpec {
                channels,
                batch_pages,
                ..MigrationSpec::default()
            };
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        for copy_bytes_per_ns in [0.0, -1.0, f64::NAN] {
            let mut spec = MigrationSpec::default();
            spec.kernel.copy_bytes_per_ns = copy_bytes_per_ns;
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains("copy_bytes_per_ns"), "{error}");
        }
    }
}
