//! The front end's side of the socket to the keeper: sends requests and delivers the replies.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use surus_sys::seqpacket::{AsyncSeqpacket, Received, Seqpacket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::ServedDirectories;
use super::message::{KeeperReply, KeeperRequest, MAX_BYTES};
use crate::engine::Pending;
use crate::launcher::{Child, DirHandle, LaunchedChild, Launcher, ProcessSignal, Role};
use crate::observe::reopen::{self, SiteLogs};

/// How long the front end waits for a reply of the keeper.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the keeper.
pub struct Client {
    to_send: mpsc::UnboundedSender<(KeeperRequest, Vec<OwnedFd>)>,
    next: AtomicU32,
    state: Mutex<State>,
    /// Cancelled when the keeper has exited.
    lost: CancellationToken,
    logs: SiteLogs,
    /// A reference to itself, for the children that it starts.
    this: std::sync::Weak<Client>,
}

#[derive(Default)]
struct State {
    /// Callers that wait for a reply, with the descriptors received so far.
    waiting: HashMap<u32, (oneshot::Sender<KeeperAnswer>, Vec<OwnedFd>)>,
    /// By process id: receives the wait status of a child.
    children: HashMap<u32, watch::Sender<Option<i32>>>,
}

enum KeeperAnswer {
    Started(LaunchedChild),
    Done(u32, String, Vec<OwnedFd>),
    Failed(String),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Takes over the front end's end of the socket. Must be called within a runtime.
    pub fn new(socket: OwnedFd, logs: SiteLogs) -> io::Result<Arc<Client>> {
        let socket = Arc::new(AsyncSeqpacket::new(Seqpacket::nonblocking(socket)?)?);
        let (to_send, mut sent) = mpsc::unbounded_channel::<(KeeperRequest, Vec<OwnedFd>)>();
        let client = Arc::new_cyclic(|this| Client {
            to_send,
            next: AtomicU32::new(1),
            state: Mutex::default(),
            lost: CancellationToken::new(),
            logs,
            this: this.clone(),
        });
        let sender = socket.clone();
        tokio::spawn(async move {
            while let Some((request, fds)) = sent.recv().await {
                let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                if let Err(error) = sender.send_with(&request.encode(), &fds).await {
                    // The reading task notices that the keeper has exited.
                    warn!(%error, ?request, "cannot ask the keeper");
                }
            }
        });
        let reader = client.clone();
        tokio::spawn(async move {
            let error = reader.read(&socket).await;
            error!(%error, "the keeper has exited");
            reader.lost.cancel();
            // Waiting callers get no reply, and children count as exited.
            *reader.lock() = State::default();
        });
        Ok(client)
    }

    /// Returns when the keeper has exited. The front end cannot continue without it.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Reports that the application is served from now on, or that a reload has ended.
    pub fn ready(&self) {
        self.post(KeeperRequest::Ready, Vec::new());
    }

    /// Asks the keeper to open the served directories of a site again.
    pub async fn site_directories(&self, site: u32) -> anyhow::Result<ServedDirectories> {
        let answer = self.ask(
            move |id| KeeperRequest::SiteDirectories { id, site },
            Vec::new(),
        );
        match answer.await? {
            KeeperAnswer::Done(number, _, mut fds) if !fds.is_empty() => {
                let text = content(fds.remove(0))?;
                Ok(ServedDirectories { number, text, fds })
            }
            _ => Err(confused()),
        }
    }

    /// Asks the keeper for the certificates and keys of the configuration whose first site has this
    /// number.
    pub async fn certificates(&self, first_site: u32) -> anyhow::Result<Vec<u8>> {
        let request = move |id| KeeperRequest::Certificates { id, first_site };
        let answer = self.ask(request, Vec::new());
        match answer.await? {
            KeeperAnswer::Done(_, _, mut fds) if fds.len() == 1 => Ok(content(fds.remove(0))?),
            _ => Err(confused()),
        }
    }

    /// Asks the keeper for the sites of the configuration; None if it has not changed.
    pub async fn configuration(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let answer = self.ask(|id| KeeperRequest::Configuration { id }, Vec::new());
        match answer.await? {
            KeeperAnswer::Done(_, _, mut fds) => Ok(fds.pop().map(content).transpose()?),
            _ => Err(confused()),
        }
    }

