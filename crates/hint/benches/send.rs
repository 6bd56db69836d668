//! What a hint costs the application: through the socket, and through the ring. The daemon's side
//! reads as fast as it can.

use std::hint::black_box;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pghot_hint::ring::{Reader, Writer};
use pghot_hint::wire::MESSAGE_BYTES_MAX;
use pghot_hint::{Hints, Range, peer_address};

/// Listens at `path`; a thread reads and drops all that comes from the first client.
fn listen(path: &Path) -> io::Result<()> {
    let (address, length) = peer_address(path)?;
    let address: *const libc::sockaddr_un = &address;
    // SAFETY: socket() takes numbers; the descriptor is ours alone.
    let listener =
        unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)) };
    let fd = listener.as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of the address, which it has.
    if unsafe { libc::bind(fd, address.cast(), length) | libc::listen(fd, 1) } != 0 {
        return Err(io::Error::last_os_error());
    }
    thread::spawn(move || {
        // SAFETY: no address of the peer is asked for; the descriptor is ours alone.
        let client = unsafe {
            let (nobody, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
            OwnedFd::from_raw_fd(libc::accept(listener.as_raw_fd(), nobody, nothing))
        };
        let mut bytes = [0u8; MESSAGE_BYTES_MAX];
        // SAFETY: the kernel writes as many bytes as there are at most.
        while unsafe {
            libc::recv(
                client.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                0,
            )
        } > 0
        {}
    });
    Ok(())
}

fn send(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let path = folder.path().join("hint.sock");
    listen(&path).expect("a socket to listen on");
    let hints = Hints::connect(&path).expect("a listener");
    let ranges: Vec<Range> = (1..=256)
        .map(|page| Range {
            address: page << 12,
            length: 4096,
        })
        .collect();
    let (mut reader, file) = Reader::create().expect("a ring");
    let writer = Writer::open(file).expect("the same ring");
    thread::spawn(move || {
        loop {
            black_box(reader.take(256));
        }
    });

    let mut group = c.benchmark_group("hint");
    for count in [1, 256] {
        let ranges = &ranges[..count];
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("socket, {count} ranges"), |b| {
            b.iter(|| {
                // The reader may be behind for a moment.
                while hints.send(black_box(ranges)).is_err() {
                    thread::yield_now();
                }
            });
        });
        group.bench_function(format!("ring, {count} ranges"), |b| {
            b.iter(|| {
                for &range in black_box(ranges) {
                    while writer.push(range).is_err() {
                        thread::yield_now();
                    }
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, send);
criterion_main!(benches);
