//! A slower clock for QEMU, loaded by `LD_PRELOAD`: its monotonic clock runs at the host's speed
//! divided by `PGHOT_DILATION`, and so does every clock and timer that it gives the guest. Whatever
//! the emulator does then takes that many times less guest time.
//!
//! What QEMU asks libc for:
//!
//! - `clock_gettime(CLOCK_MONOTONIC)` is slowed from the start on, for plugins and GLib too.
//! - Other clocks stay as they are. `-rtc clock=vm` keeps the guest's RTC from following them.
//! - `ppoll`, in which QEMU waits for its next timer, waits longer to match.
//! - `poll` stays as it is: who wakes up too early looks at the clock and waits again.
//! - `pthread_cond_timedwait` stays as it is, so deadlines made from the slowed clock are over.
//!   QEMU lets idle I/O threads end by it; they end at once and are started anew.
//!
//! The time stamp counter is the host's. The guest's kernel measures it against the other clocks
//! when it boots, and takes it for one that is so many times faster.

mod clock;
#[cfg(not(test))]
mod preload;
