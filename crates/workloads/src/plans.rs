//! The benchmarks by name: those of the kernel proposals at any size, and workloads for which the
//! right answer is to move nothing.

use std::ops::Range;
use std::sync::Arc;

use crate::plan::{Pattern, Phase, Plan, Weighted};

/// How large a benchmark is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Pages of the workload's memory.
    pub pages: u32,
    /// Pages that the top tier has room for.
    pub near_pages: u32,
    /// Accesses of all threads together.
    pub accesses: u64,
}

/// Base pages of a huge page.
const HUGE_PAGES: u32 = 512;

/// A benchmark.
pub struct Benchmark {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does and whose it is, in one sentence.
    pub doc: &'static str,
    /// Whether hot pages can pay for being moved; if not, no system should be slower than none.
    pub pays: bool,
    /// How much memory shows it, in percent of what the top tier has room for.
    pub room_percent: u32,
    /// What it does at a size.
    pub plan: fn(&Size) -> Plan,
}

/// All of them.
pub static BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "promote",
        doc: "All memory is in the lower tier and is accessed at random, in one order over and \
              over; the kernel proposal's first scenario.",
        pays: true,
        room_percent: 25,
        plan: promote,
    },
    Benchmark {
        name: "overcommit",
        doc: "Three quarters of the memory lie idle in the top tier, and one region after the \
              other of the rest gets hot; the kernel proposal's second scenario.",
        pays: true,
        room_percent: 120,
        plan: overcommit,
    },
    Benchmark {
        name: "chunks",
        doc: "Chunks of the memory, chosen at random, are hot for a while each; after the latency \
              metric's trouble in the 2024 proposal.",
        pays: true,
        room_percent: 50,
        plan: chunks,
    },
    Benchmark {
        name: "skewed",
        doc: "Nine accesses of ten go to a tenth of the memory, the last one anywhere.",
        pays: true,
        room_percent: 150,
        plan: skewed,
    },
    Benchmark {
        name: "phase",
        doc: "The top tier is full, and nine accesses of ten go to a part of the lower tier; half \
              way to another one.",
        pays: true,
        room_percent: 150,
        plan: phase,
    },
    Benchmark {
        name: "drift",
        doc: "Parts of the memory are popular by Zipf's law, and one after the other rises in \
              rank while the top tier is full.",
        pays: true,
        room_percent: 150,
        plan: drift,
    },
    Benchmark {
        name: "scan",
        doc: "Half of the accesses go to a hot set in the lower tier, the others from end to end \
              through the rest of the memory, which fills the top tier.",
        pays: true,
        room_percent: 150,
        plan: scan,
    },
    Benchmark {
        name: "neighbour",
        doc: "Half of the accesses go to a small hot set in the lower tier, the others anywhere \
              in the memory that fills the top tier.",
        pays: true,
        room_percent: 150,
        plan: neighbour,
    },
    Benchmark {
        name: "uniform",
        doc: "Any page of more memory than the top tier has, which is full of it, each as often: \
              none deserves to be moved.",
        pays: false,
        room_percent: 150,
        plan: uniform,
    },
    Benchmark {
        name: "stream",
        doc: "From end to end through more memory than the top tier has: what was accessed is not \
              needed soon.",
        pays: false,
        room_percent: 150,
        plan: stream,
    },
    Benchmark {
        name: "oversized",
        doc: "A hot set twice as large as the top tier, which is full of it: moving pages in \
              means moving equally hot ones out.",
        pays: false,
        room_percent: 220,
        plan: oversized,
    },
    Benchmark {
        name: "flutter",
        doc: "The top tier is full, and the hot set is another one before moving it has paid.",
        pays: false,
        room_percent: 150,
        plan: flutter,
    },
    Benchmark {
        name: "sparse",
        doc: "The top tier is full, and one page of 512 is accessed: of huge pages each is as hot \
              as the next, of base pages few are hot.",
        pays: false,
        room_percent: 150,
        plan: sparse,
    },
    Benchmark {
        name: "cached",
        doc: "The top tier is full, and nearly all accesses go to 16 pages of the lower tier that \
              the CPU's cache holds: they are hot, and no move makes them faster.",
        pays: false,
        room_percent: 150,
        plan: cached,
    },
];

/// The benchmark of that name.
pub fn find(name: &str) -> Option<&'static Benchmark> {
    BENCHMARKS.iter().find(|benchmark| benchmark.name == name)
}

fn one_phase(pattern: Pattern, accesses: u64) -> Plan {
    Plan {
        near_pages: 0,
        phases: vec![Phase { pattern, accesses }],
    }
}

