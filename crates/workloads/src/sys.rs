//! The system calls the workloads need, each as one safe function.

use std::ffi::c_void;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::Range;
use std::ptr;

use anyhow::{Context, Result, ensure};

/// What the kernel uses for memory policies without a node (`linux/mempolicy.h`).
const MPOL_DEFAULT: libc::c_long = 0;
const MPOL_BIND: libc::c_long = 2;

/// Has `move_pages` move the pages that this process alone maps (`linux/mempolicy.h`).
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Node ids that fit in the mask handed to `mbind`.
const MASK_NODES: usize = 1024;

/// CPU and fault counts of a thread, or of all threads of a process, since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUsage {
    /// CPU time in user mode.
    pub user_s: f64,
    /// CPU time in the kernel, page faults included.
    pub kernel_s: f64,
    /// Page faults answered without I/O; NUMA hint faults are among them.
    pub minor_faults: u64,
}

impl ThreadUsage {
    /// What was used after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_s: self.user_s - earlier.user_s,
            kernel_s: self.kernel_s - earlier.kernel_s,
            minor_faults: self.minor_faults - earlier.minor_faults,
        }
    }
}

impl std::ops::AddAssign for ThreadUsage {
    fn add_assign(&mut self, other: Self) {
        self.user_s += other.user_s;
        self.kernel_s += other.kernel_s;
        self.minor_faults += other.minor_faults;
    }
}

/// Bytes of a base page.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Has the next page faults of `range` served by `node` alone.
pub fn bind_to_node(range: &Range<usize>, node: u32) -> Result<()> {
    let mask = mask_of(node)?;
    mbind(range, MPOL_BIND, Some(&mask)).with_context(|| format!("cannot bind to node {node}"))
}

/// Takes the policy of `range` away again. NUMA balancing skips mappings that have one.
pub fn unbind(range: &Range<usize>) -> Result<()> {
    mbind(range, MPOL_DEFAULT, None).context("cannot unbind the memory")
}

/// Has this thread's next pages, of memory and of files, come from `node` alone, or from anywhere.
pub fn allocate_from(node: Option<u32>) -> Result<()> {
    let (mode, mask) = match node {
        Some(node) => (MPOL_BIND, Some(mask_of(node)?)),
        None => (MPOL_DEFAULT, None),
    };
    let (pointer, max_node) = mask_arguments(mask.as_ref().map(<[u64; _]>::as_slice));
    // SAFETY: the mask is readable for `max_node - 1` bits; only where pages come from changes.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, max_node) };
    check(result).with_context(|| format!("cannot take memory from node {node:?}"))
}

/// Pointer and length of a node mask, as the kernel takes them: it looks at one bit less than it is
/// told.
fn mask_arguments(mask: Option<&[u64]>) -> (*const u64, usize) {
    mask.map_or((ptr::null(), 0), |mask| {
        (mask.as_ptr(), mask.len() * u64::BITS as usize + 1)
    })
}

fn mask_of(node: u32) -> Result<[u64; MASK_NODES / u64::BITS as usize]> {
    let bits = u64::BITS as usize;
    let mut mask = [0; MASK_NODES / u64::BITS as usize];
    let word = mask
        .get_mut(node as usize / bits)
        .with_context(|| format!("no node {node}"))?;
    *word |= 1u64 << (node as usize % bits);
    Ok(mask)
}

fn mbind(range: &Range<usize>, mode: libc::c_long, mask: Option<&[u64]>) -> io::Result<()> {
    let (pointer, max_node) = mask_arguments(mask);
    // SAFETY: the mask is readable for `max_node - 1` bits; mbind changes where pages come from,
    // not what is in them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            range.start,
            range.len(),
            mode,
            pointer,
            max_node,
            0,
        )
    };
    check(result)
}

