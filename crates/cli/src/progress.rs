//! How far a long command is, on stderr: on a terminal a bar, elsewhere a line now and then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Steps of the bar.
const STEPS: f64 = 1000.0;

/// The display; dropped, it is gone from the terminal.
pub struct Progress {
    bar: ProgressBar,
    said: Mutex<Instant>,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new() -> Progress {
        let bar = ProgressBar::new(STEPS as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        Progress {
            bar,
            said: Mutex::new(Instant::now()),
        }
    }

    /// A line that stays.
    pub fn note(&self, sentence: &str) {
        self.bar.suspend(|| eprintln!("pghot: {sentence}"));
    }

    /// So much of 1 is done; 0 where nobody knows.
    pub fn tell(&self, share: f64, what: &str) {
        // Parts differ in length; the mean of those that are done is the best guess.
        let left_s = self.bar.elapsed().as_secs_f64() * (1.0 / share - 1.0);
        let text = match share > 0.01 {
            true => format!("{what}, about {left_s:.0} s left"),
            false => what.to_owned(),
        };
        if !self.bar.is_hidden() {
            self.bar.set_position((share * STEPS) as u64);
            self.bar.set_message(text);
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.elapsed() >= EVERY {
            *said = Instant::now();
            eprintln!("{text}");
        }
    }
}
