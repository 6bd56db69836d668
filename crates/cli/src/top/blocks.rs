//! The blocks above the table: who runs, memory, moves, what the policy does and why, sources,
//! outcomes. And the line of keys, and the page that explains them.

use pghot_daemon::status::{SourceReport, SourceState, Status};
use pghot_engine::Outcome;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::block::{Block, line};
use super::look::{Look, Role, percent, size, wrap};
use super::model::Model;
use super::rates::{SourceRates, outcome_pages};
use super::view::{Tab, View};
use crate::units::{count, seconds};

// What matters most has the smallest rank.
const HEADER: u8 = 0;
const WARNINGS: u8 = 1;
const MOVES: u8 = 2;
const MEMORY: u8 = 3;
const POLICY: u8 = 4;
const SOURCES: u8 = 5;
const OUTCOMES: u8 = 6;

/// What stands before the sentences of the policy.
const LABEL: usize = 10;

fn heading(look: Look, title: &str, columns: &str) -> Line<'static> {
    let title = (Role::Title, title.to_owned());
    line(look, [title, (Role::Faint, columns.to_owned())])
}

/// Version, uptime and what the daemon costs; what fits.
pub fn header(model: &Model, status: &Status, view: &View, look: Look, width: usize) -> Block {
    let cpu = model
        .rates
        .cpu
        .map(|cpu| format!("CPU {:.1} %", 100.0 * cpu));
    // In the order of the line, with the order in which they are dropped.
    let pieces = [
        (0, Role::Title, format!("pghot {}", status.version)),
        (1, Role::Alarm, tag(status.dry_run, "DRY RUN")),
        (1, Role::Alarm, tag(view.is_paused, "PAUSED")),
        (4, Role::Plain, format!("Linux {}", status.kernel)),
        (5, Role::Plain, format!("{} mode", status.mode)),
        (
            2,
            Role::Plain,
            format!("up {}", since(status.uptime_s as u64)),
        ),
        (3, Role::Plain, cpu.unwrap_or_default()),
    ];
    let mut kept: Vec<_> = pieces
        .into_iter()
        .filter(|(_, _, text)| !text.is_empty())
        .collect();
    let letters = |kept: &[(i32, Role, String)]| {
        let texts = kept.iter().map(|(_, _, text)| text.width() + 2);
        texts.sum::<usize>().saturating_sub(2)
    };
    while letters(&kept) > width && kept.len() > 1 {
        let least = (0..kept.len()).max_by_key(|at| kept[*at].0);
        kept.remove(least.unwrap_or_default());
    }
    let mut texts = Vec::new();
    for (_, role, text) in kept {
        if !texts.is_empty() {
            texts.push((Role::Plain, "  ".to_owned()));
        }
        texts.push((role, text));
    }
    Block {
        rank: HEADER,
        lines: vec![line(look, texts)],
        least: 1,
        ..Block::default()
    }
}

/// A time of whole seconds.
fn since(whole_s: u64) -> String {
    match whole_s {
        0..60 => format!("{whole_s} s"),
        _ => seconds(whole_s as f64),
    }
}

fn tag(is_set: bool, text: &str) -> String {
    let text = if is_set { text } else { "" };
    text.to_owned()
}

/// What an operator should know.
pub fn warnings(status: &Status, look: Look, width: usize) -> Block {
    let sentences = status.warnings.iter().take(3);
    let lines = sentences.flat_map(|warning| wrap(look, &format!("! {warning}"), width, 2));
    Block {
        rank: WARNINGS,
        lines: lines
            .map(|text| line(look, [(Role::Alarm, text)]))
            .collect(),
        least: 1,
        ..Block::default()
    }
}

