//! Process 1 of a container: reaps orphans, forwards signals, and exits with the server, its child.

use anyhow::Context;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use surus_sys::fork::{self, Forked};
use surus_sys::privileges;
use surus_sys::process;
use surus_sys::signals::{self, SignalAction, Signals};

/// In process 1, forks the server. Returns `None` in the child and in any other process; in process
/// 1, returns the exit status.
pub fn run() -> anyhow::Result<Option<u8>> {
    if std::process::id() != 1 {
        return Ok(None);
    }
    let mut signals = Signals::take().context("cannot receive signals")?;
    let server = match fork::fork().context("cannot fork the server")? {
        Forked::Child => {
            signals.release();
            privileges::leave_terminal().context("cannot leave the group of process 1")?;
            return Ok(None);
        }
        Forked::Parent(pid) => pid,
    };
    loop {
        signals::wait(&[signals.as_fd()], None, None);
        while let Some(action) = signals.read() {
            // A server that has just exited is reaped below.
            let _ = match action {
                SignalAction::Child => Ok(()),
                SignalAction::End | SignalAction::Drain => process::terminate(server),
                SignalAction::Reload => process::hang_up(server),
                SignalAction::Reopen => process::reopen(server),
            };
        }
        while let Some((pid, status)) = fork::reap_any() {
            if pid == server {
                return Ok(Some(super::run::status_of(ExitStatus::from_raw(status))));
            }
        }
    }
}
