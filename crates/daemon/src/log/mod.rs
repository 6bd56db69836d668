//! The log: lines on the standard error, or entries of the journal.
//!
//! Whoever logs never waits for the reader. A line goes into an [`Outbox`], and a thread writes it;
//! while a pipe is full, or the journal hangs, lines are lost and counted.

mod journal;

use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr};
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use pghot_events::event;
use tracing::Dispatch;
use tracing_subscriber::fmt::{self, format};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, registry};

use crate::outbox::{Delivery, Outbox};

/// Lines that may wait for the reader.
const LINES_MAX: usize = 4096;

/// How the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// [`LogFormat::Journald`] if the standard error goes to the journal, else [`LogFormat::Text`].
    #[default]
    Auto,
    /// A sentence a line, for people.
    Text,
    /// A JSON object a line.
    Json,
    /// Entries of the journal, with fields.
    Journald,
}

impl std::fmt::Display for LogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LogFormat::Auto => "auto",
            LogFormat::Text => "text",
            LogFormat::Json => "json",
            LogFormat::Journald => "journald",
        })
    }
}

impl FromStr for LogFormat {
    type Err = ();

    fn from_str(text: &str) -> Result<LogFormat, ()> {
        Ok(match text {
            "auto" => LogFormat::Auto,
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            "journald" => LogFormat::Journald,
            _ => return Err(()),
        })
    }
}

/// The log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the log: {0}; choose another --log-format")]
pub struct LogError(#[from] io::Error);

/// A line, or an entry of the journal.
type Line = Vec<u8>;

static LINES: OnceLock<Outbox<Line>> = OnceLock::new();

/// Lines that were lost since the start.
pub fn lines_lost() -> u64 {
    LINES.get().map_or(0, Outbox::lost)
}

/// The log of this process. Dropped, it writes what waits, for a second at most.
#[derive(Debug)]
pub struct Log {
    format: LogFormat,
    _delivery: Delivery<Line>,
}

impl Log {
    /// Begins to log, as much as RUST_LOG says. Once in a process.
    pub fn start(format: LogFormat) -> Result<Log, LogError> {
        let format = match format {
            LogFormat::Auto if journal::has_stderr() => LogFormat::Journald,
            LogFormat::Auto => LogFormat::Text,
            asked => asked,
        };
        let lines = LINES.get_or_init(|| Outbox::new(LINES_MAX));
        let delivery = match format {
            LogFormat::Journald => {
                deliver(lines, journal::Socket::open(journal::SOCKET)?, tell_missing)?
            }
            // A descriptor of its own: a write that hangs holds no lock that others need.
            _ => {
                let stderr = File::from(stderr().as_fd().try_clone_to_owned()?);
                deliver(lines, stderr, tell_missing)?
            }
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let to = dispatch(format, filter, stderr().is_terminal(), lines.clone());
        // Only a second log in a process is refused; the first one goes on.
        let _ = tracing::dispatcher::set_global_default(to);
        log_panics();
        Ok(Log {
            format,
            _delivery: delivery,
        })
    }

    /// The daemon ends by this error. On a terminal the command says so itself.
    pub fn note_failure(&self, error: &dyn std::error::Error) {
        if self.format != LogFormat::Text {
            event!(daemon_failed, "{error}");
        }
    }
}

fn tell_missing(lines: u64) {
    event!(
        log_lines_lost,
        lines,
        "{lines} lines of the log are missing here"
    );
}

/// Has lines written, each by one write. When the reader takes some again, `tell_missing` hears how
/// many were lost meanwhile.
fn deliver(
    lines: &Outbox<Line>,
    mut to: impl Write + Send + 'static,
    tell_missing: impl Fn(u64) + Send + 'static,
) -> io::Result<Delivery<Line>> {
    let (counted, mut told) = (lines.clone(), 0);
    lines.start("log", Duration::ZERO, move |batch| {
        let mut lost = 0;
        for line in &batch {
            lost += to.write_all(line).is_err() as u64;
        }
        let all = counted.lost();
        if lost == 0 && all > told {
            tell_missing(all - told);
            told = all;
        }
        lost
    })
}

/// Formats lines.
fn dispatch(
    format: LogFormat,
    filter: EnvFilter,
    is_terminal: bool,
    lines: Outbox<Line>,
) -> Dispatch {
    let registry = registry().with(filter);
    if format == LogFormat::Journald {
        return registry.with(journal::Journal::new(lines)).into();
    }
    let writer = move || LineWriter(lines.clone());
    let layer = fmt::layer().with_target(false).with_writer(writer);
    if format == LogFormat::Json {
        let layer = layer.json().flatten_event(true);
        let layer = layer.with_current_span(false).with_span_list(false);
        return registry.with(layer).into();
    }
    // The sentence has all that the fields have; the id is for who looks it up.
    let fields = format::debug_fn(|to, field, value| match field.name() {
        "message" => write!(to, "{value:?}"),
        "event" => write!(to, " [{}]", format!("{value:?}").trim_matches('"')),
        _ => Ok(()),
    });
    registry
        .with(layer.with_ansi(is_terminal).fmt_fields(fields))
        .into()
}

/// Leaves each write, which is a line, in the outbox.
struct LineWriter(Outbox<Line>);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.offer(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A thread that panics must not wait for a reader either.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        event!(thread_panicked, thread = name, "thread {name} {panic}");
    }));
}

#[cfg(test)]
mod tests;
