//! Memory that this process shares with those that it gives the descriptor to.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping of a memory file, page-aligned and zero at first; unmapped when dropped. Whoever has the descriptor may write to it at any
/// time, so it is to be used through atomics, or by copying what is checked afterwards.
#[derive(Debug)]
pub(crate) struct Shared {
    base: NonNull<u8>,
    size: NonZeroUsize,
    memory: OwnedFd,
}

impl Shared {
    /// `name` is what `/proc` shows of it. A size of 0 is an error.
    pub(crate) fn new(name: &std::ffi::CStr, size: usize) -> io::Result<Shared> {
        let size = NonZeroUsize::new(size).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = memfd_create(name, MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&memory, size.get() as i64)?;
        // SAFETY: a fresh shared mapping of a file of exactly this size, which nobody can be expected to shrink: only we and the
        // workers hold it, and neither does.
        let base = unsafe {
            mmap(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                &memory,
                0,
            )?
        };
        Ok(Shared {
            base: base.cast(),
            size,
            memory,
        })
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; who has borrowed from it has borrowed `self`.
        let _ = unsafe { munmap(self.base.cast(), self.size.get()) };
    }
}
