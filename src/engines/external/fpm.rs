//! The engine `fpm`: FastCGI to a php-fpm that Surus starts or that already runs.
//!
//! Surus configures one php-fpm pool with one process for each concurrent event. It therefore knows
//! which process runs an event, can kill it at the deadline, and never queues an event behind
//! another. The pools share one OPcache.
//!
//! A connection that carried a request body is not reused. If a script did not read all of its
//! body, PHP would treat the rest as the next request.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::BytesMut;
use surus_sys::process;
use tracing::error;

use super::command;
use super::connection::{Address, Stream};
use super::daemon::{Daemon, End};
use super::exchange::{Exchange, Part, Reply};
use super::runtime_dir::{Home, Own};
use super::slots::{ProcessSlot, ProcessSlots};
use super::{Php, Spec, no_slot};
use crate::engine::Pending;
use crate::engines::cgi::params::Params;
use crate::engines::cgi::{fastcgi, server_vars};
use crate::event::{Body, Event, Failure};
use crate::launcher::{Launch, Which};
use crate::observe::message::Message;
use crate::observe::php_log;
use crate::observe::php_log::FirstLines;
use crate::observe::status::WorkerStatus;

pub struct Fpm(Arc<Inner>);

struct Inner {
    /// None for a php-fpm that Surus did not start.
    daemon: Option<Daemon>,
    pools: Vec<Pool>,
    slots: ProcessSlots,
    launch: Option<Launch>,
    /// Keeps the directory with the sockets and settings.
    _home: Home,
}

/// A php-fpm pool, which runs one event at a time.
struct Pool {
    address: Address,
    /// An idle connection to the pool's process.
    kept: Mutex<Option<Stream>>,
}

impl Fpm {
    /// Starts php-fpm, or connects to the configured address.
    pub async fn start(spec: &Spec, home: Home) -> anyhow::Result<Fpm> {
        let slots = ProcessSlots::new(spec.workers);
        let pool = |address| Pool {
            address,
            kept: Mutex::new(None),
        };
        if let Some(address) = &spec.address {
            let connected = connect(address, spec.launch.as_ref()).await;
            connected.with_context(|| {
                format!(
                    "cannot connect to php-fpm at {} (engine.php_fpm_address)",
                    String::from(address.clone())
                )
            })?;
            return Ok(Fpm(Arc::new(Inner {
                daemon: None,
                pools: (0..spec.workers).map(|_| pool(address.clone())).collect(),
                slots,
                launch: spec.launch.clone(),
                _home: home,
            })));
        }
        let launch = command::Launch::new(spec, &home)?;
        let (daemon, output) = Daemon::start(&launch).await?;
        let words = FirstLines::default();
        let log = tokio::spawn(php_log::follow_template(
            output.into_nonblocking_fd()?,
            words.clone(),
        ));
        let fpm = Fpm(Arc::new(Inner {
            pools: (0..spec.workers)
                .map(|index| pool(Address::Unix(home.path(&socket(index)))))
                .collect(),
            daemon: Some(daemon),
            slots,
            launch: spec.launch.clone(),
            _home: home,
        }));
        if let Err(failure) = fpm.0.listens().await {
            // The pipe may still contain its last error messages.
            let _ = tokio::time::timeout(Duration::from_millis(200), log).await;
            return Err(failure.context(words.text()));
        }
        Ok(fpm)
    }
}

fn socket(index: usize) -> String {
    format!("{index}.sock")
}

/// The content of the configuration file.
pub fn configuration(spec: &Spec, home: &Own) -> anyhow::Result<String> {
    let mut text = String::from(
        "[global]\nerror_log = /proc/self/fd/2\nlog_level = warning\nlog_limit = 65536\n",
    );
    for index in 0..spec.workers {
        let socket = home.path(&socket(index));
        let socket = socket
            .to_str()
            .context("the path of a socket is not UTF-8")?;
        write!(
            text,
            "[{index}]\nlisten = {socket}\nlisten.mode = 0600\n\
             pm = static\npm.max_children = 1\npm.max_requests = {}\n\
             clear_env = no\ncatch_workers_output = yes\ndecorate_workers_output = no\n\
             security.limit_extensions =\n",
            spec.max_requests
        )?;
        if let Some(front) = home.front() {
            writeln!(text, "listen.owner = {front}")?;
        }
        if let Some(user) = &spec.user {
            write!(text, "user = {}\ngroup = {}\n", user.uid, user.gid)?;
        }
    }
    Ok(text)
}

