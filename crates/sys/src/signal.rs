//! Signals for processes that this one has not started itself, such as the children of a runtime.

use std::io;

use nix::sys::signal;
use nix::unistd::Pid;

/// A signal to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stop (`SIGSTOP`).
    Stop,
    /// Resume (`SIGCONT`).
    Continue,
    /// Ask to exit (`SIGTERM`).
    Terminate,
    /// Kill (`SIGKILL`).
    Kill,
}

/// Sends a signal to the process with this pid. A process that has already exited is not an error.
pub fn send(pid: u32, to_send: Signal) -> io::Result<()> {
    let to_send = match to_send {
        Signal::Stop => signal::Signal::SIGSTOP,
        Signal::Continue => signal::Signal::SIGCONT,
        Signal::Terminate => signal::Signal::SIGTERM,
        Signal::Kill => signal::Signal::SIGKILL,
    };
    // As a pid_t, 0 and negative numbers would mean process groups.
    let number = i32::try_from(pid).ok().filter(|number| *number > 0);
    let Some(number) = number else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match signal::kill(Pid::from_raw(number), to_send) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn terminated_process_exits_and_a_second_signal_is_no_error() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        send(child.id(), Signal::Stop).unwrap();
        send(child.id(), Signal::Continue).unwrap();
        send(child.id(), Signal::Terminate).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        send(child.id(), Signal::Kill).unwrap();
    }

    #[test]
    fn pid_that_would_mean_a_group_is_rejected() {
        assert!(send(0, Signal::Continue).is_err());
        assert!(send(u32::MAX, Signal::Continue).is_err());
    }
}
