//! System calls that the daemon and its keeper give up once they run: what nothing in pghot needs
//! and somebody who has taken it over would ask for first. The unit has a stricter list; this one
//! holds without a unit, in a container and for a daemon that was started by hand.
//!
//! A list of what is refused, not of what is allowed: a C library or a kernel may begin to use a
//! call that nobody thought of, and a daemon that dies of it at 3 a.m. is worse than one more call.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// Other programs, other processes' memory and threads, other name spaces, the file tree, the
/// kernel itself, other users, the clock and the keyring.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_quotactl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_personality,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
];

/// The bit of a call's number by which x86-64 takes it as one of x32, with the same effect.
const X32: libc::c_long = 0x4000_0000;

/// The filter could not be installed.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot give up system calls: {0}; allow `seccomp` in the unit or the container, and use a \
     kernel with CONFIG_SECCOMP_FILTER, as all distributions have"
)]
pub struct FilterError(#[from] seccompiler::Error);

/// From now on this thread and those that it starts are refused these calls with `EPERM`. Nobody
/// can take that back.
pub fn refuse() -> Result<(), FilterError> {
    refuse_these(REFUSED)
}

/// The same of these calls.
pub(crate) fn refuse_these(calls: &[libc::c_long]) -> Result<(), FilterError> {
    Ok(apply_filter(&filter(calls)?)?)
}

fn filter(calls: &[libc::c_long]) -> Result<BpfProgram, seccompiler::Error> {
    let numbers = calls.iter().flat_map(|call| [*call, *call | X32]);
    let always: BTreeMap<_, _> = numbers.map(|number| (number, Vec::new())).collect();
    let others = SeccompAction::Allow;
    let these = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(always, others, these, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::io::{Error, ErrorKind};
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_gave_them_up_runs_no_program_and_lives_on() {
        let refused = thread::spawn(|| {
            refuse().unwrap();
            let path = CString::new("/bin/true").unwrap();
            let argv = [path.as_ptr(), std::ptr::null()];
            // SAFETY: path and arguments end in 0. If it succeeded, the test would end here.
            let ran = unsafe { libc::execv(path.as_ptr(), argv.as_ptr()) };
            let error = Error::last_os_error();
            // SAFETY: takes no pointers.
            let x32 = unsafe { libc::syscall(libc::SYS_unshare | X32, libc::CLONE_NEWUTS) };
            let x32_error = Error::last_os_error();
            // A thread of its own inherits the filter.
            let child = thread::spawn(|| {
                // SAFETY: takes no pointers.
                let left = unsafe { libc::unshare(libc::CLONE_FS) };
                (left, Error::last_os_error().kind())
            });
            let child = child.join().unwrap();
            let reads = fs::read_to_string("/proc/self/stat").is_ok();
            (ran, error.kind(), x32, x32_error.kind(), child, reads)
        });
        let denied = ErrorKind::PermissionDenied;
        let expected = (-1, denied, -1, denied, (-1, denied), true);
        assert_eq!(refused.join().unwrap(), expected);
        // SAFETY: takes no pointers.
        let other = unsafe { libc::unshare(libc::CLONE_FS) };
        assert_eq!(other, 0, "other threads keep theirs");
    }
}
