//! Outcomes of `move_pages(2)`, from a scripted kernel and from this one.

use std::collections::VecDeque;
use std::io;

use pghot_linux::mover::{Kernel, MovePages, MoveStatus, Mover};

/// A page of the scripted kernel.
#[derive(Clone, Copy)]
enum Page {
    /// Moves.
    Good,
    /// Cannot be queued: this status.
    Unqueued(i32),
    /// Queued, but its migration fails.
    Stuck,
}

/// Imitates `do_pages_move()`: statuses are stored per flushed run, and a run with failures ends
/// the call. Addresses index the pages.
struct Script {
    pages: Vec<Page>,
    nids: Vec<i32>,
    /// Whole-call errors to return before anything is done, one a call.
    errors: VecDeque<Option<i32>>,
    /// After this many moves no memory is left.
    free: usize,
    calls: usize,
}

impl Script {
    fn new(pages: &[Page]) -> Self {
        Self {
            pages: pages.to_vec(),
            nids: vec![2; pages.len()],
            errors: VecDeque::new(),
            free: usize::MAX,
            calls: 0,
        }
    }

    /// Moves what is queued; the number that failed.
    fn flush(&mut self, queued: &[u64], target: i32) -> io::Result<usize> {
        let mut failed = 0;
        for &page in queued {
            let page = page as usize;
            match self.pages[page] {
                Page::Stuck => failed += 1,
                _ if self.free == 0 => return Err(io::Error::from_raw_os_error(libc::ENOMEM)),
                _ => {
                    self.free -= 1;
                    self.nids[page] = target;
                }
            }
        }
        Ok(failed)
    }
}

impl MovePages for &mut Script {
    fn move_pages(
        &mut self,
        _pid: libc::pid_t,
        addrs: &[u64],
        nids: Option<&[i32]>,
        statuses: &mut [i32],
    ) -> io::Result<usize> {
        self.calls += 1;
        if let Some(Some(errno)) = self.errors.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let Some(nids) = nids else {
            for (status, &addr) in statuses.iter_mut().zip(addrs) {
                *status = self.nids[addr as usize];
            }
            return Ok(0);
        };
        let mut start = 0;
        for (index, &addr) in addrs.iter().enumerate() {
            let Page::Unqueued(status) = self.pages[addr as usize] else {
                continue;
            };
            statuses[index] = status;
            let failed = self.flush(&addrs[start..index], nids[0])?;
            if failed > 0 {
                return Ok(failed + addrs.len() - index - 1);
            }
            statuses[start..index].fill(nids[0]);
            start = index + 1;
        }
        let failed = self.flush(&addrs[start..], nids[0])?;
        if failed == 0 {
            statuses[start..].fill(nids[0]);
        }
        Ok(failed)
    }
}

fn run(script: &mut Script) -> Vec<MoveStatus> {
    let addrs: Vec<u64> = (0..script.pages.len() as u64).collect();
    let mut outcomes = vec![MoveStatus::Denied; 3];
    Mover::with(script).move_batch(1, &addrs, 0, &mut outcomes);
    outcomes
}

use MoveStatus::{
    Busy, Denied, Error, Gone, Moved, NoMemory, OnNode, ProcessGone, Shared, TargetRefused,
};
use Page::{Good, Stuck, Unqueued};

#[test]
fn each_status_has_its_reason() {
    let mut script = Script::new(&[
        Good,
        Unqueued(0),
        Unqueued(7),
        Unqueued(-libc::ENOENT),
        Unqueued(-libc::EFAULT),
        Unqueued(-libc::EBUSY),
        Unqueued(-libc::EACCES),
        Unqueued(-libc::ENOMEM),
        Unqueued(-libc::EPERM),
        Unqueued(-libc::EIO),
        Good,
    ]);
    assert_eq!(
        run(&mut script),
        [
            Moved,
            Moved,
            OnNode(7),
            Gone,
            Gone,
            Busy,
            Shared,
            NoMemory,
            Denied,
            Error(libc::EIO),
            Moved
        ]
    );
    assert_eq!(script.calls, 1);
}

#[test]
fn a_stuck_page_in_the_last_run_costs_one_question() {
    let mut script = Script::new(&[Good, Unqueued(-libc::ENOENT), Good, Stuck, Good]);
    assert_eq!(run(&mut script), [Moved, Gone, Moved, Busy, Moved]);
    assert_eq!(script.calls, 2);
}

#[test]
fn pages_behind_an_aborted_run_are_still_moved() {
    let bad = Unqueued(-libc::ENOENT);
    let mut script = Script::new(&[Good, Stuck, bad, Good, Stuck, bad, Good, Good]);
    assert_eq!(
        run(&mut script),
        [Moved, Busy, Gone, Moved, Busy, Gone, Moved, Moved]
    );
    assert_eq!(script.calls, 4, "three moves and one question");
}

