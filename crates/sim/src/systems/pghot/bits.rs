//! The accessed bits of the modelled machine, for the sources that read them.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use pghot_hotness::Nid;
use pghot_sources::fake::{AccessedBits, BitOwner, FolioAccess};

use crate::machine::memory::{ABSENT, Page, pfn_of};
use crate::machine::world::World;
use crate::traffic::task::Task;

/// The accessed bits of the model, as sources read them.
///
/// Pages of the top tier are numbered too, so that a page keeps its number; they are just never
/// shown.
pub struct Bits<'a> {
    pub world: &'a mut World,
    pub tasks: &'a [Task],
    /// Entries that were looked at or cleared.
    pub entries: Cell<u64>,
}

impl Bits<'_> {
    fn pid_of(&self, task: &Task) -> u32 {
        self.world.memory.regions()[task.number].pid
    }

    /// Pages of the machine by the numbers that an owner's pages have.
    fn pages(&self, owner: BitOwner, pages: &Range<u64>) -> Option<Range<Page>> {
        let pid = match owner {
            BitOwner::Process(pid) => pid,
            BitOwner::Lruvec { memcg_id, .. } => memcg_id as u32,
        };
        let mut regions = self.world.memory.regions().iter();
        let region = regions.find(|region| region.pid == pid)?;
        let limit = u64::from(region.pages.end);
        let weight = self.world.spec.page_weight;
        let at = |number: u64| (u64::from(region.pages.start) + number / weight).min(limit) as Page;
        Some(at(pages.start)..at(pages.end))
    }
}

impl Bits<'_> {
    fn count(&self, pages: &Range<Page>) {
        let region = self.world.memory.region_of(pages.start);
        let folio_pages = region.map_or(1, |region| region.folio_pages);
        let entries = pages.len() as u64 / u64::from(folio_pages);
        self.entries.set(self.entries.get() + entries);
    }

    /// What it took, in ns.
    pub fn spent_ns(&self) -> f64 {
        self.entries.get() as f64 * self.world.spec.costs.accessed_bit_ns
    }
}

impl AccessedBits for Bits<'_> {
    fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns() as u64)
    }

    fn owners(&self) -> Vec<(BitOwner, u64)> {
        let tasks = self.tasks.iter();
        tasks
            .filter(|task| task.is_running() && task.region.backing.is_mapped())
            .flat_map(|task| {
                let pages = task.region.pages.len() as u64 * self.world.spec.page_weight;
                let process = BitOwner::Process(self.pid_of(task));
                let lruvec = BitOwner::Lruvec {
                    memcg_id: u64::from(self.pid_of(task)),
                    nid: task.region.home,
                };
                [(process, pages), (lruvec, pages)]
            })
            .collect()
    }

    fn clear(&mut self, owner: BitOwner, pages: Range<u64>) {
        if let Some(pages) = self.pages(owner, &pages) {
            self.count(&pages);
            let World {
                heat,
                memory,
                now_ns,
                ..
            } = &mut *self.world;
            heat.clear(memory, pages, *now_ns);
        }
    }

    fn young(&self, owner: BitOwner, pages: Range<u64>, sink: &mut dyn FnMut(&FolioAccess)) {
        let Some(pages) = self.pages(owner, &pages) else {
            return;
        };
        self.count(&pages);
        let world = &*self.world;
        let Some(region) = world.memory.region_of(pages.start) else {
            return;
        };
        for head in pages.step_by(region.folio_pages as usize) {
            let state = world.memory.state(head);
            if state & ABSENT != 0 || world.nodes[world.memory.node(head)].is_top_tier {
                continue;
            }
            if world.heat.is_accessed(&world.memory, head, world.now_ns) {
                sink(&FolioAccess {
                    head: pfn_of(head),
                    pages: u64::from(region.folio_pages),
                    cpu: 0,
                    nid: self.tasks[region.process].node as Nid,
                    is_hinted: region.backing.is_hinted(),
                });
            }
        }
    }
}
