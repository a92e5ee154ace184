//! The front's end: asks the opener, waits for its answer, and goes on with another opener where one dies or stops.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use surus_sys::open::Access;
use surus_sys::seqpacket::Seqpacket;
use surus_sys::signals;
use tokio::sync::Notify;
use tracing::error;

use super::{MOST_PATH, What, is_below, may_be_sent};
use crate::fronts::site::root::{Denial, Opened, Trouble};
use crate::observe::rarely::Rarely;

/// The front's end of the socket to an opener.
///
/// PHP runs as the opener's user, so a script can end it or stop it. Then, another one takes its place: [`Opener::broken`] tells who
/// can start it. Meanwhile, a thread that waits leaves its place in the runtime to another, and few may wait.
#[derive(Debug)]
pub struct Opener {
    line: Mutex<Line>,
    /// Another opener is there.
    replaced: Condvar,
    /// An opener that has not answered for so long is taken for one that never will; and so long one waits for another.
    late: Duration,
    /// Threads that wait longer than is usual.
    waiting: AtomicUsize,
    broken: Arc<Notify>,
}

#[derive(Debug)]
struct Line {
    /// None while there is no opener.
    socket: Option<Seqpacket>,
    next: u32,
}

type Answer = (u8, Vec<u8>, Option<OwnedFd>);

impl Opener {
    /// `socket` is connected to an opener that [`run`]s.
    pub fn new(socket: OwnedFd) -> io::Result<Arc<Opener>> {
        Opener::with_patience(socket, LATE)
    }

    fn with_patience(socket: OwnedFd, late: Duration) -> io::Result<Arc<Opener>> {
        Ok(Arc::new(Opener {
            line: Mutex::new(Line {
                socket: Some(connect(socket)?),
                next: 0,
            }),
            replaced: Condvar::new(),
            late,
            waiting: AtomicUsize::new(0),
            broken: Arc::default(),
        }))
    }

    /// Notified when the opener has died or does not answer, and when this is dropped.
    pub fn broken(&self) -> Arc<Notify> {
        self.broken.clone()
    }

