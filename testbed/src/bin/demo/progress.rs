//! What the demo shows while it runs: one live line on a terminal, else a line per run.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::numbers::with_commas;
use crate::results::Run;
use crate::systems::System;

/// What a run is taken to need, start and stop included, before one of its kind was seen.
const FIRST_GUESS: Duration = Duration::from_secs(8);

/// The display, on stderr.
pub struct Progress {
    live: bool,
    started: Instant,
    rounds: u32,
    /// For each system, how long its last run took.
    needed: Vec<(System, Duration)>,
    runs_left: usize,
    round: u32,
    system: System,
    run_started: Instant,
    promoted_pages: u64,
}

impl Progress {
    /// For `rounds` rounds of `systems` after a warm-up.
    pub fn new(systems: &[System], rounds: u32) -> Self {
        let now = Instant::now();
        Self {
            live: io::stderr().is_terminal(),
            started: now,
            rounds,
            needed: systems
                .iter()
                .map(|&system| (system, FIRST_GUESS))
                .collect(),
            runs_left: systems.len() * (rounds as usize + 1),
            round: 0,
            system: System::None,
            run_started: now,
            promoted_pages: 0,
        }
    }

    /// Shows a sentence.
    pub fn say(&self, text: &str) {
        self.show(text);
        if !self.live {
            eprintln!("demo: {text}");
        }
    }

    /// A run begins.
    pub fn begin(&mut self, round: u32, system: System) {
        self.round = round;
        self.system = system;
        self.run_started = Instant::now();
        self.promoted(0);
    }

    /// So many pages of the run are promoted.
    pub fn promoted(&mut self, pages: u64) {
        self.promoted_pages = pages;
        self.show(&format!(
            "{} · {} · {} pages promoted · {} left",
            self.round_text(),
            self.system.title(),
            with_commas(pages as f64),
            minutes(self.time_left())
        ));
    }

    /// The run ended.
    pub fn end(&mut self, run: &Run) {
        let took = self.run_started.elapsed();
        for (_, needed) in self
            .needed
            .iter_mut()
            .filter(|(system, _)| *system == run.system)
        {
            *needed = took;
        }
        self.runs_left = self.runs_left.saturating_sub(1);
        let when = match run.t100_s {
            Some(t100_s) => format!("all promoted after {t100_s:.2} s"),
            None => format!("not all promoted within {:.1} s", run.elapsed_s),
        };
        self.clear();
        eprintln!(
            "demo: {:>9} · {:16} · {:>6} pages, {when}",
            self.round_text(),
            run.system.title(),
            with_commas(run.promoted_pages as f64),
        );
    }

    /// All runs are over.
    pub fn finish(&self) {
        self.clear();
        eprintln!(
            "demo: all runs done in {}\n",
            minutes(self.started.elapsed())
        );
    }

    fn round_text(&self) -> String {
        match self.round {
            0 => "warm-up".to_owned(),
            round => format!("round {round}/{}", self.rounds),
        }
    }

    /// The present run's rest and as many average runs as are to come.
    fn time_left(&self) -> Duration {
        let all: Duration = self.needed.iter().map(|(_, needed)| *needed).sum();
        let average = all / self.needed.len().max(1) as u32;
        (average * self.runs_left as u32).saturating_sub(self.run_started.elapsed())
    }

    fn show(&self, text: &str) {
        if self.live {
            // Back to the start of the line, and whatever stood there is erased.
            eprint!("\r\x1b[K{text}");
            // Without a terminal nobody looks, so a failure to flush does not matter.
            let _ = io::stderr().flush();
        }
    }

    fn clear(&self) {
        self.show("");
    }
}

impl Drop for Progress {
    /// After a failure, its message must not stand behind a half-finished line.
    fn drop(&mut self) {
        self.clear();
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}