/// Each node with its memory.
pub fn memory(model: &Model, look: Look, width: usize) -> Block {
    // Name, percent and what is used; then, if they fit, all of it, a note, and the longer the
    // better a bar.
    let (used_width, total_width, note_width) = (18, 14, 28);
    let is_narrow = width < 34;
    let name_width = if is_narrow { 8 } else { 14 };
    let mut left = width.saturating_sub(name_width + used_width);
    let has_total = left >= total_width + 6;
    left -= if has_total { total_width } else { 0 };
    let has_note = left >= note_width + 10;
    left -= if has_note { note_width } else { 0 };
    let bar_width = left.saturating_sub(1).min(40);
    let mut lines = vec![heading(look, "MEMORY", "")];
    for node in &model.nodes {
        let is_lower = model.lower.contains(&node.nid);
        let (tier, role) = match is_lower {
            true => ("lower", Role::Lower),
            false => ("top", Role::Top),
        };
        let name = match is_narrow {
            true => format!("{} ", node.nid),
            false => format!("{:<8}", format!("node {}", node.nid)),
        };
        let used_bytes = node.total_bytes.saturating_sub(node.free_bytes);
        let share = used_bytes as f64 / node.total_bytes.max(1) as f64;
        let (full, rest) = look.bar(share, bar_width);
        let mut pieces = vec![
            (Role::Plain, name),
            (role, format!("{tier:<6}")),
            (role, full),
            (Role::Faint, rest),
            (
                Role::Plain,
                format!(" {:>6} {:>10}", percent(share), size(used_bytes)),
            ),
        ];
        if has_total {
            let total = format!(" of {:>10}", size(node.total_bytes));
            pieces.push((Role::Plain, total));
        }
        if has_note {
            let note = note(model, node.nid).unwrap_or_default();
            pieces.push((Role::Faint, format!("   {note}")));
        }
        lines.push(line(look, pieces));
    }
    Block {
        rank: MEMORY,
        has_heading: true,
        lines,
        least: 1,
    }
}

/// What pghot knows of a node.
fn note(model: &Model, nid: u32) -> Option<String> {
    let status = model.status.as_ref()?;
    let top = status.top_tier.iter().find(|node| node.nid == nid);
    let room = top.map(|node| match node.free_space_shortcut {
        true => "the kernel promotes here".to_owned(),
        false => format!("room for {}", size(node.room_pages << 12)),
    });
    let lower = status.lower_tier.iter().find(|node| node.nid == nid);
    let ready = lower.map(|node| format!("{} pages ready", count(node.last_pass.ready)));
    room.or(ready)
}

/// Pages up and down per second, and the last minutes of it.
pub fn moves(model: &Model, status: &Status, look: Look, width: usize) -> Block {
    let up = if status.dry_run { "would go up" } else { "up" };
    let rates = &model.rates;
    let arrow = |utf8: &str, ascii: &str| if look.utf8 { utf8 } else { ascii }.to_owned();
    let mut lines = vec![heading(look, "MOVES", " of the last 5 minutes")];
    for (arrow, name, role, rate, history) in [
        (arrow("▲", "^"), up, Role::Top, rates.up, &model.up),
        (
            arrow("▼", "v"),
            "down",
            Role::Lower,
            rates.down,
            &model.down,
        ),
    ] {
        let is_wide = width >= 60;
        let pages = rate.map_or("-".to_owned(), |rate| count(rate.round() as u64));
        let mib = rate.map_or("-".to_owned(), |rate| format!("{:.1}", rate / 256.0));
        let text = match is_wide {
            true => format!("{name:<12}{pages:>11} pages/s {mib:>8} MiB/s  "),
            false => format!("{:<5}{pages:>9}/s {mib:>7} MiB/s ", look.cut(name, 4)),
        };
        let is_shown = history.is_worth_showing();
        let peak = history.peak().filter(|_| is_shown && width >= 100);
        let peak = peak.map_or(String::new(), |peak| {
            format!("  peak {:>9}/s", count(peak.round() as u64))
        });
        let taken = 2 + text.width() + peak.width();
        // Now is at the right.
        let spark_width = if is_shown {
            width.saturating_sub(taken).min(80)
        } else {
            0
        };
        let spark = format!("{:>spark_width$}", look.sparkline(history, spark_width));
        lines.push(line(
            look,
            [
                (role, format!("{arrow} ")),
                (Role::Plain, text),
                (role, spark),
                (Role::Faint, peak),
            ],
        ));
    }
    if rates.up_by_kernel.is_some_and(|rate| rate > 0.0) {
        let pages = count(rates.up_by_kernel.unwrap_or_default().round() as u64);
        let text = format!("  the kernel by itself promotes {pages} pages/s");
        lines.push(line(look, [(Role::Plain, text)]));
    }
    Block {
        rank: MOVES,
        has_heading: true,
        lines,
        least: 2,
    }
}

