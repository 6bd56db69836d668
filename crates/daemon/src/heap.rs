//! Keeps the daemon's heap small.

/// Buffers of this size and more go back to the kernel when they are freed.
const LARGE_BUFFER_BYTES: libc::c_int = 128 << 10;

/// Keeps the daemon small for the weeks that it runs. Left alone, glibc raises its idea of a large
/// buffer to the largest one that was ever freed, up to 32 MiB, and keeps those below for each
/// thread.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only changes numbers of the allocator; that it may refuse does no harm.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES);
    }
}
