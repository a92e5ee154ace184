//! Forks this process as long as it has one thread, so that the child is a whole process.

use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

/// Which of the two processes this is after [`fork`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// The one that was there, with the number of the new one.
    Parent(u32),
    /// The new one.
    Child,
}

/// Forks. An error if this process has more than one thread: locks that another thread holds, such
/// as those of the memory allocator, would stay locked in the child.
pub fn fork() -> io::Result<Forked> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("{threads} threads are running")));
    }
    // SAFETY: the only thread calls, so the child has everything that this process has, and nothing
    // is locked by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.cast_unsigned())),
    }
}

/// Forks a process that has only the descriptors `keep` and the first three, does `run`, and exits
/// with its status. Returns the process's number.
pub fn fork_into(keep: &[BorrowedFd<'_>], run: impl FnOnce() -> i32) -> io::Result<u32> {
    if let Forked::Parent(pid) = fork()? {
        return Ok(pid);
    }
    let mut keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    keep.sort_unstable();
    close_all_but(&keep);
    let status = run();
    // SAFETY: _exit(2) ends the process. Nothing that was on the stack of the parent is dropped
    // here, so no descriptor that was closed above is closed a second time.
    unsafe { libc::_exit(status) }
}

/// Runs `run` in a process of its own, which has the descriptors `keep`, and waits for it. Returns
/// its exit status, if it has one, and what it has written, read from its beginning. Its other
/// memory is freed with it.
pub fn ask(
    keep: &[BorrowedFd<'_>],
    run: impl FnOnce(&File) -> i32,
) -> io::Result<(Option<i32>, File)> {
    let mut output = File::from(crate::process::writable_memory_file()?);
    let keep: Vec<BorrowedFd<'_>> = keep.iter().copied().chain([output.as_fd()]).collect();
    let pid = fork_into(&keep, || run(&output))?;
    let status = loop {
        match reap(pid) {
            Some(status) => break crate::process::exit_status(status),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    output.rewind()?;
    Ok((status, output))
}

/// Takes from this process what a terminal's user types: its stdin becomes `/dev/null`, and it can
/// only write to a terminal that is its stdout or stderr. Processes that it forks are like that,
/// too, and those that receive these descriptors.
pub fn leave_input() -> io::Result<()> {
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // Without /proc or the right to open the terminal, they stay as they are.
    let out = write_only(io::stdout().as_fd()).unwrap_or_default();
    let err = write_only(io::stderr().as_fd()).unwrap_or_default();
    out.map_or(Ok(()), nix::unistd::dup2_stdout)?;
    err.map_or(Ok(()), nix::unistd::dup2_stderr)?;
    Ok(())
}

/// Another descriptor of stdout or stderr. One of a terminal can only write to it.
pub fn output(fd: BorrowedFd<'_>) -> io::Result<File> {
    match write_only(fd) {
        Ok(Some(terminal)) => Ok(terminal),
        Ok(None) | Err(_) => Ok(fd.try_clone_to_owned()?.into()),
    }
}

/// A terminal, opened again so that one cannot read from it. None for something else.
fn write_only(fd: BorrowedFd<'_>) -> io::Result<Option<File>> {
    if !fd.is_terminal() {
        return Ok(None);
    }
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NOCTTY);
    let opened = options.open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(Some(opened))
}

/// Closes all descriptors above 2 but these, which are sorted.
fn close_all_but(keep: &[RawFd]) {
    let mut first = 3;
    for fd in keep
        .iter()
        .copied()
        .filter(|fd| *fd > 2)
        .chain([RawFd::MAX])
    {
        if first < fd {
            close_range(first.cast_unsigned(), (fd - 1).cast_unsigned());
        }
        first = fd.saturating_add(1);
    }
}

fn close_range(first: u32, last: u32) {
    // SAFETY: close_range(2) closes numbers whose owners never use them again: the caller leaves by
    // _exit(2).
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if Errno::result(done).is_ok() {
        return;
    }
    // Before Linux 5.9.
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open: Vec<u32> = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| (first..=last).contains(fd)) {
        // SAFETY: as above.
        unsafe { libc::close(fd.cast_signed()) };
    }
}

/// Collects one child that has ended, with its wait status. None when no other has.
pub fn reap_any() -> Option<(u32, i32)> {
    wait(-1)
}

/// Collects this child, with its wait status, if it has ended.
pub fn reap(pid: u32) -> Option<i32> {
    wait(pid.cast_signed()).map(|(_, status)| status)
}

fn wait(which: libc::pid_t) -> Option<(u32, i32)> {
    let mut status = 0;
    loop {
        // SAFETY: waitpid(2) writes into `status` only.
        match unsafe { libc::waitpid(which, &mut status, libc::WNOHANG) } {
            pid @ 1.. => return Some((pid.cast_unsigned(), status)),
            0 => return None,
            _ if Errno::last() == Errno::EINTR => {}
            _ => return None,
        }
    }
}

/// Whether this child has ended. It is not collected, so no other process or process group gets its
/// number.
pub fn has_ended(pid: u32) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: an all-zero siginfo_t is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waitid(2) writes into `info` only.
        let waited = unsafe { libc::waitid(libc::P_PID, pid, &mut info, flags) };
        match Errno::result(waited) {
            // nix's waitid() fails for a child that a real-time signal has killed, so it is not
            // used. SAFETY: waitid(2) has filled in the fields of a child, or left the zeros.
            Ok(_) => return unsafe { info.si_pid() } != 0,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Closes the descriptors above 2 that this process has from the program that started it. To be
/// called in a process that was just forked. Descriptors that Surus opens are closed on exec; those
/// that came through an exec are not.
pub fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open: Vec<RawFd> = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // SAFETY: F_GETFD only reads. No part of this program opens descriptors without
        // FD_CLOEXEC, so none uses this one.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                libc::close(fd);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn terminal_opened_again_cannot_be_read() {
        let (user, terminal) = pseudo_terminal();
        let mut user = user;
        user.write_all(b"typed\n").unwrap();
        let mut again = write_only(terminal.as_fd()).unwrap().unwrap();
        let read = again.read(&mut [0; 16]).unwrap_err();
        assert_eq!(read.raw_os_error(), Some(libc::EBADF));
        again.write_all(b"shown").unwrap();
        assert!(
            write_only(File::open("/dev/null").unwrap().as_fd())
                .unwrap()
                .is_none()
        );
    }

    /// The two sides of a terminal.
    fn pseudo_terminal() -> (File, File) {
        let (mut user, mut terminal) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: openpty(3) writes two descriptors, which are wrapped once; the other pointers may
        // be null.
        unsafe {
            let opened = libc::openpty(&mut user, &mut terminal, null, null.cast(), null.cast());
            assert_eq!(opened, 0);
            (File::from_raw_fd(user), File::from_raw_fd(terminal))
        }
    }

    #[test]
    fn child_killed_by_any_signal_has_ended_and_is_reaped() {
        for signal in [libc::SIGKILL, libc::SIGRTMIN(), libc::SIGRTMAX()] {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            assert!(!has_ended(child.id()), "signal {signal}");
            // SAFETY: kill(2) accesses no memory.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
            let began = Instant::now();
            while !has_ended(child.id()) {
                assert!(began.elapsed() < Duration::from_secs(60), "signal {signal}");
                std::thread::sleep(Duration::from_millis(5));
            }
            let status = reap(child.id()).unwrap();
            assert_eq!(libc::WTERMSIG(status), signal);
            assert!(child.wait().is_err(), "signal {signal}: reaped already");
        }
    }
}
