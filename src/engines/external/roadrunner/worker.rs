//! One process of a RoadRunner worker: its start, its frames, its end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures_util::FutureExt;
use serde::Deserialize;
use tokio::net::unix::pipe;
use tracing::{error, warn};

use super::frame::{self, FrameError, Item, Parser, Payload};
use super::relay::{OutgoingBytes, Relay, RelayListener, Socket};
use super::response;
use crate::engines::external::command::{PhpLaunch, ProcessInputs};
use crate::engines::external::daemon::Daemon;
use crate::observe::first_lines::FirstLines;
use crate::observe::php_log::{self, Output};

/// The frame that asks a worker for its process id. Workers answer it before they take the next
/// request.
pub const ASK_PID: &str = r#"{"pid":1}"#;

/// The frame that asks a worker to end.
const STOP: &str = r#"{"stop":true}"#;

/// How long a worker may take to end by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the exit of a process may take after the end of its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Worker {
    pub daemon: Daemon,
    relay: Relay,
    parser: Parser,
    /// Logs what the worker writes to stdout between its frames.
    output: Output,
    /// The event that its log lines belong to; 0 for none.
    event: Arc<AtomicU64>,
    /// The first lines of its output, which say why it did not start.
    first: FirstLines,
    log: php_log::ProcessLog,
}

/// Why no frame was received: the output ended, or is not a worker's.
#[derive(Debug)]
pub enum ReceiveError {
    Ended,
    Malformed(FrameError),
}

/// How long the output of a killed worker may take to end.
const KILL: Duration = Duration::from_secs(1);

/// What a worker has sent after its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    Nothing,
    /// The wish to be replaced: `Worker::stop()`.
    Stop,
    Invalid,
}

/// Logs an error frame after a response: also what a destructor throws.
pub fn log_late_error(pid: Option<u32>, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let error = &text[..];
    error!(target: "php", pid, error, "PHP failed after its response");
}

fn is_stop(payload: &Payload) -> bool {
    response::is_stop(&payload.context, payload.body_len)
}

impl Worker {
    /// Starts a worker and waits until it answers.
    pub async fn start(launch: &PhpLaunch, listener: &RelayListener) -> anyhow::Result<Worker> {
        match listener {
            RelayListener::Pipes => Worker::start_on_pipes(launch).await,
            RelayListener::Socket { socket, address } => {
                let socket = socket.lock().await;
                Worker::start_on_socket(launch, &socket, address).await
            }
        }
    }

    /// Starts a worker whose relay is stdin and stdout.
    async fn start_on_pipes(launch: &PhpLaunch) -> anyhow::Result<Worker> {
        let (their_stdin, stdin) = std::io::pipe().context("cannot create a pipe")?;
        let (stdout, their_stdout) = std::io::pipe().context("cannot create a pipe")?;
        let (stderr, their_stderr) = std::io::pipe().context("cannot create a pipe")?;
        let stdio = [their_stdin.into(), their_stdout.into(), their_stderr.into()];
        let daemon = Daemon::start_with(launch, ProcessInputs::default(), stdio).await?;
        let _watch = daemon.kill_if_stopped();
        let relay = Relay::Pipes(
            pipe::Sender::from_owned_fd(stdin.into())?,
            pipe::Receiver::from_owned_fd(stdout.into())?,
        );
        let stderr = pipe::Receiver::from_owned_fd(stderr.into())?;
        let mut worker = Worker::new(daemon, relay, stderr);
        worker.greet().await?;
        Ok(worker)
    }

