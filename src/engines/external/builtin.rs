//! The engine `builtin`: sends HTTP requests to `php -S`, one single-threaded server per concurrent
//! event.

mod request;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http::Response;
use http::header::{self, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

use self::request::Outbound;
use super::command::PhpLaunch;
use super::daemon::Daemon;
use super::exchange::{Exchange, ResponsePart};
use super::file_names;
use super::runtime_dir::RuntimeDir;
use super::slots::{ProcessSlot, ProcessSlots};
use super::variables;
use super::{PhpSpec, StartedPhp, no_slot};
use crate::engine::Pending;
use crate::engines::cgi::response::CgiParts;
use crate::event::{Event, Failure};
use crate::observe::first_lines::FirstLines;
use crate::observe::php_log;
use crate::observe::php_log::ProcessLog;
use crate::observe::status::WorkerStatus;

/// The router script, which the server runs for every request.
pub const ROUTER: &str = include_str!("builtin.php");

pub struct Builtin(Arc<Inner>);

struct Inner {
    launch: PhpLaunch,
    key: HeaderValue,
    /// By slot; None if the server must be started.
    servers: Vec<Mutex<Option<BuiltinServer>>>,
    slots: ProcessSlots,
    max_requests: u64,
    /// How long a server may take to start.
    boot_timeout: Duration,
    runtime_dir: RuntimeDir,
}

struct BuiltinServer {
    daemon: Daemon,
    address: SocketAddr,
    log: ProcessLog,
}

impl BuiltinServer {
    /// Kills it, and returns when the log has what it wrote.
    async fn end(self) {
        self.daemon.kill();
        self.daemon.ended().await;
        self.log.end().await;
    }
}

impl Builtin {
    pub async fn start(spec: &PhpSpec, runtime_dir: RuntimeDir) -> anyhow::Result<Builtin> {
        let key = key()?;
        runtime_dir.fill(file_names::KEY, format!("<?php\nreturn '{key}';\n"))?;
        let inner = Arc::new(Inner {
            launch: PhpLaunch::new(spec, &runtime_dir)?,
            key: HeaderValue::from_str(&key)?,
            servers: (0..spec.workers).map(|_| Mutex::new(None)).collect(),
            slots: ProcessSlots::new(spec.workers),
            max_requests: spec.max_requests,
            boot_timeout: spec.boot_timeout,
            runtime_dir,
        });
        let starts = (0..spec.workers).map(|index| inner.renew(index));
        futures_util::future::try_join_all(starts).await?;
        Ok(Builtin(inner))
    }
}

/// An unguessable random key.
fn key() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    let mut random = std::fs::File::open("/dev/urandom").context("cannot read /dev/urandom")?;
    io::Read::read_exact(&mut random, &mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Inner {
    /// Starts the server of a slot, and replaces the previous one.
    async fn renew(&self, index: usize) -> anyhow::Result<()> {
        let mut server_slot = self.servers[index].lock().await;
        if let Some(old) = server_slot.take() {
            old.end().await;
        }
        let (daemon, output) = Daemon::start(&self.launch).await?;
        let _watch = daemon.kill_if_stopped();
        let (to, mut started) = oneshot::channel();
        let mut to = Some(to);
        let words = FirstLines::default();
        let first_lines = words.clone();
        let log = php_log::follow_installed_php(output, daemon.pid, None, move |line| {
            if to.is_some() {
                first_lines.add(line);
            }
            match port(line) {
                Some(port) => {
                    let _ = to.take().map(|to| to.send(port));
                    None
                }
                None => message(line),
            }
        });
        let port = tokio::select! {
            port = &mut started => port.map_err(|_| daemon.how()),
            how = daemon.ended() => Err(how),
            () = tokio::time::sleep(self.boot_timeout) => Err("it exceeded engine.boot_timeout"),
        };
        let port = match port {
            Ok(port) => port,
            Err(why) => {
                log.end().await;
                bail!("php -S did not start: {why}\n{}", words.text());
            }
        };
        self.slots.set_pid(index, daemon.pid);
        *server_slot = Some(BuiltinServer {
            daemon,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            log,
        });
        Ok(())
    }

    /// Connects to the slot's server, and starts it if it has exited.
    async fn connect(&self, index: usize) -> anyhow::Result<TcpStream> {
        for _ in 0..2 {
            let address = {
                let slot = self.servers[index].lock().await;
                let running = slot.as_ref().filter(|server| server.daemon.is_running());
                running.map(|server| server.address)
            };
            if let Some(address) = address
                && let Ok(stream) = TcpStream::connect(address).await
            {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            self.renew(index).await?;
        }
        bail!("cannot connect to php -S")
    }

    /// Waits until the slot's server is idle. Fails if it has exited.
    async fn is_free(&self, index: usize) -> io::Result<()> {
        let address = {
            let slot = self.servers[index].lock().await;
            let running = slot.as_ref().filter(|server| server.daemon.is_running());
            running.map(|server| server.address)
        };
        let address = address.ok_or(io::ErrorKind::NotConnected)?;
        self.while_it_runs(index, self.ask(address)).await?
    }

    async fn ask(&self, address: SocketAddr) -> io::Result<()> {
        let mut stream = TcpStream::connect(address).await?;
        let request = [
            b"GET / HTTP/1.0\r\nsurus-key: ",
            self.key.as_bytes(),
            b"\r\n\r\n",
        ];
        stream.write_all(&request.concat()).await?;
        match stream.read(&mut [0; 64]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Fails if the slot's server exits first. A process that it started may keep the connection
    /// open.
    async fn while_it_runs<T>(
        &self,
        index: usize,
        future: impl Future<Output = T>,
    ) -> io::Result<T> {
        let server = {
            let slot = self.servers[index].lock().await;
            slot.as_ref().map(|server| server.daemon.exit_handle())
        };
        let end = server.ok_or(io::ErrorKind::NotConnected)?;
        tokio::select! {
            biased;
            done = future => Ok(done),
            _ = end.wait() => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    async fn how_it_ended(&self, index: usize) -> String {
        let slot = self.servers[index].lock().await;
        let Some(server) = slot.as_ref() else {
            return "killed".into();
        };
        let ended = tokio::time::timeout(Duration::from_secs(1), server.daemon.ended()).await;
        ended.unwrap_or("it closed the connection").to_string()
    }
}

/// Reads the port from `[…] PHP 8.2.0 Development Server (http://127.0.0.1:40000) started`.
fn port(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("Development Server (http://127.0.0.1:")?;
    rest.split_once(')')?.0.parse().ok()
}

/// Removes the date, and drops the lines of each request, such as
/// `[Sun Nov 22 04:50:05 2026] 127.0.0.1:40312 Accepted`.
fn message(line: &str) -> Option<&str> {
    match line.split_once("] ") {
        Some((date, rest)) if date.starts_with('[') => {
            (!rest.starts_with("127.0.0.1:")).then_some(rest)
        }
        _ => Some(line),
    }
}

impl StartedPhp for Builtin {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let variables = variables::from_event(event)?;
            let slot = self.0.slots.take(event).ok_or_else(no_slot)?;
            let request = self.0.request(event, variables, slot.index)?;
            let crashed = |error: &dyn std::fmt::Display| Failure::WorkerCrashed(error.to_string());
            let stream = self.0.connect(slot.index).await;
            let stream = stream.map_err(|error| crashed(&format!("{error:#}")))?;
            let (mut send, connection) = http1::Builder::new()
                .max_headers(1024)
                .handshake::<_, Outbound>(TokioIo::new(stream))
                .await
                .map_err(|error| crashed(&error))?;
            Ok(Box::new(Http {
                inner: self.0.clone(),
                slot,
                answer: BuiltinAnswer::Waiting(Box::pin(async move {
                    send.send_request(request).await
                })),
                connection: tokio::spawn(async move {
                    let _ = connection.await;
                }),
                is_free: false,
                is_killed: false,
            }) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.0.slots.status()
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {
            for slot in &self.0.servers {
                if let Some(server) = slot.lock().await.take() {
                    server.end().await;
                }
            }
        })
    }
}

enum BuiltinAnswer {
    Waiting(Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>),
    Arriving(Incoming),
    Closed,
}

/// A request in progress at one server.
struct Http {
    inner: Arc<Inner>,
    slot: ProcessSlot,
    answer: BuiltinAnswer,
    connection: JoinHandle<()>,
    /// Whether the server has confirmed that it is idle.
    is_free: bool,
    is_killed: bool,
}

impl Http {
    fn close(&mut self) {
        self.answer = BuiltinAnswer::Closed;
        self.connection.abort();
    }

    async fn broken(&mut self) -> Failure {
        self.close();
        Failure::WorkerCrashed(self.inner.how_it_ended(self.slot.index).await)
    }
}

impl Exchange for Http {
    fn next(&mut self) -> Pending<'_, Result<Option<ResponsePart>, Failure>> {
        Box::pin(async {
            let (inner, index) = (self.inner.clone(), self.slot.index);
            match &mut self.answer {
                BuiltinAnswer::Waiting(response) => {
                    match inner.while_it_runs(index, response).await {
                        Ok(Ok(response)) => {
                            let (mut parts, body) = response.into_parts();
                            // Remove the headers of the internal connection and those that Surus's
                            // HTTP front end sets itself.
                            for ours in [header::CONNECTION, header::HOST, header::DATE] {
                                parts.headers.remove(ours);
                            }
                            self.answer = BuiltinAnswer::Arriving(body);
                            Ok(Some(ResponsePart::Headers(CgiParts {
                                status: parts.status,
                                reason: parts.extensions.remove(),
                                headers: parts.headers,
                            })))
                        }
                        // For example, headers beyond hyper's limits.
                        Ok(Err(error)) if error.is_parse() => {
                            self.broken().await;
                            let why = format!("the response's headers: {error}");
                            Err(Failure::Malformed(why))
                        }
                        _ => Err(self.broken().await),
                    }
                }
                BuiltinAnswer::Arriving(body) => loop {
                    match inner.while_it_runs(index, body.frame()).await {
                        Ok(Some(Ok(frame))) => {
                            if let Ok(data) = frame.into_data() {
                                return Ok(Some(ResponsePart::Data(data)));
                            }
                        }
                        Ok(Some(Err(_))) | Err(_) => return Err(self.broken().await),
                        // The response ends when its connection closes, and so does a crash; so ask
                        // the server whether it is idle.
                        Ok(None) => match inner.is_free(index).await {
                            Ok(()) => {
                                self.is_free = true;
                                return Ok(None);
                            }
                            Err(_) => return Err(self.broken().await),
                        },
                    }
                },
                BuiltinAnswer::Closed => {
                    Err(Failure::WorkerCrashed("the connection is closed".into()))
                }
            }
        })
    }

    fn leave(&mut self) {
        // PHP runs what it has received of a request as soon as the connection closes, possibly
        // after the next request.
        if !matches!(self.answer, BuiltinAnswer::Waiting(_)) {
            self.close();
        }
    }

    fn kill(&mut self) {
        self.is_killed = true;
        self.close();
        let pid = self.slot.pid();
        // The lock is held only while the server starts; there is nothing to kill then.
        if let Ok(slot) = self.inner.servers[self.slot.index].try_lock()
            && let Some(server) = slot.as_ref()
            && server.daemon.pid == pid
        {
            server.daemon.kill();
        }
    }

    fn over(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let (inner, index) = (self.inner.clone(), self.slot.index);
            if let BuiltinAnswer::Waiting(response) = &mut self.answer {
                let _ = inner.while_it_runs(index, response).await;
                self.close();
            }
            let is_free =
                self.is_free || !self.is_killed && self.inner.is_free(index).await.is_ok();
            let is_old =
                self.inner.max_requests > 0 && self.slot.served() + 1 >= self.inner.max_requests;
            if !is_free || is_old {
                self.slot.counts = false;
                if let Err(error) = inner.renew(index).await {
                    // The next event tries again.
                    tracing::error!(error = format!("{error:#}"), "cannot start a PHP process");
                }
            }
        })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn port_is_read_and_request_lines_are_dropped() {
        let started = "[Sun Nov 22 04:50:05 2026] PHP 8.2.29 Development Server \
        (http://127.0.0.1:40312) started";
        assert_eq!(port(started), Some(40312));
        let at = "[Sun Nov 22 04:50:05 2026]";
        assert_eq!(message(&format!("{at} 127.0.0.1:40312 Accepted")), None);
        assert_eq!(message(&format!("{at} 127.0.0.1:40312 [200]: GET /")), None);
        assert_eq!(
            message(&format!("{at} PHP Warning:  x in y on line 1")),
            Some("PHP Warning:  x in y on line 1")
        );
        assert_eq!(message("#0 {main}"), Some("#0 {main}"));
        assert_eq!(port("127.0.0.1:80"), None);
    }
}
