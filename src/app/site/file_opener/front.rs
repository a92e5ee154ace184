//! The front end's side of the opener: sends requests, waits for replies, and recovers if the
//! opener exits or is stopped.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use surus_sys::openat2::Access;
use surus_sys::seqpacket::Seqpacket;
use surus_sys::signals;
use tokio::sync::Notify;
use tokio::time;
use tracing::error;

use super::protocol::{MAX_PATH, Operation, is_below, may_be_sent};
use crate::app::site::opened::{Denial, LookupError, OpenedPath};
use crate::observe::rate_limit::RateLimit;

/// The front end's end of the socket to an opener.
///
/// PHP runs as the opener's user, so a script can kill or stop it. A thread of the runtime waits
/// for a reply for at most [`SOON`] if the opener is stopped, and [`BUSY`] otherwise. After that,
/// the request fails, and all others fail at once until [`Opener::recover`] has restored the
/// connection or the caller has replaced the opener.
#[derive(Debug)]
pub struct Opener {
    link: Mutex<OpenerLink>,
    /// Notified when the opener must be recovered.
    failures: Arc<Notify>,
}

#[derive(Debug)]
struct OpenerLink {
    /// None if the opener has exited.
    socket: Option<Seqpacket>,
    /// The number of a request without a reply.
    late: Option<u32>,
    next: u32,
    /// The opener's process id, from its last reply.
    pid: Option<u32>,
}

struct OpenerAnswer {
    pid: u32,
    code: u8,
    text: Vec<u8>,
    fd: Option<OwnedFd>,
}

impl Opener {
    /// `socket` must be connected to an opener that [`run`](super::run)s.
    pub fn new(socket: OwnedFd) -> io::Result<Arc<Opener>> {
        Ok(Arc::new(Opener {
            link: Mutex::new(OpenerLink {
                socket: Some(connect(socket)?),
                late: None,
                next: 0,
                pid: None,
            }),
            failures: Arc::default(),
        }))
    }

    fn link(&self) -> MutexGuard<'_, OpenerLink> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notified when the opener must be recovered, and when this is dropped.
    pub fn failures(&self) -> Arc<Notify> {
        self.failures.clone()
    }

