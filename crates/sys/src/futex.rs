//! Wakes threads of other processes that wait on a word of shared memory.

use std::sync::atomic::AtomicU32;

use nix::libc;

/// Wakes every thread that waits by futex(2) on this word, in any process that shares it.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE only identifies the memory behind the address, which the reference keeps
    // mapped.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            libc::c_int::MAX,
        )
    };
}

/// Waits while the word has this value, or for less time.
#[cfg(test)]
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: FUTEX_WAIT reads the word, which the reference keeps mapped; the timeout is none.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}
