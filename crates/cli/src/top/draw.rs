//! The picture: a pure function of what is known and what was chosen, in any size. It is made of
//! blocks of lines.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::block::{Block, join, line};
use super::blocks;
use super::detail;
use super::look::{Look, Role, wrap};
use super::model::Model;
use super::rows;
use super::table::Table;
use super::view::View;

/// Rows from which on there are blank lines between blocks.
const ROOMY_ROWS: usize = 34;

/// Draws everything, the keys in the last row included.
pub fn picture(model: &Model, view: &View, look: Look, buffer: &mut Buffer) {
    let area = buffer.area;
    let (width, height) = (area.width as usize, area.height as usize);
    if width == 0 || height == 0 {
        return;
    }
    let rows = (height - 1).max(1);
    let said = alarm(model, look, width, rows);
    let table = Table::of(model, view, look);
    let mut lines = if view.shows_help {
        blocks::help(look)
    } else {
        body(model, view, &table, look, width, rows - said.len())
    };
    // Below the first line.
    let first = lines.len().min(1);
    let last = (first + said.len()).min(rows);
    lines.splice(first..first, said.iter().cloned());
    lines.truncate(rows);
    put(buffer, &lines);
    if model.lost.is_some() {
        let all = Style::new().fg(Color::Reset).add_modifier(Modifier::DIM);
        buffer.set_style(area, all);
        for (line, y) in said.iter().zip(first..last) {
            buffer.set_style(Rect::new(0, y as u16, area.width, 1), Style::reset());
            buffer.set_line(0, y as u16, line, area.width);
        }
    }
    if height > 1 {
        let keys = blocks::keys(view, look, width);
        buffer.set_line(0, area.height - 1, &keys, area.width);
    }
}

/// The sentence of a daemon that is gone.
fn alarm(model: &Model, look: Look, width: usize, rows: usize) -> Vec<Line<'static>> {
    let lost = model.lost.iter();
    let said = lost.flat_map(|why| wrap(look, &format!("! {why}"), width, (rows / 2).clamp(1, 3)));
    said.take(rows)
        .map(|text| line(look, [(Role::Alarm, text)]))
        .collect()
}

/// One picture as text: as high as it needs to be, without keys.
pub fn text(model: &Model, view: &View, look: Look, width: u16) -> String {
    let table = Table::of(model, view, look);
    let lines = body(model, view, &table, look, width as usize, ROWS_OF_TEXT);
    let height = lines.len() as u16;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    put(&mut buffer, &lines);
    plain(&buffer)
}

/// What a picture of text may have: more than a screen, and less than all processes.
const ROWS_OF_TEXT: usize = 60;

/// The letters of a picture.
pub fn plain(buffer: &Buffer) -> String {
    let area = buffer.area;
    let row = |y: u16| {
        let (mut row, mut x) = (String::new(), area.left());
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            row += symbol;
            // The cells under the rest of a wide letter are blank, and no letters.
            x += symbol.width().max(1) as u16;
        }
        format!("{}\n", row.trim_end())
    };
    (area.top()..area.bottom()).map(row).collect()
}

fn put(buffer: &mut Buffer, lines: &[Line<'static>]) {
    let area = buffer.area;
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// All but the keys.
fn body(
    model: &Model,
    view: &View,
    table: &Table,
    look: Look,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let Some(status) = &model.status else {
        let header = Block {
            lines: vec![line(look, [(Role::Title, "pghot".to_owned())])],
            least: 1,
            ..Block::default()
        };
        return join(
            vec![header, blocks::memory(model, look, width)],
            height,
            false,
        );
    };
    // The table takes what the others leave, and no less than this.
    let share = match height {
        0..8 => 0,
        8..14 => 4,
        14..30 => 5,
        _ => 10,
    };
    let is_open = view.opened.is_some();
    let share = if is_open { height / 2 } else { share };
    let mut above = vec![
        blocks::header(model, status, view, look, width),
        blocks::warnings(status, look, width),
        blocks::memory(model, look, width),
        blocks::moves(model, status, look, width),
    ];
    if !is_open {
        above.push(blocks::policy(status, look, width, height < ROOMY_ROWS));
        above.push(blocks::sources(model, status, look, width));
        above.push(blocks::outcomes(model, status, look, width));
    }
    above.retain(|block| !block.lines.is_empty());
    let is_roomy = height >= ROOMY_ROWS;
    let mut lines = join(above, height - share, is_roomy);
    if share > 0 {
        if is_roomy {
            lines.push(Line::default());
        }
        let left = height.saturating_sub(lines.len());
        lines.extend(match &view.opened {
            Some(opened) => detail::lines(model, opened, view.scroll, look, width, left),
            None => rows::lines(view, table, look, width, left),
        });
    }
    lines
}