    /// Starts a worker that connects to a socket. Other processes may connect to it as well.
    async fn start_on_socket(
        launch: &PhpLaunch,
        socket: &Socket,
        address: &str,
    ) -> anyhow::Result<Worker> {
        // An empty stdin.
        let (their_stdin, _) = std::io::pipe().context("cannot create a pipe")?;
        let (output, theirs) = std::io::pipe().context("cannot create a pipe")?;
        let stderr = theirs.try_clone().context("cannot create a pipe")?;
        let env = format!("RR_RELAY={address}");
        let inputs = ProcessInputs {
            env: env.as_bytes(),
            ..ProcessInputs::default()
        };
        let stdio = [their_stdin.into(), theirs.into(), stderr.into()];
        let daemon = Daemon::start_with(launch, inputs, stdio).await?;
        let _watch = daemon.kill_if_stopped();
        let output = pipe::Receiver::from_owned_fd(output.into())?;
        let pid = daemon.pid;
        let mut worker = Worker::new(daemon, Relay::None, output);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept(pid) => accepted,
                how = worker.daemon.ended() => {
                    let how = how.to_string();
                    return Err(worker.did_not_start(&how).await);
                }
            };
            match accepted.context("cannot accept the connection of a worker")? {
                Some(relay) => worker.relay = relay,
                None => continue,
            }
            worker.parser = Parser::default();
            match worker.greet().await {
                Ok(greeted) if greeted == pid => return Ok(worker),
                // Another process.
                Ok(_) => {}
                Err(_) if worker.daemon.is_running() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A worker with this relay; the pipe carries its other output.
    fn new(daemon: Daemon, relay: Relay, stderr: pipe::Receiver) -> Worker {
        let event = Arc::new(AtomicU64::new(0));
        let first = FirstLines::default();
        let (first_lines, of_log) = (first.clone(), event.clone());
        let log = php_log::follow_with(stderr, daemon.pid, move |line| {
            let event = of_log.load(Ordering::Relaxed);
            if event == 0 {
                first_lines.add(line);
            }
            (event > 0).then_some(event)
        });
        Worker {
            output: Output::new(daemon.pid),
            daemon,
            relay,
            parser: Parser::default(),
            event,
            first,
            log,
        }
    }

    /// Asks for the process id, and returns it.
    async fn greet(&mut self) -> anyhow::Result<u32> {
        match self.ask_pid().await {
            Ok(pid) => Ok(pid),
            Err(why) => Err(self.did_not_start(&why).await),
        }
    }

    async fn did_not_start(&self, why: &str) -> anyhow::Error {
        if !matches!(self.relay, Relay::Tcp(_)) {
            self.daemon.kill();
        }
        self.log.end().await;
        anyhow!("the worker did not start: {why}\n{}", self.first.text())
    }

    async fn ask_pid(&mut self) -> Result<u32, String> {
        let mut outgoing = OutgoingBytes::default();
        frame::put_control(outgoing.bytes(), ASK_PID);
        loop {
            match self.parser.item() {
                Ok(Some(Item::Control(json))) => {
                    #[derive(Deserialize)]
                    struct Answer {
                        pid: u32,
                    }
                    let answer = serde_json::from_slice::<Answer>(&json);
                    return answer
                        .map(|answer| answer.pid)
                        .map_err(|_| "no answer with its process id in time".into());
                }
                Ok(Some(Item::Noise(noise))) => {
                    for line in String::from_utf8_lossy(&noise).lines() {
                        self.first.add(line);
                    }
                    self.output.add(&noise, None);
                }
                Ok(Some(Item::Error(text))) => return Err(String::from_utf8_lossy(&text).into()),
                Ok(Some(_)) => return Err("it answered before there was a request".into()),
                Ok(None) => match self.receive(&mut outgoing).await {
                    Ok(()) => {}
                    Err(ReceiveError::Ended) => return Err(self.how_it_ended().await),
                    Err(ReceiveError::Malformed(wrong)) => return Err(wrong.to_string()),
                },
                Err(wrong) => return Err(wrong.to_string()),
            }
        }
    }

    /// Begins an event: log lines belong to it from now on.
    pub fn begin(&self, event: u64) {
        self.event.store(event, Ordering::Relaxed);
    }

    /// Ends the event. Until the next one, log lines still belong to it.
    pub fn finish(&mut self) {
        let event = self.event.load(Ordering::Relaxed);
        self.output.settle((event > 0).then_some(event));
    }

    /// The next item that is not noise, which is logged; `None` if more output is needed.
    pub fn next(&mut self) -> Result<Option<Item>, ReceiveError> {
        loop {
            match self.parser.item().map_err(ReceiveError::Malformed)? {
                Some(Item::Noise(noise)) => self.log_noise(&noise),
                item => return Ok(item),
            }
        }
    }

    /// Parses what it has sent since it ended its response, as far as that has been received.
    pub fn surplus(&mut self) -> Surplus {
        let mut found = Surplus::Nothing;
        loop {
            match self.next() {
                Ok(None) => return found,
                Ok(Some(Item::Error(text))) => log_late_error(Some(self.daemon.pid), &text),
                Ok(Some(Item::Payload(payload))) if is_stop(&payload) => found = Surplus::Stop,
                Ok(Some(Item::End)) if found == Surplus::Stop => {}
                Ok(Some(_)) | Err(_) => return Surplus::Invalid,
            }
        }
    }

    /// Receives what it has sent since its last request ended, and drops it. Returns whether it may
    /// get another request: not after `Worker::stop()`, nor after invalid output.
    pub fn can_take_request(&mut self) -> bool {
        // If its output has ended, its next request notices that.
        let _ = self.relay.read(self.parser.buffer()).now_or_never();
        loop {
            let pid = self.daemon.pid;
            match self.next() {
                Ok(None) => return true,
                Ok(Some(Item::Payload(payload))) if is_stop(&payload) => return false,
                Ok(Some(Item::Payload(_))) => {
                    warn!(pid, "a worker sent a response without a request; discarded");
                }
                Ok(Some(Item::Error(text))) => log_late_error(Some(pid), &text),
                Ok(Some(_)) => {}
                Err(broken) => {
                    if let ReceiveError::Malformed(wrong) = broken {
                        let reason = wrong.to_string();
                        warn!(pid, reason, "invalid output of a worker; process killed");
                    }
                    self.daemon.kill();
                    return false;
                }
            }
        }
    }

    /// Kills it, and returns whether it may have begun the request that was sent last: it answers
    /// the question for its process id before it reads one.
    pub async fn kill(&mut self) -> bool {
        self.daemon.kill();
        let answers = async {
            loop {
                match self.next() {
                    Ok(None) => match self.receive(&mut OutgoingBytes::default()).await {
                        Ok(()) => {}
                        Err(_) => return false,
                    },
                    Ok(Some(Item::Control(_))) => return true,
                    Ok(Some(_)) => {}
                    Err(_) => return true,
                }
            }
        };
        // A process that it has left behind may keep its output open.
        tokio::time::timeout(KILL, answers).await.unwrap_or(true)
    }

    fn log_noise(&mut self, noise: &[u8]) {
        let event = self.event.load(Ordering::Relaxed);
        self.output.add(noise, (event > 0).then_some(event));
    }

    /// Writes or reads something. Dropping the future loses nothing.
    pub async fn receive(&mut self, outgoing: &mut OutgoingBytes) -> Result<(), ReceiveError> {
        let written = async {
            match outgoing.is_empty() {
                true => std::future::pending().await,
                false => outgoing.write(&self.relay).await,
            }
        };
        let read = tokio::select! {
            biased;
            written = written => match written {
                Ok(()) => return Ok(()),
                // A worker that has closed its input may still have said why.
                Err(_) => {
                    *outgoing = OutgoingBytes::default();
                    return Ok(());
                }
            },
            read = self.relay.read(self.parser.buffer()) => read,
        };
        match read {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => {
                let rest = self.parser.rest();
                self.log_noise(&rest);
                self.finish();
                Err(ReceiveError::Ended)
            }
        }
    }

    /// Why the output has ended.
    pub async fn how_it_ended(&self) -> String {
        let ended = tokio::time::timeout(EXIT_TIMEOUT, self.daemon.ended()).await;
        if ended.is_ok() {
            self.log.end().await;
        }
        let how = ended.unwrap_or("it closed its connection");
        match self.parser.is_inside_frame() {
            true => format!("{how}, in the middle of a frame"),
            false => how.to_string(),
        }
    }

    /// Reads and logs until the end of the output.
    async fn read_rest(&mut self, outgoing: &mut OutgoingBytes) {
        loop {
            match self.next() {
                Ok(Some(_)) => {}
                Ok(None) if self.receive(outgoing).await.is_ok() => {}
                _ => break,
            }
        }
    }

    /// Asks the worker to end, and kills it if it does not.
    pub async fn end(mut self) {
        let mut outgoing = OutgoingBytes::default();
        frame::put_control(outgoing.bytes(), STOP);
        let ends = self.daemon.exit_handle();
        let ended = async {
            // Read on, so that it need not wait for a full pipe.
            let mut reading = pin!(self.read_rest(&mut outgoing));
            tokio::select! {
                _ = ends.wait() => {
                    // A process that it started may keep the pipe open.
                    let _ = tokio::time::timeout(EXIT_TIMEOUT, reading).await;
                }
                () = &mut reading => {
                    ends.wait().await;
                }
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            self.daemon.kill();
        }
        self.daemon.ended().await;
        self.log.end().await;
    }
}
