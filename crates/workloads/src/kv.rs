//! A client of a Redis server: its protocol (RESP), pipelined, and values that tell whether they
//! are what was set.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::random::mix;

/// Room for the replies to some hundred requests, so that few reads fetch them.
const BUFFER_BYTES: usize = 256 << 10;

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The value of a key.
    Value(Vec<u8>),
    /// There is no such key.
    Missing,
}

/// A connection. Requests are collected and sent together; replies come in the same order.
pub struct Connection {
    replies: BufReader<UnixStream>,
    requests: Vec<u8>,
}

impl Connection {
    /// Connects to a server.
    pub fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        Ok(Self {
            replies: BufReader::with_capacity(BUFFER_BYTES, stream),
            requests: Vec::new(),
        })
    }

    /// Adds a request for a key's value.
    pub fn get(&mut self, key: u32) {
        encode(&mut self.requests, &[b"GET", name(key).as_bytes()]);
    }

    /// Adds a request to set a key's value.
    pub fn set(&mut self, key: u32, value: &[u8]) {
        encode(&mut self.requests, &[b"SET", name(key).as_bytes(), value]);
    }

    /// Sends what was added.
    pub fn send(&mut self) -> Result<()> {
        let sent = self.replies.get_mut().write_all(&self.requests);
        self.requests.clear();
        sent.context("cannot write to the server")
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Reply> {
        decode(&mut self.replies)
    }
}

fn name(key: u32) -> String {
    format!("key:{key:010}")
}

/// A request: an array of strings, each after its length.
fn encode(to: &mut Vec<u8>, words: &[&[u8]]) {
    to.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        to.extend(format!("${}\r\n", word.len()).bytes());
        to.extend_from_slice(word);
        to.extend(b"\r\n");
    }
}

fn decode(from: &mut impl BufRead) -> Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)
        .context("cannot read from the server")?;
    let line = line
        .strip_suffix("\r\n")
        .context("the server closed the connection")?;
    match line.split_at_checked(1) {
        Some(("+", _)) => Ok(Reply::Done),
        Some(("$", "-1")) => Ok(Reply::Missing),
        Some(("$", length)) => {
            let length: usize = length.parse().context("a reply's length is no number")?;
            let mut value = vec![0; length + "\r\n".len()];
            from.read_exact(&mut value)
                .context("cannot read from the server")?;
            ensure!(value.ends_with(b"\r\n"), "a value has not its length");
            value.truncate(length);
            Ok(Reply::Value(value))
        }
        Some(("-", error)) => bail!("the server refuses: {error}"),
        _ => bail!("this is no reply of a Redis server: {line:?}"),
    }
}

/// What was set under each key: remembered as how often, since seed, key and that give the value.
pub struct Expected {
    versions: Vec<u32>,
    value_bytes: usize,
    seed: u64,
}

impl Expected {
    /// Every key was set once.
    pub fn new(keys: u32, value_bytes: usize, seed: u64) -> Self {
        Self {
            versions: vec![0; keys as usize],
            value_bytes,
            seed,
        }
    }

    /// What a key has to give now.
    pub fn value(&self, key: u32) -> Vec<u8> {
        let version = u64::from(self.versions[key as usize]);
        let word = mix(self.seed ^ mix(u64::from(key) << 32 | version)).to_ne_bytes();
        let mut value = word.repeat(self.value_bytes.div_ceil(word.len()));
        value.truncate(self.value_bytes);
        value
    }

    /// The next value of a key, which it has to give from now on.
    pub fn renew(&mut self, key: u32) -> Vec<u8> {
        self.versions[key as usize] += 1;
        self.value(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_arrays_of_strings() {
        let mut request = Vec::new();
        encode(&mut request, &[b"SET", b"k", b"a\r\nb"]);
        assert_eq!(request, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn replies_are_told_apart() {
        let mut replies: &[u8] =
            b"+OK\r\n$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n-OOM no memory\r\n:1\r\n$9\r\n";
        assert_eq!(decode(&mut replies).unwrap(), Reply::Done);
        assert_eq!(decode(&mut replies).unwrap(), Reply::Value(b"a\r\n".into()));
        assert_eq!(decode(&mut replies).unwrap(), Reply::Missing);
        assert_eq!(decode(&mut replies).unwrap(), Reply::Value(Vec::new()));
        for words in ["OOM no memory", "no reply of a Redis server", "cannot read"] {
            let error = decode(&mut replies).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = decode(&mut replies).unwrap_err().to_string();
        assert!(error.contains("closed"), "{error}");
    }

    #[test]
    fn no_two_values_are_alike() {
        let mut expected = Expected::new(2, 20, 1);
        let first = expected.value(0);
        assert_eq!(first.len(), 20);
        assert_ne!(first, expected.value(1));
        assert_ne!(first, expected.renew(0));
        assert_ne!(first, expected.value(0));
        assert_eq!(first, Expected::new(9, 20, 1).value(0));
    }
}
