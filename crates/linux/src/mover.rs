//! Moves pages of another process with `move_pages(2)` and says of each page what became of it.
//!
//! Every call drains per-CPU LRU caches on all CPUs (`lru_cache_disable()`), so callers should
//! bring 512 pages or more, one address per folio: a second address in a large folio that is
//! already queued is reported `Busy` and makes the kernel flush its list early.

use std::io;

use pghot_engine::Outcome;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("addresses are passed to move_pages(2) as 64-bit pointers");

/// `MPOL_MF_MOVE_ALL`: also pages mapped by several processes; needs CAP_SYS_NICE.
const MPOL_MF_MOVE_ALL: libc::c_int = 1 << 2;

/// A status that `move_pages(2)` never stores: the kernel has said nothing about the page.
const UNTOUCHED: i32 = i32::MIN;

/// How often a batch that the kernel gave up halfway is taken up again behind the culprit.
const MAX_RESUMES: usize = 4;

/// What became of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MoveStatus {
    /// It is on the target node. A page that was there before looks the same to the kernel.
    Moved,
    /// It is on this other node, though the kernel reported no failure.
    OnNode(u32),
    /// No page at this address: unmapped, swapped out, the zero page, or just being migrated by
    /// somebody else (ENOENT, EFAULT).
    Gone,
    /// The process is gone, or has given up its memory (ESRCH, EINVAL).
    ProcessGone,
    /// Locked, pinned, under writeback, isolated by somebody else, or not tried (EBUSY).
    Busy,
    /// Mapped by several processes, and the call was not allowed to move such pages (EACCES).
    Shared,
    /// The target node could not provide a page, reclaim included (ENOMEM).
    NoMemory,
    /// No right to this process: CAP_SYS_PTRACE or CAP_SYS_NICE is missing (EPERM).
    Denied,
    /// The process may not use the target node, by its cpuset, or the node has no memory any more
    /// (EACCES or ENODEV of the whole call).
    TargetRefused,
    /// Any other errno.
    Error(i32),
}

impl MoveStatus {
    /// What it means to the engine.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Moved => Outcome::Moved,
            Self::OnNode(_) => Outcome::MovedAlready,
            Self::Gone | Self::ProcessGone => Outcome::Gone,
            Self::Busy => Outcome::Busy,
            Self::Shared => Outcome::Shared,
            Self::NoMemory => Outcome::NoMemory,
            Self::Denied => Outcome::Denied,
            Self::TargetRefused => Outcome::TargetRefused,
            Self::Error(_) => Outcome::Failed,
        }
    }

    /// Reads one entry of the kernel's status array.
    fn from_status(status: i32, target_nid: u32) -> Self {
        match u32::try_from(status) {
            Ok(nid) if nid == target_nid => Self::Moved,
            Ok(nid) => Self::OnNode(nid),
            Err(_) => match status.wrapping_neg() {
                libc::ENOENT | libc::EFAULT => Self::Gone,
                libc::EBUSY | libc::EAGAIN => Self::Busy,
                libc::EACCES => Self::Shared,
                libc::ENOMEM => Self::NoMemory,
                libc::EPERM => Self::Denied,
                errno => Self::Error(errno),
            },
        }
    }
}

/// The system call, so that tests can stand in for the kernel.
pub trait MovePages {
    /// `move_pages(2)` with `MPOL_MF_MOVE_ALL`; without `nids` it asks where pages are.
    ///
    /// Returns the number of pages that did not move. The slices have equal lengths; an entry of
    /// `statuses` that the kernel does not reach keeps its value.
    fn move_pages(
        &mut self,
        pid: libc::pid_t,
        addrs: &[u64],
        nids: Option<&[i32]>,
        statuses: &mut [i32],
    ) -> io::Result<usize>;
}