/// What the policy does, and why. A short one has no more than two lines of what is not news.
pub fn policy(status: &Status, look: Look, width: usize, is_short: bool) -> Block {
    let mut lines = vec![heading(look, "POLICY", "")];
    let mut say = |role, label: &str, sentence: &str, rows| {
        let texts = wrap(look, sentence, width.saturating_sub(LABEL), rows);
        for (index, text) in texts.into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let label = (Role::Faint, format!("{label:<LABEL$}"));
            lines.push(line(look, [label, (role, text)]));
        }
    };
    for node in &status.lower_tier {
        let mut label = format!("node {}", node.nid);
        for why in &node.why {
            say(Role::Plain, &label, why, 2);
            label.clear();
        }
        if node.why.is_empty() {
            let pass = &node.last_pass;
            let (ready, moved) = (count(pass.ready), count(pass.moved_pages));
            let why = format!("{ready} pages were ready in the last pass, {moved} moved");
            say(Role::Plain, &label, &why, 2);
        }
    }
    say(Role::Plain, "room", &status.demoter.sentence(), 2);
    if let Some(marking) = status.marking {
        let rows = if is_short { 1 } else { 2 };
        say(Role::Plain, "marking", &marking.sentence(), rows);
    }
    let changes = status.demoter.changes.iter().rev();
    for ((_, before), (when_ms, _)) in changes.clone().skip(1).zip(changes).take(2) {
        if !is_short {
            let ago = since(status.now_ms.saturating_sub(*when_ms) / 1000);
            say(Role::Faint, "", &format!("until {ago} ago: {before}"), 1);
        }
    }
    Block {
        rank: POLICY,
        has_heading: true,
        lines,
        least: 1,
    }
}

/// The sources with what they report and cost.
pub fn sources(model: &Model, status: &Status, look: Look, width: usize) -> Block {
    let title = format!("{:<12}{:<13}{:>11}", "SOURCE", "STATE", "ACCESSES/s");
    let more = format!("{:>11}{:>9}", "READY/s", "CPU");
    let has_more = width >= 60;
    let more = if has_more { more } else { String::new() };
    let mut lines = vec![line(look, [(Role::Title, title + &more)])];
    let is_off = |source: &&SourceReport| source.state == SourceState::Disabled;
    for source in status.sources.iter().filter(|source| !is_off(source)) {
        let rates = model
            .rates
            .sources
            .get(&source.name)
            .copied()
            .unwrap_or_default();
        lines.push(one_source(source, rates, look, width, has_more));
    }
    let off: Vec<&str> = status
        .sources
        .iter()
        .filter(is_off)
        .map(|s| s.name.as_str())
        .collect();
    if !off.is_empty() {
        let text = format!("{:<12}{}", "disabled", off.join(", "));
        lines.push(line(look, [(Role::Faint, look.cut(&text, width))]));
    }
    Block {
        rank: SOURCES,
        has_heading: false,
        lines,
        least: 3,
    }
}

fn one_source(
    source: &SourceReport,
    rates: SourceRates,
    look: Look,
    width: usize,
    has_more: bool,
) -> Line<'static> {
    let (state, role) = match source.state {
        SourceState::Running => ("running", Role::Plain),
        SourceState::StandingBy => ("standing by", Role::Faint),
        SourceState::Unavailable => ("unavailable", Role::Alarm),
        SourceState::Disabled => ("disabled", Role::Faint),
    };
    let name = (Role::Plain, format!("{} ", look.left(&source.name, 11)));
    if source.state == SourceState::Unavailable {
        let why = source.why.clone().unwrap_or_default();
        let why = look.cut(&why, width.saturating_sub(25));
        return line(
            look,
            [name, (role, format!("{state:<13}")), (Role::Plain, why)],
        );
    }
    let per_s = |rate: Option<f64>| rate.map_or("-".into(), |rate| count(rate.round() as u64));
    let cpu = rates
        .cpu
        .map_or("-".into(), |cpu| format!("{:.2} %", 100.0 * cpu));
    let mut text = format!("{:>11}", per_s(rates.recorded));
    if has_more {
        text += &format!("{:>11}{cpu:>9}", per_s(rates.ready));
    }
    let pieces = [name, (role, format!("{state:<13}")), (Role::Plain, text)];
    line(look, pieces)
}

