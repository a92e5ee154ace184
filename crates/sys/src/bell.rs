//! A descriptor that tells a task that another process has something for it (`eventfd(2)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Rung by writing eight bytes into it.
#[derive(Debug)]
pub struct Bell(AsyncFd<EventFd>);

impl Bell {
    /// To be called within a tokio runtime.
    pub fn new() -> io::Result<Bell> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags)?;
        // SAFETY: the descriptor stays open and the same as long as the AsyncFd, which owns it and gives it up only after
        // deregistering it.
        let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }?;
        Ok(Bell(event))
    }

    /// The descriptor, to be passed to who rings.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    /// Sets the count back, so that it can be rung again where a process has written so much that no more fits.
    pub fn reset(&self) {
        let mut count = [0_u8; 8];
        let part = libc::iovec {
            iov_base: count.as_mut_ptr().cast(),
            iov_len: count.len(),
        };
        // Not read(2): a process that shares the descriptor may have taken O_NONBLOCK away. Where nobody has rung there is nothing
        // to read, and before Linux 5.8 this cannot be had.
        // SAFETY: one part, which is `count`; the offset -1 is the descriptor's own, in two halves on 32-bit machines.
        unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                self.fd().as_raw_fd(),
                &raw const part,
                1,
                -1_i64,
                -1_i64,
                libc::RWF_NOWAIT,
            )
        };
    }

    /// Returns when it has been rung, once for any number of times. Cancelling before it returns forgets none.
    pub async fn rung(&self) -> io::Result<()> {
        // Nothing is read: each ring is news to an edge-triggered epoll, and 2^64 of them fit.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn each_ring_is_heard_and_silence_is_not() {
        let bell = Bell::new().unwrap();
        let silence = || tokio::time::timeout(Duration::from_millis(20), bell.rung());
        assert!(silence().await.is_err());
        for _ in 0..3 {
            nix::unistd::write(bell.fd(), &1_u64.to_ne_bytes()).unwrap();
            bell.rung().await.unwrap();
            assert!(silence().await.is_err());
        }
    }
}