impl Size {
    /// Pages that fill the top tier, if some are left for the lower one.
    fn full_tier(&self) -> u32 {
        self.near_pages.min(self.pages.saturating_sub(1))
    }

    /// The last pages, a quarter of the top tier, if a full one leaves so many for the lower.
    fn last_pages(&self) -> Range<u32> {
        let length = (self.near_pages / 4).clamp(1, self.pages - self.full_tier());
        self.pages - length..self.pages
    }
}

/// Ranges of the same length, what is left over in the last.
fn parts(pages: Range<u32>, count: u32) -> impl Iterator<Item = Range<u32>> {
    let count = count.clamp(1, pages.len().max(1) as u32);
    let length = pages.len() as u32 / count;
    (0..count).map(move |i| {
        let start = pages.start + i * length;
        let end = if i + 1 == count {
            pages.end
        } else {
            start + length
        };
        start..end
    })
}

fn promote(size: &Size) -> Plan {
    let pattern = Pattern::Repeated {
        pages: 0..size.pages,
        length: u64::from(size.pages),
    };
    one_phase(pattern, size.accesses)
}

/// 40 of 160 regions are accessed, as in the proposal.
fn overcommit(size: &Size) -> Plan {
    const REGIONS: u32 = 40;
    let near_pages = size.pages / 4 * 3;
    let regions: Vec<_> = parts(near_pages..size.pages, REGIONS).collect();
    let accesses = size.accesses / regions.len() as u64;
    let phase = |pages| Phase {
        pattern: Pattern::Random(pages),
        accesses,
    };
    Plan {
        near_pages,
        phases: regions.into_iter().map(phase).collect(),
    }
}

/// 16 chunks of 192, in an order that is always the same.
fn chunks(size: &Size) -> Plan {
    const CHUNKS: u32 = 192;
    const CHOSEN: usize = 16;
    let all: Vec<_> = parts(0..size.pages, CHUNKS).collect();
    let order = Pattern::Random(0..all.len() as u32).pages(0);
    let phase = |chunk: u32| Phase {
        pattern: Pattern::Random(all[chunk as usize].clone()),
        accesses: size.accesses / CHOSEN as u64,
    };
    Plan {
        near_pages: 0,
        phases: order.take(CHOSEN).map(phase).collect(),
    }
}

fn skewed(size: &Size) -> Plan {
    let hot = 0..(size.pages / 10).max(1);
    one_phase(mostly(size, hot, 90), size.accesses)
}

/// So many of 100 accesses go to the hot pages, the others to any.
fn mostly(size: &Size, hot: Range<u32>, hot_percent: u32) -> Pattern {
    Pattern::Skewed {
        hot,
        hot_percent,
        all: 0..size.pages,
    }
}

fn scan(size: &Size) -> Plan {
    let hot = size.last_pages();
    let pattern = Pattern::Beside {
        scanned: 0..hot.start,
        hot,
        hot_percent: 50,
    };
    Plan {
        near_pages: size.full_tier(),
        ..one_phase(pattern, size.accesses)
    }
}

/// What lies between the two is idle.
fn neighbour(size: &Size) -> Plan {
    let near_pages = size.full_tier();
    let parts = vec![(size.last_pages(), 1.0), (0..near_pages, 1.0)];
    let pattern = Pattern::Weighted(Arc::new(Weighted::new(parts)));
    Plan {
        near_pages,
        ..one_phase(pattern, size.accesses)
    }
}

fn sparse(size: &Size) -> Plan {
    let pattern = Pattern::Sparse {
        pages: 0..size.pages,
        stride: HUGE_PAGES,
    };
    Plan {
        near_pages: size.full_tier(),
        ..one_phase(pattern, size.accesses)
    }
}

/// Each hot set is a quarter of the top tier.
fn phase(size: &Size) -> Plan {
    let near_pages = size.full_tier();
    let length = (size.near_pages / 4).clamp(1, (size.pages - near_pages).max(2) / 2);
    let phase = |hot: Range<u32>| Phase {
        pattern: mostly(size, hot, 90),
        accesses: size.accesses / 2,
    };
    let (first, second) = (size.pages - length, size.pages.saturating_sub(2 * length));
    Plan {
        near_pages,
        phases: vec![
            phase(first..size.pages),
            phase(second..first.max(second + 1)),
        ],
    }
}

