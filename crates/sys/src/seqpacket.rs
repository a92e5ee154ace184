//! Pairs of `SOCK_SEQPACKET` sockets: messages stay whole, and can carry descriptors.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair,
    sockopt,
};

/// One end of a pair. After it is closed, the other end reads what was sent, then end of file.
#[derive(Debug)]
pub struct Seqpacket(OwnedFd);

/// The result of [`Seqpacket::receive`].
#[derive(Debug)]
pub struct Received {
    /// Length of the message; 0 if the other end is closed.
    pub len: usize,
    /// Descriptors that came with the message, closed when dropped and on `exec`.
    pub fds: Vec<OwnedFd>,
    /// False if part of the message or of its descriptors did not fit and is lost.
    pub is_whole: bool,
}

/// The most descriptors that [`Seqpacket::receive`] accepts with a message.
pub const MAX_DESCRIPTORS: usize = 16;

impl Seqpacket {
    /// A connected pair. The first end does not block; the second blocks and is meant for a child
    /// process. Both are closed on `exec` unless [`crate::process::spawn`] passes them on.
    pub fn pair() -> io::Result<(Seqpacket, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        nix::fcntl::fcntl(
            &ours,
            nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK),
        )?;
        // A message may have 256 KiB, and several should fit. The kernel silently limits the value.
        let _ = setsockopt(&ours, sockopt::SndBuf, &(1 << 20));
        Ok((Seqpacket(ours), theirs))
    }

    /// Wraps an end that was passed on, and makes it non-blocking.
    pub fn nonblocking(fd: OwnedFd) -> io::Result<Seqpacket> {
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
        let _ = setsockopt(&fd, sockopt::SndBuf, &(1 << 20));
        Ok(Seqpacket(fd))
    }

    /// Limits how long a call may block, for an end that blocks.
    pub fn limit_waits(&self, limit: std::time::Duration) -> io::Result<()> {
        use nix::sys::time::{TimeVal, TimeValLike};
        let limit = TimeVal::milliseconds(limit.as_millis().try_into().unwrap_or(i64::MAX));
        setsockopt(&self.0, sockopt::ReceiveTimeout, &limit)?;
        setsockopt(&self.0, sockopt::SendTimeout, &limit)?;
        Ok(())
    }

    /// A connected pair with two ends that block.
    pub fn blocking_pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok(pair)
    }

    /// Sends one message with at most [`MAX_DESCRIPTORS`] descriptors. Never blocks, even on a
    /// blocking socket.
    pub fn send_with(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(message)],
            control,
            flags,
            None,
        )?;
        Ok(())
    }

    /// Sends one message, gathered from `parts`, with at most one descriptor. Fails with
    /// [`io::ErrorKind::WouldBlock`] if the buffer is full.
    pub fn send(&self, parts: &[IoSlice<'_>], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let raw: [RawFd; 1];
        let rights: [ControlMessage<'_>; 1];
        let control: &[ControlMessage<'_>] = match fd {
            Some(fd) => {
                raw = [fd.as_raw_fd()];
                rights = [ControlMessage::ScmRights(&raw)];
                &rights
            }
            None => &[],
        };
        sendmsg::<()>(
            self.0.as_raw_fd(),
            parts,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }

    /// Receives one message into `buffer`. Fails with [`io::ErrorKind::WouldBlock`] if there is
    /// none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        const SPACE: usize =
            // SAFETY: CMSG_SPACE computes.
            unsafe { libc::CMSG_SPACE((MAX_DESCRIPTORS * size_of::<RawFd>()) as u32) as usize };
        #[repr(C)]
        union Control {
            header: libc::cmsghdr,
            bytes: [u8; SPACE],
        }
        let mut control = Control { bytes: [0; SPACE] };
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all-zero bytes are a msghdr: its pointers may be null.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = SPACE as _;
        // SAFETY: the message points to a buffer and to room for control messages, each of the
        // stated size. Both live until the last use of `message` below.
        let mut receive = || unsafe {
            let flags = libc::MSG_CMSG_CLOEXEC;
            Errno::result(libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags))
        };
        let len = match receive() {
            // The other end was closed with messages that it had not read. The kernel says so once,
            // before it gives what the other end had sent (unix_release_sock() in Linux).
            Err(Errno::ECONNRESET) => receive()?,
            received => received?,
        };
        let mut fds = Vec::new();
        // Descriptors are taken even if some did not fit: the others are already open in this
        // process.
        // SAFETY: the kernel has written control messages into the room, aligned like their
        // headers, and reports how much of it they take; the macros of the C library walk through
        // them. It has just made each descriptor for this process (unix(7), SCM_RIGHTS), and each
        // is wrapped once.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(found) = header.as_ref() {
                if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
                    let data = libc::CMSG_DATA(header).cast::<RawFd>();
                    #[allow(clippy::unnecessary_cast, reason = "a u32 with musl")]
                    let size = found.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    for index in 0..size / size_of::<RawFd>() {
                        let fd = data.add(index).read_unaligned();
                        fds.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        Ok(Received {
            len: len.unsigned_abs(),
            fds,
            is_whole: message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0,
        })
    }
}

impl From<OwnedFd> for Seqpacket {
    /// Wraps the second end of a [`Seqpacket::pair`] in the process that has it.
    fn from(fd: OwnedFd) -> Seqpacket {
        Seqpacket(fd)
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Seqpacket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A [`Seqpacket`] that waits through tokio.
#[derive(Debug)]
pub struct AsyncSeqpacket(AsyncFd<Seqpacket>);

impl AsyncSeqpacket {
    /// Must be called within a tokio runtime.
    pub fn new(socket: Seqpacket) -> io::Result<AsyncSeqpacket> {
        // Not registered for writing: each message that the other end receives makes room for
        // another, and would wake this process.
        // SAFETY: the descriptor stays open and the same as long as the AsyncFd: it is owned by the
        // Seqpacket within, whose only field is private and never replaced, and AsyncFd gives it up
        // only after deregistering it.
        let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(AsyncSeqpacket(registered?))
    }

    /// Like [`Seqpacket::send_with`], but waits while the buffer is full. A cancelled call sends
    /// nothing.
    pub async fn send_with(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            match self.0.get_ref().send_with(message, fds) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Like [`Seqpacket::receive`], but waits for a message. A cancelled call loses none.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|socket| socket.get_ref().receive(buffer)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}

/// Sends `count` bytes of a file from `offset` on to a socket with sendfile(2). Returns how many
/// were sent; 0 if the file ends there. Fails with [`io::ErrorKind::WouldBlock`] if the socket
/// accepts none.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    count: usize,
) -> io::Result<usize> {
    let mut offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(nix::sys::sendfile::sendfile64(
        socket,
        file,
        Some(&mut offset),
        count,
    )?)
}

/// Closes the sending direction of a stream socket: the other end reads what was sent, then end of
/// file.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Write)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn message_arrives_whole_with_its_descriptor() {
        let (ours, theirs) = Seqpacket::pair().unwrap();
        let theirs = Seqpacket(theirs);
        let mut file = tempfile();
        file.write_all(b"body").unwrap();
        ours.send(
            &[IoSlice::new(b"ab"), IoSlice::new(b"cd")],
            Some(file.as_fd()),
        )
        .unwrap();
        ours.send(&[IoSlice::new(b"second")], None).unwrap();

        let mut buffer = [0; 64];
        let mut first = theirs.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..first.len], b"abcd");
        let mut passed = std::fs::File::from(first.fds.pop().unwrap());
        passed.rewind().unwrap();
        let mut text = String::new();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "body");
        let second = theirs.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..second.len], b"second");
        assert!(second.fds.is_empty());
    }

    #[test]
    fn surplus_descriptors_are_closed_and_the_message_is_not_whole() {
        let (ours, theirs) = Seqpacket::pair().unwrap();
        let theirs = Seqpacket(theirs);
        let file = tempfile();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let many = vec![file.as_fd(); 200];
        for _ in 0..20 {
            ours.send_with(b"flood", &many).unwrap();
            let received = theirs.receive(&mut [0; 3]).unwrap();
            assert!(!received.is_whole && received.len == 3);
            assert!(received.fds.len() <= MAX_DESCRIPTORS);
        }
        // Other tests open descriptors at the same time.
        assert!(open() < before + 100);
        ours.send_with(b"all", &many[..MAX_DESCRIPTORS]).unwrap();
        let received = theirs.receive(&mut [0; 64]).unwrap();
        assert!(received.is_whole && received.fds.len() == MAX_DESCRIPTORS);
    }

    #[test]
    fn message_sent_before_the_close_is_still_read() {
        let (ours, theirs) = Seqpacket::pair().unwrap();
        let theirs = Seqpacket(theirs);
        ours.send(&[IoSlice::new(b"last")], None).unwrap();
        drop(ours);
        let mut buffer = [0; 64];
        assert_eq!(theirs.receive(&mut buffer).unwrap().len, 4);
        assert_eq!(theirs.receive(&mut buffer).unwrap().len, 0);
    }

    #[test]
    fn message_sent_before_the_close_is_read_though_the_other_end_had_unread_ones() {
        let (ours, theirs) = Seqpacket::pair().unwrap();
        let theirs = Seqpacket(theirs);
        ours.send(&[IoSlice::new(b"last")], None).unwrap();
        theirs.send(&[IoSlice::new(b"unread")], None).unwrap();
        drop(ours);
        let mut buffer = [0; 64];
        assert_eq!(theirs.receive(&mut buffer).unwrap().len, 4);
        assert_eq!(theirs.receive(&mut buffer).unwrap().len, 0);
    }

    #[tokio::test]
    async fn send_waits_while_the_buffer_is_full() {
        const MESSAGES: usize = 200;
        let (ours, theirs) = Seqpacket::pair().unwrap();
        let ours = AsyncSeqpacket::new(ours).unwrap();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let theirs = Seqpacket(theirs);
            let mut buffer = vec![0; 100_000];
            (0..MESSAGES).all(|number| {
                let len = theirs.receive(&mut buffer).unwrap().len;
                len == 50_000 && buffer[0] == number as u8
            })
        });
        for number in 0..MESSAGES {
            let message = vec![number as u8; 50_000];
            ours.send_with(&message, &[]).await.unwrap();
        }
        assert!(reader.join().unwrap());
    }

    fn tempfile() -> std::fs::File {
        nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
            .unwrap()
            .into()
    }
}