    /// Waits for a late reply. Returns false if none arrives; the caller then
    /// [replaces](Opener::replace) the opener.
    pub async fn recover(&self) -> bool {
        let pid = self.link().pid;
        // The process id is unknown before the first reply.
        let is_stopped = || pid.is_none_or(is_stopped);
        let began = time::Instant::now();
        let mut stopped_since = None;
        loop {
            if let Some(is_up) = self.catch_up() {
                return is_up;
            }
            match is_stopped() {
                true => _ = stopped_since.get_or_insert_with(time::Instant::now),
                false => stopped_since = None,
            }
            let stays_stopped = stopped_since.is_some_and(|since| since.elapsed() > STOPPED);
            if stays_stopped || began.elapsed() > LATE {
                return false;
            }
            time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads a late reply if it has arrived. Returns whether the opener is usable again, or None if
    /// that is still unknown.
    fn catch_up(&self) -> Option<bool> {
        let mut link = self.link();
        let OpenerLink { socket, late, .. } = &mut *link;
        let (Some(open), Some(number)) = (&socket, *late) else {
            return Some(socket.is_some());
        };
        if !signals::has_input(open) {
            return None;
        }
        *late = None;
        let is_up = answer(open, number).is_ok();
        if !is_up {
            *socket = None;
        }
        Some(is_up)
    }

    /// Uses this opener from now on.
    pub fn replace(&self, socket: OwnedFd) -> io::Result<()> {
        let socket = connect(socket)?;
        let mut link = self.link();
        (link.socket, link.late, link.pid) = (Some(socket), None, None);
        Ok(())
    }

    fn ask(&self, operation: Operation, tree: u16, path: &Path) -> io::Result<OpenerAnswer> {
        let mut link = self.link();
        link.next = link.next.wrapping_add(1);
        let number = link.next;
        let Some(socket) = link.socket.as_ref().filter(|_| link.late.is_none()) else {
            return Err(ErrorKind::NotConnected.into());
        };
        let [a, b, c, d] = number.to_le_bytes();
        let [e, f] = tree.to_le_bytes();
        let operation = match operation {
            Operation::Read => 1,
            Operation::Look => 2,
            Operation::Resolve => 3,
            Operation::Link => 4,
        };
        let head = [a, b, c, d, operation, e, f];
        let path = path.as_os_str().as_bytes();
        let sent = socket.send(&[IoSlice::new(&head), IoSlice::new(path)], None);
        let answered = sent.and_then(|()| wait_for_answer(socket, number, link.pid));
        match &answered {
            Ok(answer) => link.pid = Some(answer.pid),
            Err(error) => {
                match error.kind() {
                    ErrorKind::WouldBlock => link.late = Some(number),
                    _ => link.socket = None,
                }
                self.failures.notify_one();
            }
        }
        answered
    }

    /// Opens a path below a directory with the rights of PHP's user.
    pub(crate) fn open(&self, tree: u16, path: &Path, access: Access) -> OpenedPath {
        let operation = match access {
            Access::Read => Operation::Read,
            Access::Metadata => Operation::Look,
        };
        // The opener does not reply to such requests.
        if !is_below(path) || !may_be_sent(path, operation) || is_too_long(path) {
            return OpenedPath::Denied(Denial::UnreadableToPhp);
        }
        let opened = self.ask(operation, tree, path).and_then(|answer| {
            let OpenerAnswer { code, text, fd, .. } = answer;
            let regular = |real| {
                let file = File::from(fd.ok_or(ErrorKind::InvalidData)?);
                let metadata: Metadata = file.metadata()?;
                Ok::<_, io::Error>(OpenedPath::Regular {
                    file,
                    metadata,
                    real,
                })
            };
            match code {
                2 => regular(None),
                3 => regular(Some(PathBuf::from(OsStr::from_bytes(&text)))),
                4 => Ok(OpenedPath::Directory),
                5 => Ok(OpenedPath::Missing),
                6 => Ok(OpenedPath::Denied(Denial::LinkOutside)),
                7 => Ok(OpenedPath::Denied(Denial::LinkOfAnother)),
                8 => Ok(OpenedPath::Denied(Denial::Special)),
                9 => Ok(OpenedPath::Denied(Denial::UnreadableToPhp)),
                10 => Ok(OpenedPath::Failed(LookupError::Scarce)),
                11 => Ok(OpenedPath::Failed(LookupError::Broken)),
                13 => Ok(OpenedPath::Denied(Denial::Concealed)),
                _ => Err(ErrorKind::InvalidData.into()),
            }
        });
        opened.unwrap_or_else(|error| {
            static REPORTED: RateLimit = RateLimit::new();
            if REPORTED.is_time(Instant::now()) {
                let path = path.display();
                error!(%path, %error, "cannot reach the opener");
            }
            OpenedPath::Failed(LookupError::Scarce)
        })
    }

    /// Whether there is a symbolic link at a path, as PHP's user sees it. None if that is unknown.
    pub(crate) fn is_link(&self, tree: u16, path: &Path) -> Option<bool> {
        let operation = Operation::Link;
        if !is_below(path) || !may_be_sent(path, operation) || is_too_long(path) {
            return None;
        }
        match self.ask(operation, tree, path).ok()?.code {
            5 => Some(false),
            12 => Some(true),
            _ => None,
        }
    }

    /// The real path of an absolute path, if it is below a served directory.
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        if is_too_long(path) {
            return Err(None);
        }
        match self.ask(Operation::Resolve, 0, path) {
            Ok(answer) if answer.code == 1 => Ok(PathBuf::from(OsStr::from_bytes(&answer.text))),
            Ok(answer) if answer.code == 9 => Err(Some(Denial::UnreadableToPhp)),
            _ => Err(None),
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.failures.notify_one();
    }
}

/// A reply usually takes some ten microseconds. After this time the front end checks whether the
/// opener is stopped.
const SOON: Duration = Duration::from_millis(200);

/// How long a thread of the runtime waits for an opener that is not stopped, on a busy machine.
const BUSY: Duration = Duration::from_millis(600);

/// An opener that is stopped for this long is replaced.
const STOPPED: Duration = Duration::from_millis(200);

/// An opener that waits for a CPU or a disk is replaced after this time without a reply.
const LATE: Duration = Duration::from_secs(2);

/// The interval of checks for a late reply.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits for the reply to the only pending request, unless the opener is stopped.
fn wait_for_answer(socket: &Seqpacket, number: u32, pid: Option<u32>) -> io::Result<OpenerAnswer> {
    let began = Instant::now();
    loop {
        match answer(socket, number) {
            Err(error)
                if error.kind() == ErrorKind::WouldBlock
                    && began.elapsed() < BUSY
                    && !pid.is_some_and(is_stopped) => {}
            answered => return answered,
        }
    }
}

fn is_stopped(pid: u32) -> bool {
    // The state is T or t after SIGSTOP or under a debugger, Z or X after the exit.
    !matches!(surus_sys::process::state(pid), Some('R' | 'S' | 'D' | 'I'))
}

/// Reads the reply to the request with this number, the only one that can be pending.
fn answer(socket: &Seqpacket, number: u32) -> io::Result<OpenerAnswer> {
    let mut buffer = [0; 9 + MAX_PATH];
    let mut received = loop {
        match socket.receive(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => break received?,
        }
    };
    let answer = buffer.get(..received.len).unwrap_or_default();
    let Some(([a, b, c, d, e, f, g, h, code], text)) = answer.split_first_chunk::<9>() else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    if number.to_le_bytes() != [*a, *b, *c, *d] {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(OpenerAnswer {
        pid: u32::from_le_bytes([*e, *f, *g, *h]),
        code: *code,
        text: text.to_vec(),
        fd: received.fds.pop(),
    })
}

fn connect(socket: OwnedFd) -> io::Result<Seqpacket> {
    let socket = Seqpacket::from(socket);
    socket.limit_waits(SOON)?;
    Ok(socket)
}

fn is_too_long(path: &Path) -> bool {
    path.as_os_str().len() > MAX_PATH
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{OpenerTree, run};
    use super::*;
    use crate::app::site::AccessCheck;
    use crate::app::site::document_root::Root;
    use crate::app::site::htaccess::Htaccess;

    /// Starts an opener of an empty directory in a thread.
    fn start(dir: &Path) -> OwnedFd {
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let root = Root::open(dir, Default::default()).unwrap();
        let trees = [OpenerTree {
            root,
            secret: Default::default(),
        }];
        std::thread::spawn(move || run(theirs, &trees));
        ours
    }

    #[tokio::test]
    async fn late_answer_makes_the_opener_usable_again() {
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let opener = Opener::new(ours).unwrap();
        let open = || opener.open(0, Path::new("a"), Access::Read);
        // It returns although the only other thread never replies.
        assert!(matches!(open(), OpenedPath::Failed(LookupError::Scarce)));
        opener.failures().notified().await;
        let theirs = Seqpacket::from(theirs);
        let mut buffer = [0; 64];
        assert!(theirs.receive(&mut buffer).unwrap().len > 4);
        // No further request is sent meanwhile.
        assert!(matches!(open(), OpenedPath::Failed(LookupError::Scarce)));
        assert_eq!(opener.catch_up(), None);
        let number = IoSlice::new(&buffer[..4]);
        let rest = [0, 0, 0, 0, 5];
        theirs.send(&[number, IoSlice::new(&rest)], None).unwrap();
        assert!(opener.recover().await && opener.link().late.is_none());
    }

    /// Adds the waits of the runtime's thread that asks and of [`Opener::recover`].
    #[tokio::test(start_paused = true)]
    async fn stopped_opener_is_given_up_within_a_second_and_a_busy_one_later() {
        let mut process = std::process::Command::new("sleep");
        let mut process = process.arg("1000").spawn().unwrap();
        let signal = |name: &str, state: char| {
            let mut kill = std::process::Command::new("kill");
            kill.args([name, &process.id().to_string()]);
            kill.status().unwrap();
            while surus_sys::process::state(process.id()) != Some(state) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let given_up_after = async |pid: Option<u32>| {
            let (ours, _theirs) = Seqpacket::blocking_pair().unwrap();
            let opener = Opener::new(ours).unwrap();
            (opener.link().late, opener.link().pid) = (Some(1), pid);
            let began = time::Instant::now();
            assert!(!opener.recover().await);
            began.elapsed()
        };
        signal("-STOP", 'T');
        let second = Duration::from_secs(1);
        assert!(SOON + given_up_after(Some(process.id())).await < second);
        // The process id is unknown before the first reply.
        assert!(BUSY + given_up_after(None).await < second);
        signal("-CONT", 'S');
        assert!(given_up_after(Some(process.id())).await >= LATE);
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[tokio::test]
    async fn exited_opener_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let opener = Opener::new(ours).unwrap();
        drop(theirs);
        let open = || opener.open(0, Path::new("a"), Access::Read);
        assert!(matches!(open(), OpenedPath::Failed(LookupError::Scarce)));
        opener.failures().notified().await;
        assert!(!opener.recover().await);
        opener.replace(start(dir.path())).unwrap();
        assert!(opener.link().socket.is_some() && opener.recover().await);
        let failures = opener.failures();
        drop(opener);
        failures.notified().await;
    }

    /// A condition of an `.htaccess` file must deny for a concealed file.
    #[test]
    fn concealed_file_is_distinguished_from_a_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".env"), "").unwrap();
        std::fs::write(dir.path().join("x.php"), "").unwrap();
        for (target, link) in [(".env", "dot"), ("x.php", "source"), ("none", "dangling")] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        let opener = Opener::new(start(dir.path())).unwrap();
        let look = |path: &str| opener.open(0, Path::new(path), Access::Metadata);
        for path in ["dot", "source"] {
            let found = look(path);
            assert!(
                matches!(found, OpenedPath::Denied(Denial::Concealed)),
                "{path}: {found:?}"
            );
        }
        for path in ["dangling", "none"] {
            assert!(matches!(look(path), OpenedPath::Missing), "{path}");
        }
        let root = Root::open(dir.path(), Default::default()).unwrap();
        for access in [Access::Read, Access::Metadata] {
            assert!(matches!(
                root.get(Path::new("dot"), access),
                OpenedPath::Missing
            ));
        }
    }

    #[test]
    fn htaccess_file_that_cannot_be_opened_is_retried() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".htaccess"), "Require all denied").unwrap();
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let opener = Opener::new(ours).unwrap();
        drop(theirs);
        let reader = AccessCheck::new(opener.clone(), 0);
        let root = Root::open(dir.path(), Default::default()).unwrap();
        let root = root.read_by(reader);
        let htaccess = Htaccess::new(Arc::default());
        let now = Instant::now();
        let merged = || htaccess.merged(&root, "/a.txt", now).0;
        assert_eq!(merged().failed(), Some(LookupError::Scarce));
        opener.replace(start(dir.path())).unwrap();
        assert!(merged().failed().is_none() && !merged().is_empty());
    }
}
