//! The table below: its columns and rows for each tab, filtered and sorted.

use std::cmp::Ordering;

use pghot_daemon::owners::OwnerMoves;
use pghot_daemon::protocol::DecisionReport;
use pghot_linux::groups::Group;
use pghot_linux::processes::{Process, printable};

use super::look::{Look, Role, percent, size};
use super::model::Model;
use super::view::{Opened, Tab, Target, View};
use crate::units::count;

/// A column.
#[derive(Debug)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Its letters; 0 for what the others leave, which is aligned to the left.
    pub width: usize,
    /// Where not all columns fit, those of the greatest rank go first.
    pub rank: u8,
}

const fn column(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, width, rank }
}

/// What a cell is sorted by: numbers with the greatest first, texts by the alphabet.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    Number(f64),
    Text(String),
    /// After all others.
    Unknown,
}

/// A cell.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What is shown.
    pub text: String,
    /// How.
    pub role: Role,
    key: Key,
}

/// A row.
#[derive(Debug, Clone)]
pub struct Row {
    /// Tells it from the others of the table.
    pub name: String,
    /// As many as there are columns.
    pub cells: Vec<Cell>,
    /// What Enter opens.
    pub target: Target,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Table {
    /// Its columns.
    pub columns: &'static [Column],
    /// Its rows, in order.
    pub rows: Vec<Row>,
    /// Rows before the filter.
    pub all: usize,
    /// Why there is nothing, or what to know about the rows.
    pub note: Option<String>,
}

const GROUPS: &[Column] = &[
    column("FAR", 10, 1),
    column("NEAR", 10, 2),
    column("FAR SHARE", 15, 4),
    column("FAR/s", 12, 3),
    column("HOT FAR", 10, 5),
    column("UP", 10, 6),
    column("DOWN", 10, 7),
    column("TOP SHARE", 10, 8),
    column("LIMIT", 10, 9),
    column("CGROUP", 0, 0),
];

const PROGRAMS: &[Column] = &[
    column("FAR", 10, 1),
    column("NEAR", 10, 3),
    column("RSS", 10, 2),
    column("FAR SHARE", 15, 4),
    column("HOT FAR", 10, 5),
    column("UP", 10, 6),
    column("PID", 8, 1),
    column("PROGRAM", 0, 0),
];

const DECISIONS: &[Column] = &[
    column("AGO", 9, 1),
    column("NODES", 9, 4),
    column("PID OR FILE", 14, 1),
    column("ADDRESS", 13, 6),
    column("PAGES", 6, 3),
    column("FREQ", 5, 5),
    column("HOW IT ENDED", 0, 0),
];

impl Table {
    /// The table that is shown.
    pub fn of(model: &Model, view: &View, look: Look) -> Table {
        let mut table = match view.tab {
            Tab::Groups => groups(model, look),
            Tab::Programs => programs(model, look),
            Tab::Decisions => decisions(model),
        };
        table.all = table.rows.len();
        let wanted = view.filter.to_lowercase();
        let has = |row: &Row| {
            let mut cells = row.cells.iter();
            cells.any(|cell| cell.text.to_lowercase().contains(&wanted))
        };
        table.rows.retain(has);
        let column = view.sort_column();
        // Stable: rows alike stay in the order in which they were found.
        table
            .rows
            .sort_by(|a, b| compare(&a.cells[column].key, &b.cells[column].key));
        table
    }

    /// The row that is selected.
    pub fn selected(&self, view: &View) -> usize {
        let name = view.selected.as_ref();
        let found = name.and_then(|name| self.rows.iter().position(|row| row.name == *name));
        found.unwrap_or_default()
    }
}

fn compare(a: &Key, b: &Key) -> Ordering {
    match (a, b) {
        (Key::Number(a), Key::Number(b)) => b.total_cmp(a),
        (Key::Text(a), Key::Text(b)) => a.cmp(b),
        (Key::Unknown, Key::Unknown) => Ordering::Equal,
        (Key::Unknown, _) => Ordering::Greater,
        (_, Key::Unknown) => Ordering::Less,
        (Key::Number(_), Key::Text(_)) => Ordering::Less,
        (Key::Text(_), Key::Number(_)) => Ordering::Greater,
    }
}

fn number(text: String, value: f64) -> Cell {
    let (key, role) = (Key::Number(value), Role::Plain);
    Cell { text, role, key }
}

fn words(text: String) -> Cell {
    let (key, role) = (Key::Text(text.to_lowercase()), Role::Plain);
    Cell { text, role, key }
}

fn unknown() -> Cell {
    Cell {
        text: "-".to_owned(),
        role: Role::Faint,
        key: Key::Unknown,
    }
}

fn bytes(bytes: u64) -> Cell {
    number(size(bytes), bytes as f64)
}

/// Columns of the bar of a share; percent follow.
const BAR: usize = 8;

fn share(far: u64, near: u64, look: Look) -> Cell {
    if far + near == 0 {
        return unknown();
    }
    let share = far as f64 / (far + near) as f64;
    let (full, rest) = look.bar(share, BAR);
    number(format!("{full}{rest} {:>6}", percent(share)), share)
}

/// What the daemon counted of an owner, in bytes: hot in the lower tier, promoted, demoted.
fn moves<'a>(of_it: impl IntoIterator<Item = &'a OwnerMoves>) -> [Cell; 3] {
    let mut of_it = of_it.into_iter().peekable();
    if of_it.peek().is_none() {
        return [unknown(), unknown(), unknown()];
    }
    let sum = of_it.fold([0; 3], |[ready, up, down], it| {
        let demoted = it.demoted_pages.unwrap_or(0);
        [
            ready + it.ready_pages,
            up + it.promoted_pages,
            down + demoted,
        ]
    });
    sum.map(|pages| bytes(pages << 12))
}

