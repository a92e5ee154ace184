//! Facts of a connection for its requests and the connection limits, over any transport.

use std::sync::OnceLock;

use tokio::sync::Notify;

use super::file_queue::FileQueue;
use super::request_line::BodyFraming;
use super::timeouts::ConnectionTimers;
use super::tls_session::TlsVariables;

/// The part of a connection that does not depend on its transport.
pub struct ConnectionContext {
    pub timers: ConnectionTimers,
    /// Notified when another connection needs the place.
    pub evict: Notify,
    pub body_framing: BodyFraming,
    /// The file parts for the placeholders among the bytes to write.
    pub files: FileQueue,
    /// What PHP sees of an encrypted connection. Set after the handshake.
    pub encryption: OnceLock<TlsVariables>,
}

impl ConnectionContext {
    pub fn new() -> ConnectionContext {
        ConnectionContext {
            timers: ConnectionTimers::new(),
            evict: Notify::new(),
            body_framing: BodyFraming::default(),
            files: FileQueue::default(),
            encryption: OnceLock::new(),
        }
    }
}
