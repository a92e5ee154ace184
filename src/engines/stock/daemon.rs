//! A process that serves many events: php-fpm's master, `php -S`.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use surus_sys::process;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

/// Running until it is told to end, or dropped.
pub struct Daemon {
    pub pid: u32,
    state: Arc<State>,
}

/// A process and its children, of whom none outlives it, nor the runtime that waits for it.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = process::kill_group(self.0);
    }
}

/// Its end, for who waits for it without keeping it.
pub struct End(Arc<State>);

impl End {
    pub fn has_come(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    /// Returns, with how, when it has come.
    pub async fn come(&self) -> &str {
        self.0.ended.cancelled().await;
        self.0.how.get().map_or("", String::as_str)
    }
}

struct State {
    stop: CancellationToken,
    ended: CancellationToken,
    how: OnceLock<String>,
}

/// One that is asked to end and does not, is killed.
const PATIENCE: Duration = Duration::from_secs(2);

impl Daemon {
    /// Starts it; what it writes comes out of the pipe.
    pub fn start(mut command: Command) -> anyhow::Result<(Daemon, pipe::Receiver)> {
        let program = command.get_program().to_string_lossy().into_owned();
        let (ours, theirs) = std::io::pipe().context("no pipe")?;
        command
            .stdin(Stdio::null())
            .stdout(theirs.try_clone().context("no pipe")?)
            .stderr(theirs);
        let mut command = tokio::process::Command::from(command);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let pid = child.id().unwrap_or(0);
        let state = Arc::new(State {
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            how: OnceLock::new(),
        });
        let daemon = Daemon {
            pid,
            state: state.clone(),
        };
        let group = Group(pid);
        tokio::spawn(async move {
            let exit = tokio::select! {
                exit = child.wait() => exit,
                () = state.stop.cancelled() => {
                    let _ = process::terminate(pid);
                    match tokio::time::timeout(PATIENCE, child.wait()).await {
                        Ok(exit) => exit,
                        Err(_) => {
                            let _ = process::kill_group(pid);
                            child.wait().await
                        }
                    }
                }
            };
            drop(group);
            let how = exit.map_or_else(
                |error| error.to_string(),
                |exit| process::describe_exit(exit.into_raw()),
            );
            let _ = state.how.set(how);
            state.ended.cancel();
        });
        let output = pipe::Receiver::from_owned_fd(ours.into()).context("no pipe")?;
        Ok((daemon, output))
    }

    /// Returns, with how, when it has ended.
    pub async fn ended(&self) -> &str {
        self.state.ended.cancelled().await;
        self.how()
    }

    pub fn its_end(&self) -> End {
        End(self.state.clone())
    }

    pub fn is_running(&self) -> bool {
        !self.state.ended.is_cancelled()
    }

    /// How it has ended; empty while it runs.
    pub fn how(&self) -> &str {
        self.state.how.get().map_or("", String::as_str)
    }

    /// Ends it at once, with its children.
    pub fn kill(&self) {
        if self.is_running() {
            let _ = process::kill_group(self.pid);
        }
    }

    /// Has it end; returns when it has.
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