    /// Asks this opener from now on.
    pub fn replace(&self, socket: OwnedFd) -> io::Result<()> {
        let socket = connect(socket)?;
        self.line().socket = Some(socket);
        self.replaced.notify_all();
        Ok(())
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what may take long, without keeping others of the runtime from their work.
    fn patiently<T>(&self, wait: impl FnOnce() -> T) -> io::Result<T> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let done = match before < MOST_WAITING {
            true => Ok(blocking(wait)),
            false => Err(ErrorKind::WouldBlock.into()),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }

    fn ask(&self, what: What, tree: u16, path: &Path) -> io::Result<Answer> {
        let mut line = match self.line.try_lock() {
            Ok(line) => line,
            Err(_) => self.patiently(|| self.line())?,
        };
        for _ in 0..2 {
            if line.socket.is_none() {
                line = self.patiently(|| {
                    let waited = self
                        .replaced
                        .wait_timeout_while(line, self.late, |line| line.socket.is_none());
                    waited.unwrap_or_else(PoisonError::into_inner).0
                })?;
            }
            line.next = line.next.wrapping_add(1);
            let number = line.next;
            let Some(socket) = &line.socket else {
                return Err(ErrorKind::NotConnected.into());
            };
            match self.exchange(socket, number, what, tree, path) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    line.socket = None;
                    self.broken.notify_one();
                    // One that has ended is replaced at once, and one that does not answer has had its time.
                    if error.kind() == ErrorKind::TimedOut {
                        return Err(error);
                    }
                }
            }
        }
        Err(ErrorKind::NotConnected.into())
    }

    fn exchange(
        &self,
        socket: &Seqpacket,
        number: u32,
        what: What,
        tree: u16,
        path: &Path,
    ) -> io::Result<Answer> {
        let [a, b, c, d] = number.to_le_bytes();
        let [e, f] = tree.to_le_bytes();
        let what = match what {
            What::Read => 1,
            What::Look => 2,
            What::Resolve => 3,
        };
        let head = [a, b, c, d, what, e, f];
        let path = path.as_os_str().as_bytes();
        socket.send(&[IoSlice::new(&head), IoSlice::new(path)], None)?;
        let mut buffer = [0; 5 + MOST_PATH];
        let mut is_late = false;
        let mut received = loop {
            match socket.receive(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !is_late => {
                    is_late = true;
                    blocking(|| signals::wait(&[socket.as_fd()], None, Some(self.late)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                received => break received?,
            }
        };
        let answer = buffer.get(..received.len).unwrap_or_default();
        match answer.split_first_chunk::<5>() {
            None => Err(ErrorKind::UnexpectedEof.into()),
            Some(([w, x, y, z, code], text)) if [a, b, c, d] == [*w, *x, *y, *z] => {
                Ok((*code, text.to_vec(), received.fds.pop()))
            }
            Some(_) => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// What PHP's user gets at a path below a directory.
    pub(in crate::fronts::site) fn open(&self, tree: u16, path: &Path, access: Access) -> Opened {
        let what = match access {
            Access::Read => What::Read,
            Access::Look => What::Look,
        };
        // It does not answer what no front asks.
        if !is_below(path) || !may_be_sent(path, what) || is_too_long(path) {
            return Opened::Denied(Denial::UnreadableToPhp);
        }
        let told = self.ask(what, tree, path).and_then(|(code, text, fd)| {
            let regular = |real| {
                let file = File::from(fd.ok_or(ErrorKind::InvalidData)?);
                let metadata: Metadata = file.metadata()?;
                Ok::<_, io::Error>(Opened::Regular {
                    file,
                    metadata,
                    real,
                })
            };
            match code {
                2 => regular(None),
                3 => regular(Some(PathBuf::from(OsStr::from_bytes(&text)))),
                4 => Ok(Opened::Directory),
                5 => Ok(Opened::Missing),
                6 => Ok(Opened::Denied(Denial::LinkOutside)),
                7 => Ok(Opened::Denied(Denial::LinkOfAnother)),
                8 => Ok(Opened::Denied(Denial::Special)),
                9 => Ok(Opened::Denied(Denial::UnreadableToPhp)),
                10 => Ok(Opened::Failed(Trouble::Scarce)),
                11 => Ok(Opened::Failed(Trouble::Broken)),
                _ => Err(ErrorKind::InvalidData.into()),
            }
        });
        told.unwrap_or_else(|error| {
            static SAID: Rarely = Rarely::new();
            if SAID.is_time(Instant::now()) {
                error!(path = %path.display(), %error, "cannot ask the process that opens files as PHP's user");
            }
            Opened::Failed(Trouble::Scarce)
        })
    }

    /// Where an absolute path really is, if that is below a directory that is served.
    pub(in crate::fronts::site) fn resolve(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        if is_too_long(path) {
            return Err(None);
        }
        match self.ask(What::Resolve, 0, path) {
            Ok((1, text, _)) => Ok(PathBuf::from(OsStr::from_bytes(&text))),
            Ok((9, ..)) => Err(Some(Denial::UnreadableToPhp)),
            _ => Err(None),
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.broken.notify_one();
    }
}

/// An answer usually takes some ten microseconds. So long, a thread of the runtime waits for one without more ado.
const SOON: Duration = Duration::from_millis(5);

/// See [`Opener`].
const LATE: Duration = Duration::from_secs(2);

/// Threads that wait at once; a request that would be another one is answered with 503.
const MOST_WAITING: usize = 64;

fn connect(socket: OwnedFd) -> io::Result<Seqpacket> {
    let socket = Seqpacket::from(socket);
    socket.limit_waits(SOON)?;
    Ok(socket)
}

fn is_too_long(path: &Path) -> bool {
    path.as_os_str().len() > MOST_PATH
}

/// Does what blocks, while the runtime's other work goes on in another thread.
fn blocking<T>(wait: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Tree, run};
    use super::*;
    use crate::fronts::site::root::Root;

    const HOUR: Duration = Duration::from_secs(3600);

    /// An opener of an empty directory, in a thread.
    fn start(dir: &Path) -> OwnedFd {
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let root = Root::open(dir, Default::default()).unwrap();
        let trees = [Tree { root, secret: None }];
        std::thread::spawn(move || run(theirs, &trees));
        ours
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn question_that_is_not_answered_yet_blocks_no_other_task() {
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let opener = Opener::with_patience(ours, HOUR).unwrap();
        let asked = tokio::spawn(async move { opener.open(0, Path::new("a"), Access::Read) });
        let theirs = Seqpacket::from(theirs);
        let mut buffer = [0; 64];
        assert!(theirs.receive(&mut buffer).unwrap().len > 4);
        // On the only thread of the runtime, while the question is open.
        let answer = tokio::spawn(async move {
            let number = IoSlice::new(&buffer[..4]);
            theirs.send(&[number, IoSlice::new(&[5])], None)
        });
        answer.await.unwrap().unwrap();
        assert!(matches!(asked.await.unwrap(), Opened::Missing));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn opener_that_does_not_answer_is_given_up_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, _never_read) = Seqpacket::blocking_pair().unwrap();
        let opener = Opener::with_patience(ours, Duration::from_millis(10)).unwrap();
        let open = || opener.open(0, Path::new("a"), Access::Read);
        assert!(matches!(open(), Opened::Failed(Trouble::Scarce)));
        opener.broken().notified().await;
        // Nobody has replaced it.
        assert!(matches!(open(), Opened::Failed(Trouble::Scarce)));
        opener.replace(start(dir.path())).unwrap();
        assert!(opener.line().socket.is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn question_to_a_dead_opener_is_asked_again_when_there_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        drop(theirs);
        let opener = Opener::with_patience(ours, HOUR).unwrap();
        let asking = opener.clone();
        let asked = tokio::spawn(async move { asking.open(0, Path::new("a"), Access::Read) });
        opener.broken().notified().await;
        opener.replace(start(dir.path())).unwrap();
        assert!(matches!(asked.await.unwrap(), Opened::Missing));
        let broken = opener.broken();
        drop(opener);
        broken.notified().await;
    }
}
