//! Signals that a process reads from a descriptor (signalfd) instead of being interrupted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Undoes what the program that started this one has ignored or blocked: `SIGCHLD` reports
/// children, `SIGTERM`, `SIGINT` and `SIGQUIT` end the process, and no signal is blocked. `SIGHUP`
/// stays ignored (nohup(1)) until it is handled. Called before other threads start, because they
/// inherit the mask.
pub fn forget_inherited() -> io::Result<()> {
    for inherited in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ] {
        // SAFETY: the default action runs no code of this process.
        unsafe { signal(inherited, SigHandler::SigDfl) }?;
    }
    Ok(sigprocmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::empty()),
        None,
    )?)
}

/// Undoes [`Signals::take`] in a forked process that will handle signals itself. Until it does,
/// `SIGTERM`, `SIGINT` and `SIGQUIT` end it, and it ignores `SIGHUP`, `SIGUSR1` and `SIGUSR2`: what
/// they ask for, it does at its start.
pub fn start_over() -> io::Result<()> {
    for early in [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: to ignore a signal runs no code of this process.
        unsafe { signal(early, SigHandler::SigIgn) }?;
    }
    forget_inherited()
}

/// Makes the process continue after signals that ask it for nothing and whose default action ends
/// it. They are caught and not ignored, because programs that this process starts would inherit
/// that. After `SIGXFSZ`, a write above the file size limit fails.
pub fn survive_stray() -> io::Result<()> {
    let named = [
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGXFSZ,
    ];
    for number in named.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        // SAFETY: all zeros are a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_stray as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does nothing, so it may run at any time.
        if unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_stray(_: libc::c_int) {}

/// What a signal asks a supervisor to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// Reap a child that has exited.
    Child,
    /// Exit: `SIGTERM`, `SIGINT`.
    End,
    /// Exit once in-flight requests are done: `SIGQUIT`.
    Drain,
    /// Reload the application: `SIGHUP`, `SIGUSR2`.
    Reload,
    /// Reopen the logs: `SIGUSR1`.
    Reopen,
}

/// Blocked signals that wait to be read.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Blocks the signals in this thread and queues them. Threads started later inherit the mask.
    pub fn take() -> io::Result<Signals> {
        let mut taken = SigSet::empty();
        for signal in [
            Signal::SIGCHLD,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGHUP,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ] {
            taken.add(signal);
        }
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut before))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let fd = SignalFd::with_flags(&taken, flags)?;
        Ok(Signals { fd, before })
    }

    /// The next signal, if any.
    pub fn read(&mut self) -> Option<SignalAction> {
        loop {
            let read = self.fd.read_signal().ok().flatten()?;
            let signal = Signal::try_from(i32::try_from(read.ssi_signo).ok()?).ok()?;
            return Some(match signal {
                Signal::SIGCHLD => SignalAction::Child,
                Signal::SIGQUIT => SignalAction::Drain,
                Signal::SIGHUP | Signal::SIGUSR2 => SignalAction::Reload,
                Signal::SIGUSR1 => SignalAction::Reopen,
                Signal::SIGTERM | Signal::SIGINT => SignalAction::End,
                _ => continue,
            });
        }
    }

    /// Unblocks the signals again, for a forked process.
    pub fn release(self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until one of the first has something to read, `out` has room, or the time is over.
pub fn wait(
    to_read: &[BorrowedFd<'_>],
    out: Option<BorrowedFd<'_>>,
    limit: Option<std::time::Duration>,
) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let read = to_read.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
    let out = out.map(|fd| PollFd::new(fd, PollFlags::POLLOUT));
    let mut polled: Vec<_> = read.chain(out).collect();
    let limit = limit.map(|limit| limit.as_millis().min(60_000) as u16 + 1);
    let _ = poll(&mut polled, limit.map_or(PollTimeout::NONE, Into::into));
}

/// Whether a descriptor accepts data without blocking.
pub fn has_room(fd: impl AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Whether a descriptor has something to read, or has met its end.
pub fn has_input(fd: impl AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
