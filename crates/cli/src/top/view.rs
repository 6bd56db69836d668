//! What the user has chosen to see, and what each key does to it.

use pghot_daemon::protocol::DecisionReport;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::table::Table;
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

    fn after(self, steps: usize) -> Tab {
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

/// What a key asks of others than the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing but to draw again.
    Draw,
    /// To draw everything again.
    Clear,
    /// To end.
    Quit,
}

/// Rows of a page key.
const PAGE: isize = 10;

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

    /// A key was pressed while this table was shown.
    pub fn key(&mut self, key: KeyEvent, table: &Table) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Act::Quit,
                KeyCode::Char('l') => Act::Clear,
                _ => Act::Draw,
            };
        }
        if self.is_typing {
            self.typed(key.code);
            return Act::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('?') => self.shows_help = !self.shows_help,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            _ if self.shows_help => self.shows_help = false,
            KeyCode::Down | KeyCode::Char('j') => self.step(1, table),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1, table),
            KeyCode::PageDown => self.step(PAGE, table),
            KeyCode::PageUp => self.step(-PAGE, table),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN, table),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX, table),
            _ if self.opened.is_some() => {}
            KeyCode::Char('s') => self.sort_by_next(table, 1),
            KeyCode::Char('S') => self.sort_by_next(table, table.columns.len() - 1),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Tab::ALL.len() - 1),
            KeyCode::Enter | KeyCode::Right => self.open(table),
            _ => {}
        }
        Act::Draw
    }

    fn typed(&mut self, code: KeyCode) {
        self.selected = None;
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            _ => {}
        }
    }

    fn back(&mut self) {
        if self.shows_help {
            self.shows_help = false;
        } else if self.opened.take().is_none() {
            self.filter.clear();
        }
        self.scroll = 0;
    }

    fn step(&mut self, steps: isize, table: &Table) {
        if self.opened.is_some() {
            // How many rows there are is only known when they are drawn, which stops at the last.
            self.scroll = self.scroll.saturating_add_signed(steps).min(1 << 16);
            return;
        }
        let last = table.rows.len().saturating_sub(1);
        let now = table.selected(self);
        let next = now.saturating_add_signed(steps).min(last);
        self.selected = table.rows.get(next).map(|row| row.name.clone());
    }

    fn sort_by_next(&mut self, table: &Table, steps: usize) {
        let sort = &mut self.sort[self.tab as usize];
        *sort = (*sort + steps) % table.columns.len().max(1);
    }

    fn turn(&mut self, steps: usize) {
        self.tab = self.tab.after(steps);
        (self.selected, self.scroll) = (None, 0);
    }

    fn open(&mut self, table: &Table) {
        match table.rows.get(table.selected(self)).map(|row| &row.target) {
            Some(Target::Open(opened)) => {
                (self.opened, self.scroll) = (Some(opened.clone()), 0);
            }
            Some(Target::DecisionsOf(pid)) => {
                (self.tab, self.selected, self.filter) = (Tab::Decisions, None, pid.to_string());
            }
            None => {}
        }
    }
}
