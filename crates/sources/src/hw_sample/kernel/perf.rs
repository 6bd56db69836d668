//! `perf_event_open(2)`, as much of it as sampling needs. A crate of bindings would be larger.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys::{PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_DATA_SRC, PERF_SAMPLE_PHYS_ADDR};

/// What is written into a sample, in this order: where the data came from, and its address.
pub const SAMPLE_TYPE: u64 = (PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_PHYS_ADDR) as u64;

/// Flags of [`Attr`], by their bits.
const WATERMARK: u64 = 1 << 14;
const PRECISE_SHIFT: u32 = 15;
const EXCLUDE_GUEST: u64 = 1 << 20;

/// `_IOW('$', 4, __u64)`
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;

/// `struct perf_event_attr` of linux/perf_event.h up to `config2` (PERF_ATTR_SIZE_VER1); the kernel
/// takes what a shorter struct lacks as zero.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attr {
    /// The PMU.
    pub kind: u32,
    size: u32,
    /// The event.
    pub config: u64,
    /// Events between two samples.
    pub period: u64,
    /// What a sample holds.
    pub sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_kind: u32,
    /// More of the event.
    pub config1: u64,
    /// More of the event.
    pub config2: u64,
}

impl Attr {
    /// An event that is only counted.
    pub fn counting(kind: u32, config: u64) -> Attr {
        Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config,
            ..Attr::default()
        }
    }

    /// An event of which one in `period` leaves a sample.
    pub fn sampling(kind: u32, config: u64, period: u64) -> Attr {
        Attr {
            period,
            sample_type: SAMPLE_TYPE,
            // Nobody is to be woken: the ring is looked at by the clock.
            flags: WATERMARK,
            wakeup_watermark: i32::MAX as u32,
            ..Attr::counting(kind, config)
        }
    }

    /// How exactly the sample must belong to the instruction.
    pub fn set_precise(&mut self, precise: u64) {
        self.flags |= precise << PRECISE_SHIFT;
    }

    /// See [`Attr::set_precise`].
    #[cfg(test)]
    pub fn precise(&self) -> u64 {
        self.flags >> PRECISE_SHIFT & 3
    }

    /// Leaves virtual machines out: the kernel could not translate their addresses.
    pub fn exclude_guest(&mut self) {
        self.flags |= EXCLUDE_GUEST;
    }
}

/// Opens an event for all that runs on one CPU; it counts at once.
pub fn open(attr: &Attr, cpu: u32, leader: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let leader = leader.map_or(-1, |fd| fd.as_raw_fd());
    let (all, cpu) = (-1 as libc::pid_t, cpu as libc::c_int);
    // SAFETY: the kernel reads `attr.size` bytes, which is the size of the struct.
    let fd = unsafe {
        let attr: *const Attr = attr;
        libc::syscall(
            libc::SYS_perf_event_open,
            attr,
            all,
            cpu,
            leader,
            libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Changes the period of an open event.
pub fn set_period(event: BorrowedFd<'_>, period: u64) -> io::Result<()> {
    // SAFETY: this request reads a 64-bit number.
    match unsafe { libc::ioctl(event.as_raw_fd(), IOC_PERIOD, &period) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use libbpf_sys::perf_event_attr;

    use super::*;

    #[test]
    fn the_struct_is_the_kernels() {
        assert_eq!(size_of::<Attr>(), 72, "PERF_ATTR_SIZE_VER1");
        macro_rules! is_at { ($($ours:ident $theirs:ident)*) => { $(
            let theirs = offset_of!(perf_event_attr, $theirs);
            assert_eq!(offset_of!(Attr, $ours), theirs, stringify!($ours));
        )* } }
        is_at!(kind type_ size size config config sample_type sample_type read_format read_format
            flags _bitfield_1 breakpoint_kind bp_type);
        is_at!(period __bindgen_anon_1 wakeup_watermark __bindgen_anon_2);
        is_at!(config1 __bindgen_anon_3 config2 __bindgen_anon_4);
        let mut theirs = perf_event_attr::default();
        theirs.set_watermark(1);
        theirs.set_precise_ip(3);
        theirs.set_exclude_guest(1);
        let flags = WATERMARK | 3 << PRECISE_SHIFT | EXCLUDE_GUEST;
        assert_eq!(theirs._bitfield_1.get(0, 64), flags);
    }
}
