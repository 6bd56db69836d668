//! A file system with one file in a process's memory, served over `/dev/fuse`: for tests of what
//! waits for a server that has stopped. Structures as in `linux/fuse.h`, protocol 7.31.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

/// The file's name.
pub const NAME: &str = "file";

const ROOT: u64 = 1;
const THE_FILE: u64 = 2;

const IN_HEADER: usize = 40;
const WRITE_IN: usize = 40;
const WRITE_BYTES: u32 = 128 << 10;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

/// Mounts it at `dir`; what is returned is the server's end.
pub fn mount(dir: &Path) -> Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.context("cannot open /dev/fuse")?;
    let fd = device.as_raw_fd();
    let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
    let target = CString::new(dir.as_os_str().as_encoded_bytes())?;
    let options = CString::new(options)?;
    // SAFETY: all four are strings that end with a zero, and live until the call returns.
    let failed = unsafe {
        libc::mount(
            c"stalled".as_ptr(),
            target.as_ptr(),
            c"fuse".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    match failed {
        0 => Ok(device),
        _ => Err(io::Error::last_os_error())
            .with_context(|| format!("cannot mount {}", dir.display())),
    }
}

/// Takes it away again, whoever has it open.
pub fn unmount(dir: &Path) -> Result<()> {
    let target = CString::new(dir.as_os_str().as_encoded_bytes())?;
    // SAFETY: a string that ends with a zero.
    let failed = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error())
            .with_context(|| format!("cannot unmount {}", dir.display())),
    }
}

/// Answers the kernel until the file system is unmounted.
pub fn serve(mut device: &File, bytes: usize) -> io::Result<()> {
    let mut content = vec![0; bytes];
    let mut request = vec![0; WRITE_BYTES as usize + (64 << 10)];
    loop {
        match device.read(&mut request) {
            Ok(length) => {
                if let Some(answer) = answer(&mut content, &request[..length]) {
                    // The asker may have been killed meanwhile.
                    let _ = device.write(&answer);
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

/// The answer to a request; `None` where none is wanted.
fn answer(content: &mut [u8], request: &[u8]) -> Option<Vec<u8>> {
    let (opcode, unique, node) = (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16));
    let body = request.get(IN_HEADER..).unwrap_or_default();
    let range = || {
        let start = usize::try_from(u64_at(body, 8)).ok()?.min(content.len());
        Some(start..content.len().min(start + u32_at(body, 16) as usize))
    };
    let said = match opcode {
        FORGET | BATCH_FORGET | INTERRUPT => return None,
        INIT => Ok(init()),
        LOOKUP if node == ROOT && body == [NAME.as_bytes(), &[0]].concat() => {
            let mut entry = [THE_FILE, 0, 3600, 3600, 0].map(u64::to_ne_bytes).concat();
            entry.extend(attributes(THE_FILE, content.len()));
            Ok(entry)
        }
        LOOKUP => Err(libc::ENOENT),
        GETATTR | SETATTR => {
            let mut valid = [3600u64, 0].map(u64::to_ne_bytes).concat();
            valid.extend(attributes(node, content.len()));
            Ok(valid)
        }
        OPEN => Ok(vec![0; 16]),
        READ => Ok(range().map_or(Vec::new(), |range| content[range].to_vec())),
        WRITE => {
            let range = range().unwrap_or(0..0);
            let data = body.get(WRITE_IN..).unwrap_or_default();
            let length = range.len().min(data.len());
            content[range.start..range.start + length].copy_from_slice(&data[..length]);
            Ok((length as u64).to_ne_bytes().to_vec())
        }
        RELEASE | FSYNC | FLUSH | DESTROY => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    };
    let (error, body) = said.map_or_else(|error| (-error, Vec::new()), |body| (0, body));
    let mut answer = (16 + body.len() as u32).to_ne_bytes().to_vec();
    answer.extend(error.to_ne_bytes());
    answer.extend(unique.to_ne_bytes());
    answer.extend(body);
    Some(answer)
}

/// `struct fuse_init_out`.
fn init() -> Vec<u8> {
    let (max_background, congestion_threshold) = (64u32, 48u32);
    let mut words = [0u32; 16];
    words[0] = 7;
    words[1] = 31;
    words[2] = WRITE_BYTES;
    words[4] = max_background | congestion_threshold << 16;
    words[5] = WRITE_BYTES;
    words[6] = 1;
    words.map(u32::to_ne_bytes).concat()
}

/// `struct fuse_attr`.
fn attributes(node: u64, bytes: usize) -> Vec<u8> {
    let (mode, size) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 0),
        _ => (libc::S_IFREG | 0o600, bytes as u64),
    };
    let mut attributes = [node, size, size / 512, 0, 0, 0]
        .map(u64::to_ne_bytes)
        .concat();
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    attributes.extend(words.map(u32::to_ne_bytes).concat());
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut request = vec![0; IN_HEADER];
        request[4..8].copy_from_slice(&opcode.to_ne_bytes());
        request[8..16].copy_from_slice(&77u64.to_ne_bytes());
        request[16..24].copy_from_slice(&node.to_ne_bytes());
        request.extend(body);
        request
    }

    fn io(offset: u64, size: u32) -> Vec<u8> {
        let mut body = [0, offset].map(u64::to_ne_bytes).concat();
        body.extend(size.to_ne_bytes());
        body.resize(WRITE_IN, 0);
        body
    }

    #[test]
    fn what_is_written_is_read_and_nothing_beyond_the_end() {
        let mut content = vec![0; 8192];
        let mut body = io(8190, 4);
        body.extend([1, 2, 3, 4]);
        let written = answer(&mut content, &request(WRITE, THE_FILE, &body)).unwrap();
        assert_eq!(u32_at(&written, 16), 2, "the file does not grow");
        let read = answer(&mut content, &request(READ, THE_FILE, &io(8188, 100))).unwrap();
        assert_eq!(read[16..], [0, 0, 1, 2]);
        assert_eq!(u32_at(&read, 0) as usize, read.len());
        assert_eq!(u64_at(&read, 8), 77);
        let beyond = answer(&mut content, &request(READ, THE_FILE, &io(u64::MAX, 4))).unwrap();
        assert_eq!(beyond.len(), 16);
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        let mut content = vec![0; 4096];
        let mut length = |opcode, node, body: &[u8]| {
            answer(&mut content, &request(opcode, node, body)).map(|it| it.len())
        };
        assert_eq!(length(INIT, 0, &[]), Some(16 + 64));
        assert_eq!(length(LOOKUP, ROOT, b"file\0"), Some(16 + 128));
        assert_eq!(length(LOOKUP, ROOT, b"other\0"), Some(16));
        assert_eq!(length(GETATTR, ROOT, &[]), Some(16 + 104));
        assert_eq!(length(OPEN, THE_FILE, &[]), Some(16 + 16));
        assert_eq!(length(FORGET, THE_FILE, &[]), None);
        assert_eq!(length(9999, THE_FILE, &[]), Some(16));
    }
}
