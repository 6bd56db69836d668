//! What could be reached by who knows the future.
//!
//! The *oracle* has the most accessed pages of the whole run in the top tier, from the first access
//! on and at no cost. *Foresight* starts where the workload starts. It knows how often each page is
//! accessed in each phase, and moves pages at the phase's beginning where that pays within the
//! phase; it pays for moves, and nothing for knowing.

use std::ops::Range;

use pghot_sim::machine::memory::HUGE_PAGES;
use pghot_sim::machine::rates::Part;
use pghot_workloads::plan::{Phase, Plan};
use pghot_workloads::plans::{self, Size};

use crate::cell::Outcome;
use crate::measures;
use crate::score::Costs;

/// Modelled time with the best placement that never changes.
pub fn oracle_s(run: &Outcome, costs: &Costs) -> f64 {
    memory_s(run, costs, measures::best_share(run))
}

/// Modelled time with foresight; none if the accesses were not known before they were made.
pub fn foresight_s(run: &Outcome, costs: &Costs) -> Option<f64> {
    let setting = &run.setting;
    let pages = u32::try_from(run.ready["pages"].as_u64()?).ok()?;
    let plan = (plans::find(&setting.workload)?.plan)(&Size {
        pages,
        near_pages: u32::try_from(run.room_pages).ok()?,
        accesses: setting.accesses,
    });
    let (accesses, misses) = counts(run);
    let threads = f64::from(setting.threads.max(1));
    let is_huge = setting.backing == "thp";
    let move_ns = costs.move_ns(is_huge);
    let gain_ns = costs.near_gain_ns() * misses as f64 / accesses.max(1) as f64 / threads;
    // Accesses that pay for one move.
    let price = move_ns / gain_ns.max(f64::MIN_POSITIVE);
    let folio_pages = if is_huge { HUGE_PAGES } else { 1 };
    let mut memory = Memory::new(&plan, pages, run.room_pages, folio_pages);
    let near: f64 = (plan.phases.iter())
        .map(|phase| memory.serve(phase, price))
        .sum();
    let share = near / plan.accesses().max(1) as f64;
    Some(memory_s(run, costs, share) + memory.moved_pages * move_ns * 1e-9)
}

/// All accesses, and those that no cache served.
fn counts(run: &Outcome) -> (u64, u64) {
    let nodes = run.witness.nodes.iter();
    nodes.fold((0, 0), |(accesses, misses), node| {
        (accesses + node.accesses(), misses + node.misses)
    })
}

/// Modelled time of the accesses, if the top tier served this share of those beyond the cache.
pub fn memory_s(run: &Outcome, costs: &Costs, near_share: f64) -> f64 {
    let (accesses, misses) = counts(run);
    let threads = f64::from(run.setting.threads.max(1));
    let hits_ns = (accesses - misses) as f64 * costs.hit_ns;
    let far_ns = misses as f64 * (costs.far_ns() - near_share * costs.near_gain_ns());
    (hits_ns + far_ns) * 1e-9 / threads
}

/// Pages that are alike in all phases.
struct Alike {
    pages: Range<u32>,
    /// Of them in the top tier.
    near: f64,
    /// Accesses of each in the present phase.
    accesses: f64,
}

impl Alike {
    fn far(&self) -> f64 {
        f64::from(self.pages.end - self.pages.start) - self.near
    }
}

/// Where the pages are.
struct Memory {
    alike: Vec<Alike>,
    /// Pages that the top tier has room for beside those that are there.
    room: f64,
    moved_pages: f64,
    /// Base pages that move together.
    folio_pages: u32,
}

/// A phase's accesses to whole folios.
fn parts(phase: &Phase, folio_pages: u32) -> impl Iterator<Item = Part> {
    let parts = Part::of(&phase.pattern).into_iter();
    parts.map(move |Part { pages, share }| {
        let start = pages.start / folio_pages * folio_pages;
        let pages = start..pages.end.next_multiple_of(folio_pages);
        Part { pages, share }
    })
}

impl Memory {
    fn new(plan: &Plan, pages: u32, room_pages: u64, folio_pages: u32) -> Memory {
        let phases = plan.phases.iter();
        let parts = phases.flat_map(|phase| parts(phase, folio_pages));
        let mut cuts: Vec<u32> = parts
            .flat_map(|part| [part.pages.start, part.pages.end])
            .chain([0, plan.near_pages, pages])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let alike = cuts.windows(2).map(|cut| Alike {
            pages: cut[0]..cut[1],
            near: match cut[0] < plan.near_pages {
                true => f64::from(cut[1] - cut[0]),
                false => 0.0,
            },
            accesses: 0.0,
        });
        Memory {
            alike: alike.collect(),
            room: (room_pages as f64 - f64::from(plan.near_pages)).max(0.0),
            moved_pages: 0.0,
            folio_pages,
        }
    }