fn groups(model: &Model, look: Look) -> Table {
    let counted = || model.status.iter().flat_map(|status| &status.cgroups);
    let row = |group: &Group| {
        let (far, near) = model.far_and_near(&group.bytes);
        let change = model.changes.get(&group.path).map(|change| {
            let sign = if *change < 0.0 { "-" } else { "+" };
            let text = match *change as i64 {
                0 => "0".to_owned(),
                change => format!("{sign}{}", size(change.unsigned_abs())),
            };
            number(text, *change)
        });
        let path = printable(&group.path);
        let told = counted().find(|it| it.moves.name == group.path);
        let [hot, up, down] = moves(told.map(|it| &it.moves));
        let of_top = told.and_then(|it| it.share_bytes);
        let limit = told.and_then(|it| it.limit_bytes);
        Row {
            name: group.path.clone(),
            cells: vec![
                bytes(far),
                bytes(near),
                share(far, near, look),
                change.unwrap_or_else(unknown),
                hot,
                up,
                down,
                of_top.map_or_else(unknown, bytes),
                limit.map_or_else(unknown, bytes),
                words(path),
            ],
            target: Target::Open(Opened::Group(group.path.clone())),
        }
    };
    let (rows, note) = match &model.groups {
        None => (Vec::new(), Some("looking".to_owned())),
        Some(Ok(groups)) => (groups.iter().map(row).collect(), None),
        Some(Err(why)) => (Vec::new(), Some(format!("{why}; Tab shows programs"))),
    };
    Table {
        columns: GROUPS,
        rows,
        all: 0,
        note,
    }
}

fn programs(model: &Model, look: Look) -> Table {
    let counted = || model.status.iter().flat_map(|status| &status.processes);
    let row = |program: &Process| {
        let by_tier = program
            .bytes
            .as_ref()
            .map(|bytes| model.far_and_near(bytes));
        let tiers = by_tier.map(|(far, near)| [bytes(far), bytes(near), share(far, near, look)]);
        let [far, near, share] = tiers.unwrap_or_else(|| [unknown(), unknown(), unknown()]);
        let pid = program.pid.to_string();
        let [hot, up, _] = moves(counted().filter(|it| it.pid == Some(program.pid)));
        Row {
            name: pid.clone(),
            cells: vec![
                far,
                near,
                bytes(program.rss_bytes),
                share,
                hot,
                up,
                number(pid, f64::from(program.pid)),
                words(program.name.clone()),
            ],
            target: Target::DecisionsOf(program.pid),
        }
    };
    let rows = model.programs.iter().flatten().map(row).collect();
    Table {
        columns: PROGRAMS,
        rows,
        all: 0,
        note: Some(match model.programs {
            None => "looking".to_owned(),
            Some(_) => "by tier: the 8 largest up to 8 GiB, if you may read them".to_owned(),
        }),
    }
}

