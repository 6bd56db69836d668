//! Looks at the daemon and the machine, in a thread of its own: once a second, and at once when
//! something else is to be seen. A daemon that does not answer never holds the keys up.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pghot_daemon::config::Options;
use pghot_daemon::protocol::DecisionReport;
use pghot_daemon::protocol::{Request, Response, ask, ask_as_reader};
use pghot_daemon::status::Status;
use pghot_linux::SysRoot;
use pghot_linux::groups::{self, Group, GroupDetail};
use pghot_linux::processes::{self, Process};
use pghot_linux::topology::Topology;

use super::budget::Budget;
use super::nodes::{self, NodeMemory};

/// Between two looks at the daemon.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Between two looks at groups and processes, and at decisions, at least.
const GROUPS_EVERY: Duration = Duration::from_secs(2);
const PROGRAMS_EVERY: Duration = Duration::from_secs(5);

/// Decisions asked for.
const DECISIONS: u32 = 256;

/// What is looked at besides the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Focus {
    /// Control groups.
    #[default]
    Groups,
    /// One of them, by its path.
    Group(String),
    /// Processes.
    Programs,
    /// The newest decisions.
    Decisions,
    /// A page.
    Page {
        /// Its process.
        pid: u32,
        /// Its address there.
        address: u64,
    },
}

/// What was seen of the [`Focus`].
#[derive(Debug, Clone)]
pub enum Found {
    /// All groups, or why they cannot be told.
    Groups(Result<Vec<Group>, String>),
    /// A group by its path, and its processes; `None` if it is gone.
    Group(String, Option<GroupDetail>, Vec<Process>),
    /// The largest processes.
    Programs(Vec<Process>),
    /// The newest decisions, or why they cannot be told.
    Decisions(Result<Vec<DecisionReport>, String>),
    /// What `pghot explain` says of the page at an address of a process.
    Page(u32, u64, Vec<String>),
}

/// One look.
#[derive(Debug, Clone)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// The status, or why there is none.
    pub status: Result<Status, String>,
    /// The lower tier's nodes.
    pub lower: BTreeSet<u32>,
    /// Memory by node.
    pub nodes: Vec<NodeMemory>,
    /// The rest, if it was time for it.
    pub found: Option<Found>,
}

/// Who looks.
pub struct Watcher {
    options: Options,
    root: SysRoot,
    lower: BTreeSet<u32>,
    focus: Focus,
    budget: Budget,
}

impl Watcher {
    /// Looks at this daemon and machine.
    pub fn new(options: Options, root: SysRoot) -> Watcher {
        // Without a daemon, the kernel knows the tiers. Readable by everyone.
        let topology = Topology::read(&root).ok();
        let lower = topology.iter().flat_map(Topology::lower_tier_nodes);
        Watcher {
            lower: lower.map(|node| node.nid).collect(),
            options,
            root,
            focus: Focus::default(),
            budget: Budget::default(),
        }
    }

    /// Looks at something else from now on.
    pub fn turn_to(&mut self, focus: Focus) {
        (self.focus, self.budget) = (focus, Budget::default());
    }

    /// Looks once.
    pub fn look(&mut self) -> Seen {
        let status = match ask_as_reader(&self.options, &Request::Status) {
            Ok(Response::Status(status)) => Ok(*status),
            Ok(Response::Error(sentence)) => Err(sentence),
            Ok(_) => Err("the daemon is another version of pghot".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        if let Ok(status) = &status {
            self.lower = status.lower_tier.iter().map(|node| node.nid).collect();
        }
        let before = Instant::now();
        let found = self.budget.is_due(before).then(|| self.find());
        if found.is_some() {
            let every = match self.focus {
                Focus::Group(_) | Focus::Programs => PROGRAMS_EVERY,
                Focus::Groups | Focus::Decisions | Focus::Page { .. } => GROUPS_EVERY,
            };
            self.budget.spent(before, before.elapsed(), every);
        }
        Seen {
            at: Instant::now(),
            status,
            lower: self.lower.clone(),
            nodes: nodes::read(&self.root),
            found,
        }
    }

    fn find(&self) -> Found {
        match &self.focus {
            Focus::Groups => Found::Groups(groups::read(&self.root)),
            Focus::Group(path) => {
                let detail = groups::detail(&self.root, path);
                let pids = detail.as_ref().map_or(&[][..], |detail| &detail.pids);
                let programs = processes::read(&self.root, Some(pids));
                Found::Group(path.clone(), detail, programs)
            }
            Focus::Programs => Found::Programs(processes::read(&self.root, None)),
            Focus::Decisions => Found::Decisions(self.decisions()),
            Focus::Page { pid, address } => {
                Found::Page(*pid, *address, self.explain(*pid, *address))
            }
        }
    }

    fn decisions(&self) -> Result<Vec<DecisionReport>, String> {
        match ask_as_reader(&self.options, &Request::ExplainLast { count: DECISIONS }) {
            Ok(Response::Decisions(decisions)) => Ok(decisions),
            Ok(Response::Error(sentence)) => Err(sentence),
            Ok(_) => Err("the daemon is another version of pghot".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Only root is told of pages; the sentence of a refusal says so.
    fn explain(&self, pid: u32, address: u64) -> Vec<String> {
        match ask(&self.options.socket, &Request::Explain { pid, address }) {
            Ok(Response::Explanation(explanation)) => explanation.sentences,
            Ok(Response::Error(sentence)) => vec![sentence],
            Ok(_) => Vec::new(),
            Err(error) => vec![error.to_string()],
        }
    }

    /// Looks once a period, and at once when it is told of another focus, until nobody wants to
    /// know.
    pub fn run(mut self, focuses: &Receiver<Focus>, mut tell: impl FnMut(Seen) -> bool) {
        let mut next = Instant::now();
        while tell(self.look()) {
            let now = Instant::now();
            if next <= now {
                // However long a look takes, there is time between two of them.
                next = (next + PERIOD).max(now + PERIOD / 4);
            }
            match focuses.recv_timeout(next - now) {
                Ok(focus) => {
                    let newest = focuses.try_iter().last();
                    self.turn_to(newest.unwrap_or(focus));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
