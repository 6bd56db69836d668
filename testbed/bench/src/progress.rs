//! How far a comparison is: a line for each cell that is done, and on a terminal one that lives.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Before the first cell is done, each is taken for so long.
const FIRST_GUESS: Duration = Duration::from_secs(10);

/// The display, on stderr.
pub struct Progress {
    is_live: bool,
    done: usize,
    all: usize,
    started: Instant,
    cell: String,
    cell_started: Instant,
}

impl Progress {
    /// Of so many cells.
    pub fn new(all: usize) -> Progress {
        Progress {
            is_live: io::stderr().is_terminal(),
            done: 0,
            all,
            started: Instant::now(),
            cell: String::new(),
            cell_started: Instant::now(),
        }
    }

    /// A cell begins.
    pub fn begin(&mut self, cell: &str) {
        self.cell = cell.to_owned();
        self.cell_started = Instant::now();
        self.tell("");
    }

    /// Something of the cell that is under way; shown while nothing newer is.
    pub fn tell(&self, what: &str) {
        if self.is_live {
            // Back to the start of the line, and whatever stood there is erased.
            eprint!("\r\x1b[K{}  {}  {what}", self.line(), self.left());
            // If it cannot be flushed nobody looks.
            let _ = io::stderr().flush();
        }
    }

    /// The cell is done, and this came of it.
    pub fn end(&mut self, what: &str) {
        self.clear();
        eprintln!("{}  {what}", self.line());
        self.done += 1;
    }

    /// All of it is done.
    pub fn finish(&self) {
        self.clear();
        if self.all > 0 {
            eprintln!("all done in {}\n", minutes(self.started.elapsed()));
        }
    }

    fn line(&self) -> String {
        const BAR: usize = 20;
        let full = BAR * self.done / self.all.max(1);
        let (bar, rest) = ("#".repeat(full), ".".repeat(BAR - full));
        let number = self.done + 1;
        format!("[{bar}{rest}] {number:>3}/{}  {:<52}", self.all, self.cell)
    }

    fn left(&self) -> String {
        let in_cell = self.cell_started.elapsed();
        let each = match self.done as u32 {
            0 => FIRST_GUESS,
            done => (self.started.elapsed() - in_cell) / done,
        };
        let left = each * (self.all - self.done) as u32;
        format!("{} left", minutes(left.saturating_sub(in_cell)))
    }

    fn clear(&self) {
        if self.is_live {
            eprint!("\r\x1b[K");
        }
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
    match seconds < 60 {
        true => format!("{seconds} s"),
        false => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}