/// Fills `status` with the node of each page of this process, or a negative errno.
pub fn query_nodes(pages: &[*const c_void], status: &mut [i32]) -> Result<()> {
    ensure!(pages.len() == status.len(), "one status per page is needed");
    const THIS_PROCESS: libc::c_int = 0;
    const NO_FLAGS: libc::c_int = 0;
    let query_only = ptr::null::<libc::c_int>();
    // SAFETY: both arrays hold `pages.len()` entries; without target nodes nothing is moved, and
    // the page addresses are looked up, not dereferenced.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            THIS_PROCESS,
            pages.len(),
            pages.as_ptr(),
            query_only,
            status.as_mut_ptr(),
            NO_FLAGS,
        )
    };
    check(result).context("cannot query the nodes of the pages")
}

/// Moves pages of this process to `node`. A status that the kernel does not reach keeps its value:
/// if a page fails to move, the kernel says nothing of those it moved together with that one, and
/// does not try the ones behind.
pub fn move_pages(addresses: &[usize], node: u32, status: &mut [i32]) -> io::Result<()> {
    const THIS_PROCESS: libc::c_int = 0;
    assert!(
        addresses.len() == status.len(),
        "one status per page is needed"
    );
    let nodes = vec![node; addresses.len()];
    // SAFETY: all arrays hold `addresses.len()` entries, and the kernel writes to `status` alone.
    // The addresses are looked up, and moving a page does not change what is in it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            THIS_PROCESS,
            addresses.len(),
            addresses.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    check(result)
}

/// The node that the calling thread runs on at this moment.
pub fn current_node() -> Result<u32> {
    let mut node = 0u32;
    let no_cpu = ptr::null_mut::<u32>();
    let unused = ptr::null_mut::<c_void>();
    // SAFETY: `node` is writable; null says that the CPU is not asked for.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, no_cpu, &raw mut node, unused) };
    check(result).context("cannot tell the node of this thread")?;
    Ok(node)
}

/// The CPUs that the calling thread may run on, ascending.
pub fn allowed_cpus() -> Result<Vec<u32>> {
    // SAFETY: a cpu_set_t is a plain bit array; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is writable for the size given; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    check(result.into()).context("cannot read the allowed CPUs")?;
    let cpus = 0..libc::CPU_SETSIZE as u32;
    // SAFETY: every CPU asked for is below CPU_SETSIZE.
    Ok(cpus
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) })
        .collect())
}

/// Lets the calling thread run on `cpus` only.
pub fn run_on(cpus: &[u32]) -> Result<()> {
    // SAFETY: a cpu_set_t is a plain bit array; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus {
        ensure!(
            cpu < libc::CPU_SETSIZE as u32,
            "CPU {cpu} is beyond the largest one supported"
        );
        // SAFETY: `cpu` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: `set` is readable for the size given; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    check(result.into()).with_context(|| format!("cannot run on CPUs {cpus:?}"))
}

/// Gives the calling thread the lowest real-time priority: it preempts all normal threads.
pub fn run_in_real_time() -> Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: `lowest` is readable; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &lowest) };
    check(result.into()).context("cannot run in real time")
}

/// What the calling thread has used so far.
pub fn thread_usage() -> Result<ThreadUsage> {
    usage_of(libc::RUSAGE_THREAD).context("cannot read the thread's CPU time")
}

/// What all threads of this process have used so far.
pub fn process_usage() -> Result<ThreadUsage> {
    usage_of(libc::RUSAGE_SELF).context("cannot read the process's CPU time")
}

fn usage_of(who: libc::c_int) -> io::Result<ThreadUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is writable for one rusage.
    let result = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    check(result.into())?;
    // SAFETY: getrusage succeeded, so it has filled all of it.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    Ok(ThreadUsage {
        user_s: seconds(usage.ru_utime),
        kernel_s: seconds(usage.ru_stime),
        minor_faults: usage.ru_minflt.unsigned_abs(),
    })
}

/// The usual "negative means look at errno".
pub(crate) fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