/// The exponent is that which benchmarks of caches use.
fn drift(size: &Size) -> Plan {
    const PARTS: u32 = 64;
    const PHASES: u64 = 8;
    let all: Vec<_> = parts(0..size.pages, PARTS).collect();
    let phase = |number: u64| {
        let rank = |part: usize| (part + all.len() - number as usize % all.len()) % all.len();
        // The hottest of the first phase lie at the end, in the lower tier.
        let weighted = all.iter().rev().enumerate();
        let weighted = weighted.map(|(part, pages)| {
            let weight = 1.0 / (rank(part) as f64 + 1.0).powf(0.99);
            (pages.clone(), weight)
        });
        Phase {
            pattern: Pattern::Weighted(Arc::new(Weighted::new(weighted.collect()))),
            accesses: size.accesses / PHASES,
        }
    };
    Plan {
        near_pages: size.full_tier(),
        phases: (0..PHASES).map(phase).collect(),
    }
}

fn uniform(size: &Size) -> Plan {
    Plan {
        near_pages: size.full_tier(),
        ..one_phase(Pattern::Random(0..size.pages), size.accesses)
    }
}

fn stream(size: &Size) -> Plan {
    one_phase(Pattern::Stream(0..size.pages), size.accesses)
}

fn oversized(size: &Size) -> Plan {
    let hot = size.near_pages.saturating_mul(2).clamp(1, size.pages);
    Plan {
        near_pages: size.full_tier(),
        ..one_phase(mostly(size, 0..hot, 95), size.accesses)
    }
}

/// Half of the cache that the harness models.
fn cached(size: &Size) -> Plan {
    const PAGES: u32 = 16;
    let hot = size.pages.saturating_sub(PAGES)..size.pages;
    Plan {
        near_pages: size.full_tier(),
        ..one_phase(mostly(size, hot, 99), size.accesses)
    }
}

/// A page is accessed five times while its part is hot: less than moving it costs by any measure.
fn flutter(size: &Size) -> Plan {
    const PARTS: u32 = 32;
    const ACCESSES_A_PAGE: u64 = 5;
    let all: Vec<_> = parts(0..size.pages, PARTS).collect();
    let accesses = all[0].len().max(1) as u64 * ACCESSES_A_PAGE;
    let phases = (size.accesses / accesses).max(1) as usize;
    let phase = |pages: &Range<u32>| Phase {
        pattern: Pattern::Random(pages.clone()),
        accesses,
    };
    Plan {
        near_pages: size.full_tier(),
        phases: all.iter().cycle().take(phases).map(phase).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        pages: 8000,
        near_pages: 1000,
        accesses: 1_000_000,
    };

    #[test]
    fn every_plan_stays_in_its_memory_and_makes_its_accesses() {
        for benchmark in BENCHMARKS {
            let plan = (benchmark.plan)(&SIZE);
            assert!(plan.near_pages < SIZE.pages, "{}", benchmark.name);
            let made = plan.accesses();
            assert!(
                (990_000..=1_000_000).contains(&made),
                "{} makes {made}",
                benchmark.name
            );
            for phase in &plan.phases {
                let mut pages = phase.pattern.pages(1).take(2000);
                assert!(pages.all(|page| page < SIZE.pages), "{}", benchmark.name);
            }
        }
    }

    #[test]
    fn the_smallest_size_works() {
        let size = Size {
            pages: 2,
            near_pages: 0,
            accesses: 1,
        };
        for benchmark in BENCHMARKS {
            let plan = (benchmark.plan)(&size);
            for phase in plan.phases {
                assert!(phase.pattern.pages(1).take(10).all(|page| page < 2));
            }
        }
    }

    #[test]
    fn what_gets_hot_lies_behind_a_full_top_tier() {
        for name in ["phase", "drift", "scan", "neighbour", "cached"] {
            let plan = (find(name).unwrap().plan)(&SIZE);
            assert_eq!(plan.near_pages, SIZE.near_pages, "{name}");
            for phase in plan.phases.iter().take(2) {
                assert!(phase.pattern.hot().start >= plan.near_pages, "{name}");
            }
        }
        let sets: Vec<_> = phase(&SIZE)
            .phases
            .iter()
            .map(|p| p.pattern.hot())
            .collect();
        assert_eq!(sets, [7750..8000, 7500..7750]);
    }

    #[test]
    fn overcommitted_regions_are_in_the_lower_tier() {
        let plan = overcommit(&SIZE);
        assert_eq!((plan.near_pages, plan.phases.len()), (6000, 40));
        let truth = plan.truth();
        assert_eq!((truth[0].first_hot, truth[0].hot_pages), (6000, 50));
        assert_eq!((truth[39].first_hot, truth[39].hot_pages), (7950, 50));
    }
}