/// The running kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl MovePages for Kernel {
    fn move_pages(
        &mut self,
        pid: libc::pid_t,
        addrs: &[u64],
        nids: Option<&[i32]>,
        statuses: &mut [i32],
    ) -> io::Result<usize> {
        assert!(statuses.len() == addrs.len(), "one status for each address");
        assert!(
            nids.is_none_or(|nids| nids.len() == addrs.len()),
            "one node for each address"
        );
        let nids_ptr = nids.map_or(std::ptr::null(), <[i32]>::as_ptr);
        let flags = if nids.is_some() { MPOL_MF_MOVE_ALL } else { 0 };
        // SAFETY: the kernel reads `addrs.len()` pointers and node ids and writes as many statuses;
        // the asserts above make all arrays that long. It does not keep the pointers. The addresses
        // belong to another process and are only looked up in that process's page table; where
        // `pid` is this process, moving a page changes no byte that this program can see.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                pid,
                addrs.len(),
                addrs.as_ptr(),
                nids_ptr,
                statuses.as_mut_ptr(),
                flags,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// Moves batches; keeps its buffers, so that a batch no larger than an earlier one allocates
/// nothing.
#[derive(Debug, Default)]
pub struct Mover<S = Kernel> {
    kernel: S,
    nids: Vec<i32>,
    statuses: Vec<i32>,
    /// Index in the batch of each page whose fate has to be asked for, its address, and the
    /// answer.
    unknown: Vec<usize>,
    unknown_addrs: Vec<u64>,
    unknown_statuses: Vec<i32>,
}

impl Mover<Kernel> {
    /// A mover on the running kernel.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S: MovePages> Mover<S> {
    /// A mover on another implementation of the system call.
    pub fn with(kernel: S) -> Self {
        Self {
            kernel,
            nids: Vec::new(),
            statuses: Vec::new(),
            unknown: Vec::new(),
            unknown_addrs: Vec::new(),
            unknown_statuses: Vec::new(),
        }
    }

    /// Moves the pages at `addrs` of process `pid` to a node; `outcomes` gets one entry for each.
    pub fn move_batch(
        &mut self,
        pid: libc::pid_t,
        addrs: &[u64],
        target_nid: u32,
        outcomes: &mut Vec<MoveStatus>,
    ) {
        outcomes.clear();
        if addrs.is_empty() {
            return;
        }
        let Ok(target) = i32::try_from(target_nid) else {
            outcomes.resize(addrs.len(), MoveStatus::TargetRefused);
            return;
        };
        self.nids.clear();
        self.nids.resize(addrs.len(), target);
        self.statuses.clear();
        self.statuses.resize(addrs.len(), UNTOUCHED);

        let unanswered = self.move_resuming(pid, addrs);
        outcomes.extend(
            self.statuses
                .iter()
                .map(|&status| MoveStatus::from_status(status, target_nid)),
        );
        match unanswered {
            Unanswered::Decided(fate) => {
                for (outcome, &status) in outcomes.iter_mut().zip(&self.statuses) {
                    if status == UNTOUCHED {
                        *outcome = fate;
                    }
                }
            }
            Unanswered::Ask { unmoved } => {
                self.ask(pid, addrs, target_nid, unmoved, outcomes);
            }
        }
    }

    /// Asks on which node each page is; an entry below 0 is a negated errno.
    pub fn query(
        &mut self,
        pid: libc::pid_t,
        addrs: &[u64],
        statuses: &mut Vec<i32>,
    ) -> io::Result<()> {
        statuses.clear();
        statuses.resize(addrs.len(), UNTOUCHED);
        self.kernel
            .move_pages(pid, addrs, None, statuses)
            .map(|_| ())
    }

    /// Calls the kernel until it has tried all pages, and says what to make of those without a
    /// status.
    ///
    /// `do_pages_move()` in mm/migrate.c queues pages until it meets one it cannot queue, stores
    /// that one's status, and then moves what is queued. If some of these fail, it returns at once:
    /// no status for the queued ones, moved or not, and the pages behind are not even tried, but
    /// counted in the result. So a result greater than the number of pages behind the last stored
    /// status means: go on behind it. After the last page the result counts failed pages only, and
    /// these all lie behind that status.
    fn move_resuming(&mut self, pid: libc::pid_t, addrs: &[u64]) -> Unanswered {
        let mut from = 0;
        for _ in 0..=MAX_RESUMES {
            let statuses = &mut self.statuses[from..];
            let nids = &self.nids[from..];
            let unmoved = match self
                .kernel
                .move_pages(pid, &addrs[from..], Some(nids), statuses)
            {
                Err(error) => return Unanswered::after(&error),
                Ok(unmoved) => unmoved,
            };
            let Some(last) = statuses.iter().rposition(|status| *status != UNTOUCHED) else {
                break;
            };
            let behind = statuses.len() - last - 1;
            if behind == 0 || unmoved <= behind {
                break;
            }
            from += last + 1;
        }
        Unanswered::Ask {
            unmoved: MoveStatus::Busy,
        }
    }

    /// Learns where the pages without a status are; those not on the target become `unmoved`.
    fn ask(
        &mut self,
        pid: libc::pid_t,
        addrs: &[u64],
        target_nid: u32,
        unmoved: MoveStatus,
        outcomes: &mut [MoveStatus],
    ) {
        self.unknown.clear();
        self.unknown_addrs.clear();
        for (index, _) in self
            .statuses
            .iter()
            .enumerate()
            .filter(|(_, s)| **s == UNTOUCHED)
        {
            self.unknown.push(index);
            self.unknown_addrs.push(addrs[index]);
        }
        if self.unknown.is_empty() {
            return;
        }
        self.unknown_statuses.clear();
        self.unknown_statuses.resize(self.unknown.len(), UNTOUCHED);
        let answer =
            self.kernel
                .move_pages(pid, &self.unknown_addrs, None, &mut self.unknown_statuses);
        let whole_call = answer
            .err()
            .and_then(|error| match Unanswered::after(&error) {
                Unanswered::Decided(fate) => Some(fate),
                Unanswered::Ask { .. } => None,
            });
        for (&index, &status) in self.unknown.iter().zip(&self.unknown_statuses) {
            outcomes[index] = match MoveStatus::from_status(status, target_nid) {
                _ if status == UNTOUCHED => whole_call.unwrap_or(unmoved),
                MoveStatus::OnNode(_) => unmoved,
                answered => answered,
            };
        }
    }
}

/// What to make of the pages whose status the kernel left untouched.
enum Unanswered {
    /// All have this fate.
    Decided(MoveStatus),
    /// Some may have moved: ask, and take the others for this.
    Ask { unmoved: MoveStatus },
}

impl Unanswered {
    /// After an error of the whole call. A lookup error comes before any page is touched; any
    /// other comes in the middle of the batch.
    fn after(error: &io::Error) -> Self {
        match error.raw_os_error() {
            // EINVAL: the task is there but its address space is not, as in a zombie.
            Some(libc::ESRCH | libc::EINVAL) => Self::Decided(MoveStatus::ProcessGone),
            Some(libc::EPERM) => Self::Decided(MoveStatus::Denied),
            Some(libc::ENODEV | libc::EACCES) => Self::Decided(MoveStatus::TargetRefused),
            Some(libc::ENOMEM) => Self::Ask {
                unmoved: MoveStatus::NoMemory,
            },
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Self::Ask {
                unmoved: MoveStatus::Busy,
            },
            Some(errno) => Self::Ask {
                unmoved: MoveStatus::Error(errno),
            },
            None => Self::Ask {
                unmoved: MoveStatus::Error(0),
            },
        }
    }
}
