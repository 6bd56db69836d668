//! The functions that stand before libc's.

use std::ffi::CStr;
use std::sync::OnceLock;

use libc::{c_int, c_void, clockid_t, nfds_t, pollfd, sigset_t, timespec};

use crate::clock::SlowClock;

/// How many times slower the clock runs: a whole number from 1 on.
const FACTOR: &str = "PGHOT_DILATION";

type ClockGettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
type Ppoll = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;

struct Real {
    clock_gettime: ClockGettime,
    ppoll: Ppoll,
    clock: SlowClock,
}

fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| {
        let factor = std::env::var(FACTOR)
            .ok()
            .and_then(|text| text.parse().ok());
        let Some(by @ 1..) = factor else {
            give_up(&format!("{FACTOR} must be a whole number from 1 on"));
        };
        // SAFETY: these are the types that the functions of these names have.
        let (clock_gettime, ppoll) = unsafe {
            (
                std::mem::transmute::<*mut c_void, ClockGettime>(next(c"clock_gettime")),
                std::mem::transmute::<*mut c_void, Ppoll>(next(c"ppoll")),
            )
        };
        let mut now = timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` may be written.
        if unsafe { clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } != 0 {
            give_up("the host has no monotonic clock");
        }
        Real {
            clock_gettime,
            ppoll,
            clock: SlowClock::new(now, by),
        }
    })
}

/// The function of that name behind this library: libc's.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: `name` ends in 0.
    let function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if function.is_null() {
        give_up(&format!("libc has no {}", name.to_string_lossy()));
    }
    function
}

/// A guest with the wrong clock would be worse than none.
fn give_up(problem: &str) -> ! {
    eprintln!("dilation: {problem}");
    std::process::abort();
}

/// `clock_gettime(2)` with a slower monotonic clock.
///
/// # Safety
/// As libc's: `time` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let real = real();
    // SAFETY: the caller's promise.
    unsafe {
        let result = (real.clock_gettime)(clock, time);
        if clock == libc::CLOCK_MONOTONIC && result == 0 {
            *time = real.clock.at(*time);
        }
        result
    }
}

/// `ppoll(2)`, whose timeout is meant by the slower clock.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let real = real();
    // SAFETY: the caller's promise; a timeout is null or can be read.
    unsafe {
        let longer = timeout.as_ref().map(|timeout| real.clock.wait(*timeout));
        let timeout = longer.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        (real.ppoll)(fds, count, timeout, mask)
    }
}
