//! The closed set of messages between the keeper and the front end: their encoding, and the parser
//! for untrusted bytes.
//!
//! One message is one packet: a byte for the kind, then integers of fixed size (little-endian),
//! then at most one text up to the end. A packet that is too short, too long or unknown is
//! rejected.

use std::io;

use crate::launcher::{ProcessSignal, Role};

/// Longer messages are rejected before they are parsed.
pub const MAX_BYTES: usize = 32 * 1024;

/// Requests of the front end. The reply repeats the `id` that the front end chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperRequest {
    /// Start the master process of a pool. Carries
    /// [`MASTER_DESCRIPTORS`](crate::launcher::MASTER_DESCRIPTORS) descriptors.
    Master { id: u32, pool: u32 },
    /// Create the directory that a pool's installed PHP is started with.
    RuntimeDir { id: u32, pool: u32 },
    /// Remove such a directory.
    CloseRuntimeDir { runtime_dir: u32 },
    /// Start the installed PHP of a directory's pool in one of its roles. Carries the role's
    /// descriptors.
    Php {
        id: u32,
        runtime_dir: u32,
        role: Role,
    },
    /// Signal a process that the keeper started, or its child. May carry its pidfd.
    Signal { pid: u32, which: ProcessSignal },
    /// Connect to the php-fpm that the pool's configuration names.
    Connect { id: u32, pool: u32 },
    /// Open the configured directories of a site again.
    SiteDirectories { id: u32, site: u32 },
    /// Start a new opener for these directories of a site, and kill the current one.
    Opener { id: u32, directories: u32 },
    /// Read the certificates and keys of the configuration whose first site has this number.
    Certificates { id: u32, first_site: u32 },
    /// Read the configuration again, and plan its sites if it has changed.
    Configuration { id: u32 },
    /// The configuration whose first site has this number is served.
    Configured { id: u32, first_site: u32 },
    /// Start a process that checks whether the certificate of a configured domain must be renewed,
    /// and does it. `is_asked` if an operator has asked for it. Carries its socket.
    Acme {
        id: u32,
        domain: u16,
        is_asked: bool,
    },
    /// Warm up the next boots of a pool with these pages, or with `keep` store them for the next
    /// start.
    Pages {
        id: u32,
        pool: u32,
        keep: bool,
        text: String,
    },
    /// The application has booted and is served from now on, or a reload that a signal has asked
    /// for has ended.
    Ready,
}

/// Messages of the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperReply {
    /// A process has been started.
    Started { id: u32, pid: u32 },
    /// The request was performed. `text` and descriptors are the result, if there is one.
    Done { id: u32, number: u32, text: String },
    /// The request failed; `why` is the error.
    Failed { id: u32, why: String },
    /// A started process has exited.
    Exited { pid: u32, wait_status: i32 },
    /// Write the logs to these descriptors from now on: stdout, stderr.
    Reopen,
    /// Write the access log of a site to this descriptor from now on.
    ReopenSite { log: u16 },
}

/// Bytes that are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message")]
pub struct NoMessage;

impl From<NoMessage> for io::Error {
    fn from(error: NoMessage) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// The unparsed remainder of a packet.
struct Unparsed<'a>(&'a [u8]);

impl<'a> Unparsed<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], NoMessage> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(NoMessage)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, NoMessage> {
        self.take().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Result<bool, NoMessage> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NoMessage),
        }
    }

    fn u16(&mut self) -> Result<u16, NoMessage> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, NoMessage> {
        self.take().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, NoMessage> {
        let text = std::str::from_utf8(std::mem::take(&mut self.0));
        text.map(str::to_owned).map_err(|_| NoMessage)
    }
}

/// Rejects a message that is followed by more bytes.
fn whole<T>(message: T, rest: &Unparsed<'_>) -> Result<T, NoMessage> {
    rest.0.is_empty().then_some(message).ok_or(NoMessage)
}