fn decisions(model: &Model) -> Table {
    let row = |(index, decision): (usize, &DecisionReport)| {
        let ago_s = decision.ago_ms as f64 / 1000.0;
        let pid = decision.pid.map(|pid| pid.to_string());
        let owner = pid.or_else(|| decision.file.clone());
        let address = decision.address.map(|address| {
            let (text, value) = (format!("{address:x}"), address as f64);
            number(text, value)
        });
        Row {
            name: index.to_string(),
            cells: vec![
                number(format!("{ago_s:.1} s"), -ago_s),
                words(format!("{} to {}", decision.nid, decision.target)),
                owner.map_or_else(unknown, words),
                address.unwrap_or_else(unknown),
                number(count(decision.pages.into()), f64::from(decision.pages)),
                number(decision.freq.to_string(), f64::from(decision.freq)),
                words(format!("{} ({})", decision.why, decision.outcome)),
            ],
            target: Target::Open(Opened::Decision(Box::new(decision.clone()))),
        }
    };
    let (rows, note): (Vec<Row>, _) = match &model.decisions {
        None => (Vec::new(), Some("looking".to_owned())),
        Some(Ok(decisions)) if decisions.is_empty() => {
            (Vec::new(), Some("no decision was made yet".to_owned()))
        }
        Some(Ok(decisions)) => (decisions.iter().enumerate().map(row).collect(), None),
        Some(Err(why)) => (Vec::new(), Some(why.clone())),
    };
    Table {
        columns: DECISIONS,
        rows,
        all: 0,
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::keys::Act;
    use crate::top::testing::{LOOK, WIDE, key, model};
    use ratatui::crossterm::event::KeyCode;

    fn last_column(table: &Table) -> Vec<&str> {
        let last = table.columns.len() - 1;
        let rows = table.rows.iter();
        rows.map(|row| row.cells[last].text.as_str()).collect()
    }

    #[test]
    fn groups_are_sorted_by_any_column_and_blanks_come_last() {
        let (model, mut view) = (model(), View::default());
        let table = Table::of(&model, &view, LOOK);
        let by_far = [
            "/system.slice/redis.service",
            "/user.slice/session-1.scope",
            WIDE,
            "/init.scope",
        ];
        assert_eq!(last_column(&table), by_far);
        assert!(table.rows.iter().all(|row| row.cells.len() == GROUPS.len()));
        for _ in 0..9 {
            assert_eq!(view.key(key(KeyCode::Char('s')), &table), Act::Draw);
        }
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(last_column(&table)[0], "/init.scope", "by the alphabet");
        view.sort[0] = 5;
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(last_column(&table)[0], by_far[1], "most of it went up");
        assert_eq!(table.rows[0].cells[4].text, "4.0 MiB");
        assert_eq!(
            table.rows[2].cells[5].text, "-",
            "nothing was counted of it"
        );
        assert_eq!(table.rows[1].cells[7].text, "12.0 GiB", "by its weight");
        assert_eq!(table.rows[1].cells[8].text, "48.0 GiB");
        assert_eq!(table.rows[2].cells[8].text, "-", "it has no limit");
        view.sort[0] = 3;
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(
            table.rows[3].cells[3].text, "-",
            "no change is known of the last one"
        );
        assert_eq!(table.rows[0].cells[3].text, "+2.0 MiB");
        assert_eq!(table.rows[1].cells[3].text, "0");
        assert_eq!(table.rows[2].cells[3].text, "-4.0 MiB");
    }

    #[test]
    fn the_filter_keeps_what_contains_it() {
        let (model, mut view) = (model(), View::default());
        let table = Table::of(&model, &view, LOOK);
        view.key(key(KeyCode::Char('/')), &table);
        for letter in "REDISx".chars() {
            view.key(key(KeyCode::Char(letter)), &table);
        }
        view.key(key(KeyCode::Backspace), &table);
        view.key(key(KeyCode::Enter), &table);
        let table = Table::of(&model, &view, LOOK);
        assert_eq!((table.rows.len(), table.all), (1, 4));
        // Keys are keys again.
        assert_eq!(view.key(key(KeyCode::Char('q')), &table), Act::Quit);
        view.key(key(KeyCode::Esc), &table);
        assert_eq!(Table::of(&model, &view, LOOK).rows.len(), 4);
    }

    #[test]
    fn the_selection_follows_its_row() {
        let (model, mut view) = (model(), View::default());
        let table = Table::of(&model, &view, LOOK);
        view.key(key(KeyCode::Down), &table);
        view.key(key(KeyCode::Char('j')), &table);
        view.key(key(KeyCode::Char('j')), &table);
        assert_eq!(view.selected.as_deref(), Some("/init.scope"));
        view.sort[0] = 9;
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(table.selected(&view), 0);
        view.key(key(KeyCode::Enter), &table);
        assert_eq!(view.opened, Some(Opened::Group("/init.scope".into())));
        view.key(key(KeyCode::Esc), &table);
        assert_eq!(view.opened, None);
        view.selected = Some("gone".into());
        assert_eq!(table.selected(&view), 0);
    }

    #[test]
    fn a_program_leads_to_its_decisions() {
        let (model, mut view) = (model(), View::default());
        let table = Table::of(&model, &view, LOOK);
        view.key(key(KeyCode::Tab), &table);
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(last_column(&table), ["redis-server", "huge"]);
        assert_eq!(table.rows[1].cells[0].text, "-", "it was not walked");
        view.key(key(KeyCode::Enter), &table);
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(
            (view.tab, table.rows.len(), table.all),
            (Tab::Decisions, 2, 3)
        );
        assert_eq!(table.rows[0].cells[6].text, "it was promoted (moved)");
        view.key(key(KeyCode::Enter), &table);
        assert!(matches!(view.opened, Some(Opened::Decision(_))));
    }
}
