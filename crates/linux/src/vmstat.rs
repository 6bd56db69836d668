//! Reads the migration and NUMA balancing counters of `/proc/vmstat`.

use crate::root::{ReadError, SysRoot};

/// Declares [`Counter`] and its one table of kernel names.
macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter since boot.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        impl Counter {
            /// Every counter, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The kernel's name of it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// Hint faults taken, one each whatever the folio's size.
    NumaHintFaults = "numa_hint_faults",
    /// Of those, on the faulting CPU's own node.
    NumaHintFaultsLocal = "numa_hint_faults_local",
    /// Base pages made PROT_NONE by the scanner.
    NumaPteUpdates = "numa_pte_updates",
    /// Base pages that NUMA balancing moved at a fault.
    NumaPagesMigrated = "numa_pages_migrated",
    /// Base pages the *kernel* promoted; `move_pages` does not count here.
    PgpromoteSuccess = "pgpromote_success",
    /// Base pages that passed the kernel's latency test, rate-limited ones included.
    PgpromoteCandidate = "pgpromote_candidate",
    /// Base pages let through because the target had plenty of free memory.
    PgpromoteCandidateNrl = "pgpromote_candidate_nrl",
    /// Base pages demoted by kswapd.
    PgdemoteKswapd = "pgdemote_kswapd",
    /// Base pages demoted by direct reclaim.
    PgdemoteDirect = "pgdemote_direct",
    /// Base pages demoted on behalf of khugepaged.
    PgdemoteKhugepaged = "pgdemote_khugepaged",
    /// Base pages demoted by proactive reclaim.
    PgdemoteProactive = "pgdemote_proactive",
    /// Base pages migrated for any reason.
    PgmigrateSuccess = "pgmigrate_success",
    /// Base pages whose migration failed.
    PgmigrateFail = "pgmigrate_fail",
    /// Transparent huge pages migrated whole.
    ThpMigrationSuccess = "thp_migration_success",
    /// Transparent huge pages that could be neither migrated nor split.
    ThpMigrationFail = "thp_migration_fail",
    /// Transparent huge pages split for migration.
    ThpMigrationSplit = "thp_migration_split",
}

/// One reading of the counters.
///
/// Three answers each: a count, zero, or `None` because this kernel does not count it. The last
/// must not be taken for zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vmstat {
    values: [Option<u64>; Counter::ALL.len()],
}

impl Vmstat {
    /// Reads all counters at one moment.
    pub fn read(root: &SysRoot) -> Result<Self, ReadError> {
        let path = root.proc.join("vmstat");
        let text = std::fs::read_to_string(&path).map_err(|source| ReadError::io(&path, source))?;
        Ok(Self::parse(&text))
    }

    /// Picks the counters out of lines `name value`.
    pub fn parse(text: &str) -> Self {
        let mut values = [None; Counter::ALL.len()];
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            if let Some(index) = Counter::ALL
                .iter()
                .position(|counter| counter.name() == name)
            {
                values[index] = value.trim().parse().ok();
            }
        }
        Self { values }
    }

    /// The counter's value, or `None` if this kernel has no such counter.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.values[counter as usize]
    }

    /// Growth since an earlier reading, or `None` if this kernel has no such counter.
    pub fn growth_since(&self, earlier: &Self, counter: Counter) -> Option<u64> {
        // Per-CPU parts are folded in later, so a sum may step back by a few.
        Some(self.get(counter)?.saturating_sub(earlier.get(counter)?))
    }

    /// Base pages demoted for all reasons this kernel counts, or `None` if it counts none.
    pub fn demoted_pages(&self) -> Option<u64> {
        const REASONS: [Counter; 4] = [
            Counter::PgdemoteKswapd,
            Counter::PgdemoteDirect,
            Counter::PgdemoteKhugepaged,
            Counter::PgdemoteProactive,
        ];
        REASONS
            .iter()
            .filter_map(|reason| self.get(*reason))
            .reduce(|sum, pages| sum + pages)
    }

    /// Base pages demoted on behalf of programs. What MGLRU's file evicts counts as `direct`, and
    /// as `proactive` on kernels that know that reason; kswapd and khugepaged have their own.
    pub fn demoted_by_request_pages(&self) -> u64 {
        let reasons = [Counter::PgdemoteDirect, Counter::PgdemoteProactive];
        reasons.iter().filter_map(|reason| self.get(*reason)).sum()
    }
}
