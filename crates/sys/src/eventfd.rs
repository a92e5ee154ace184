//! Doorbell: an `eventfd(2)` with which another process wakes a task.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Rung by writing eight bytes to its descriptor.
#[derive(Debug)]
pub struct Doorbell(AsyncFd<EventFd>);

impl Doorbell {
    /// Must be called within a tokio runtime.
    pub fn new() -> io::Result<Doorbell> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags)?;
        // SAFETY: the descriptor stays open and the same as long as the AsyncFd, which owns it and
        // gives it up only after deregistering it.
        let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }?;
        Ok(Doorbell(event))
    }

    /// The descriptor for the process that rings.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    /// Resets the count. A process may have written so much that no further ring fits.
    pub fn reset(&self) {
        let mut count = [0_u8; 8];
        let part = libc::iovec {
            iov_base: count.as_mut_ptr().cast(),
            iov_len: count.len(),
        };
        // Not read(2): a process that shares the descriptor may have removed O_NONBLOCK. Without a
        // ring there is nothing to read. Linux before 5.8 does not support this for an eventfd; the
        // call then fails.
        // SAFETY: one iovec, which is `count`; the offset -1 is the descriptor's own, in two halves
        // on 32-bit machines.
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

    /// Returns when it has been rung, once for any number of rings. Cancel-safe: a cancelled call
    /// loses no ring.
    pub async fn notified(&self) -> io::Result<()> {
        // Nothing is read: edge-triggered epoll reports each ring as a new notification, and 2^64
        // of them fit.
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
    async fn each_ring_wakes_the_task_once() {
        let doorbell = Doorbell::new().unwrap();
        let silence = || tokio::time::timeout(Duration::from_millis(20), doorbell.notified());
        assert!(silence().await.is_err());
        for _ in 0..3 {
            nix::unistd::write(doorbell.fd(), &1_u64.to_ne_bytes()).unwrap();
            doorbell.notified().await.unwrap();
            assert!(silence().await.is_err());
        }
    }
}
