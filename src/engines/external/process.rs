//! A process that runs one event and exits: php-cgi or php.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use surus_sys::process;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::command::{PhpLaunch, ProcessInputs, nothing};
use super::exchange::{CgiOutput, Exchange, ResponsePart};
use super::slots::ProcessSlot;
use crate::engine::Pending;
use crate::event::{Body, Failure};
use crate::launcher::{Child, Role};
use crate::observe::first_lines::FirstLines;
use crate::observe::php_log;
use crate::observe::php_log::ProcessLog;

/// A started process; its response arrives on stdout.
pub struct OneEvent {
    child: Child,
    /// None after its end, or if the client has closed the request.
    stdout: Option<pipe::Receiver>,
    reply: CgiOutput,
    /// The source of the header section if it is not stdout; stdout is the body then.
    headers: Option<pipe::Receiver>,
    exit: Option<ExitStatus>,
    written: ProcessLog,
    /// The first lines of stderr.
    words: FirstLines,
    slot: ProcessSlot,
}

impl OneEvent {
    /// Starts the process with the body as stdin and its stderr in the log.
    pub async fn start(
        launch: &PhpLaunch,
        inputs: ProcessInputs<'_>,
        body: &Body,
        event: u64,
        slot: ProcessSlot,
        headers: Option<pipe::Receiver>,
    ) -> Result<OneEvent, Failure> {
        let program = launch.program.display();
        let not_started = |error: &dyn std::fmt::Display| {
            Failure::WorkerCrashed(format!("cannot start {program}: {error}"))
        };
        let prepare = || -> std::io::Result<_> {
            let (stdout, their_stdout) = std::io::pipe()?;
            let (stderr, their_stderr) = std::io::pipe()?;
            let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
            let stderr = pipe::Receiver::from_owned_fd(stderr.into())?;
            let theirs = [stdin(body)?, their_stdout.into(), their_stderr.into()];
            Ok((stdout, stderr, theirs))
        };
        let (stdout, stderr, theirs) = prepare().map_err(|error| not_started(&error))?;
        let started = launch.start(Role::Request, inputs, theirs).await;
        let child = started.map_err(|error| not_started(&format_args!("{error:#}")))?;
        let pid = child.pid();
        slot.set_pid(pid);
        let words = FirstLines::default();
        let first_lines = words.clone();
        let written = php_log::follow_installed_php(stderr, pid, Some(event), move |line| {
            first_lines.add(line);
            Some(line)
        });
        Ok(OneEvent {
            child,
            stdout: Some(stdout),
            reply: CgiOutput::default(),
            headers,
            exit: None,
            written,
            words,
            slot,
        })
    }

    /// The result of a response that has ended.
    async fn verdict(&mut self) -> Result<Option<ResponsePart>, Failure> {
        let exit = match self.exit {
            Some(exit) => exit,
            None => self
                .child
                .wait()
                .await
                .map_err(|error| Failure::WorkerCrashed(error.to_string()))?,
        };
        self.exit = Some(exit);
        let how = || process::describe_exit(exit.into_raw());
        match self.reply.has_headers() {
            _ if exit.signal().is_some() => Err(Failure::WorkerCrashed(how())),
            true => Ok(None),
            false => {
                self.written.catch_up().await;
                let why = format!("no header block; {}: {}", how(), self.words.text());
                Err(Failure::Malformed(why))
            }
        }
    }
}

impl Exchange for OneEvent {
    fn next(&mut self) -> Pending<'_, Result<Option<ResponsePart>, Failure>> {
        Box::pin(async {
            loop {
                if let Some(part) = self.reply.next()? {
                    return Ok(Some(part));
                }
                let Self {
                    child,
                    stdout,
                    reply,
                    headers,
                    exit,
                    ..
                } = self;
                let reads_headers = headers.is_some();
                let Some(pipe) = headers.as_mut().or(stdout.as_mut()) else {
                    return self.verdict().await;
                };
                let read = tokio::select! {
                    biased;
                    read = pipe.read_buf(reply.buffer()) => read,
                    ended = child.wait(), if exit.is_none() => {
                        *exit = ended.ok();
                        continue;
                    }
                    // A process that the script started may keep the pipe open.
                    () = tokio::time::sleep(QUIET), if exit.is_some() => Ok(0),
                };
                let has_ended = !matches!(read, Ok(1..));
                if has_ended {
                    // Without a header section, the rest is not a response.
                    *stdout = None;
                }
                if !reads_headers {
                    continue;
                }
                // stdout follows with the body.
                let part = reply.next()?;
                if has_ended || part.is_some() {
                    *headers = None;
                }
                if part.is_some() {
                    return Ok(part);
                }
            }
        })
    }

    fn leave(&mut self) {
        self.stdout = None;
    }

    fn kill(&mut self) {
        // After wait(), the process id may belong to another process.
        if self.exit.is_none() {
            self.child.kill_group();
        }
    }

    fn over(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            if self.exit.is_none() {
                let Self { child, headers, .. } = self;
                // Keep reading, so that the driver need not handle a closed pipe.
                let unwanted = async {
                    if let Some(headers) = headers {
                        let _ = tokio::io::copy(headers, &mut tokio::io::sink()).await;
                    }
                    std::future::pending().await
                };
                self.exit = tokio::select! {
                    ended = child.wait() => ended.ok(),
                    never = unwanted => never,
                };
            }
            self.written.catch_up().await;
        })
    }
}

impl Drop for OneEvent {
    fn drop(&mut self) {
        self.kill();
        self.slot.set_pid(0);
    }
}

/// How long the output may pause after the process's exit before the response counts as complete.
const QUIET: Duration = Duration::from_millis(100);

/// A file descriptor for stdin: Surus need not feed a file.
fn stdin(body: &Body) -> std::io::Result<OwnedFd> {
    Ok(match body {
        Body::Empty => nothing()?,
        Body::Memory(bytes) => process::memory_file(bytes)?,
        // Reopened, so that it is read from the beginning.
        Body::Spooled { file, .. } => {
            File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into()
        }
        Body::Streamed { .. } => return Err(std::io::ErrorKind::Unsupported.into()),
    })
}
