//! Opens files in a process that runs as PHP's user, for a front end that runs as another user.
//!
//! Surus sends only files that PHP's user can read. Only the kernel knows all modes, access lists
//! and security modules. A small process with only the rights of PHP's user therefore opens the
//! files, and only below the served directories. Its input is untrusted: each packet is one
//! request, and a path consists of names only.

use std::ffi::OsStr;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use surus_sys::openat2::Access;
use surus_sys::seqpacket::Seqpacket;

use super::document_root::Root;
use super::opened::{Denial, LookupError, OpenedPath};
use super::secret_files::SecretFiles;

mod front;
mod protocol;

pub use front::Opener;
use protocol::{MAX_PATH, Operation, is_below, may_be_sent};

const HEAD: usize = 7;

/// The number of a request and its reply, the kind of request, and the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question<'a> {
    number: u32,
    operation: Operation,
    tree: u16,
    path: &'a Path,
}

/// Decodes a request. The front end may only name paths below a directory, and only files that it
/// may send.
fn decode(packet: &[u8]) -> Option<Question<'_>> {
    let (head, path) = packet.split_first_chunk::<HEAD>()?;
    let [a, b, c, d, operation, e, f] = *head;
    let path = Path::new(OsStr::from_bytes(path));
    let bytes = path.as_os_str().as_bytes();
    let operation = match operation {
        1 => Operation::Read,
        2 => Operation::Look,
        3 => Operation::Resolve,
        4 => Operation::Link,
        _ => return None,
    };
    let is_one = match operation {
        Operation::Resolve => path.is_absolute() && !bytes.contains(&0),
        Operation::Read | Operation::Look | Operation::Link => {
            is_below(path) && may_be_sent(path, operation)
        }
    };
    (is_one && bytes.len() <= MAX_PATH).then_some(Question {
        number: u32::from_le_bytes([a, b, c, d]),
        operation,
        tree: u16::from_le_bytes([e, f]),
        path,
    })
}

/// A directory below which the opener opens files.
pub struct OpenerTree {
    pub(super) root: Root,
    /// The configuration file, which is never read.
    pub(super) secret: SecretFiles,
}

impl OpenerTree {
    /// The directory, which the opener's process keeps open.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.root.dir()
    }
}

/// Serves requests until the front end closes the socket.
pub fn run(socket: OwnedFd, trees: &[OpenerTree]) {
    let socket = Seqpacket::from(socket);
    let mut buffer = [0; HEAD + MAX_PATH + 1];
    let pid = std::process::id().to_le_bytes();
    loop {
        let received = match socket.receive(&mut buffer) {
            Ok(received) if received.len == 0 => return,
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let packet = buffer.get(..received.len).filter(|_| received.is_whole);
        let Some(question) = packet.and_then(decode) else {
            continue;
        };
        let opened = answer(&question, trees);
        let (code, text, fd) = encode(&opened);
        let number = question.number.to_le_bytes();
        let parts = [
            IoSlice::new(&number),
            IoSlice::new(&pid),
            IoSlice::new(&code),
            IoSlice::new(text),
        ];
        // If the front end has exited, the next receive detects it.
        let _ = socket.send(&parts, fd);
    }
}

/// The result of opening a path.
enum OpenerReply {
    Opened(OpenedPath),
    Path(PathBuf),
    Link,
}

fn answer(question: &Question<'_>, trees: &[OpenerTree]) -> OpenerReply {
    if question.operation == Operation::Resolve {
        let is_served = |path: &Path| trees.iter().any(|tree| path.starts_with(tree.root.path()));
        return match question.path.canonicalize() {
            Ok(real) if is_served(&real) => OpenerReply::Path(real),
            Err(error)
                if error.kind() == ErrorKind::PermissionDenied && is_served(question.path) =>
            {
                OpenerReply::Opened(OpenedPath::Denied(Denial::Unreadable))
            }
            _ => OpenerReply::Opened(OpenedPath::Missing),
        };
    }
    let Some(tree) = trees.get(usize::from(question.tree)) else {
        return OpenerReply::Opened(OpenedPath::Missing);
    };
    // The directory was opened as root. The checks below start from it, so they do not cover its
    // parents.
    match std::fs::metadata(tree.root.path().join(".")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return OpenerReply::Opened(OpenedPath::Denied(Denial::Unreadable));
        }
        _ => {}
    }
    let access = match question.operation {
        Operation::Read => Access::Read,
        _ => Access::Metadata,
    };
    if question.operation == Operation::Link {
        return link_at(&tree.root, question.path);
    }
    OpenerReply::Opened(match tree.root.find(question.path, access) {
        OpenedPath::Regular { metadata, .. } if tree.secret.has(&metadata) => {
            OpenedPath::Denied(Denial::Concealed)
        }
        opened => opened,
    })
}

