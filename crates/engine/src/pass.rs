//! What lives for one pass of a migrator only.

use std::collections::{HashMap, HashSet};

use pghot_hotness::{Nid, Pfn, Rule, Table};

use crate::batch::Batches;
use crate::owners::Entries;
use crate::{Found, Held, Machine, Outcome, Owner, PassReport, Pid, Program, Settings};

/// See the head of this file.
pub(crate) struct Pass<'a> {
    pub table: &'a Table,
    pub settings: &'a Settings,
    pub rule: &'a Rule,
    pub machine: &'a mut dyn Machine,
    pub report: PassReport,
    /// Of the top tier, the nearest first.
    pub top_tier: Vec<Nid>,
    /// Where pages go whose record does not know better.
    pub target: Option<Nid>,
    /// Targets that had no room for a whole batch.
    pub full: HashSet<Nid>,
    /// Targets that have less room than pages wait for.
    pub scarce: HashSet<Nid>,
    /// Heads of large folios already in a batch: several of their pages may be ready.
    pub heads: HashSet<Pfn>,
    pub batches: Batches,
    pub outcomes: Vec<Outcome>,
    /// Whether it is counted by owner.
    pub counts_owners: bool,
    /// What was counted so.
    pub entries: Entries,
    /// Who processes are that were met, and whether a policy excludes them.
    programs: HashMap<Pid, (Program, bool)>,
}

impl<'a> Pass<'a> {
    pub fn new(
        table: &'a Table,
        settings: &'a Settings,
        rule: &'a Rule,
        machine: &'a mut dyn Machine,
    ) -> Pass<'a> {
        Pass {
            report: PassReport {
                started_ms: machine.now_ms(),
                ..PassReport::default()
            },
            table,
            settings,
            rule,
            machine,
            top_tier: Vec::new(),
            target: None,
            full: HashSet::new(),
            scarce: HashSet::new(),
            heads: HashSet::new(),
            batches: Batches::default(),
            outcomes: Vec::new(),
            counts_owners: false,
            entries: Entries::default(),
            programs: HashMap::new(),
        }
    }

    /// Takes note of whose pages are met, and returns whether a policy says that they never move.
    /// Page cache that no process maps is nobody's.
    pub fn is_excluded(&mut self, owner: Owner) -> bool {
        let Owner::Process(pid) = owner else {
            return false;
        };
        let policies = &self.settings.policies;
        if policies.is_empty() && !self.counts_owners {
            return false;
        }
        let (_, is_excluded) = self.programs.entry(pid).or_insert_with(|| {
            let program = self.machine.program(pid);
            let policy = program.as_ref().and_then(|program| policies.of(program));
            let is_excluded = policy.is_some_and(|policy| policy.exclude);
            (program.map_or_else(Program::unknown, known), is_excluded)
        });
        *is_excluded
    }

    /// Counts by owner how folios ended.
    pub fn count(&mut self, owner: Option<Owner>, outcome: Outcome, pages: u64) {
        if self.counts_owners {
            let program = self.program(owner);
            self.entries.add(&program, outcome, pages);
        }
    }

    /// Whose the pages of a sample are.
    pub fn owners_of(&mut self, pfns: &[Pfn]) -> HashMap<Program, u64> {
        let mut found = Vec::with_capacity(pfns.len());
        self.machine.resolve(pfns, &mut found);
        let mut by_program = HashMap::<Program, u64>::new();
        for found in found {
            let owner = match found {
                Found::Folio { place, .. } => Some(place.owner),
                Found::Unresolved(_) => None,
            };
            *by_program.entry(self.program(owner)).or_default() += 1;
        }
        by_program
    }

    fn program(&mut self, owner: Option<Owner>) -> Program {
        let Some(Owner::Process(pid)) = owner else {
            return owner.map_or_else(Program::nobody, |_| Program::page_cache());
        };
        self.is_excluded(Owner::Process(pid));
        let known = self.programs.get(&pid).map(|(program, _)| program.clone());
        known.unwrap_or_else(Program::unknown)
    }

    pub fn hold(&mut self, held: Held, pages: u64) {
        if pages > 0 {
            *self.report.held.entry(held).or_default() += pages;
        }
    }

    /// A folio that was counted as waiting went, or may not go for long.
    pub fn waits_no_more(&mut self, target: Nid, freq: u32, pages: u32) {
        let is_quick = self.is_quick(freq);
        if let Some(waiting) = self.report.waiting.get_mut(&target) {
            let left = waiting.of(is_quick);
            *left = left.saturating_sub(pages.into());
        }
    }

    /// It waits for another target than it was counted for.
    pub fn waits_for(&mut self, target: Nid, meant: Nid, freq: u32, pages: u32) {
        self.waits_no_more(meant, freq, pages);
        let is_quick = self.is_quick(freq);
        let waiting = self.report.waiting.entry(target).or_default();
        *waiting.of(is_quick) += u64::from(pages);
    }

    fn is_quick(&self, freq: u32) -> bool {
        freq >= self.settings.mode.freq_max()
    }

    /// Where pages may go whose record does not know better: as set, or to the nearest.
    pub fn allowed(&self) -> Vec<Nid> {
        let is_allowed = |nid: &&Nid| self.settings.target_nid.is_none_or(|set| set == **nid);
        self.top_tier.iter().filter(is_allowed).copied().collect()
    }

    /// Precision mode knows the accessing node; default mode, and a node that left the top tier
    /// meanwhile, take that of the pass.
    pub fn target(&self, accessing: Option<Nid>) -> Option<Nid> {
        let accessing = accessing.filter(|nid| self.top_tier.contains(nid));
        accessing.or(self.target)
    }
}

/// A host without cgroup v2 has none to name.
fn known(mut program: Program) -> Program {
    if program.cgroup.is_empty() {
        program.cgroup = Program::UNKNOWN.to_owned();
    }
    program
}