    /// Moves what pays if a move costs as much as so many accesses gain; returns the accesses of
    /// the phase that the top tier serves.
    fn serve(&mut self, phase: &Phase, price: f64) -> f64 {
        for alike in &mut self.alike {
            alike.accesses = 0.0;
        }
        for Part { pages, share } in parts(phase, self.folio_pages) {
            let each = share * phase.accesses as f64 / f64::from(pages.end - pages.start);
            let first = self
                .alike
                .partition_point(|alike| alike.pages.end <= pages.start);
            for alike in &mut self.alike[first..] {
                if alike.pages.start >= pages.end {
                    break;
                }
                alike.accesses += each;
            }
        }
        let mut order: Vec<usize> = (0..self.alike.len()).collect();
        order.sort_by(|a, b| self.alike[*b].accesses.total_cmp(&self.alike[*a].accesses));
        self.fill(&order, price);
        self.exchange(&order, price);
        self.alike
            .iter()
            .map(|alike| alike.near * alike.accesses)
            .sum()
    }

    /// The hottest go where there is room.
    fn fill(&mut self, order: &[usize], price: f64) {
        for &i in order {
            let alike = &mut self.alike[i];
            if alike.accesses <= price {
                return;
            }
            let up = alike.far().min(self.room);
            alike.near += up;
            self.room -= up;
            self.moved_pages += up;
        }
    }

    /// The hottest below change places with the coldest above.
    fn exchange(&mut self, order: &[usize], price: f64) {
        let mut coldest = order.iter().rev().copied().peekable();
        for &hot in order {
            while self.alike[hot].far() > 0.0 {
                let Some(&cold) = coldest.peek() else { return };
                if self.alike[hot].accesses - self.alike[cold].accesses <= 2.0 * price {
                    return;
                }
                let count = self.alike[hot].far().min(self.alike[cold].near);
                self.alike[hot].near += count;
                self.alike[cold].near -= count;
                self.moved_pages += 2.0 * count;
                if self.alike[cold].near <= 0.0 {
                    coldest.next();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, outcome};

    /// A run of 1000 accesses a page, all of them beyond the cache.
    fn run(workload: &str) -> Outcome {
        let mut run = outcome(workload, "none");
        run.setting.accesses = 6_000_000;
        run.ready = serde_json::json!({"pages": 6000});
        run.room_pages = 4000;
        run.witness.nodes = vec![node(0, 0), node(6_000_000, 6_000_000)];
        run
    }

    fn shares(workload: &str) -> (f64, f64) {
        let (run, costs) = (run(workload), Costs::stated());
        let none_s = 6_000_000.0 * costs.far_ns() * 1e-9;
        let near_s = 6_000_000.0 * costs.near_gain_ns() * 1e-9;
        let foresight_s = foresight_s(&run, &costs).unwrap();
        // Of what there is to gain: with foresight, and what its moves took of it.
        let moves_s = 6000.0 * costs.move_ns(false) * 1e-9;
        ((none_s - foresight_s) / near_s, moves_s / near_s)
    }

    #[test]
    fn the_oracle_serves_the_hottest_pages_from_the_top_tier() {
        let mut run = outcome("promote", "none");
        run.witness.nodes = vec![node(0, 0), node(100, 100)];
        run.witness.page_accesses = vec![10, 90];
        run.room_pages = 1;
        let costs = Costs::stated();
        let expected = (90.0 * 100.0 + 10.0 * 250.0) * 1e-9;
        assert!((oracle_s(&run, &costs) - expected).abs() < 1e-15);
        assert_eq!(foresight_s(&run, &costs), None, "nothing is known of it");
    }

    #[test]
    fn foresight_pays_for_its_moves_and_moves_what_pays() {
        // All pages alike, and room for two of three: they go up, and stay.
        let (gain, moves) = shares("promote");
        assert!(
            (gain - (4.0 - 4.0 * moves) / 6.0).abs() < 1e-3,
            "{gain} {moves}"
        );
        // The same with two of three there already: nothing moves.
        let (gain, _) = shares("uniform");
        assert!((gain - 4.0 / 6.0).abs() < 1e-6, "{gain}");
        // A hot set of a quarter of the room, and then another: both go up for cold ones.
        let (gain, moves) = shares("phase");
        let expected = 0.9 + 0.1 * 4.0 / 6.0 - moves * 4.0 / 6.0;
        assert!((gain - expected).abs() < 1e-2, "{gain} {expected}");
    }

    #[test]
    fn of_huge_pages_each_as_hot_none_is_moved() {
        let costs = Costs::stated();
        let mut huge = run("sparse");
        huge.setting.backing = "thp".into();
        let base = run("sparse");
        let [huge_s, base_s] = [&huge, &base].map(|run| foresight_s(run, &costs).unwrap());
        let all_far_s = 6_000_000.0 * costs.far_ns() * 1e-9;
        let near_s = 6_000_000.0 * costs.near_gain_ns() * 1e-9;
        let gain = (all_far_s - huge_s) / near_s;
        assert!((gain - 4.0 / 6.0).abs() < 0.05, "{gain}");
        assert!(
            (all_far_s - base_s) / near_s > 0.99,
            "few base pages are hot"
        );
    }

    #[test]
    fn what_is_hot_too_shortly_is_left_alone() {
        let (gain, _) = shares("flutter");
        assert!((gain - 4.0 / 6.0).abs() < 0.01, "{gain}");
    }
}
