//! What the user has chosen to see.

use pghot_daemon::protocol::DecisionReport;

use super::watch::Focus;

/// Which table is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tab {
    /// Control groups.
    #[default]
    Groups,
    /// Processes.
    Programs,
    /// The newest decisions.
    Decisions,
}

impl Tab {
    /// All of them, in the order of the key Tab, with their titles.
    pub const ALL: [(Tab, &'static str); 3] = [
        (Tab::Groups, "cgroups"),
        (Tab::Programs, "programs"),
        (Tab::Decisions, "decisions"),
    ];

    /// The one so many steps on.
    pub fn after(self, steps: usize) -> Tab {
        Tab::ALL[(self as usize + steps) % Tab::ALL.len()].0
    }
}

/// A row that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// A control group, by its path.
    Group(String),
    /// A decision.
    Decision(Box<DecisionReport>),
}

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A row that is opened.
    Open(Opened),
    /// A process, by its number: its decisions are shown.
    DecisionsOf(u32),
}

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The table.
    pub tab: Tab,
    /// The columns that tables are sorted by, by tab.
    pub sort: [usize; 3],
    /// What rows must contain.
    pub filter: String,
    /// The filter is being typed.
    pub is_typing: bool,
    /// The name of the row that is selected; the first one otherwise.
    pub selected: Option<String>,
    /// A row that was opened.
    pub opened: Option<Opened>,
    /// Rows of it that are scrolled away.
    pub scroll: usize,
    /// The keys are explained.
    pub shows_help: bool,
    /// The picture stands still.
    pub is_paused: bool,
}

impl View {
    /// What is to be looked at for it.
    pub fn focus(&self) -> Focus {
        match (&self.opened, self.tab) {
            (Some(Opened::Group(path)), _) => Focus::Group(path.clone()),
            (Some(Opened::Decision(decision)), _) => match (decision.pid, decision.address) {
                (Some(pid), Some(address)) => Focus::Page { pid, address },
                _ => Focus::Decisions,
            },
            (None, Tab::Groups) => Focus::Groups,
            (None, Tab::Programs) => Focus::Programs,
            (None, Tab::Decisions) => Focus::Decisions,
        }
    }

    /// The column that the table is sorted by.
    pub fn sort_column(&self) -> usize {
        self.sort[self.tab as usize]
    }
}