    /// Reports that the configuration whose first site has this number is served, so that the next
    /// front end gets it, too.
    pub async fn configured(&self, first_site: u32) -> anyhow::Result<()> {
        let request = move |id| KeeperRequest::Configured { id, first_site };
        match self.ask(request, Vec::new()).await? {
            KeeperAnswer::Done(..) => Ok(()),
            _ => Err(confused()),
        }
    }

    /// Asks the keeper to start the process that gets the certificate of a domain.
    pub async fn acme(
        &self,
        domain: u16,
        is_asked: bool,
        socket: OwnedFd,
    ) -> anyhow::Result<Child> {
        let request = move |id| KeeperRequest::Acme {
            id,
            domain,
            is_asked,
        };
        self.start(request, vec![socket]).await
    }

    /// Asks the keeper to warm up the next boots of a pool with these pages, or with `keep` to keep
    /// them for the next start.
    pub async fn pages(&self, pool: u32, keep: bool, text: String) -> anyhow::Result<()> {
        let request = move |id| KeeperRequest::Pages {
            id,
            pool,
            keep,
            text,
        };
        match self.ask(request, Vec::new()).await? {
            KeeperAnswer::Done(..) => Ok(()),
            _ => Err(confused()),
        }
    }

    /// Asks the keeper to replace the opener of directories. Returns the socket to the new one.
    pub async fn opener(&self, directories: u32) -> anyhow::Result<OwnedFd> {
        let answer = self.ask(|id| KeeperRequest::Opener { id, directories }, Vec::new());
        match answer.await? {
            KeeperAnswer::Done(_, _, mut fds) => {
                fds.pop().context("the keeper's reply has no socket")
            }
            _ => Err(confused()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, request: KeeperRequest, fds: Vec<OwnedFd>) {
        // The receiving task lives as long as the runtime.
        let _ = self.to_send.send((request, fds));
    }

    async fn ask(
        &self,
        request: impl FnOnce(u32) -> KeeperRequest,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<KeeperAnswer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.lock().waiting.insert(id, (answer, Vec::new()));
        self.post(request(id), fds);
        if self.lost.is_cancelled() {
            self.lock().waiting.remove(&id);
        }
        match tokio::time::timeout(TIMEOUT, answered).await {
            Ok(Ok(KeeperAnswer::Failed(why))) => Err(anyhow!(why)),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(anyhow!("the keeper has exited")),
            Err(_) => {
                // A process or descriptor from a late reply is released on arrival.
                self.lock().waiting.remove(&id);
                Err(anyhow!("no answer from the keeper within {TIMEOUT:?}"))
            }
        }
    }

    async fn read(&self, socket: &AsyncSeqpacket) -> String {
        let mut buffer = vec![0; MAX_BYTES + 1];
        loop {
            let received = match socket.receive(&mut buffer).await {
                Ok(received) if received.len == 0 => return "it has exited".into(),
                Ok(received) => received,
                Err(error) => return error.to_string(),
            };
            let Received { len, fds, .. } = received;
            match KeeperReply::decode(&buffer[..len]) {
                Ok(reply) => self.take(reply, fds),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn take(&self, reply: KeeperReply, fds: Vec<OwnedFd>) {
        match reply {
            KeeperReply::Started { id, pid } => {
                // Registered before the next message is read, because that may report the exit.
                let (ended, exit) = watch::channel(None);
                let Some(by) = self.this.upgrade() else {
                    return;
                };
                self.lock().children.insert(pid, ended);
                let by: Arc<dyn Launcher> = by;
                let kept = LaunchedChild { pid, by, exit };
                if let Err(KeeperAnswer::Started(kept)) = self.give(id, KeeperAnswer::Started(kept))
                {
                    kept.by.signal(pid, None, ProcessSignal::KillGroup);
                }
            }
            KeeperReply::Done { id, number, text } => {
                let mut state = self.lock();
                if let Some((_, gathered)) = state.waiting.get_mut(&id) {
                    gathered.extend(fds);
                    if text != "more" {
                        let fds = std::mem::take(gathered);
                        drop(state);
                        let unwanted = self.give(id, KeeperAnswer::Done(number, text, fds));
                        if let Err(KeeperAnswer::Done(number @ 1.., text, _)) = unwanted
                            && !text.is_empty()
                        {
                            self.close_runtime_dir(number);
                        }
                    }
                }
            }
            KeeperReply::Failed { id, why } => drop(self.give(id, KeeperAnswer::Failed(why))),
            KeeperReply::Exited { pid, wait_status } => {
                if let Some(ended) = self.lock().children.remove(&pid) {
                    let _ = ended.send(Some(wait_status));
                }
            }
            KeeperReply::Reopen => match <[OwnedFd; 2]>::try_from(fds) {
                Ok(fds) => {
                    if let Err(error) = reopen::take(&fds) {
                        warn!(%error, "cannot write to the reopened logs");
                    }
                }
                Err(_) => warn!("the keeper sent no reopened logs"),
            },
            KeeperReply::ReopenSite { log } => match <[OwnedFd; 1]>::try_from(fds) {
                Ok([file]) => self.logs.take(log, file),
                Err(_) => warn!("the keeper sent no reopened logs"),
            },
        }
    }

    /// Delivers an answer, or returns it if the caller no longer waits.
    fn give(&self, id: u32, answer: KeeperAnswer) -> Result<(), KeeperAnswer> {
        match self.lock().waiting.remove(&id) {
            Some((waiting, _)) => waiting.send(answer),
            None => Err(answer),
        }
    }

    async fn start(
        &self,
        request: impl FnOnce(u32) -> KeeperRequest,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<Child> {
        match self.ask(request, fds).await? {
            KeeperAnswer::Started(kept) => Ok(Child::Launched(kept)),
            _ => Err(confused()),
        }
    }
}

/// What the keeper has written into a memory file.
fn content(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(file), &mut content)?;
    Ok(content)
}

fn confused() -> anyhow::Error {
    anyhow!("the keeper's reply does not match the request")
}

impl Launcher for Client {
    fn master(&self, pool: u32, fds: Vec<OwnedFd>) -> Pending<'_, anyhow::Result<Child>> {
        Box::pin(self.start(move |id| KeeperRequest::Master { id, pool }, fds))
    }

    fn runtime_dir(&self, pool: u32) -> Pending<'_, anyhow::Result<DirHandle>> {
        Box::pin(async move {
            let answer = self.ask(|id| KeeperRequest::RuntimeDir { id, pool }, Vec::new());
            match answer.await? {
                KeeperAnswer::Done(number, text, _) => Ok(DirHandle {
                    number,
                    path: PathBuf::from(text),
                }),
                _ => Err(confused()),
            }
        })
    }

    fn close_runtime_dir(&self, number: u32) {
        self.post(
            KeeperRequest::CloseRuntimeDir {
                runtime_dir: number,
            },
            Vec::new(),
        );
    }

    fn php(
        &self,
        runtime_dir: u32,
        role: Role,
        fds: Vec<OwnedFd>,
    ) -> Pending<'_, anyhow::Result<Child>> {
        Box::pin(self.start(
            move |id| KeeperRequest::Php {
                id,
                runtime_dir,
                role,
            },
            fds,
        ))
    }

    fn signal(&self, pid: u32, pidfd: Option<BorrowedFd<'_>>, which: ProcessSignal) {
        // Without a pidfd, the keeper opens one itself.
        let pidfd = pidfd.and_then(|fd| fd.try_clone_to_owned().ok());
        self.post(
            KeeperRequest::Signal { pid, which },
            pidfd.into_iter().collect(),
        );
    }

    fn connect(&self, pool: u32) -> Pending<'_, anyhow::Result<OwnedFd>> {
        Box::pin(async move {
            match self
                .ask(|id| KeeperRequest::Connect { id, pool }, Vec::new())
                .await?
            {
                KeeperAnswer::Done(_, _, mut fds) => {
                    fds.pop().context("the keeper's reply has no connection")
                }
                _ => Err(confused()),
            }
        })
    }
}
