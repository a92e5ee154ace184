//! A process that serves many events: php-fpm's master, `php -S`.

use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use surus_sys::process;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::launch::{Extra, Launch, nothing};
use crate::launcher::{Child, Role};

/// Running until it is told to end, or dropped.
pub struct Daemon {
    pub pid: u32,
    state: Arc<State>,
}

/// A process and its children, of whom none outlives it, nor the runtime that waits for it.
struct Group(Child, u32);

impl Drop for Group {
    fn drop(&mut self) {
        self.0.kill_rest(self.1);
        self.0.kill_group();
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
    killed: CancellationToken,
    ended: CancellationToken,
    how: OnceLock<String>,
}

/// One that is asked to end and does not, is killed.
const PATIENCE: Duration = Duration::from_secs(2);

impl Daemon {
    /// Starts it; what it writes comes out of the pipe.
    pub async fn start(launch: &Launch) -> anyhow::Result<(Daemon, pipe::Receiver)> {
        let (ours, theirs) = std::io::pipe().context("no pipe")?;
        let stdio = [
            nothing()?,
            theirs.try_clone().context("no pipe")?.into(),
            theirs.into(),
        ];
        let child = launch.start(Role::Server, Extra::default(), stdio).await?;
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
        let mut child = Group(child, pid);
        tokio::spawn(async move {
            let exit = tokio::select! {
                exit = child.0.wait() => exit,
                // At once, as soon as somebody asks for it.
                () = state.killed.cancelled() => {
                    child.0.kill_group();
                    child.0.wait().await
                }
                () = state.stop.cancelled() => {
                    child.0.terminate();
                    tokio::select! {
                        exit = tokio::time::timeout(PATIENCE, child.0.wait()) => match exit {
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
        self.state.killed.cancel();
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
