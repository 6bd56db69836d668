//! What the host and the guest's agent say to each other, and how it is framed on the serial line.
//!
//! One frame is one line: a start byte, a checksum, a JSON text. A serial line has no notion of a
//! message and may carry what a firmware or driver left on it, so a reader skips everything up to a
//! start byte and believes a frame only if its checksum agrees: a lost byte must show as a damaged
//! frame, never as a smaller counter.

use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Begins a frame; JSON text never holds it unescaped.
const START: u8 = 0x1e;

/// The most file content a request carries. Keeps it well below the 64 KiB that the guest's tty
/// layer buffers before it drops bytes; replies have no limit, the host always keeps up.
pub const CHUNK_MAX: usize = 16 << 10;

/// A request with the number its reply will carry.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the host; several requests may be under way at once.
    pub id: u64,
    /// What is asked for.
    pub call: Call,
}

/// A reply to the request with the same number.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The number of the request, or [`HELLO`].
    pub id: u64,
    /// The answer, or why there is none.
    pub result: Result<Answer, String>,
}

/// The `id` of the reply nobody asked for: the agent sends it when it is ready.
pub const HELLO: u64 = 0;

/// The operations of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// Start a process in a group of its own, with stdin from `stdin` and its output kept.
    Spawn {
        /// Program and arguments.
        argv: Vec<String>,
        /// Variables set in addition to the agent's.
        env: Vec<(String, String)>,
        /// All the process will read from its standard input.
        stdin: Bytes,
    },
    /// The output that came since the last such call.
    Output {
        /// From [`Answer::Spawned`].
        process: u32,
    },
    /// Wait for the end of the process *and* of its output, at most `timeout_ms`.
    Wait {
        /// From [`Answer::Spawned`].
        process: u32,
        /// How long the agent waits before it answers [`Answer::Running`].
        timeout_ms: u64,
    },
    /// Send a signal to a process, or with a negative number to a process group.
    Kill {
        /// As for kill(2).
        pid: i32,
        /// Signal number.
        signal: i32,
    },
    /// A whole file.
    Read {
        /// Absolute path.
        path: String,
    },
    /// Write a file in one write(2), as sysctl and sysfs files need.
    Write {
        /// Absolute path.
        path: String,
        /// At most [`CHUNK_MAX`] bytes.
        data: Bytes,
        /// Append instead of create or truncate.
        append: bool,
    },
    /// Whether a path exists.
    Exists {
        /// Absolute path.
        path: String,
    },
    /// Names in a directory, sorted.
    List {
        /// Absolute path.
        path: String,
    },
    /// Create a directory and its parents.
    Mkdir {
        /// Absolute path.
        path: String,
    },
    /// Kill every user process but the agent itself, forget all output kept, and tell who was left.
    Sweep,
    /// End the machine.
    PowerOff,
}

/// What the agent answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done; there is nothing to tell.
    Done,
    /// A process was started.
    Spawned {
        /// The agent's handle: unlike a pid it is never used twice.
        process: u32,
        /// The guest's pid.
        pid: i32,
    },
    /// New output.
    Output {
        /// From standard output.
        stdout: Bytes,
        /// From standard error.
        stderr: Bytes,
    },
    /// The process still runs.
    Running,
    /// The process exited with this code.
    Exited(i32),
    /// The process was ended by this signal.
    Signaled(i32),
    /// Content of a file.
    Data(Bytes),
    /// The answer to [`Call::Exists`].
    Exists(bool),
    /// Names, or after [`Call::Sweep`] the processes that were left as `pid comm`.
    Names(Vec<String>),
}

/// Bytes that travel as a JSON string, each byte as the character of that number. Guest output is
/// nearly always ASCII, so this costs nothing and stays readable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(
            &self
                .0
                .iter()
                .map(|&byte| char::from(byte))
                .collect::<String>(),
        )
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = text.chars().map(u8::try_from).collect::<Result<_, _>>();
        bytes
            .map(Self)
            .map_err(|_| serde::de::Error::custom("a character above U+00FF"))
    }
}

/// Writes one frame with a single write, so that frames of several threads do not mix.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let mut frame = vec![START];
    write!(frame, "{:08x}", checksum(&json))?;
    frame.extend(json);
    frame.push(b'\n');
    to.write_all(&frame)?;
    to.flush()
}

/// Reads the next frame; `None` at the end of the stream. A damaged frame is an error of kind
/// `InvalidData`.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        // The last start byte: an earlier one belongs to a frame whose end was lost.
        let Some(start) = line.iter().rposition(|&byte| byte == START) else {
            continue;
        };
        let frame = line[start + 1..].trim_ascii_end();
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let (sum, json) = frame
            .split_at_checked(8)
            .ok_or_else(|| damaged("frame too short"))?;
        if sum != format!("{:08x}", checksum(json)).as_bytes() {
            return Err(damaged("checksum of a frame is wrong"));
        }
        return Ok(Some(serde_json::from_slice(json)?));
    }
}

/// FNV-1a: finds lost or changed bytes, and needs four lines.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        let data = Bytes((0..=255).collect());
        let mut wire = Vec::new();
        send(&mut wire, &data).unwrap();
        assert_eq!(receive::<Bytes>(&mut wire.as_slice()).unwrap(), Some(data));
    }

    #[test]
    fn noise_is_skipped_and_damage_is_seen() {
        let mut wire = b"firmware says hello\n\x1ecut off".to_vec();
        send(&mut wire, &7u32).unwrap();
        let mut damaged = Vec::new();
        send(&mut damaged, &1234u32).unwrap();
        damaged.remove(10);
        wire.extend(damaged);

        let mut wire = wire.as_slice();
        assert_eq!(receive::<u32>(&mut wire).unwrap(), Some(7));
        assert_eq!(
            receive::<u32>(&mut wire).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert_eq!(receive::<u32>(&mut wire).unwrap(), None);
    }
}