impl KeeperRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            KeeperRequest::Master { id, pool } => {
                to.push(1);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&pool.to_le_bytes());
            }
            KeeperRequest::RuntimeDir { id, pool } => {
                to.push(2);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&pool.to_le_bytes());
            }
            KeeperRequest::CloseRuntimeDir { runtime_dir } => {
                to.push(3);
                to.extend_from_slice(&runtime_dir.to_le_bytes());
            }
            KeeperRequest::Php {
                id,
                runtime_dir,
                role,
            } => {
                to.push(4);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&runtime_dir.to_le_bytes());
                to.push(match role {
                    Role::Probe => 1,
                    Role::Request => 2,
                    Role::Server => 3,
                });
            }
            KeeperRequest::Signal { pid, which } => {
                to.push(5);
                to.extend_from_slice(&pid.to_le_bytes());
                to.push(match which {
                    ProcessSignal::Stop => 1,
                    ProcessSignal::Resume => 2,
                    ProcessSignal::Terminate => 3,
                    ProcessSignal::Kill => 4,
                    ProcessSignal::KillGroup => 5,
                    ProcessSignal::Suspend => 6,
                });
            }
            KeeperRequest::Connect { id, pool } => {
                to.push(6);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&pool.to_le_bytes());
            }
            KeeperRequest::SiteDirectories { id, site } => {
                to.push(7);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&site.to_le_bytes());
            }
            KeeperRequest::Ready => to.push(8),
            KeeperRequest::Certificates { id, first_site } => {
                to.push(10);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&first_site.to_le_bytes());
            }
            KeeperRequest::Configuration { id } => {
                to.push(13);
                to.extend_from_slice(&id.to_le_bytes());
            }
            KeeperRequest::Configured { id, first_site } => {
                to.push(14);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&first_site.to_le_bytes());
            }
            KeeperRequest::Acme {
                id,
                domain,
                is_asked,
            } => {
                to.push(11);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&domain.to_le_bytes());
                to.push((*is_asked).into());
            }
            KeeperRequest::Pages {
                id,
                pool,
                keep,
                text,
            } => {
                to.push(12);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&pool.to_le_bytes());
                to.push((*keep).into());
                let text = cut(text);
                to.extend_from_slice(&(text.len() as u32).to_le_bytes());
                to.extend_from_slice(text.as_bytes());
            }
            KeeperRequest::Opener { id, directories } => {
                to.push(9);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&directories.to_le_bytes());
            }
        }
        to
    }

    /// The id that the reply repeats, if the request has a reply.
    pub fn id(&self) -> Option<u32> {
        match self {
            KeeperRequest::Master { id, .. }
            | KeeperRequest::RuntimeDir { id, .. }
            | KeeperRequest::Php { id, .. }
            | KeeperRequest::Connect { id, .. }
            | KeeperRequest::SiteDirectories { id, .. }
            | KeeperRequest::Certificates { id, .. }
            | KeeperRequest::Configuration { id }
            | KeeperRequest::Configured { id, .. }
            | KeeperRequest::Acme { id, .. }
            | KeeperRequest::Pages { id, .. }
            | KeeperRequest::Opener { id, .. } => Some(*id),
            KeeperRequest::CloseRuntimeDir { .. }
            | KeeperRequest::Signal { .. }
            | KeeperRequest::Ready => None,
        }
    }

    /// Whether descriptors may come with the request.
    pub fn carries_descriptors(&self) -> bool {
        matches!(
            self,
            KeeperRequest::Master { .. }
                | KeeperRequest::Php { .. }
                | KeeperRequest::Signal { .. }
                | KeeperRequest::Acme { .. }
        )
    }

    /// Parses a packet of the front end, which is untrusted.
    pub fn decode(packet: &[u8]) -> Result<KeeperRequest, NoMessage> {
        if packet.len() > MAX_BYTES {
            return Err(NoMessage);
        }
        let mut rest = Unparsed(packet);
        let request = match rest.u8()? {
            1 => KeeperRequest::Master {
                id: rest.u32()?,
                pool: rest.u32()?,
            },
            2 => KeeperRequest::RuntimeDir {
                id: rest.u32()?,
                pool: rest.u32()?,
            },
            3 => KeeperRequest::CloseRuntimeDir {
                runtime_dir: rest.u32()?,
            },
            4 => KeeperRequest::Php {
                id: rest.u32()?,
                runtime_dir: rest.u32()?,
                role: match rest.u8()? {
                    1 => Role::Probe,
                    2 => Role::Request,
                    3 => Role::Server,
                    _ => return Err(NoMessage),
                },
            },
            5 => KeeperRequest::Signal {
                pid: rest.u32()?,
                which: match rest.u8()? {
                    1 => ProcessSignal::Stop,
                    2 => ProcessSignal::Resume,
                    3 => ProcessSignal::Terminate,
                    4 => ProcessSignal::Kill,
                    5 => ProcessSignal::KillGroup,
                    6 => ProcessSignal::Suspend,
                    _ => return Err(NoMessage),
                },
            },
            6 => KeeperRequest::Connect {
                id: rest.u32()?,
                pool: rest.u32()?,
            },
            7 => KeeperRequest::SiteDirectories {
                id: rest.u32()?,
                site: rest.u32()?,
            },
            8 => KeeperRequest::Ready,
            9 => KeeperRequest::Opener {
                id: rest.u32()?,
                directories: rest.u32()?,
            },
            10 => KeeperRequest::Certificates {
                id: rest.u32()?,
                first_site: rest.u32()?,
            },
            11 => KeeperRequest::Acme {
                id: rest.u32()?,
                domain: rest.u16()?,
                is_asked: rest.bool()?,
            },
            12 => {
                let (id, pool, keep) = (rest.u32()?, rest.u32()?, rest.bool()?);
                let (length, text) = (rest.u32()?, rest.text()?);
                if text.len() != length as usize {
                    return Err(NoMessage);
                }
                KeeperRequest::Pages {
                    id,
                    pool,
                    keep,
                    text,
                }
            }
            13 => KeeperRequest::Configuration { id: rest.u32()? },
            14 => KeeperRequest::Configured {
                id: rest.u32()?,
                first_site: rest.u32()?,
            },
            _ => return Err(NoMessage),
        };
        whole(request, &rest)
    }
}