/// Whether a symbolic link is at the path. Links on the way are followed as for files.
fn link_at(root: &Root, path: &Path) -> OpenerReply {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map(|parent| root.find(parent, Access::Metadata));
    match parent.unwrap_or(OpenedPath::Directory) {
        OpenedPath::Directory => match root.is_link(path) {
            Some(true) => OpenerReply::Link,
            Some(false) => OpenerReply::Opened(OpenedPath::Missing),
            None => OpenerReply::Opened(OpenedPath::Denied(Denial::Unreadable)),
        },
        OpenedPath::Regular { .. } => OpenerReply::Opened(OpenedPath::Missing),
        other => OpenerReply::Opened(other),
    }
}

fn encode(reply: &OpenerReply) -> ([u8; 1], &[u8], Option<BorrowedFd<'_>>) {
    let (code, text, fd): (u8, &[u8], _) = match reply {
        OpenerReply::Path(path) => (1, path.as_os_str().as_bytes(), None),
        OpenerReply::Opened(OpenedPath::Regular { file, real, .. }) => match real {
            None => (2, b"", Some(file.as_fd())),
            Some(real) => (3, real.as_os_str().as_bytes(), Some(file.as_fd())),
        },
        OpenerReply::Link => (12, b"", None),
        OpenerReply::Opened(OpenedPath::Directory) => (4, b"", None),
        OpenerReply::Opened(OpenedPath::Missing) => (5, b"", None),
        OpenerReply::Opened(OpenedPath::Denied(why)) => match why {
            Denial::LinkOutside => (6, b"", None),
            Denial::LinkOfAnother => (7, b"", None),
            Denial::Special => (8, b"", None),
            Denial::Concealed => (13, b"", None),
            _ => (9, b"", None),
        },
        OpenerReply::Opened(OpenedPath::Failed(LookupError::Scarce)) => (10, b"", None),
        OpenerReply::Opened(OpenedPath::Failed(LookupError::Broken)) => (11, b"", None),
    };
    ([code], text, fd)
}

/// For the fuzz target: decodes a packet as the opener does. Returns whether it is valid.
pub fn is_question(packet: &[u8]) -> bool {
    let question = decode(packet);
    // A request never leads out of the directory.
    assert!(question.is_none_or(|it| it.operation == Operation::Resolve || is_below(it.path)));
    question.is_some()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(what: u8, path: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, 0, what, 0, 0], path].concat()
    }

    proptest! {
        #[test]
        fn arbitrary_packet_never_leads_out_of_the_directory(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            what in 0u8..5,
        ) {
            is_question(&bytes);
            is_question(&packet(what, &bytes));
        }

        #[test]
        fn paths_with_dots_are_rejected(before in "[a-z/]{0,8}", after in "[a-z/]{0,8}") {
            for dots in ["..", "."] {
                let path = format!("{before}/{dots}/{after}");
                let trimmed = path.trim_start_matches('/').to_owned();
                prop_assert!(!is_question(&packet(1, path.as_bytes())));
                prop_assert!(!is_question(&packet(1, trimmed.as_bytes())));
            }
        }
    }

    #[test]
    fn only_files_that_may_be_sent_are_opened() {
        for path in [
            "a.css",
            "sub/dir/b.txt",
            ".well-known/x",
            "sub/.htaccess",
            ".htaccess",
        ] {
            assert!(is_question(&packet(1, path.as_bytes())), "{path}");
        }
        for path in [
            "",
            "/",
            "/etc/shadow",
            "../x",
            "a/../b",
            "a//b",
            "./a",
            "a/.",
            ".env",
            ".git/config",
            "config.php",
            "a\0b",
            ".htaccess/x",
            "x.phtml",
        ] {
            assert!(!is_question(&packet(1, path.as_bytes())), "{path}");
        }
        assert!(is_question(&packet(2, b"index.php")));
        assert!(!is_question(&packet(3, b"relative")));
        assert!(!is_question(&packet(1, &[b'a'; MAX_PATH + 1])));
        assert!(!is_question(b"") && !is_question(&[1; 6]));
    }
}
