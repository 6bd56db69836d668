//! Which pages were accessed since somebody last asked: page tables' accessed bits.
//!
//! In the exact mode the bits are there, one per folio. In the statistical mode nobody makes the
//! single accesses that would set them; a bit is drawn when it is read, from how many accesses the
//! page can be expected to have had since it was cleared: with an expected count of n, it is set
//! with the probability 1 - exp(-n).

use std::cell::RefCell;
use std::ops::Range;

use pghot_workloads::random::XorShift;

use super::memory::{ACCESSED, HUGE_PAGES, Memory, Page};
use super::rates::{Alike, Rates};

/// Reclaim goes through a block in less.
const ONE_LOOK_NS: u64 = 1_000_000_000;

/// Page cache that was read so often since reclaim came to it last is spared: the kernel counts to
/// as many in the page's flags (`LRU_REFS_WIDTH` of `mm/vmscan.c`, since 6.8).
const SPARED_READS: u32 = 4;

/// The accessed bits of the machine.
pub enum Heat {
    /// They are in the pages' states.
    Bits,
    /// They are drawn.
    Drawn(Box<Drawn>),
}

/// What drawing needs.
pub struct Drawn {
    /// How often each page was accessed, on average.
    pub rates: Rates,
    /// When a scanner cleared the bits of each block, in ns.
    cleared_ns: Vec<u64>,
    /// When reclaim last came to a block, and when it had come there before.
    looks_ns: Vec<[u64; 2]>,
    /// Reading a bit draws it, and sources read through a shared reference.
    dice: RefCell<Dice>,
}

/// Decides bits. Who reads one mostly reads its neighbour next, so what was worked out for one is
/// kept for all that are like it.
struct Dice {
    random: XorShift,
    last: Alike,
    /// For which time, which state of the rates and how many accesses at least that is true:
    /// (since, now, version, accesses).
    last_of: (u64, u64, u64, u32),
    /// That there were as many, of those pages.
    chance: f64,
}

impl Drawn {
    /// For so many pages.
    pub fn new(rates: Rates, pages: Page, seed: u64) -> Drawn {
        let blocks = pages.div_ceil(HUGE_PAGES) as usize;
        Drawn {
            rates,
            cleared_ns: vec![0; blocks],
            looks_ns: vec![[0; 2]; blocks],
            dice: RefCell::new(Dice {
                random: XorShift::new(seed),
                last: Alike {
                    heads: 0..0,
                    expected: 0.0,
                },
                last_of: (0, 0, 0, 0),
                chance: 0.0,
            }),
        }
    }

    /// Since when reclaim wants to know of a folio: its previous look at the folio's block. It
    /// comes to the folios of a block one after the other; whatever is less than `apart_ns`
    /// after the first is one look.
    fn since_last_look(&mut self, head: Page, now_ns: u64, apart_ns: u64) -> u64 {
        let [last, before] = &mut self.looks_ns[(head / HUGE_PAGES) as usize];
        if now_ns >= *last + apart_ns {
            (*before, *last) = (*last, now_ns);
        }
        *before
    }

    /// Whether a folio had any access from one moment to another.
    fn draw(&self, memory: &Memory, head: Page, since_ns: u64, now_ns: u64) -> bool {
        self.draw_at_least(1, memory, head, since_ns, now_ns)
    }

    /// Whether it had so many at least: by Poisson's distribution.
    fn draw_at_least(
        &self,
        least: u32,
        memory: &Memory,
        head: Page,
        since_ns: u64,
        now_ns: u64,
    ) -> bool {
        let dice = &mut *self.dice.borrow_mut();
        let of = (since_ns, now_ns, self.rates.version(), least);
        if dice.last_of != of || !dice.last.heads.contains(&head) {
            dice.last = self.rates.expected(memory, head, since_ns, now_ns);
            dice.last_of = of;
            let expected = dice.last.expected;
            let mut so_many = (-expected).exp();
            let mut fewer = 0.0;
            for number in 1..=least {
                fewer += so_many;
                so_many *= expected / f64::from(number);
            }
            dice.chance = 1.0 - fewer;
        }
        // Cheap for the common cases: never accessed, and accessed all the time.
        if dice.last.expected <= 0.0 {
            return false;
        }
        if dice.last.expected > 30.0 {
            return true;
        }
        let uniform = (dice.random.next_bits() >> 11) as f64 / (1u64 << 53) as f64;
        uniform < dice.chance
    }
}

