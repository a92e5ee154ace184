//! Kinds of descriptors, and files in memory to hand to other processes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorKind {
    /// A pipe.
    Pipe,
    /// A connected `SOCK_SEQPACKET` unix socket, which keeps message boundaries.
    Seqpacket,
    /// A regular file, possibly in memory.
    File,
    /// Something else.
    Other,
}

/// Whether a descriptor is an eventfd.
pub fn is_event(fd: impl AsFd) -> bool {
    let number = fd.as_fd().as_raw_fd();
    let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

/// The kind of a descriptor.
pub fn kind(fd: impl AsFd) -> DescriptorKind {
    use nix::sys::socket::{SockType, getsockopt, sockopt};
    use nix::sys::stat::SFlag;
    let Ok(found) = nix::sys::stat::fstat(&fd) else {
        return DescriptorKind::Other;
    };
    match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFIFO => DescriptorKind::Pipe,
        SFlag::S_IFREG => DescriptorKind::File,
        SFlag::S_IFSOCK if getsockopt(&fd, sockopt::SockType) == Ok(SockType::SeqPacket) => {
            DescriptorKind::Seqpacket
        }
        _ => DescriptorKind::Other,
    }
}

/// A sealed file in memory that holds `content`, read from its beginning. It is closed on `exec`
/// unless [`spawn`](super::spawn) passes it on.
pub fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::io::{Seek, Write};
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = std::fs::File::from(memfd_create(c"surus", flags)?);
    file.write_all(content)?;
    file.rewind()?;
    let file = OwnedFd::from(file);
    crate::shared_memory::seal(&file, nix::fcntl::SealFlag::F_SEAL_WRITE)?;
    Ok(file)
}

/// An empty file in memory, writable through its descriptor. This process never maps it.
pub fn writable_memory_file() -> io::Result<OwnedFd> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(memfd_create(c"surus", MFdFlags::MFD_CLOEXEC)?)
}

/// The capacity of a pipe in bytes (F_GETPIPE_SZ, fcntl(2)).
pub fn pipe_size(pipe: impl AsFd) -> io::Result<usize> {
    let size = nix::fcntl::fcntl(pipe, nix::fcntl::FcntlArg::F_GETPIPE_SZ)?;
    Ok(usize::try_from(size).unwrap_or(0))
}