impl Inner {
    /// Waits until all pools listen.
    async fn listens(&self) -> anyhow::Result<()> {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        for pool in &self.pools {
            while Stream::connect(&pool.address).await.is_err() {
                tokio::select! {
                    how = daemon.ended() => bail!("php-fpm did not start: {how}"),
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
            }
        }
        while !self.count_children() {
            tokio::select! {
                how = daemon.ended() => bail!("php-fpm did not start: {how}"),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        Ok(())
    }

    /// Reads each pool's process id from the process titles, in which php-fpm writes the pool name.
    /// Returns whether every pool has a process.
    fn count_children(&self) -> bool {
        let Some(daemon) = &self.daemon else {
            return true;
        };
        let path = format!("/proc/{0}/task/{0}/children", daemon.pid);
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let mut found = vec![0; self.pools.len()];
        for child in children.split_whitespace() {
            let title = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let title = String::from_utf8_lossy(&title);
            let pool = title.trim_end_matches('\0').strip_prefix("php-fpm: pool ");
            let index = pool.and_then(|pool| pool.trim().parse::<usize>().ok());
            if let (Some(place), Ok(pid)) =
                (index.and_then(|index| found.get_mut(index)), child.parse())
            {
                *place = pid;
            }
        }
        let is_complete = !found.contains(&0);
        for (index, pid) in found.into_iter().enumerate() {
            self.slots.set_pid(index, pid);
        }
        is_complete
    }

    /// Kills the process of the pool for the holder of its slot.
    fn kill_child(&self, slot: &ProcessSlot) {
        self.count_children();
        let pid = slot.pid();
        if self.daemon.is_none() || pid == 0 {
            return;
        }
        match &self.launch {
            None => drop(process::kill(pid)),
            Some(launch) => launch.by.signal(pid, None, Which::Kill),
        }
    }

    /// Returns a connection for the next event.
    async fn connection(&self, index: usize) -> io::Result<Stream> {
        let pool = &self.pools[index];
        let kept = pool
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(kept) = kept.filter(Stream::is_open) {
            return Ok(kept);
        }
        self.count_children();
        // A php-fpm that already runs may accept only users that the keeper can act as.
        let launch = self.launch.as_ref().filter(|_| self.daemon.is_none());
        connect(&pool.address, launch).await
    }
}

/// Connects; asks the keeper if this process lacks permission.
async fn connect(address: &Address, launch: Option<&Launch>) -> io::Result<Stream> {
    match (Stream::connect(address).await, launch) {
        (Err(error), Some(launch)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let connected = launch.by.connect(launch.pool).await;
            Stream::of_unix(connected.map_err(io::Error::other)?)
        }
        (connected, _) => connected,
    }
}

/// How long a killed process may take to be replaced before it is killed again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often to check that the event's process still runs; a process that it started may keep the
/// connection open.
const ALIVE: Duration = Duration::from_secs(1);

/// How often to check whether php-fpm listens.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Php for Fpm {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let keeps = matches!(event.request.body(), Body::Empty);
            let head = encode(event, keeps)?;
            let slot = self.0.slots.take(event).ok_or_else(no_slot)?;
            let stream = self.0.connection(slot.index).await;
            let stream = stream.map_err(|error| Failure::Died(format!("php-fpm: {error}")))?;
            let stream = Arc::new(stream);
            let (to, body) = (stream.clone(), event.request.body().clone());
            // Send concurrently: a script may respond before it has read the body.
            let feeding = tokio::spawn(async move {
                if to.write_all(&head).await.is_ok() {
                    // If the body cannot be read, PHP notices at the deadline that the rest is
                    // missing.
                    if let Err(failed) = feed(&to, &body).await {
                        error!("cannot read the request body: {failed}");
                    }
                }
            });
            Ok(Box::new(FastCgi {
                fpm: self.0.clone(),
                pid: slot.pid(),
                slot,
                event: event.id,
                stream: Some(stream),
                keeps,
                feeding,
                input: BytesMut::new(),
                reply: Reply::default(),
                message: Message::default(),
                is_complete: false,
                is_killed: false,
            }) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.0.count_children();
        self.0.slots.status()
    }

    fn its_end(&self) -> Option<End> {
        self.0.daemon.as_ref().map(Daemon::its_end)
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {
            if let Some(daemon) = &self.0.daemon {
                daemon.end().await;
            }
        })
    }
}

/// An event in progress at a php-fpm process.
struct FastCgi {
    fpm: Arc<Inner>,
    slot: ProcessSlot,
    pid: u32,
    event: u64,
    /// None if the connection failed or the client is gone.
    stream: Option<Arc<Stream>>,
    /// Whether PHP keeps the connection open after the event.
    keeps: bool,
    /// Sends the event; holds the connection until then.
    feeding: tokio::task::JoinHandle<()>,
    input: BytesMut,
    reply: Reply,
    /// An incomplete log message.
    message: Message,
    /// Whether END_REQUEST has arrived. PHP may still be running (`fastcgi_finish_request`).
    is_complete: bool,
    is_killed: bool,
}

impl FastCgi {
    /// Decodes the received records.
    fn take(&mut self) -> Result<Option<Part>, Failure> {
        loop {
            if let Some(part) = self.reply.next()? {
                return Ok(Some(part));
            }
            let wrong = |error: fastcgi::WrongVersion| Failure::Malformed(error.to_string());
            let Some(record) = fastcgi::decode(&mut self.input).map_err(wrong)? else {
                return Ok(None);
            };
            match record.kind {
                fastcgi::STDOUT => self.reply.buffer().extend_from_slice(&record.content),
                fastcgi::STDERR => self.log(&record.content),
                fastcgi::END_REQUEST if record.content.get(4) == Some(&fastcgi::OVERLOADED) => {
                    return Err(Failure::Busy("php-fpm is overloaded"));
                }
                fastcgi::END_REQUEST => {
                    self.log(b"\n");
                    self.is_complete = true;
                    return Ok(None);
                }
                _ => {}
            }
        }
    }

