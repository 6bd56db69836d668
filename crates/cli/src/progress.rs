//! How far a long command is, on stderr: on a terminal a bar, elsewhere a line now and then.

use std::io::{Write, stderr};
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
    lines: Mutex<Lines>,
}

/// Lines now and then.
struct Lines {
    sink: Box<dyn Write + Send>,
    every: Duration,
    said: Instant,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new() -> Progress {
        Progress::with(ProgressBar::new(STEPS as u64), stderr(), EVERY)
    }

    /// A line into this every so often, at most, as where there is no terminal.
    #[cfg(test)]
    fn lines(sink: impl Write + Send + 'static, every: Duration) -> Progress {
        Progress::with(ProgressBar::hidden(), sink, every)
    }

    fn with(bar: ProgressBar, sink: impl Write + Send + 'static, every: Duration) -> Progress {
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        let (sink, said) = (Box::new(sink), Instant::now());
        let lines = Mutex::new(Lines { sink, every, said });
        Progress { bar, lines }
    }

    /// A line that stays.
    pub fn note(&self, sentence: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.bar
            .suspend(|| lines.write(&format!("pghot: {sentence}")));
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
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.said.elapsed() >= lines.every {
            lines.said = Instant::now();
            lines.write(&text);
        }
    }
}

impl Lines {
    /// A reader that is gone wants no more lines, and the work goes on.
    fn write(&mut self, text: &str) {
        let _ = writeln!(self.sink, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::sleep;

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn in_a_pipe_a_line_comes_now_and_then_and_none_too_often() {
        let (pipe, every) = (Pipe::default(), Duration::from_millis(50));
        let start = Instant::now();
        let progress = Progress::lines(pipe.clone(), every);
        progress.note("it begins");
        for step in 0..100 {
            progress.tell(f64::from(step) / 100.0, &format!("{step} of 100 runs"));
            sleep(Duration::from_millis(3));
        }
        drop(progress);
        let all = String::from_utf8(pipe.0.lock().unwrap().clone()).unwrap();
        let (first, rest) = all.split_once('\n').unwrap();
        assert_eq!(first, "pghot: it begins");
        let lines: Vec<&str> = rest.lines().collect();
        // A slow machine has fewer, since `tell` is called less often than it should be.
        let most = start.elapsed().as_millis() / every.as_millis();
        assert!((1..=most).contains(&(lines.len() as u128)), "{rest}");
        for line in lines {
            assert!(
                line.contains(" of 100 runs, about ") && line.ends_with(" s left"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_reader_that_is_gone_stops_nothing() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let progress = Progress::lines(writer, Duration::ZERO);
        progress.note("nobody reads");
        progress.tell(0.5, "half");
    }
}
