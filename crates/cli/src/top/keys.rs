//! What each key does to what the user has chosen to see.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::table::Table;
use super::view::{Tab, Target, View};

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
