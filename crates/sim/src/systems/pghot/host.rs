//! The modelled machine, for the engine: who maps a page, how much room there is, and moves with
//! their costs and refusals.

use pghot_engine::demoter::{Exchanged, Lruvec, Reclaim, Unable};
use pghot_engine::exchange::Fates;
use pghot_engine::{Batch, FileId, Found, Machine, Outcome, Owner, Pid, Place, Program};
use pghot_hotness::{Nid, Pfn};

use super::EPOCH_MS;
use crate::kernel::reclaim;
use crate::machine::lru::Lru;
use crate::machine::memory::{ABSENT, Memory, Page, page_of, pfn_of};
use crate::machine::node::Node;
use crate::machine::world::World;

/// Finding out who maps a page, in ns.
const RESOLVE_NS: f64 = 700.0;

/// Looking at the accessed bit of a page, in ns: assumed, for four reads and finding the process.
const LOOK_NS: f64 = 300.0;

/// Mapping one page of page cache, which must be mapped somewhere to be moved, in ns.
const MAP_NS: f64 = 1000.0;

/// The model, as the engine sees it.
pub struct Host<'a> {
    pub world: &'a mut World,
    /// What the pass took so far, in ns: the daemon's clock goes on while it works.
    pub spent_ns: f64,
    /// Somebody makes room, so that kswapd need not be woken for it.
    pub is_room_made: bool,
}

impl Machine for Host<'_> {
    fn now_ns(&self) -> u64 {
        let epoch_ms = EPOCH_MS + self.world.trouble.clock_ahead_ms;
        epoch_ms * 1_000_000 + self.world.now_ns + self.spent_ns as u64
    }

    fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>> {
        let node = |nid: Nid| self.world.nodes.get(nid as usize);
        node(from).filter(|node| node.is_online && !node.is_top_tier)?;
        let mut top_tier = self.world.spec.top_tier_from(from);
        top_tier.retain(|nid| node(*nid).is_some_and(|node| node.is_online));
        Some(top_tier)
    }

    fn room_pages(&mut self, target: Nid) -> u64 {
        let wakes_kswapd = self.world.spec.kernel.demotion_enabled && !self.is_room_made;
        let room = |node: &Node| match wakes_kswapd {
            true => node.room_with_reclaim(),
            false => node.room_beside_lists(),
        };
        self.world.nodes.get(target as usize).map_or(0, room)
    }

    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        self.spent_ns += (pfns.len() as u64 * self.weight()) as f64 * RESOLVE_NS;
        for &pfn in pfns {
            found.push(match self.world.trouble.hides() {
                true => Found::Unresolved(Outcome::NotFound),
                false => self.find(pfn),
            });
        }
    }

    /// Nobody is counted, and no policy asks.
    fn program(&mut self, _: Pid) -> Option<Program> {
        None
    }

    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        let huge = batch.folios.iter().filter(|folio| folio.pages > 1).count();
        let small = batch.folios.len() - huge;
        let migration = &self.world.spec.migration;
        self.spent_ns += migration.call_ns(small as u64, huge as u64);
        if let Owner::File(_) = batch.owner {
            self.spent_ns += (batch.folios.len() as u64 * self.weight()) as f64 * MAP_NS;
        }
        self.world.counters.move_calls += 1;
        for folio in &batch.folios {
            let to = batch.target as usize;
            let head = page_of(folio.pfn).map(|page| Memory::head(page, folio.pages));
            let outcome = head.map_or(Outcome::Gone, |head| self.move_one(head, folio.pages, to));
            outcomes.push(outcome);
        }
    }
}

/// How many CPUs are busy; see `busy_cpus` in crates/linux.
#[derive(Default)]
pub(super) struct Busy {
    /// When it was last asked, and what all CPUs had worked by then, in ms and ns.
    last: Option<(u64, f64)>,
}

impl Busy {
    /// Since the last call, on average; at first, when it is not known, more than there are.
    pub fn cpus(&mut self, now_ms: u64, world: &World) -> f64 {
        let busy_ns = world.counters.busy_ns;
        let last = self.last.replace((now_ms, busy_ns));
        last.map_or(f64::INFINITY, |(last_ms, last_ns)| {
            let spent_ms = now_ms.saturating_sub(last_ms).max(1);
            (busy_ns - last_ns) / (spent_ms as f64 * 1e6)
        })
    }
}

