//! How far a comparison is, on stderr: a line for each cell that is done, and on a terminal a bar.

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// The display.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of so many cells.
    pub fn new(all: usize) -> Progress {
        let bar = ProgressBar::new(all as u64);
        let line = "{bar:20} {pos}/{len}  {prefix}  {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(line) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Progress { bar }
    }

    /// A cell begins.
    pub fn begin(&self, cell: &str) {
        self.bar.set_message("");
        self.bar.set_prefix(cell.to_owned());
    }

    /// Something of the cell that is under way; shown while nothing newer is.
    pub fn tell(&self, what: String) {
        self.bar.set_message(what);
    }

    /// The cell is done, and this came of it.
    pub fn end(&self, what: &str) {
        self.bar.inc(1);
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        let cell = self.bar.prefix();
        self.bar
            .suspend(|| eprintln!("{done:>3}/{all}  {cell:<52}  {what}"));
    }

    /// All of it is done.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        if self.bar.position() > 0 {
            eprintln!("all done in {}\n", HumanDuration(self.bar.elapsed()));
        }
    }
}
