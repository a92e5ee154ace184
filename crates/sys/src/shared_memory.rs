//! Memory that this process shares with other processes through a descriptor.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::SealFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping of a memory file, page-aligned and zero at first; unmapped when dropped. Every process
/// with the descriptor may write to it at any time. So it is accessed through atomics, or copied
/// before it is checked.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    size: NonZeroUsize,
    memory: OwnedFd,
}

impl SharedMemory {
    /// `name` is what `/proc` shows for it. A size of 0 is an error.
    pub(crate) fn new(name: &std::ffi::CStr, size: usize) -> io::Result<SharedMemory> {
        let size = NonZeroUsize::new(size).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        nix::unistd::ftruncate(&memory, size.get() as i64)?;
        seal(&memory, SealFlag::empty())?;
        // SAFETY: a fresh shared mapping of a file of exactly this size, which cannot change
        // because it is sealed.
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
        Ok(SharedMemory {
            base: base.cast(),
            size,
            memory,
        })
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// The address of its first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

/// Seals the size of a memory file. A process that shares it could otherwise shrink it, and every
/// other process that touches the mapping beyond its end would get a SIGBUS. `more` are further
/// seals; none can be added afterwards.
pub(crate) fn seal(memory: &OwnedFd, more: SealFlag) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL | more;
    nix::fcntl::fcntl(memory, nix::fcntl::FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Whether a descriptor is a memory file of `size` bytes with a sealed size.
pub fn is_sealed(memory: BorrowedFd<'_>, size: u64) -> bool {
    let fixed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    let seals = nix::fcntl::fcntl(memory, nix::fcntl::FcntlArg::F_GET_SEALS);
    let is_fixed = seals.is_ok_and(|seals| SealFlag::from_bits_truncate(seals).contains(fixed));
    is_fixed && nix::sys::stat::fstat(memory).is_ok_and(|found| found.st_size as u64 == size)
}

/// Whether a descriptor is a memory file with sealed content.
pub fn is_sealed_content(memory: BorrowedFd<'_>) -> bool {
    let seals = nix::fcntl::fcntl(memory, nix::fcntl::FcntlArg::F_GET_SEALS);
    let fixed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    seals.is_ok_and(|seals| SealFlag::from_bits_truncate(seals).contains(fixed))
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; every borrow from it borrows `self`.
        let _ = unsafe { munmap(self.base.cast(), self.size.get()) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::unistd::ftruncate;

    #[test]
    fn shared_memory_rejects_another_size_and_another_seal() {
        let shared = SharedMemory::new(c"test", 8192).unwrap();
        let other = shared.fd().try_clone_to_owned().unwrap();
        for size in [0, 4096, 16384] {
            assert_eq!(ftruncate(&other, size), Err(Errno::EPERM), "{size}");
        }
        let seal = nix::fcntl::FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE);
        assert_eq!(nix::fcntl::fcntl(&other, seal), Err(Errno::EPERM));
        assert!(is_sealed(other.as_fd(), 8192) && !is_sealed(other.as_fd(), 4096));
        let plain = memfd_create(c"plain", MFdFlags::MFD_CLOEXEC).unwrap();
        assert!(!is_sealed(plain.as_fd(), 0));
    }
}
