//! Entries of the journal, in its own protocol: fields that `journalctl` can be asked for.
//!
//! The crate tracing-journald sends from the thread that logs, and waits there while the journal
//! hangs. Here an entry is only written down; sending it is for the thread of the log.

use std::env;
use std::fmt::Debug;
use std::fs::{File, Metadata};
use std::io::{self, Write, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::outbox::Outbox;

/// Where the journal listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// A longer value is cut, so that an entry fits into a datagram. Only libbpf says so much.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// Whether the standard error goes to the journal.
pub fn has_stderr() -> bool {
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    let stderr = stderr().as_fd().try_clone_to_owned().map(File::from);
    stderr.is_ok_and(|stderr| is_stream(&stream, &stderr)) && Path::new(SOCKET).exists()
}

/// Whether JOURNAL_STREAM means this file: it has the device and the inode. A program whose
/// standard error was sent elsewhere still has the variable.
pub fn is_stream(stream: &str, file: &File) -> bool {
    let is_it = |meant: Metadata| stream == format!("{}:{}", meant.dev(), meant.ino());
    file.metadata().is_ok_and(is_it)
}

/// The journal, each write an entry.
pub struct Socket(UnixDatagram);

impl Socket {
    /// Connects. The service manager holds the other end, so it stays when the journal restarts.
    pub fn open(path: &str) -> io::Result<Socket> {
        let socket = UnixDatagram::unbound()?;
        let explain = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("no journal listens on {path}: {error}"),
            )
        };
        socket.connect(path).map_err(explain)?;
        Ok(Socket(socket))
    }
}

impl Write for Socket {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        self.0.send(entry)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes events down as entries.
pub struct Journal {
    entries: Outbox<Vec<u8>>,
}

impl Journal {
    /// Into an outbox.
    pub fn new(entries: Outbox<Vec<u8>>) -> Journal {
        Journal { entries }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut entry = Entry(Vec::new());
        entry.put("PRIORITY", priority(*metadata.level()));
        entry.put("SYSLOG_IDENTIFIER", "pghot");
        entry.put("CODE_FILE", metadata.file().unwrap_or_default());
        let line = metadata.line().unwrap_or_default();
        entry.put("CODE_LINE", &line.to_string());
        event.record(&mut entry);
        self.entries.offer(entry.0);
    }
}

/// Of syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

struct Entry(Vec<u8>);

impl Entry {
    fn put(&mut self, name: &str, value: &str) {
        let mut end = value.len().min(VALUE_BYTES_MAX);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let value = &value[..end];
        self.0.extend(name.as_bytes());
        if value.contains('\n') {
            self.0.push(b'\n');
            self.0.extend((value.len() as u64).to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.put("MESSAGE", value),
            name => self.put(&format!("PGHOT_{}", name.to_ascii_uppercase()), value),
        }
    }
}
