//! Sorts admitted folios into batches: one owner, one target, a bounded number of pages.

use std::collections::HashMap;

use pghot_hotness::Nid;

use crate::{Batch, HotFolio, Owner};

/// Batches under construction, one per owner and target.
///
/// `move_pages` serves one process a call, and one file is opened and mapped for a call, and each
/// call drains the LRU caches of all CPUs, so a full batch is worth waiting for within a pass. The
/// bound is in pages, not folios, because it bounds how long memory is inaccessible; only a folio
/// that is itself larger goes alone.
#[derive(Debug, Default)]
pub struct Batches {
    open: HashMap<(Owner, Nid), Batch>,
    /// Keys in the order of their hottest folio.
    order: Vec<(Owner, Nid)>,
}

impl Batches {
    /// Adds a folio. Returns the batch that must go first if the folio did not fit into it.
    pub fn add(&mut self, owner: Owner, target: Nid, folio: HotFolio, limit: u32) -> Option<Batch> {
        let key = (owner, target);
        let batch = self.open.entry(key).or_insert_with(|| {
            self.order.push(key);
            Batch {
                owner,
                target,
                folios: Vec::new(),
                pages: 0,
            }
        });
        let full = if batch.pages + folio.pages > limit && batch.pages > 0 {
            let empty = Batch {
                owner,
                target,
                folios: Vec::new(),
                pages: 0,
            };
            Some(std::mem::replace(batch, empty))
        } else {
            None
        };
        batch.folios.push(folio);
        batch.pages += folio.pages;
        full
    }

    /// Takes the open batches, that of the hottest folio first.
    pub fn drain(&mut self) -> Vec<Batch> {
        let open = &mut self.open;
        self.order
            .drain(..)
            .filter_map(|key| open.remove(&key))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P1: Owner = Owner::Process(1);

    fn folio(pfn: u64, pages: u32) -> HotFolio {
        HotFolio {
            pfn,
            address: pfn << 12,
            pages,
            freq: 2,
            age_ms: 0,
        }
    }

    #[test]
    fn bounded_in_pages_and_grouped() {
        let mut b = Batches::default();
        assert_eq!(b.add(P1, 0, folio(1, 40), 64), None);
        assert_eq!(b.add(Owner::Process(2), 0, folio(2, 40), 64), None);
        let full = b.add(P1, 0, folio(3, 40), 64).unwrap();
        assert_eq!((full.owner, full.pages, full.folios.len()), (P1, 40, 1));
        assert_eq!(
            b.add(P1, 1, folio(4, 512), 64),
            None,
            "a huge folio goes alone"
        );
        let rest = b.drain();
        let keys: Vec<_> = rest.iter().map(|b| (b.owner, b.target, b.pages)).collect();
        assert_eq!(
            keys,
            [(P1, 0, 40), (Owner::Process(2), 0, 40), (P1, 1, 512)]
        );
        assert!(b.drain().is_empty());
    }
}