    /// A log message of PHP ends with a line break and may span several records.
    fn log(&mut self, piece: &[u8]) {
        self.message.add(piece);
        if piece.ends_with(b"\n") {
            let message = std::mem::take(&mut self.message);
            if message.kept() != b"\n" {
                php_log::message(message, self.pid, Some(self.event));
            }
        }
    }

    /// Waits until the process is idle: it answers this request only then.
    async fn is_free(stream: &Stream) -> io::Result<()> {
        stream
            .write_all(&fastcgi::header(fastcgi::GET_VALUES, 0, 0))
            .await?;
        let mut input = BytesMut::new();
        while stream.read(&mut input).await? > 0 {
            // Fail on data that is not FastCGI: otherwise the buffer would grow without limit.
            while let Some(record) = fastcgi::decode(&mut input).map_err(io::Error::other)? {
                if record.kind == fastcgi::GET_VALUES_RESULT {
                    return Ok(());
                }
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits until the slot's process is idle and returns a connection to it; None if php-fpm has
    /// exited.
    async fn free(&self, daemon: &Daemon) -> Option<Stream> {
        let address = &self.fpm.pools[self.slot.index].address;
        let mut asked = pin!(async {
            loop {
                // A busy process accepts later; a killed one leaves the connection to its
                // successor.
                if let Ok(stream) = Stream::connect(address).await
                    && Self::is_free(&stream).await.is_ok()
                {
                    return stream;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        loop {
            tokio::select! {
                stream = &mut asked => {
                    self.fpm.count_children();
                    return Some(stream);
                }
                _ = daemon.ended() => return None,
                // The previous kill may have hit an older process that was already being replaced.
                () = tokio::time::sleep(AGAIN), if self.is_killed => self.fpm.kill_child(&self.slot),
            }
        }
    }

    /// Whether the event's process has exited.
    fn is_gone(&self) -> bool {
        let is_known = self.fpm.daemon.is_some() && self.pid != 0;
        is_known && !Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

impl Exchange for FastCgi {
    fn next(&mut self) -> Pending<'_, Result<Option<Part>, Failure>> {
        Box::pin(async {
            let mut was_gone = false;
            loop {
                match self.take()? {
                    Some(part) => return Ok(Some(part)),
                    None if !self.is_complete => {}
                    None if self.reply.has_head() => return Ok(None),
                    None => return Err(Failure::Malformed("php-fpm sent no header block".into())),
                }
                let Some(stream) = &self.stream else {
                    return Err(Failure::Died("the connection to php-fpm is closed".into()));
                };
                let read = tokio::select! {
                    biased;
                    read = stream.read(&mut self.input) => read,
                    // Read once more: data may have arrived before the exit.
                    () = tokio::time::sleep(ALIVE) => match std::mem::replace(&mut was_gone, self.is_gone()) {
                        true => Ok(0),
                        false => continue,
                    },
                };
                if !matches!(read, Ok(1..)) {
                    self.stream = None;
                    return Err(Failure::Died(
                        "php-fpm closed the connection before the end of the response".into(),
                    ));
                }
            }
        })
    }

    fn leave(&mut self) {
        if let Some(stream) = self.stream.take()
            && !stream.refuse_more()
        {
            self.feeding.abort();
        }
        // Otherwise PHP gets the rest of the body; it would treat a truncated body as complete.
    }

    fn kill(&mut self) {
        self.is_killed = true;
        self.fpm.kill_child(&self.slot);
        self.feeding.abort();
        self.stream = None;
    }

    fn over(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let fpm = self.fpm.clone();
            let asked = match self.stream.take() {
                Some(stream) if self.is_complete && self.keeps => {
                    let _ = (&mut self.feeding).await;
                    // The end of the connection also shows that the process is idle again.
                    match Self::is_free(&stream).await {
                        Ok(()) => Arc::into_inner(stream),
                        Err(_) => return,
                    }
                }
                whole => {
                    if whole.is_some() {
                        // PHP waits for the end of an unread body.
                        self.feeding.abort();
                    }
                    drop(whole);
                    match &fpm.daemon {
                        Some(daemon) => self.free(daemon).await,
                        // A php-fpm that Surus did not start: the process is unknown.
                        None => {
                            let _ = (&mut self.feeding).await;
                            None
                        }
                    }
                }
            };
            if fpm.daemon.is_some() {
                let kept = &fpm.pools[self.slot.index].kept;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            }
        })
    }
}

impl Drop for FastCgi {
    fn drop(&mut self) {
        self.feeding.abort();
    }
}

/// Encodes BEGIN_REQUEST for a responder and the CGI variables.
fn encode(event: &Event, keeps: bool) -> Result<Vec<u8>, Failure> {
    let flags = if keeps { fastcgi::KEEP_CONN } else { 0 };
    let mut head = Vec::with_capacity(1024);
    head.extend_from_slice(&fastcgi::header(fastcgi::BEGIN_REQUEST, REQUEST, 8));
    head.extend_from_slice(&[0, fastcgi::RESPONDER, flags, 0, 0, 0, 0, 0]);
    let mut params = Params::new(head, REQUEST);
    server_vars::each(event, &mut params);
    let mut head = params.end()?;
    head.extend_from_slice(&fastcgi::header(fastcgi::PARAMS, REQUEST, 0));
    Ok(head)
}

/// A connection carries one request at a time.
const REQUEST: u16 = 1;

/// Sends the body. Fails only if the body cannot be read, not if PHP stops reading it.
async fn feed(to: &Stream, body: &Body) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let piece = match body {
            Body::Empty => &[],
            Body::Memory(bytes) => {
                let rest = &bytes[at as usize..];
                &rest[..rest.len().min(fastcgi::MAX_CONTENT)]
            }
            Body::Spooled { file, .. } => {
                buffer.resize(fastcgi::MAX_CONTENT, 0);
                let n = file.read_at(&mut buffer, at)?;
                &buffer[..n]
            }
        };
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let record = fastcgi::header(fastcgi::STDIN, REQUEST, piece.len());
        if to.write_all(&[&record, piece].concat()).await.is_err() {
            return Ok(());
        }
        at += piece.len() as u64;
    }
    let _ = to
        .write_all(&fastcgi::header(fastcgi::STDIN, REQUEST, 0))
        .await;
    Ok(())
}