#[test]
fn resuming_is_bounded() {
    let pages: Vec<Page> = (0..100)
        .flat_map(|_| [Stuck, Unqueued(-libc::ENOENT)])
        .chain([Good])
        .collect();
    let mut script = Script::new(&pages);
    let outcomes = run(&mut script);
    assert_eq!(outcomes.len(), 201);
    assert_eq!(outcomes[200], Busy, "not tried");
    assert!(script.calls < 10);
}

#[test]
fn out_of_memory_halfway_counts_what_moved() {
    let mut script = Script::new(&[Good, Unqueued(-libc::ENOENT), Good, Good, Good]);
    script.free = 2;
    assert_eq!(run(&mut script), [Moved, Gone, Moved, NoMemory, NoMemory]);
}

#[test]
fn errors_of_the_whole_call() {
    for (errno, outcome, calls) in [
        (libc::ESRCH, ProcessGone, 1),
        (libc::EINVAL, ProcessGone, 1),
        (libc::EPERM, Denied, 1),
        (libc::ENODEV, TargetRefused, 1),
        (libc::EACCES, TargetRefused, 1),
        (libc::ENOMEM, NoMemory, 2),
        (libc::EINTR, Busy, 2),
        (libc::EIO, Error(libc::EIO), 2),
    ] {
        let mut script = Script::new(&[Good, Good]);
        script.errors.push_back(Some(errno));
        assert_eq!(run(&mut script), [outcome, outcome]);
        assert_eq!(script.calls, calls);
    }
}

#[test]
fn a_process_that_exits_before_the_question_is_gone() {
    let mut script = Script::new(&[Good, Good]);
    script
        .errors
        .extend([Some(libc::ENOMEM), Some(libc::ESRCH)]);
    assert_eq!(run(&mut script), [ProcessGone, ProcessGone]);
}

#[test]
fn an_empty_batch_makes_no_call() {
    let mut script = Script::new(&[]);
    assert_eq!(run(&mut script), []);
    assert_eq!(script.calls, 0);
}

const PAGE: usize = 4096;

/// Own memory: three pages, the middle one never touched.
struct Mapping(*mut libc::c_void);

impl Mapping {
    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is new, so a huge page may not have been put there yet.
        unsafe { libc::madvise(start, 3 * PAGE, libc::MADV_NOHUGEPAGE) };
        for page in [0, 2] {
            // SAFETY: inside the mapping, which is writable.
            unsafe { start.cast::<u8>().add(page * PAGE).write_volatile(1) };
        }
        Self(start)
    }

    fn addrs(&self) -> [u64; 3] {
        [0, 1, 2].map(|page| self.0 as u64 + page * PAGE as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of which no reference is left.
        unsafe { libc::munmap(self.0, 3 * PAGE) };
    }
}

fn move_own(pid: libc::pid_t, target_nid: u32) -> Vec<MoveStatus> {
    let mapping = Mapping::new();
    let mut outcomes = Vec::new();
    Mover::new().move_batch(pid, &mapping.addrs(), target_nid, &mut outcomes);
    outcomes
}

/// `MPOL_MF_MOVE_ALL` needs CAP_SYS_NICE; without it the kernel refuses before anything else.
fn unless_denied(outcomes: [MoveStatus; 3]) -> [MoveStatus; 3] {
    if move_own(0, 0)[0] == Denied {
        [Denied; 3]
    } else {
        outcomes
    }
}

#[test]
fn this_machine_says_where_pages_are() {
    let mapping = Mapping::new();
    let mut statuses = Vec::new();
    Mover::new()
        .query(0, &mapping.addrs(), &mut statuses)
        .unwrap();
    assert!(statuses[0] >= 0);
    assert_eq!(statuses[1], -libc::ENOENT);
}

#[test]
fn this_machine_moves_own_pages() {
    assert_eq!(move_own(0, 0), unless_denied([Moved, Gone, Moved]));
}

#[test]
fn this_machine_knows_no_such_process_or_node() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id() as libc::pid_t;
    child.wait().unwrap();
    assert_eq!(move_own(pid, 0), unless_denied([ProcessGone; 3]));
    assert_eq!(move_own(0, 1_000_000), unless_denied([TargetRefused; 3]));
    assert_eq!(move_own(0, u32::MAX), [TargetRefused; 3], "no call is made");
}

#[test]
fn this_machine_takes_a_zombie_for_gone() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert_eq!(
        move_own(child.id() as libc::pid_t, 0),
        unless_denied([ProcessGone; 3])
    );
    child.wait().unwrap();
}

#[test]
fn no_pages_is_no_error() {
    assert_eq!(Kernel.move_pages(0, &[], None, &mut []).unwrap(), 0);
}
