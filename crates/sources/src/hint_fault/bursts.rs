//! Bursts of hint faults, as `is_in_burst()` of the program finds them: for the model.

/// 2 MiB of a process's memory are neighbours.
const BLOCK_SHIFT: u32 = 9;

/// A burst is so many faults of a block within [`BURST_MS`], without those in a row, and those that
/// follow.
pub(super) const BURST_FAULTS: u32 = 64;

/// See there. The pages of a block that comes to so many are touched some three times a second.
const BURST_MS: u64 = 64;

/// Places for blocks.
const BLOCKS: usize = 4096;

const BLOCK_PAGES: usize = 1 << BLOCK_SHIFT;

#[derive(Debug, Clone)]
struct Block {
    key: u64,
    start_ms: u64,
    /// Without those that come in a row.
    faults: u32,
    /// Pages that faulted.
    faulted: [bool; BLOCK_PAGES],
}

/// The newest faults of each block. Who comes later takes a place.
pub(super) struct Bursts(Vec<Block>);

impl Bursts {
    pub fn new() -> Bursts {
        let none = Block {
            key: 0,
            start_ms: 0,
            faults: 0,
            faulted: [false; BLOCK_PAGES],
        };
        Bursts(vec![none; BLOCKS])
    }

    /// Takes note of a fault; whether it is one of a burst.
    pub fn note(&mut self, page: u64, now_ms: u64) -> bool {
        let key = page >> BLOCK_SHIFT;
        let block = &mut self.0[key as usize % BLOCKS];
        if block.key != key || now_ms.saturating_sub(block.start_ms) >= BURST_MS {
            (block.key, block.start_ms, block.faults) = (key, now_ms, 0);
            block.faulted.fill(false);
        }
        let page = page as usize;
        let has_faulted = |near: &usize| block.faulted[near % BLOCK_PAGES];
        let near = [
            page.wrapping_sub(2),
            page.wrapping_sub(1),
            page + 1,
            page + 2,
        ];
        let is_in_row = near.iter().any(has_faulted);
        block.faulted[page % BLOCK_PAGES] = true;
        block.faults += u32::from(!is_in_row);
        block.faults > BURST_FAULTS
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::defined;
    use super::*;

    /// How many of the faults are in bursts that come once in so many ms.
    fn in_bursts(each_ms: f64, page_of: impl Fn(u64) -> u64) -> usize {
        let mut bursts = Bursts::new();
        let is_in_burst = |i: &u64| bursts.note(page_of(*i), 1000 + (*i as f64 * each_ms) as u64);
        (0..4096).filter(is_in_burst).count()
    }

    #[test]
    fn many_neighbours_at_once_are_a_burst() {
        // All pages of a block, far from each other at first.
        let scattered = |i: u64| i / 512 * 512 + ((i % 512) << 55).reverse_bits();
        assert_eq!(in_bursts(0.1, scattered), 4096 / 512 * (512 - 64));
        assert_eq!(in_bursts(2.0, scattered), 0, "too slow");
        assert_eq!(in_bursts(0.1, |i| i * 512), 0, "far from each other");
        assert_eq!(in_bursts(0.1, |i| i), 0, "once over memory");
        assert_eq!(in_bursts(0.1, |i| (1 << 20) - i), 0, "backwards");
        // Twice over memory, at two places, with every fifth page in use beside it.
        let beside = |i: u64| match i % 3 {
            0 => i / 3,
            1 => i / 3 + 256,
            _ => i / 3 / 5 * 5,
        };
        assert_eq!(in_bursts(0.2, beside), 0);
    }

    #[test]
    fn the_program_goes_by_the_same_numbers() {
        assert_eq!(defined("BLOCK_SHIFT"), u64::from(BLOCK_SHIFT) + 12);
        assert_eq!(defined("BURST_FAULTS"), u64::from(BURST_FAULTS));
        assert_eq!(defined("BURST_MS"), BURST_MS);
    }
}
