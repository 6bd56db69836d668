//! The map of a process while it is recorded: drawn again at most once a second, in place of the
//! one before. Without a terminal, or where text is not what is wanted, it is told how far it is.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ArgMatches;
use pghot_profile::Profile;

use super::ink::Ink;
use super::{rows, screen, text, width};
use crate::progress::Progress;
use crate::record::{At, Watch, Who};

/// Between two frames.
const EVERY: Duration = Duration::from_secs(1);

/// Lines below the map: how far it is, and the one that the cursor is on.
const LINES_BELOW: usize = 2;

/// Records a process. What is drawn meanwhile is gone afterwards.
pub fn observe(matches: &ArgMatches, pid: i32) -> Result<Profile> {
    let mut watch = Watch::begin(matches)?;
    let who = Who {
        pids: vec![pid],
        with_names: true,
        ..Who::default()
    };
    let is_text = !matches.get_flag("json") && !matches.contains_id("html");
    if screen().is_none() || !is_text {
        let progress = Progress::new();
        let mut tell = |at: &At, _: &dyn Fn() -> Profile| progress.tell(at.share, &at.sentence);
        return watch.observe(who, &mut tell);
    }
    let ink = Ink::of(|name| std::env::var(name).ok(), stdout().is_terminal());
    let mut film = Film::new(stdout());
    let profile = watch.observe(who, &mut |at, so_far| {
        // The terminal may have another size by now.
        let lines = screen().map_or(usize::MAX, |(_, lines)| usize::from(lines));
        let map = |rows| frame(&so_far(), ink, rows, width(matches));
        film.show(Instant::now(), || {
            let text = fitting(lines.saturating_sub(LINES_BELOW), rows(matches), map);
            format!("{text}{}; Ctrl-C ends it here\n", at.sentence)
        });
    });
    film.clear();
    profile
}

fn frame(profile: &Profile, ink: Ink, rows: usize, width: usize) -> String {
    // Nothing has been touched yet.
    let drawn = profile.processes.first().filter(|it| it.blocks > 0);
    let map = drawn.map(|process| text::map(profile, process, ink, rows, width));
    map.unwrap_or_default()
}

/// A map of so many lines at most: on a narrow terminal, what is above and below it takes more.
fn fitting(lines: usize, rows: usize, map: impl Fn(usize) -> String) -> String {
    let text = map(rows);
    match text.lines().count().saturating_sub(lines) {
        0 => text,
        more => map(rows.saturating_sub(more).max(1)),
    }
}

/// Frames, each in the place of the one before.
struct Film<W: Write> {
    to: W,
    /// When the newest was shown, and how many lines it has.
    shown: Option<(Instant, usize)>,
}

impl<W: Write> Film<W> {
    fn new(to: W) -> Film<W> {
        Film { to, shown: None }
    }

    /// Draws, if it is time.
    fn show(&mut self, now: Instant, frame: impl FnOnce() -> String) {
        if self.shown.is_some_and(|(last, _)| now < last + EVERY) {
            return;
        }
        let frame = frame();
        self.clear();
        self.write(&frame);
        self.shown = Some((now, frame.lines().count()));
    }

    /// The newest frame goes, up to the line where it began.
    fn clear(&mut self) {
        if let Some((_, lines)) = self.shown.take() {
            self.write(&format!("\x1b[{lines}F\x1b[J"));
        }
    }

    /// A terminal that is gone ends the command by a signal, and not here.
    fn write(&mut self, text: &str) {
        let written = self.to.write_all(text.as_bytes());
        let _ = written.and_then(|()| self.to.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_the_place_of_the_one_before_and_not_too_often() {
        let mut film = Film::new(Vec::new());
        let start = Instant::now();
        film.show(start, || "a\nb\n".to_owned());
        film.show(start + EVERY / 2, || unreachable!("it is too early"));
        film.show(start + EVERY, || "c\n".to_owned());
        film.clear();
        film.clear();
        let told = String::from_utf8(film.to).unwrap();
        assert_eq!(told, "a\nb\n\x1b[2F\x1b[Jc\n\x1b[1F\x1b[J");
    }

    #[test]
    fn a_map_fits_the_screen() {
        let map = |rows: usize| "title\n".to_owned() + &"row\n".repeat(rows);
        assert_eq!(fitting(24, 15, map), map(15));
        assert_eq!(fitting(10, 15, map), map(9));
        assert_eq!(fitting(0, 15, map), map(1));
    }
}
