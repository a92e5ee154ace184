//! Signals to processes that are not ours alone to manage: those that a runtime has started.

use std::io;

use nix::sys::signal;
use nix::unistd::Pid;

/// What a process can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stand still (`SIGSTOP`).
    Stop,
    /// Go on (`SIGCONT`).
    Continue,
    /// Please end (`SIGTERM`).
    Terminate,
    /// End at once (`SIGKILL`).
    Kill,
}

/// Sends a signal to the process of this number; one that has ended already is no error.
pub fn send(pid: u32, to_send: Signal) -> io::Result<()> {
    let to_send = match to_send {
        Signal::Stop => signal::Signal::SIGSTOP,
        Signal::Continue => signal::Signal::SIGCONT,
        Signal::Terminate => signal::Signal::SIGTERM,
        Signal::Kill => signal::Signal::SIGKILL,
    };
    // 0 and what is negative as a pid_t would mean groups of processes.
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
    fn a_process_is_ended_and_one_that_has_ended_is_no_error() {
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
    fn groups_are_never_meant() {
        assert!(send(0, Signal::Continue).is_err());
        assert!(send(u32::MAX, Signal::Continue).is_err());
    }
}