impl Heat {
    /// A scanner clears the bits of these pages.
    pub fn clear(&mut self, memory: &mut Memory, pages: Range<Page>, now_ns: u64) {
        match self {
            Heat::Bits => {
                for state in memory.states_mut(pages) {
                    *state &= !ACCESSED;
                }
            }
            Heat::Drawn(drawn) => {
                let blocks = pages.start / HUGE_PAGES..pages.end.div_ceil(HUGE_PAGES);
                drawn.cleared_ns[blocks.start as usize..blocks.end as usize].fill(now_ns);
            }
        }
    }

    /// Whether a folio was accessed since the bits were cleared.
    pub fn is_accessed(&self, memory: &Memory, head: Page, now_ns: u64) -> bool {
        match self {
            Heat::Bits => memory.state(head) & ACCESSED != 0,
            Heat::Drawn(drawn) => {
                let since = drawn.cleared_ns[(head / HUGE_PAGES) as usize];
                drawn.draw(memory, head, since, now_ns)
            }
        }
    }

    /// Clears one folio's bit for who remembers himself when he did, and tells whether it was set.
    /// Drawn bits stay as they are: nobody else notices, and nobody else's time is changed.
    pub fn clear_one(&mut self, memory: &mut Memory, head: Page) -> bool {
        match self {
            Heat::Bits => {
                let was = memory.state(head) & ACCESSED != 0;
                memory.clear(head, ACCESSED);
                was
            }
            Heat::Drawn(_) => false,
        }
    }

    /// Sets a bit again that [`Heat::clear_one`] found set.
    pub fn put_back(&mut self, memory: &mut Memory, head: Page) {
        if let Heat::Bits = self {
            memory.set(head, ACCESSED);
        }
    }

    /// Whether a folio was accessed since its bit was cleared, which was at `since_ns`.
    pub fn is_accessed_since(
        &self,
        memory: &Memory,
        head: Page,
        since_ns: u64,
        now_ns: u64,
    ) -> bool {
        match self {
            Heat::Bits => memory.state(head) & ACCESSED != 0,
            Heat::Drawn(drawn) => drawn.draw(memory, head, since_ns, now_ns),
        }
    }

    /// Reclaim walks page tables, all at one moment: whether a folio was accessed since the last
    /// walk.
    pub fn take_young(&mut self, memory: &mut Memory, head: Page, now_ns: u64) -> bool {
        match self {
            Heat::Bits => self.clear_one(memory, head),
            Heat::Drawn(drawn) => {
                let since = drawn.since_last_look(head, now_ns, 1);
                drawn.draw(memory, head, since, now_ns)
            }
        }
    }

    /// Reclaim looks at a folio between two walks: whether it was accessed since the last one.
    pub fn take_touched(&mut self, memory: &mut Memory, head: Page, now_ns: u64) -> bool {
        match self {
            Heat::Bits => self.clear_one(memory, head),
            Heat::Drawn(drawn) => {
                let [since, _] = drawn.looks_ns[(head / HUGE_PAGES) as usize];
                drawn.draw(memory, head, since, now_ns)
            }
        }
    }

    /// Reclaim comes to page cache that nobody maps: whether it was read often since it came there
    /// last. The exact mode takes one read for often.
    pub fn take_often_read(&mut self, memory: &mut Memory, head: Page, now_ns: u64) -> bool {
        match self {
            Heat::Bits => self.clear_one(memory, head),
            Heat::Drawn(drawn) => {
                let since = drawn.since_last_look(head, now_ns, ONE_LOOK_NS);
                drawn.draw_at_least(SPARED_READS, memory, head, since, now_ns)
            }
        }
    }

    /// Reclaim asks whether a folio was accessed since it last looked.
    pub fn take_referenced(&mut self, memory: &mut Memory, head: Page, now_ns: u64) -> bool {
        match self {
            Heat::Bits => self.clear_one(memory, head),
            Heat::Drawn(drawn) => {
                let since = drawn.since_last_look(head, now_ns, ONE_LOOK_NS);
                drawn.draw(memory, head, since, now_ns)
            }
        }
    }
}
