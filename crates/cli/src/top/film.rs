//! A recorded session of `pghot top` as one animated picture, for the README: an SVG that needs no
//! script, in the colours of a dark terminal.

use maud::{Markup, PreEscaped, html};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use serde_json::Value;

/// From one frame of a picture to the next, in s.
const EVERY_S: f64 = 2.0;

/// Size of a letter, in the picture's units.
const LETTER: (f64, f64) = (8.4, 18.0);

/// Around the frame.
const MARGIN: f64 = 14.0;

/// What a terminal shows of a recording as asciinema has it, now and then.
pub fn play(cast: &str) -> Vec<(Buffer, f64)> {
    let mut lines = cast.lines().map(|line| serde_json::from_str(line).unwrap());
    let head: Value = lines.next().unwrap();
    let size = |key: &str| head[key].as_u64().unwrap() as u16;
    let mut terminal = vt100::Parser::new(size("height"), size("width"), 0);
    let mut frames: Vec<(Buffer, f64)> = Vec::new();
    let mut next_s = EVERY_S;
    for event in lines {
        let at_s = event[0].as_f64().unwrap();
        while at_s > next_s {
            let frame = screen(terminal.screen());
            match frames.last_mut() {
                Some((last, shown_s)) if *last == frame => *shown_s += EVERY_S,
                _ => frames.push((frame, EVERY_S)),
            }
            next_s += EVERY_S;
        }
        terminal.process(event[2].as_str().unwrap().as_bytes());
    }
    let is_blank = |frame: &Buffer| frame.content.iter().all(|cell| cell.symbol() == " ");
    frames.retain(|(frame, _)| !is_blank(frame));
    frames
}

fn screen(screen: &vt100::Screen) -> Buffer {
    let (height, width) = screen.size();
    let mut frame = Buffer::empty(Rect::new(0, 0, width, height));
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let Some(cell) = screen.cell(y, x) else {
            continue;
        };
        let colour = match cell.fgcolor() {
            vt100::Color::Idx(1) => Color::Red,
            vt100::Color::Idx(5) => Color::Magenta,
            vt100::Color::Idx(6) => Color::Cyan,
            _ => Color::Reset,
        };
        let has = [
            (cell.bold(), Modifier::BOLD),
            (cell.dim(), Modifier::DIM),
            (cell.inverse(), Modifier::REVERSED),
        ];
        let has = has.into_iter().filter(|(is_so, _)| *is_so);
        let style = Style::new().fg(colour);
        let style = has.fold(style, |style, (_, what)| style.add_modifier(what));
        let symbol = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        frame[(x, y)].set_symbol(symbol).set_style(style);
    }
    frame
}

/// The picture: each frame with how long it is shown, in s, over and over.
pub fn svg(frames: &[(Buffer, f64)]) -> String {
    let (width, height) = frames.first().map_or((0.0, 0.0), |(frame, _)| {
        let (columns, lines) = (f64::from(frame.area.width), f64::from(frame.area.height));
        (
            columns * LETTER.0 + 2.0 * MARGIN,
            lines * LETTER.1 + 2.0 * MARGIN,
        )
    });
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width:.0} {height:.0}"))
            role="img" aria-label="pghot top" {
            style { (PreEscaped(style(frames))) }
            rect width="100%" height="100%" rx="8" fill="#14171a" {}
            @for ((frame, _), number) in frames.iter().zip(0..) {
                g.frame id=(format!("f{number}")) { (lines(frame)) }
            }
        }
    };
    picture.into_string() + "\n"
}

/// Each frame is seen in its part of the whole. Who wants no motion sees the first one.
fn style(frames: &[(Buffer, f64)]) -> String {
    let all_s: f64 = frames.iter().map(|(_, shown_s)| shown_s).sum();
    let mut style = format!(
        "text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
         white-space:pre;fill:#e6e9ec}}\
         .t{{fill:#4fcbd8}}.l{{fill:#d58fe0}}.a{{fill:#ff6b6b}}.b{{font-weight:700}}\
         .d{{opacity:.6}}.r{{fill:#3a424a}}\
         .frame{{visibility:hidden;animation:{all_s}s step-end infinite}}\
         @media (prefers-reduced-motion:reduce){{.frame{{animation:none}}\
         #f0{{visibility:visible}}}}"
    );
    let mut start_s = 0.0;
    for ((_, shown_s), number) in frames.iter().zip(0..) {
        let percent = |s: f64| format!("{:.2}%", 100.0 * s / all_s);
        let (from, to) = (percent(start_s), percent(start_s + shown_s));
        style += &format!(
            "#f{number}{{animation-name:s{number}}}@keyframes s{number}{{0%{{visibility:hidden}}\
             {from}{{visibility:visible}}{to}{{visibility:hidden}}}}"
        );
        start_s += shown_s;
    }
    style
}

fn lines(frame: &Buffer) -> Markup {
    let width = usize::from(frame.area.width);
    html! {
        @for (cells, line) in frame.content.chunks(width.max(1)).zip(0..) {
            @let top = MARGIN + f64::from(line) * LETTER.1;
            @let y = top + 0.75 * LETTER.1;
            @if cells.iter().any(is_reversed) {
                rect.r x=(MARGIN) y=(format!("{top:.1}")) height=(LETTER.1)
                    width=(format!("{:.1}", width as f64 * LETTER.0)) {}
            }
            @for (column, class, letters) in runs(cells) {
                text.(class) x=(format!("{:.1}", MARGIN + column as f64 * LETTER.0))
                    y=(format!("{y:.1}"))
                    textLength=(format!("{:.1}", letters.chars().count() as f64 * LETTER.0)) {
                    (letters)
                }
            }
        }
    }
}

/// Letters of one look that follow each other, with where they begin; blanks are left out.
fn runs(cells: &[Cell]) -> Vec<(usize, &'static str, String)> {
    let mut runs: Vec<(usize, &'static str, String)> = Vec::new();
    let mut blanks = String::new();
    for (column, cell) in cells.iter().enumerate() {
        if cell.symbol() == " " {
            blanks.push(' ');
            continue;
        }
        let class = class(cell);
        match runs.last_mut() {
            Some((_, last, letters)) if *last == class && blanks.len() < 3 => {
                letters.push_str(&blanks);
                letters.push_str(cell.symbol());
            }
            _ => runs.push((column, class, cell.symbol().to_owned())),
        }
        blanks.clear();
    }
    runs
}

/// The row that is selected.
fn is_reversed(cell: &Cell) -> bool {
    cell.modifier.contains(Modifier::REVERSED)
}

fn class(cell: &Cell) -> &'static str {
    let has = |modifier| cell.modifier.contains(modifier);
    match cell.fg {
        Color::Cyan => "t",
        Color::Magenta => "l",
        Color::Red => "a",
        _ if has(Modifier::BOLD) => "b",
        _ if has(Modifier::DIM) => "d",
        _ => "p",
    }
}
