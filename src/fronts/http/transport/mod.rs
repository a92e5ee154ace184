//! The bytes between sockets and the HTTP parser: encryption, timeouts, request lines, files sent
//! by the kernel.

mod chunk_extensions;
pub(crate) mod context;
mod early_hints;
mod file_queue;
pub(crate) mod io;
pub(crate) mod quic;
mod request_line;
pub(crate) mod sendfile_body;
pub(crate) mod socket;
pub(crate) mod timeouts;
pub(crate) mod tls_session;