impl KeeperReply {
    /// Truncates texts to the size of a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            KeeperReply::Started { id, pid } => {
                to.push(1);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&pid.to_le_bytes());
            }
            KeeperReply::Done { id, number, text } => {
                to.push(2);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(&number.to_le_bytes());
                to.extend_from_slice(cut(text).as_bytes());
            }
            KeeperReply::Failed { id, why } => {
                to.push(3);
                to.extend_from_slice(&id.to_le_bytes());
                to.extend_from_slice(cut(why).as_bytes());
            }
            KeeperReply::Exited { pid, wait_status } => {
                to.push(4);
                to.extend_from_slice(&pid.to_le_bytes());
                to.extend_from_slice(&wait_status.to_le_bytes());
            }
            KeeperReply::Reopen => to.push(5),
            KeeperReply::ReopenSite { log } => {
                to.push(6);
                to.extend_from_slice(&log.to_le_bytes());
            }
        }
        to
    }

    pub fn decode(packet: &[u8]) -> Result<KeeperReply, NoMessage> {
        let mut rest = Unparsed(packet);
        let reply = match rest.u8()? {
            1 => KeeperReply::Started {
                id: rest.u32()?,
                pid: rest.u32()?,
            },
            2 => KeeperReply::Done {
                id: rest.u32()?,
                number: rest.u32()?,
                text: rest.text()?,
            },
            3 => KeeperReply::Failed {
                id: rest.u32()?,
                why: rest.text()?,
            },
            4 => KeeperReply::Exited {
                pid: rest.u32()?,
                wait_status: rest.u32()?.cast_signed(),
            },
            5 => KeeperReply::Reopen,
            6 => KeeperReply::ReopenSite { log: rest.u16()? },
            _ => return Err(NoMessage),
        };
        whole(reply, &rest)
    }
}

/// The part of a text that fits into a message with its numbers.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_BYTES - 16);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "message/tests.rs"]
mod tests;
