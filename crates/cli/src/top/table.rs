//! The table below: its columns and rows for each tab, filtered and sorted.

use std::collections::BTreeMap;

use pghot_daemon::owners::{OwnerMoves, OwnerRow};
use pghot_daemon::protocol::DecisionReport;
use pghot_linux::groups::Group;
use pghot_linux::processes::{Process, printable};

use super::cell::Cell;
use super::look::Look;
use super::model::Model;
use super::view::{Opened, Tab, Target, View};

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
            Tab::Groups => groups(model),
            Tab::Programs => programs(model),
            Tab::Decisions => decisions(model),
        };
        table.all = table.rows.len();
        let wanted = view.filter.to_lowercase();
        let has = |row: &Row| {
            let mut cells = row.cells.iter();
            cells.any(|cell| cell.text(look).to_lowercase().contains(&wanted))
        };
        // The text of thousands of cells is not made for nothing.
        if !wanted.is_empty() {
            table.rows.retain(has);
        }
        let column = view.sort_column();
        // Stable: rows alike stay in the order in which they were found.
        table
            .rows
            .sort_by(|a, b| a.cells[column].compare(&b.cells[column]));
        table
    }

    /// The row that is selected.
    pub fn selected(&self, view: &View) -> usize {
        let name = view.selected.as_ref();
        let found = name.and_then(|name| self.rows.iter().position(|row| row.name == *name));
        found.unwrap_or_default()
    }
}

fn share(far: u64, near: u64) -> Cell {
    match far + near {
        0 => Cell::Unknown,
        all => Cell::Share(far as f64 / all as f64),
    }
}

fn or_unknown<T>(known: Option<T>, cell: impl Fn(T) -> Cell) -> Cell {
    known.map_or(Cell::Unknown, cell)
}

/// What the daemon counted of an owner, in bytes: hot in the lower tier, promoted, demoted.
fn moves<'a>(of_it: impl IntoIterator<Item = &'a OwnerMoves>) -> [Cell; 3] {
    let mut of_it = of_it.into_iter().peekable();
    if of_it.peek().is_none() {
        return [const { Cell::Unknown }; 3];
    }
    let sum = of_it.fold([0; 3], |[ready, up, down], it| {
        let demoted = it.demoted_pages.unwrap_or(0);
        [
            ready + it.ready_pages,
            up + it.promoted_pages,
            down + demoted,
        ]
    });
    sum.map(|pages| Cell::Bytes(pages << 12))
}

fn groups(model: &Model) -> Table {
    let counted = model.status.iter().flat_map(|status| &status.cgroups);
    let counted: BTreeMap<&str, &OwnerRow> =
        counted.map(|it| (it.moves.name.as_str(), it)).collect();
    let row = |group: &Group| {
        let (far, near) = model.far_and_near(&group.bytes);
        let told = counted.get(group.path.as_str());
        let [hot, up, down] = moves(told.map(|it| &it.moves));
        Row {
            name: group.path.clone(),
            cells: vec![
                Cell::Bytes(far),
                Cell::Bytes(near),
                share(far, near),
                or_unknown(model.changes.get(&group.path).copied(), Cell::Change),
                hot,
                up,
                down,
                or_unknown(told.and_then(|it| it.share_bytes), Cell::Bytes),
                or_unknown(told.and_then(|it| it.limit_bytes), Cell::Bytes),
                Cell::Words(printable(&group.path)),
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

fn programs(model: &Model) -> Table {
    let counted = || model.status.iter().flat_map(|status| &status.processes);
    let row = |program: &Process| {
        let by_tier = program
            .bytes
            .as_ref()
            .map(|bytes| model.far_and_near(bytes));
        let tiers =
            by_tier.map(|(far, near)| [Cell::Bytes(far), Cell::Bytes(near), share(far, near)]);
        let [far, near, share] = tiers.unwrap_or([const { Cell::Unknown }; 3]);
        let [hot, up, _] = moves(counted().filter(|it| it.pid == Some(program.pid)));
        Row {
            name: program.pid.to_string(),
            cells: vec![
                far,
                near,
                Cell::Bytes(program.rss_bytes),
                share,
                hot,
                up,
                Cell::Number(program.pid),
                Cell::Words(program.name.clone()),
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
        let pid = decision.pid.map(|pid| pid.to_string());
        let owner = pid.or_else(|| decision.file.clone());
        Row {
            name: index.to_string(),
            cells: vec![
                Cell::Ago(decision.ago_ms as f64 / 1000.0),
                Cell::Words(format!("{} to {}", decision.nid, decision.target)),
                or_unknown(owner, Cell::Words),
                or_unknown(decision.address, Cell::Address),
                Cell::Count(decision.pages.into()),
                Cell::Number(decision.freq),
                Cell::Words(format!("{} ({})", decision.why, decision.outcome)),
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

    fn last_column(table: &Table) -> Vec<String> {
        let last = table.columns.len() - 1;
        let rows = table.rows.iter();
        rows.map(|row| row.cells[last].text(LOOK)).collect()
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
        assert_eq!(table.rows[0].cells[4].text(LOOK), "4.0 MiB");
        assert_eq!(
            table.rows[2].cells[5].text(LOOK),
            "-",
            "nothing was counted of it"
        );
        assert_eq!(
            table.rows[1].cells[7].text(LOOK),
            "12.0 GiB",
            "by its weight"
        );
        assert_eq!(table.rows[1].cells[8].text(LOOK), "48.0 GiB");
        assert_eq!(table.rows[2].cells[8].text(LOOK), "-", "it has no limit");
        view.sort[0] = 3;
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(
            table.rows[3].cells[3].text(LOOK),
            "-",
            "no change is known of the last one"
        );
        assert_eq!(table.rows[0].cells[3].text(LOOK), "+2.0 MiB");
        assert_eq!(table.rows[1].cells[3].text(LOOK), "0");
        assert_eq!(table.rows[2].cells[3].text(LOOK), "-4.0 MiB");
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
        assert_eq!(table.rows[1].cells[0].text(LOOK), "-", "it was not walked");
        view.key(key(KeyCode::Enter), &table);
        let table = Table::of(&model, &view, LOOK);
        assert_eq!(
            (view.tab, table.rows.len(), table.all),
            (Tab::Decisions, 2, 3)
        );
        assert_eq!(table.rows[0].cells[6].text(LOOK), "it was promoted (moved)");
        view.key(key(KeyCode::Enter), &table);
        assert!(matches!(view.opened, Some(Opened::Decision(_))));
    }
}
