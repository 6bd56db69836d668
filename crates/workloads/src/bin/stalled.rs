//! `stalled`: pages of a file whose server stops, one of them locked by who waits for the server.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_workloads::forked::Forked;
use pghot_workloads::{fuse, hold, report, sys};
use serde::Serialize;

/// Map a file of our own FUSE server, stop the server while pages are written back to it, and have
/// a process wait for that with a page locked.
///
/// Prints JSON lines: `ready` with the memory, `stalled` once the process waits, `done` after the
/// server has gone on. Between them it is held.
#[derive(Debug, Parser)]
#[command(name = "stalled", version)]
struct Args {
    /// Where the file system is mounted; the folder is made
    #[arg(long, value_name = "FOLDER", default_value = "/tmp/stalled")]
    dir: PathBuf,

    /// Node of the pages
    #[arg(long, value_name = "NODE")]
    home: u32,

    /// Pages of the file
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pages: u32,

    /// Go on, twice, once this file is there, and remove it
    #[arg(long, value_name = "FILE")]
    hold: PathBuf,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Ready {
        pid: u32,
        base: String,
        bytes: usize,
    },
    Stalled,
    Done {
        errors: usize,
    },
}

fn main() -> ExitCode {
    report::exit_code("stalled", run(&Args::parse()))
}

/// The file's pages, as words.
fn map(file: &File, args: &Args) -> Result<&'static [[AtomicU64; 512]]> {
    let bytes = args.pages as usize * sys::page_bytes();
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    ensure!(address != libc::MAP_FAILED, "cannot map the file");
    // SAFETY: the mapping is as long, page-aligned, shared, and stays until the end.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), args.pages as usize) })
}

/// Starts writing the dirty pages back, and waits for it on demand.
fn sync(pages: &[[AtomicU64; 512]], flags: libc::c_int) -> Result<()> {
    let address = pages.as_ptr().cast_mut().cast();
    // SAFETY: the mapping is ours, and its contents do not change.
    let failed = unsafe { libc::msync(address, size_of_val(pages), flags) };
    ensure!(failed == 0, "msync: {}", io::Error::last_os_error());
    Ok(())
}

/// `msync(MS_ASYNC)` starts nothing.
fn start_writeback(file: &File) -> Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: an open file, and no memory of ours.
    let failed = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    ensure!(
        failed == 0,
        "sync_file_range: {}",
        io::Error::last_os_error()
    );
    Ok(())
}

fn store(pages: &[[AtomicU64; 512]], value: u64) {
    pages
        .iter()
        .for_each(|page| page[0].store(value, Ordering::Relaxed));
}

/// Waits until the kernel lets a process wait for a page.
fn wait_for_disk_sleep(pid: libc::pid_t) -> Result<()> {
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        ensure!(!state.starts_with(['Z', 'X']), "it did not have to wait");
        if state.starts_with('D') {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.dir)?;
    let bytes = args.pages as usize * sys::page_bytes();
    let device = fuse::mount(&args.dir)?;
    let server = Forked::spawn(|_| Ok(fuse::serve(&device, bytes)?))?;
    // The connection is the server's alone: with it, it ends.
    drop(device);

    sys::allocate_from(Some(args.home))?;
    let path = args.dir.join(fuse::NAME);
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let pages = map(&file, args)?;
    store(pages, 1);
    sync(pages, libc::MS_SYNC)?;
    sys::allocate_from(None)?;
    let base = pages.as_ptr().addr();
    Event::Ready {
        pid: std::process::id(),
        base: format!("{base:#x}"),
        bytes,
    }
    .print()?;
    hold::wait(Some(&args.hold))?;

    store(pages, 2);
    // SAFETY: our own child, not reaped yet.
    let signal = |signal| unsafe { libc::kill(server.pid(), signal) };
    signal(libc::SIGSTOP);
    start_writeback(&file)?;
    let mut writer = Forked::spawn(|_| {
        store(pages, 3);
        Ok(())
    })?;
    wait_for_disk_sleep(writer.pid())?;
    Event::Stalled.print()?;
    hold::wait(Some(&args.hold))?;

    signal(libc::SIGCONT);
    writer.hear::<()>()?;
    sync(pages, libc::MS_SYNC)?;
    let is_damaged = |page: &&[AtomicU64; 512]| page[0].load(Ordering::Relaxed) != 3;
    let errors = pages.iter().filter(is_damaged).count();
    fuse::unmount(&args.dir)?;
    Event::Done { errors }.print()
}

impl Event {
    fn print(&self) -> Result<()> {
        report::print(self)
    }
}
