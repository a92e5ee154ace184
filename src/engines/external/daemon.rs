//! A long-running PHP process that serves many events: php-fpm's master or `php -S`.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use surus_sys::process;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::command::{PhpLaunch, ProcessInputs, nothing};
use crate::launcher::{Child, Role};

/// Runs until it is stopped or dropped.
pub struct Daemon {
    pub pid: u32,
    state: Arc<State>,
}

/// A process with its children; drop kills them all, so none outlives the process or the async
/// runtime.
struct ProcessGroup(Child, u32);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.0.kill_rest(self.1);
        self.0.kill_group();
    }
}

/// A handle to wait for the process's exit without keeping the process alive.
pub struct ExitHandle(Arc<State>);

impl ExitHandle {
    pub fn has_exited(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    /// Waits for the exit and returns its description.
    pub async fn wait(&self) -> &str {
        self.0.ended.cancelled().await;
        self.0.how.get().map_or("", String::as_str)
    }
}

struct State {
    stop: CancellationToken,
    killed: CancellationToken,
    ended: CancellationToken,
    how: OnceLock<String>,
}

/// How long a process may take to exit before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of checks for a stopped process.
const STOPPED_INTERVAL: Duration = Duration::from_millis(300);

/// Returns when two checks in a row have found the process stopped. A script can stop a process
/// that runs as PHP's user.
async fn stays_stopped(pid: u32) {
    let mut found = 0;
    while found < 2 {
        tokio::time::sleep(STOPPED_INTERVAL).await;
        found = match process::state(pid) {
            Some('T') => found + 1,
            _ => 0,
        };
    }
}

impl Daemon {
    /// Starts the process; the pipe carries its output.
    pub async fn start(launch: &PhpLaunch) -> anyhow::Result<(Daemon, pipe::Receiver)> {
        let (ours, theirs) = std::io::pipe().context("cannot create a pipe")?;
        let stdio = [
            nothing()?,
            theirs.try_clone().context("cannot create a pipe")?.into(),
            theirs.into(),
        ];
        let daemon = Daemon::start_with(launch, ProcessInputs::default(), stdio).await?;
        let output = pipe::Receiver::from_owned_fd(ours.into()).context("cannot create a pipe")?;
        Ok((daemon, output))
    }

    /// Starts the process with stdin, stdout and stderr.
    pub async fn start_with(
        launch: &PhpLaunch,
        inputs: ProcessInputs<'_>,
        stdio: [OwnedFd; 3],
    ) -> anyhow::Result<Daemon> {
        let child = launch.start(Role::Server, inputs, stdio).await?;
        let pid = child.pid();
        let state = Arc::new(State {
            stop: CancellationToken::new(),
            killed: CancellationToken::new(),
            ended: CancellationToken::new(),
            how: OnceLock::new(),
        });
        let daemon = Daemon {
            pid,
            state: state.clone(),
        };
        let mut child = ProcessGroup(child, pid);
        tokio::spawn(async move {
            let exit = tokio::select! {
                exit = child.0.wait() => exit,
                // A kill must not wait for the stop timeout.
                () = state.killed.cancelled() => {
                    child.0.kill_group();
                    child.0.wait().await
                }
                () = state.stop.cancelled() => {
                    child.0.terminate();
                    tokio::select! {
                        exit = tokio::time::timeout(STOP_TIMEOUT, child.0.wait()) => match exit {
                            Ok(exit) => exit,
                            Err(_) => {
                                child.0.kill_group();
                                child.0.wait().await
                            }
                        },
                        () = state.killed.cancelled() => {
                            child.0.kill_group();
                            child.0.wait().await
                        }
                    }
                }
            };
            drop(child);
            let how = exit.map_or_else(
                |error| error.to_string(),
                |exit| process::describe_exit(exit.into_raw()),
            );
            let _ = state.how.set(how);
            state.ended.cancel();
        });
        Ok(daemon)
    }

    /// Waits for the exit and returns its description.
    pub async fn ended(&self) -> &str {
        self.state.ended.cancelled().await;
        self.how()
    }

    pub fn exit_handle(&self) -> ExitHandle {
        ExitHandle(self.state.clone())
    }

    pub fn is_running(&self) -> bool {
        !self.state.ended.is_cancelled()
    }

    /// The description of the exit; empty while the process runs.
    pub fn how(&self) -> &str {
        self.state.how.get().map_or("", String::as_str)
    }

    /// Kills the process and its children.
    pub fn kill(&self) {
        self.state.killed.cancel();
    }

    /// Kills the process as soon as a signal has stopped it for about a second, until the returned
    /// handle is dropped. For one that serves no request, so that no deadline notices.
    pub fn kill_if_stopped(&self) -> AbortOnDropHandle<()> {
        let (pid, state) = (self.pid, self.state.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::select! {
                () = state.ended.cancelled() => {}
                () = stays_stopped(pid) => {
                    warn!(pid, "PHP's process was stopped (SIGSTOP); killed");
                    state.killed.cancel();
                }
            }
        }))
    }

    /// Stops the process and waits for its exit.
    pub async fn end(&self) {
        self.state.stop.cancel();
        self.state.ended.cancelled().await;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.state.stop.cancel();
    }
}
