//! The benchmarks by name: those of the kernel proposals at any size, and workloads for which the
//! right answer is to move nothing.

use std::ops::Range;

use crate::plan::{Pattern, Phase, Plan};

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
        name: "uniform",
        doc: "Any page of more memory than the top tier has, each as often: none deserves to be \
              moved.",
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
        doc: "A hot set twice as large as the top tier: moving pages in means moving equally hot \
              ones out.",
        pays: false,
        room_percent: 220,
        plan: oversized,
    },
    Benchmark {
        name: "flutter",
        doc: "The hot set is another one before moving it has paid.",
        pays: false,
        room_percent: 150,
        plan: flutter,
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
    let pattern = Pattern::Skewed {
        hot: 0..(size.pages / 10).max(1),
        hot_percent: 90,
        all: 0..size.pages,
    };
    one_phase(pattern, size.accesses)
}

fn uniform(size: &Size) -> Plan {
    one_phase(Pattern::Random(0..size.pages), size.accesses)
}

fn stream(size: &Size) -> Plan {
    one_phase(Pattern::Stream(0..size.pages), size.accesses)
}

fn oversized(size: &Size) -> Plan {
    let hot = size.near_pages.saturating_mul(2).clamp(1, size.pages);
    let pattern = Pattern::Skewed {
        hot: 0..hot,
        hot_percent: 95,
        all: 0..size.pages,
    };
    one_phase(pattern, size.accesses)
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
        near_pages: 0,
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
    fn overcommitted_regions_are_in_the_lower_tier() {
        let plan = overcommit(&SIZE);
        assert_eq!((plan.near_pages, plan.phases.len()), (6000, 40));
        let truth = plan.truth();
        assert_eq!((truth[0].first_hot, truth[0].hot_pages), (6000, 50));
        assert_eq!((truth[39].first_hot, truth[39].hot_pages), (7950, 50));
    }
}
