//! What a process of a scenario does: its phases, written out.

use std::ops::Range;
use std::sync::Arc;

use pghot_workloads::plan::{Pattern, Phase, Plan, Weighted};
use pghot_workloads::plans::{self, Size};

use super::spec::{PatternName, PhaseSpec, ProcessSpec};
use crate::machine::MachineSpec;

impl ProcessSpec {
    /// The `count` processes that it stands for, one by one.
    pub fn each(&self) -> impl Iterator<Item = ProcessSpec> + '_ {
        (0..self.count).map(|number| {
            let mut one = self.clone();
            one.count = 1;
            // Waiting is a phase of its own.
            one.stagger_s = self.stagger_s * f64::from(number);
            one
        })
    }

    /// What it does on a machine of this kind, and how long each phase lasts at least, in ns.
    pub fn plan(&self, machine: &MachineSpec) -> (Plan, Vec<u64>) {
        let (mut plan, mut least_ns) = match (&self.recorded, &self.workload) {
            (Some(recorded), _) => (recorded.plan.clone(), recorded.least_ns.clone()),
            (None, Some(name)) => (self.benchmark(name, machine), Vec::new()),
            (None, None) => self.own_plan(),
        };
        if self.stagger_s > 0.0 {
            let wait = Phase {
                pattern: Pattern::Weighted(Arc::default()),
                accesses: 0,
            };
            plan.phases.insert(0, wait);
            least_ns.insert(0, ns(self.stagger_s));
        }
        if let Some(share) = self.near_share {
            plan.near_pages = (share * f64::from(self.pages())) as u32;
        }
        (plan, least_ns)
    }

    fn benchmark(&self, name: &str, machine: &MachineSpec) -> Plan {
        let top = machine.node.iter().filter(|node| node.is_top_tier());
        let near_pages: u64 = top.map(|node| node.pages()).sum();
        let size = Size {
            pages: self.pages(),
            near_pages: near_pages.min(u64::from(u32::MAX)) as u32,
            accesses: self.accesses,
        };
        plans::find(name).map_or_else(Plan::default, |benchmark| (benchmark.plan)(&size))
    }

    fn own_plan(&self) -> (Plan, Vec<u64>) {
        let phases = self.phase.iter().flat_map(|phase| {
            let times = (0..phase.repeat).map(move |time| (phase, time));
            times.map(|(phase, time)| (phase.plan(self.pages(), time), ns(phase.at_least_s)))
        });
        let (phases, least_ns): (Vec<_>, Vec<_>) = phases.unzip();
        let plan = Plan {
            near_pages: 0,
            phases,
        };
        match least_ns.iter().all(|ns| *ns == 0) {
            true => (plan, Vec::new()),
            false => (plan, least_ns),
        }
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl PhaseSpec {
    /// The phase, when it comes for the time `time`, counted from 0.
    fn plan(&self, pages: u32, time: u32) -> Phase {
        let range = part(self.range, pages);
        let pattern = match self.pattern {
            PatternName::Random => Pattern::Random(range),
            PatternName::Stream => Pattern::Stream(range),
            PatternName::Skewed => Pattern::Skewed {
                hot: part(self.hot, pages),
                hot_percent: self.hot_percent,
                all: range,
            },
            PatternName::Zipf => {
                let moved = (self.drift * f64::from(time)).fract();
                Pattern::Weighted(Arc::new(zipf(&range, self.theta, moved)))
            }
        };
        Phase {
            pattern,
            accesses: self.accesses,
        }
    }
}

/// A Zipf distribution over a range whose first rank lies `moved` of it behind its beginning. The
/// first ranks are parts of their own; of the others, those that differ by a tenth share one.
fn zipf(range: &Range<u32>, theta: f64, moved: f64) -> Weighted {
    let length = range.len() as u32;
    // The integral of x^-theta, around each rank by a half.
    let integral = |x: f64| match (theta - 1.0).abs() < 1e-9 {
        true => x.ln(),
        false => x.powf(1.0 - theta) / (1.0 - theta),
    };
    let first = (moved * f64::from(length)) as u32;
    let mut parts = Vec::new();
    let mut rank = 1u32;
    while rank <= length {
        let next = (rank + 1)
            .max(rank.saturating_add(rank / 10))
            .min(length + 1);
        let (from, to) = (f64::from(rank) - 0.5, f64::from(next) - 0.5);
        let each = (integral(to) - integral(from)) / f64::from(next - rank);
        // Those that leave the range at its end come in at its beginning.
        let start = (first + rank - 1) % length;
        let end = start + (next - rank);
        for piece in [start..end.min(length), 0..end.saturating_sub(length)] {
            let weight = each * f64::from(piece.len() as u32);
            parts.push((range.start + piece.start..range.start + piece.end, weight));
        }
        rank = next;
    }
    Weighted::new(parts)
}

/// Shares of the memory as pages.
pub(super) fn part(shares: [f64; 2], pages: u32) -> Range<u32> {
    let at = |share: f64| (share * f64::from(pages)).round() as u32;
    at(shares[0])..at(shares[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skewed(theta: f64, moved: f64) -> Vec<(Range<u32>, f64)> {
        let zipf = zipf(&(100..1100), theta, moved);
        let shares = zipf.shares();
        shares
            .map(|(pages, share)| (pages.clone(), share))
            .collect()
    }

    /// The share of one page.
    fn of(parts: &[(Range<u32>, f64)], page: u32) -> f64 {
        let part = parts
            .iter()
            .find(|(pages, _)| pages.contains(&page))
            .unwrap();
        part.1 / part.0.len() as f64
    }

    #[test]
    fn ranks_have_the_shares_of_the_distribution() {
        for theta in [0.5, 0.99, 1.0, 1.3] {
            let parts = skewed(theta, 0.0);
            let all: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            for rank in [2, 5, 10, 40, 300, 1000] {
                let exact = f64::from(rank).powf(-theta) / all;
                let error = of(&parts, 99 + rank) / exact - 1.0;
                assert!(error.abs() < 0.1, "theta {theta}, rank {rank}: {error}");
            }
            let pages: u32 = parts.iter().map(|(pages, _)| pages.len() as u32).sum();
            assert_eq!(pages, 1000);
        }
    }

    #[test]
    fn what_drifts_out_at_the_end_comes_in_at_the_beginning() {
        let (still, moved) = (skewed(0.99, 0.0), skewed(0.99, 0.9));
        assert_eq!(of(&still, 100), of(&moved, 1000), "the first rank");
        let error = of(&moved, 100) / of(&still, 200) - 1.0;
        assert!(error.abs() < 0.1, "rank 101 is at the beginning: {error}");
    }

    #[test]
    fn phases_are_repeated_and_tenants_wait_for_their_turn() {
        let machine = crate::scenario::replay::machine_of(64, 64);
        let spec = ProcessSpec {
            memory_mib: 4,
            count: 3,
            stagger_s: 2.0,
            phase: vec![PhaseSpec {
                pattern: PatternName::Zipf,
                accesses: 100,
                repeat: 4,
                drift: 0.25,
                ..PhaseSpec::default()
            }],
            ..ProcessSpec::default()
        };
        let plans: Vec<_> = spec.each().map(|one| one.plan(&machine)).collect();
        let phases: Vec<_> = plans.iter().map(|(plan, _)| plan.phases.len()).collect();
        assert_eq!(phases, [4, 5, 5], "a phase to wait");
        let least_ns: Vec<_> = plans.iter().map(|(_, least)| least.clone()).collect();
        assert_eq!(least_ns, [vec![], vec![2_000_000_000], vec![4_000_000_000]]);
        let hot: Vec<_> = plans[0]
            .0
            .phases
            .iter()
            .map(|phase| phase.pattern.hot().start)
            .collect();
        assert_eq!(hot, [0, 256, 512, 768]);
    }
}
