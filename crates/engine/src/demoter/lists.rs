//! How often the kernel's list of generations is asked for: it has a line for each generation, node
//! and control group of the machine, so with thousands of groups it takes as long as an aging.

use std::collections::BTreeMap;

use pghot_hotness::Nid;

/// To read it may take one part in so many of the time, of all targets together.
const SHARE: u64 = 16;

/// By target, when it may be read again, in ms.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<Nid, u64>);

impl Lists {
    /// Whether it is too early for another.
    pub fn is_early(&self, nid: Nid, now_ms: u64) -> bool {
        self.0.get(&nid).is_some_and(|again_ms| now_ms < *again_ms)
    }

    /// One was read for a target.
    pub fn note(&mut self, nid: Nid, began_ms: u64, ended_ms: u64) {
        let again_ms = self.0.get(&nid).copied().unwrap_or(0).max(ended_ms);
        self.0.insert(nid, again_ms);
        let rest_ms = ended_ms.saturating_sub(began_ms) * SHARE * self.0.len() as u64;
        self.0.insert(nid, again_ms + rest_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_together_keep_to_the_share() {
        for targets in [1, 2, 4] {
            let mut lists = Lists::default();
            let (mut now_ms, mut took_ms) = (1000, 0);
            while now_ms < 101_000 {
                for nid in 0..targets {
                    if !lists.is_early(nid, now_ms) {
                        lists.note(nid, now_ms, now_ms + 20);
                        (now_ms, took_ms) = (now_ms + 20, took_ms + 20);
                    }
                }
                now_ms += 1;
            }
            let share = 100_000 / took_ms;
            assert!((16..=20).contains(&share), "{targets}: 1 in {share}");
        }
    }

    #[test]
    fn what_takes_no_time_is_read_each_time() {
        let mut lists = Lists::default();
        lists.note(0, 1000, 1000);
        assert!(!lists.is_early(0, 1000));
    }
}
