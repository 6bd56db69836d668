//! What is said on the control socket: one JSON object per line, a request and then its response.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Options;
use crate::owners::{By, OwnersReport};
use crate::status::{ReloadReport, Status};

/// A longer request is refused. The longest legal one has about 100 bytes.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// The most decisions that one response tells.
pub const DECISIONS_MAX: u32 = 4096;

/// How long the command waits. Starting all sources at once takes an emulator half a minute, most
/// of it in the verifier and for grace periods.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What the daemon does.
    Status,
    /// Whose memory is where, and whose pages moved.
    Owners {
        /// What is counted apart.
        by: By,
    },
    /// Why a page is where it is.
    Explain {
        /// The process.
        pid: u32,
        /// An address of the page in it.
        address: u64,
    },
    /// The newest decisions.
    ExplainLast {
        /// How many.
        count: u32,
    },
    /// Change a tunable.
    Set {
        /// Its name.
        name: String,
        /// The value as text.
        value: String,
    },
    /// Read the config file again.
    Reload,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Owners`].
    Owners(Box<OwnersReport>),
    /// To [`Request::Explain`].
    Explanation(Box<Explanation>),
    /// To [`Request::ExplainLast`], the newest first.
    Decisions(Vec<DecisionReport>),
    /// To [`Request::Set`]: it is in force.
    Done {
        /// The tunable.
        name: String,
        /// Its value now.
        value: String,
    },
    /// To [`Request::Reload`].
    Reloaded(Box<ReloadReport>),
    /// To anything: one sentence.
    Error(String),
    /// To [`Request::Set`]: the name or the value is not possible, in one sentence.
    Invalid(String),
}

/// Why a page is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The process asked for.
    pub pid: u32,
    /// The address asked for.
    pub address: u64,
    /// The page there, if one is in memory.
    pub pfn: Option<u64>,
    /// Its node.
    pub nid: Option<u32>,
    /// Its record, if it is in the lower tier.
    pub record: Option<RecordReport>,
    /// The newest decision about it, if any is remembered.
    pub decision: Option<DecisionReport>,
    /// The explanation itself.
    pub sentences: Vec<String>,
}

/// A hotness record, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordReport {
    /// Accesses within the window; 0 if there were none.
    pub freq: u32,
    /// Time since the last one, in ms.
    pub age_ms: u32,
    /// It waits for the migrator.
    pub ready: bool,
}

/// The engine's decision, with its sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionReport {
    /// How long ago, in ms.
    pub ago_ms: u64,
    /// The folio's head page in the lower tier; only root learns it.
    pub pfn: Option<u64>,
    /// The lower-tier node it was in.
    pub nid: u32,
    /// Where it was to go.
    pub target: u32,
    /// The process it was found by.
    pub pid: Option<u32>,
    /// The file it was found by, as `major:minor:inode`, if no process maps it.
    pub file: Option<String>,
    /// The address in the process or the offset in the file, in bytes; only root learns it.
    pub address: Option<u64>,
    /// Base pages.
    pub pages: u32,
    /// The frequency of its record.
    pub freq: u32,
    /// Time since its last access, in ms.
    pub age_ms: u32,
    /// How it ended.
    pub outcome: String,
    /// Why, in words.
    pub why: String,
}

/// The daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("pghot is not running (nobody listens on {socket}): start it with `pghot run`")]
    NotRunning {
        /// The control socket.
        socket: String,
    },
    /// The socket belongs to somebody else.
    #[error("you may not talk to the daemon on {socket}: run this command as root")]
    Denied {
        /// The control socket.
        socket: String,
    },
    /// The status socket is for its group.
    #[error(
        "you may not ask the daemon on {socket}: run this command as root, or join the group pghot \
         (if there is none, create it and restart pghot)"
    )]
    NoReader {
        /// The status socket.
        socket: String,
    },
    /// The daemon is busy: loading BPF programs, or moving pages.
    #[error(
        "no answer from the daemon on {socket} within {} s; it may still do what you asked: \
         `pghot status` will tell",
        CLIENT_TIMEOUT.as_secs()
    )]
    Slow {
        /// The control socket.
        socket: String,
    },
    /// The connection broke.
    #[error("no answer from the daemon on {socket}: {source}")]
    Broken {
        /// The control socket.
        socket: String,
        /// What happened.
        source: io::Error,
    },
    /// The daemon speaks otherwise.
    #[error("the daemon on {socket} is another version of pghot: {source}")]
    Foreign {
        /// The control socket.
        socket: String,
        /// What could not be understood.
        source: serde_json::Error,
    },
}

/// Asks the daemon one thing.
pub fn ask(socket: &Path, request: &Request) -> Result<Response, ClientError> {
    let line = exchange(socket, request).map_err(|source| {
        let socket = socket.display().to_string();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning { socket }
            }
            io::ErrorKind::PermissionDenied => ClientError::Denied { socket },
            // What a socket with a time limit says when that is over.
            io::ErrorKind::WouldBlock => ClientError::Slow { socket },
            _ => ClientError::Broken { socket, source },
        }
    })?;
    serde_json::from_str(&line).map_err(|source| ClientError::Foreign {
        socket: socket.display().to_string(),
        source,
    })
}

/// Asks the daemon as whoever may: on its control socket, or where that is closed on its status
/// socket.
pub fn ask_as_reader(options: &Options, request: &Request) -> Result<Response, ClientError> {
    match ask(&options.socket, request) {
        Err(ClientError::Denied { .. }) => match ask(&options.status_socket, request) {
            Err(ClientError::Denied { socket }) => Err(ClientError::NoReader { socket }),
            answer => answer,
        },
        answer => answer,
    }
}

fn exchange(socket: &Path, request: &Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    stream.write_all(&to_line(request))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

/// A message as one line. The types here have nothing that JSON lacks.
pub fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Reads one request; `None` at the end of the stream. The text of an error is for the client.
pub fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Result<Request, String>>> {
    let mut line = Vec::new();
    let limit = REQUEST_BYTES_MAX as u64 + 1;
    stream.by_ref().take(limit).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > REQUEST_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a request has at most {REQUEST_BYTES_MAX} bytes"),
        ));
    }
    let request = serde_json::from_slice(&line);
    Ok(Some(request.map_err(|error| {
        format!("this is not a request: {error}")
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way() {
        let name = "freq_threshold".to_owned();
        let value = "3\n\"".to_owned();
        let requests = [
            Request::Status,
            Request::Owners { by: By::Cgroup },
            Request::Explain {
                pid: 1,
                address: u64::MAX,
            },
            Request::ExplainLast { count: 7 },
            Request::Set { name, value },
            Request::Reload,
        ];
        let lines: Vec<u8> = requests.iter().flat_map(to_line).collect();
        let mut stream = lines.as_slice();
        for request in requests {
            assert_eq!(read_request(&mut stream).unwrap(), Some(Ok(request)));
        }
        assert_eq!(read_request(&mut stream).unwrap(), None);
    }

    #[test]
    fn requests_read_as_documented() {
        let text = r#"{"command":"explain","pid":7,"address":4096}"#;
        let expected = Request::Explain {
            pid: 7,
            address: 4096,
        };
        assert_eq!(
            read_request(&mut text.as_bytes()).unwrap(),
            Some(Ok(expected))
        );
    }

    #[test]
    fn rubbish_is_an_answerable_error() {
        let rubbish: [&[u8]; 6] = [
            b"\n",
            b"{}\n",
            b"{\"command\":\"reboot\"}\n",
            b"{\"command\":\"explain\",\"pid\":-1,\"address\":0}\n",
            b"{\"command\":\"explain\",\"pid\":1,\"address\":0,\"x\":1}\n",
            b"\xff\xfe\x00\n",
        ];
        for mut line in rubbish {
            assert!(
                read_request(&mut line).unwrap().unwrap().is_err(),
                "{line:?}"
            );
        }
        let long = vec![b'['; REQUEST_BYTES_MAX + 10];
        assert!(read_request(&mut long.as_slice()).is_err());
        let deep = [vec![b'['; REQUEST_BYTES_MAX - 1], vec![b'\n']].concat();
        assert!(
            read_request(&mut deep.as_slice())
                .unwrap()
                .unwrap()
                .is_err()
        );
    }

    #[test]
    fn responses_survive_the_way() {
        let (name, value) = ("a".to_owned(), "b".to_owned());
        for response in [
            Response::Error("no \n such thing".into()),
            Response::Decisions(Vec::new()),
            Response::Done { name, value },
        ] {
            let line = to_line(&response);
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            assert_eq!(serde_json::from_slice::<Response>(&line).unwrap(), response);
        }
    }
}
