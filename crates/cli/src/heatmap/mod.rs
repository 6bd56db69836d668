//! `pghot heatmap`: which memory was touched when, and in which tier it was, from a recorded
//! profile or of a process as it runs; on a terminal, as a page, or as JSON.
//!
//! Live, it draws again and again while it records, if there is a terminal. It records by itself
//! and does not ask the daemon: the daemon's records have the lower tier only, forget a page when
//! it moves, and are no reader's business.

mod ink;
pub mod json;
mod live;
mod page;
mod text;

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgMatches, Command, value_parser};
use pghot_engine::names::no_such;
use pghot_profile::{Process, Profile, file};
use ratatui::crossterm::terminal;

use crate::args::json as as_json;
use crate::exit::Failure;
use crate::json::Versioned;
use crate::output::{say, say_json, write_page};
use crate::record;
use ink::Ink;

/// Rows of a frame of text, where no terminal says how high it is.
const ROWS: usize = 24;

/// Columns of the same.
const WIDTH: u16 = 80;

/// Lines of a terminal that are not rows: what is above and below them, and the prompt.
const OTHER_LINES: u16 = 9;

/// Maps of a page: those of the programs that touched most.
const PAGE_MAPS: usize = 8;

/// The command.
pub fn command() -> Command {
    let profile = Arg::new("profile")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .required_unless_present("pid")
        .conflicts_with("pid")
        .help("The profile, as `pghot record` wrote it");
    let pid = Arg::new("pid")
        .long("pid")
        .value_name("PID")
        .value_parser(value_parser!(i32).range(1..))
        .help("Record this process now instead, and keep nothing; needs root");
    let program = Arg::new("program")
        .long("program")
        .value_name("NAME")
        .help("The program to show; without, the one that touched most");
    let html = Arg::new("html")
        .long("html")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with("json")
        .help("Write one page that works offline, with the programs that touched most");
    let width = Arg::new("width")
        .long("width")
        .value_name("N")
        .value_parser(value_parser!(u16).range(20..=1000))
        .help("Columns of text; those of the terminal without, or 80");
    let rows = Arg::new("rows")
        .long("rows")
        .value_name("N")
        .value_parser(value_parser!(u16).range(1..=1000))
        .help("Rows of memory at most; as many as the terminal has without, or 24");
    Command::new("heatmap")
        .about("Draw which memory was touched when, and in which tier it was")
        .long_about(
            "Draw which memory was touched when, and in which tier it was: from a profile that \
             `pghot record` wrote, or of a process as it runs (--pid), which records first as \
             `pghot record` does. Memory is in the order of its addresses, without the gaps \
             between mappings. A look at a page finds it touched or not, once or a million times; \
             a cell shows how many of its looks found a page touched. On a terminal the map of a \
             running process is drawn again every second while it is recorded.",
        )
        .args([profile, pid, program, html, as_json(), width, rows])
        .args(record::how())
}

/// Draws.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let profile = match matches.get_one::<i32>("pid") {
        Some(pid) => live::observe(matches, *pid)?,
        None => {
            let path = matches.get_one::<PathBuf>("profile");
            file::load(path.ok_or_else(|| anyhow!("a profile is missing"))?)?
        }
    };
    let name = matches.get_one::<String>("program").map(String::as_str);
    let shown = chosen(&profile, name)?;
    if matches.get_flag("json") {
        return say_json(&Versioned::of(json::maps(&profile, &shown, rows(matches))));
    }
    if let Some(path) = matches.get_one::<PathBuf>("html") {
        let (maps, others) = shown.split_at(shown.len().min(PAGE_MAPS));
        return write_page(path, &page::page(&profile, maps, others.len()));
    }
    let ink = Ink::of(|name| std::env::var(name).ok(), stdout().is_terminal());
    let (rows, width) = (rows(matches), width(matches));
    let most = shown.first().map(|process| {
        let mut text = text::map(&profile, process, ink, rows, width);
        if shown.len() > 1 {
            text += &text::others(&shown[1..], ink, width);
        }
        text
    });
    say(&most.unwrap_or_default())
}

/// The processes to show, those first that touched most.
fn chosen<'a>(profile: &'a Profile, name: Option<&str>) -> Result<Vec<&'a Process>> {
    let mut chosen: Vec<&Process> = profile.processes.iter().collect();
    chosen.retain(|process| name.is_none_or(|name| process.name == name));
    if chosen.is_empty() {
        let mut names: Vec<&str> = profile.processes.iter().map(|p| p.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let sentence = no_such("recorded program", name.unwrap_or_default(), names);
        return Err(Failure::Usage(sentence).into());
    }
    chosen.sort_by_cached_key(|process| {
        let touched = process.intervals.iter().map(|i| i.touched.pages());
        std::cmp::Reverse(touched.sum::<u64>())
    });
    Ok(chosen)
}

fn width(matches: &ArgMatches) -> usize {
    let width = matches.get_one::<u16>("width").copied();
    let width = width.or_else(|| Some(screen()?.0)).unwrap_or(WIDTH);
    usize::from(width)
}

fn rows(matches: &ArgMatches) -> usize {
    let rows = matches.get_one::<u16>("rows").copied();
    let of_screen = || Some(screen()?.1.saturating_sub(OTHER_LINES).max(1));
    rows.or_else(of_screen).map_or(ROWS, usize::from)
}

/// Columns and lines of the terminal, if there is one.
fn screen() -> Option<(u16, u16)> {
    let (columns, lines) = terminal::size().ok().filter(|_| stdout().is_terminal())?;
    (columns >= 20).then_some((columns, lines))
}