impl Reclaim for Host<'_> {
    fn now_ms(&self) -> u64 {
        Machine::now_ms(self)
    }

    fn room_pages(&mut self, nid: Nid) -> u64 {
        let node = self.world.nodes.get(nid as usize);
        let room = node.map_or(0, Node::room_beside_lists);
        room * self.weight()
    }

    fn lower_room_pages(&mut self, _: Nid) -> u64 {
        match self.world.trouble.invites_swap {
            true => u64::MAX / 2,
            false => self.lower_room() * self.weight(),
        }
    }

    fn lruvecs(&mut self, nid: Nid) -> Result<Vec<Lruvec>, Unable> {
        if !self.world.spec.kernel.demotion_enabled && !self.world.trouble.invites_swap {
            return Err(Unable::DemotionOff);
        }
        let now_ns = self.world.now_ns;
        let node = self.world.nodes.get(nid as usize);
        match node.map(|node| (node, &node.lru)) {
            Some((node, Lru::Generations(listed))) => {
                let mut generations = match node.is_top_tier {
                    true => listed.list(&self.world.memory, now_ns),
                    false => node.aged.list(node.pages - node.free, now_ns),
                };
                for generation in &mut generations {
                    generation.pages *= self.weight();
                }
                Ok(vec![Lruvec {
                    memcg_id: 1,
                    cgroup: Default::default(),
                    generations,
                }])
            }
            _ => Err(Unable::NoGenerations),
        }
    }

    fn age(&mut self, nid: Nid, _memcg_id: u64, _seq: u64) {
        self.spent_ns += reclaim::age(self.world, nid as usize);
    }

    /// One that stands for several pages counts as so many.
    fn look_at(&mut self, places: &[Place]) -> Fates {
        let weight = self.weight();
        self.spent_ns += (places.len() as u64 * weight) as f64 * LOOK_NS;
        let mut fates = Fates::default();
        let heads = places.iter().filter_map(|place| self.head_at(place));
        for head in heads {
            let World {
                heat,
                memory,
                now_ns,
                ..
            } = &*self.world;
            fates.looked += weight;
            fates.touched += weight * u64::from(heat.is_accessed(memory, head, *now_ns));
        }
        fates
    }

    fn huge_share(&mut self, nid: Nid) -> f64 {
        let node = &self.world.nodes[nid as usize];
        node.huge as f64 / (node.pages - node.free).max(1) as f64
    }

    /// Nobody is counted, and no policy asks.
    fn program(&mut self, _: Pid) -> Option<Program> {
        None
    }

    fn exchange_huge(&mut self, nid: Nid, down: &[Place], up: &[Place]) -> Exchanged {
        if !self.world.spec.kernel.demotion_enabled {
            return Exchanged::default();
        }
        let call_ns = |pages: &[Place]| self.world.spec.migration.call_ns(0, pages.len() as u64);
        self.spent_ns += call_ns(down) + call_ns(up);
        self.world.counters.move_calls += 2;
        let gone = self.move_huge(down, |home| home);
        let come = self.move_huge(up, |_| nid as usize);
        self.world.counters.demoted_by_request_pages += gone;
        Exchanged {
            down_pages: gone * self.weight(),
            up_pages: come * self.weight(),
        }
    }

    fn demote(&mut self, nid: Nid, _memcg_id: u64, seq: u64, pages: u64) -> u64 {
        let pages = pages.div_ceil(self.weight());
        let fits = match self.world.spec.kernel.demotion_enabled {
            true => self.lower_room(),
            false => 0,
        };
        self.world.counters.swapped_pages += pages.saturating_sub(fits);
        let (went, spent_ns) = reclaim::demote_oldest(self.world, nid as usize, seq, pages);
        self.world.counters.demoted_by_request_pages += went;
        self.spent_ns += spent_ns;
        went * self.weight()
    }
}

impl Host<'_> {
    /// The demoter counts in pages of the machine, the migrator in those of the model.
    fn weight(&self) -> u64 {
        self.world.spec.page_weight
    }

    fn lower_room(&self) -> u64 {
        let lower = self.world.nodes.iter().filter(|node| !node.is_top_tier);
        lower.map(Node::room).sum()
    }

    /// Moves them to a node that may depend on where they are at home; returns how many base pages
    /// moved.
    fn move_huge(&mut self, places: &[Place], to: impl Fn(usize) -> usize) -> u64 {
        let mut moved = 0;
        for place in places {
            let Some(head) = self.head_at(place) else {
                continue;
            };
            let region = self.world.memory.region_of(head);
            let Some((pages, home)) = region.map(|it| (it.folio_pages, it.home as usize)) else {
                continue;
            };
            if self.world.move_folio(head, pages, to(home)) {
                moved += u64::from(pages);
            }
        }
        moved
    }

    /// The folio that a process maps there.
    fn head_at(&self, place: &Place) -> Option<Page> {
        let memory = &self.world.memory;
        let Owner::Process(pid) = place.owner else {
            return None;
        };
        let mut regions = memory.regions().iter();
        let region = regions.find(|region| region.pid == pid)?;
        let page = region.pages.start + Page::try_from(place.address >> 12).ok()?;
        let is_there = region.pages.contains(&page) && memory.state(page) & ABSENT == 0;
        is_there.then(|| Memory::head(page, region.folio_pages))
    }

    fn find(&self, pfn: Pfn) -> Found {
        let memory = &self.world.memory;
        let Some((page, region)) =
            page_of(pfn).and_then(|page| Some((page, memory.region_of(page)?)))
        else {
            return Found::Unresolved(Outcome::Free);
        };
        let head = Memory::head(page, region.folio_pages);
        if memory.state(head) & ABSENT != 0 {
            return Found::Unresolved(Outcome::Free);
        }
        if self.world.nodes[memory.node(head)].is_top_tier {
            return Found::Unresolved(Outcome::MovedAlready);
        }
        let address = u64::from(head - region.pages.start) << 12;
        let file = FileId {
            device: 1,
            inode: u64::from(region.pid),
            generation: 0,
        };
        Found::Folio {
            place: match region.backing.is_mapped() {
                true => Place::in_process(region.pid, address),
                false => Place::in_file(file, address),
            },
            head: pfn_of(head),
            pages: region.folio_pages,
        }
    }

    fn move_one(&mut self, head: Page, pages: u32, to: usize) -> Outcome {
        if self.world.memory.state(head) & ABSENT != 0 {
            return Outcome::Gone;
        }
        if self.world.nodes[self.world.memory.node(head)].is_top_tier {
            return Outcome::MovedAlready;
        }
        if let Some(refusal) = self.world.trouble.refusal() {
            return refusal;
        }
        let moved = self.world.trouble.lies || self.world.move_folio(head, pages, to);
        match moved {
            true => Outcome::Moved,
            false => Outcome::NoMemory,
        }
    }
}
