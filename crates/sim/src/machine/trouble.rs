//! What goes wrong on purpose: the answers that a kernel may give, and what a source may miss.

use pghot_engine::Outcome;
use pghot_workloads::random::XorShift;

/// Chances of 1000 that something goes wrong; nothing does by default.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// A page is pinned, locked or under writeback: `EBUSY`.
    pub busy: u32,
    /// The node has no free page, although it seemed to: `ENOMEM`.
    pub no_memory: u32,
    /// The process or its mapping is gone: `ESRCH`, `ENOENT`.
    pub gone: u32,
    /// The process may not be touched: `EPERM`.
    pub denied: u32,
    /// The mapping of a page is not found in time.
    pub not_found: u32,
    /// A report gets lost.
    pub lost_report: u32,
    /// A report comes twice.
    pub doubled_report: u32,
    /// How far the daemon's clock has jumped ahead, in ms.
    pub clock_ahead_ms: u64,
    /// The host says that a page moved, and leaves it: a bug, planted to see whether it is found.
    pub lies: bool,
    /// The host says that the lower tier has room and demotion is on: another one.
    pub invites_swap: bool,
    random: XorShift,
}

impl Default for Trouble {
    fn default() -> Self {
        Trouble {
            busy: 0,
            no_memory: 0,
            gone: 0,
            denied: 0,
            not_found: 0,
            lost_report: 0,
            doubled_report: 0,
            clock_ahead_ms: 0,
            lies: false,
            invites_swap: false,
            random: XorShift::new(0),
        }
    }
}

impl Trouble {
    /// So much of everything as the seed says.
    pub fn new(seed: u64) -> Trouble {
        let mut random = XorShift::new(seed);
        // One kind of trouble in two is absent, so that the others are not drowned by it.
        let mut chance = |most: u32| match random.below(2) {
            0 => 0,
            _ => random.below(most + 1),
        };
        Trouble {
            busy: chance(300),
            no_memory: chance(50),
            gone: chance(100),
            denied: chance(100),
            not_found: chance(200),
            lost_report: chance(500),
            doubled_report: chance(300),
            clock_ahead_ms: 0,
            lies: false,
            invites_swap: false,
            random,
        }
    }

    /// Nothing goes wrong any more; the clock stays where it is.
    pub fn calm_down(&mut self) {
        *self = Trouble {
            clock_ahead_ms: self.clock_ahead_ms,
            lies: self.lies,
            invites_swap: self.invites_swap,
            ..Trouble::default()
        };
    }

    fn happens(&mut self, chance: u32) -> bool {
        chance > 0 && self.random.below(1000) < chance
    }

    /// Why a move that could be done is refused, if it is.
    pub fn refusal(&mut self) -> Option<Outcome> {
        let kinds = [
            (self.busy, Outcome::Busy),
            (self.no_memory, Outcome::NoMemory),
            (self.gone, Outcome::Gone),
            (self.denied, Outcome::Denied),
        ];
        let mut kinds = kinds.into_iter();
        let happened = kinds.find(|(chance, _)| self.happens(*chance));
        happened.map(|(_, outcome)| outcome)
    }

    /// Whether a page's mapping is not found.
    pub fn hides(&mut self) -> bool {
        self.happens(self.not_found)
    }

    /// How often a report arrives.
    pub fn reports(&mut self) -> u32 {
        if self.happens(self.lost_report) {
            0
        } else {
            1 + u32::from(self.happens(self.doubled_report))
        }
    }
}