/// How attempts to move pages ended, the kinds that there were.
pub fn outcomes(model: &Model, status: &Status, look: Look, width: usize) -> Block {
    let known = Outcome::ALL
        .iter()
        .map(|known| (*known, outcome_pages(status, *known)));
    let said = known
        .filter(|(_, pages)| *pages > 0)
        .map(|(outcome, pages)| {
            let rate = model
                .rates
                .outcomes
                .get(&outcome)
                .copied()
                .unwrap_or_default()
                .round();
            let now = match rate as u64 {
                0 => String::new(),
                rate => format!(" (+{}/s)", count(rate)),
            };
            format!("{outcome} {}{now}", count(pages))
        });
    let said: Vec<String> = said.collect();
    let mut lines = vec![heading(look, "OUTCOMES", " in pages since the start")];
    for text in lines_of(&said, width) {
        lines.push(line(look, [(Role::Plain, look.cut(&text, width))]));
    }
    let least = lines.len().min(2);
    Block {
        rank: OUTCOMES,
        has_heading: true,
        lines,
        least,
    }
}

/// At most three lines of these, each kept together.
fn lines_of(said: &[String], width: usize) -> Vec<String> {
    let Some((first, others)) = said.split_first() else {
        return vec!["none yet".to_owned()];
    };
    let mut lines = vec![first.clone()];
    for one in others {
        let at = lines.len() - 1;
        if lines[at].len() + 3 + one.len() > width && lines.len() < 3 {
            lines.push(one.clone());
        } else {
            lines[at] += &format!("   {one}");
        }
    }
    lines
}

/// The last line.
pub fn keys(view: &View, look: Look, width: usize) -> Line<'static> {
    if view.is_typing {
        let text = format!("filter: {}_   Enter keeps it, Esc drops it", view.filter);
        return line(look, [(Role::Title, look.cut(&text, width))]);
    }
    let keys: &[(&str, &str)] = match (&view.opened, view.shows_help) {
        (_, true) => &[("Esc", "back"), ("q", "quit")],
        (Some(_), _) => &[
            ("Esc", "back"),
            ("j/k", "scroll"),
            ("p", "pause"),
            ("q", "quit"),
        ],
        (None, _) => &[
            ("q", "quit"),
            ("?", "help"),
            ("Tab", Tab::ALL[(view.tab as usize + 1) % Tab::ALL.len()].1),
            ("s", "sort"),
            ("/", "filter"),
            ("Enter", "open"),
            ("p", "pause"),
        ],
    };
    let mut pieces = Vec::new();
    let mut used = 0;
    for (key, what) in keys {
        used += key.len() + what.len() + 3;
        if used > width + 2 {
            break;
        }
        pieces.push((Role::Title, (*key).to_owned()));
        pieces.push((Role::Faint, format!(" {what}  ")));
    }
    line(look, pieces)
}

const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    (
        "j k, arrows",
        "select a row; also Page Up and Down, Home and End",
    ),
    ("Tab", "cgroups, programs, decisions"),
    ("s, S", "sort by the next column, by the one before"),
    (
        "/",
        "show only rows that contain what is typed; Esc shows all again",
    ),
    (
        "Enter",
        "a cgroup: its memory by kind and node, and its processes",
    ),
    ("", "a program: the newest decisions about its pages"),
    (
        "",
        "a decision: why, and for root what `pghot explain` says now",
    ),
    ("Esc", "back"),
    ("p", "pause: the picture stands still"),
    ("Ctrl-L", "draw everything again"),
    ("", ""),
    ("FAR, NEAR", "memory in the lower tier, and elsewhere"),
    ("FAR/s", "how much far memory grew or shrank in a second"),
    ("HOT FAR", "far memory that is hot and waits, estimated"),
    ("UP DOWN", "what pghot moved since the start"),
    ("READY/s", "accesses that made a page ready to go up"),
    (
        "CPU",
        "of one CPU; \"-\" where the kernel does not count it",
    ),
    ("-", "not known"),
];

/// What all keys do.
pub fn help(look: Look) -> Vec<Line<'static>> {
    let mut lines = vec![heading(look, "KEYS AND WORDS", "")];
    for (key, what) in HELP {
        let key = (Role::Title, format!("{key:<13}"));
        lines.push(line(look, [key, (Role::Plain, (*what).to_owned())]));
    }
    lines
}
