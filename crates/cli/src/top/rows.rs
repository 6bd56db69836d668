//! Draws the table: the line of tabs, the heading, and the rows around the selected one.

use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::block::{line, select};
use super::look::{Look, Role};
use super::table::{Column, Row, Table};
use super::view::{Tab, View};

/// Between two columns.
const GAP: usize = 2;

/// The table in so many lines.
pub fn lines(
    view: &View,
    table: &Table,
    look: Look,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if height >= 5 {
        lines.push(tabs(view, table, look, width));
    }
    let shown = shown_columns(table.columns, width);
    lines.push(heading(view, table, &shown, look, width));
    let left = height.saturating_sub(lines.len());
    let selected = table.selected(view);
    // The selected row is kept in the middle, as far as there are rows.
    let first = selected.saturating_sub(left / 2);
    let first = first.min(table.rows.len().saturating_sub(left));
    for (row, at) in table.rows.iter().zip(0..).skip(first).take(left) {
        let row = cells(row, table.columns, &shown, look, width);
        lines.push(if at == selected { select(row) } else { row });
    }
    lines.truncate(height);
    lines
}

fn tabs(view: &View, table: &Table, look: Look, width: usize) -> Line<'static> {
    let mut pieces = Vec::new();
    for (tab, title) in Tab::ALL {
        pieces.push(match tab == view.tab {
            true => (Role::Title, format!("[{title}] ")),
            false => (Role::Faint, format!(" {title}  ")),
        });
    }
    let mut about = format!(" {}", table.rows.len());
    if !view.filter.is_empty() {
        about = format!("{about} of {} with \"{}\"", table.all, view.filter);
    }
    if let Some(note) = &table.note {
        about = format!("{about}: {note}");
    }
    let used: usize = pieces.iter().map(|(_, text)| text.width()).sum();
    pieces.push((Role::Faint, look.cut(&about, width.saturating_sub(used))));
    line(look, pieces)
}

/// The columns that fit, by their places.
fn shown_columns(columns: &[Column], width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    // What the column without a width gets at least: names say most.
    let rest_min = (width / 3).clamp(8, 40);
    let needed = |shown: &[usize]| {
        let widths = shown.iter().map(|at| match columns[*at].width {
            0 => rest_min,
            width => width + GAP,
        });
        widths.sum::<usize>()
    };
    while needed(&shown) > width && shown.len() > 1 {
        let worst = (0..shown.len()).max_by_key(|at| columns[shown[*at]].rank);
        shown.remove(worst.unwrap_or_default());
    }
    shown
}

fn rest_width(columns: &[Column], shown: &[usize], width: usize) -> usize {
    let others = shown.iter().map(|at| match columns[*at].width {
        0 => 0,
        width => width + GAP,
    });
    width.saturating_sub(others.sum())
}

fn heading(view: &View, table: &Table, shown: &[usize], look: Look, width: usize) -> Line<'static> {
    let rest = rest_width(table.columns, shown, width);
    let pieces = shown.iter().map(|at| {
        let column = &table.columns[*at];
        let mark = match (*at == view.sort_column(), look.utf8) {
            (false, _) => String::new(),
            (true, true) => "▾".to_owned(),
            (true, false) => "*".to_owned(),
        };
        let title = format!("{mark}{}", column.title);
        let title = match column.width {
            0 => look.cut(&title, rest),
            width => format!("{title:>width$}{:GAP$}", ""),
        };
        (Role::Title, title)
    });
    line(look, pieces)
}

fn cells(
    row: &Row,
    columns: &[Column],
    shown: &[usize],
    look: Look,
    width: usize,
) -> Line<'static> {
    let rest = rest_width(columns, shown, width);
    let pieces = shown.iter().map(|at| {
        let cell = &row.cells[*at];
        let text = cell.text(look);
        let text = match columns[*at].width {
            0 if text.starts_with('/') => look.cut_front(&text, rest),
            0 => look.cut(&text, rest),
            width => format!("{}{:GAP$}", look.right(&text, width), ""),
        };
        (cell.role(), text)
    });
    let mut line = line(look, pieces);
    // The selected row is seen from edge to edge.
    let blank = width.saturating_sub(line.width());
    line.push_span(" ".repeat(blank));
    line
}
