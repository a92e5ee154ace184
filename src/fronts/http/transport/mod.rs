//! The bytes between sockets and the HTTP parser: timeouts, request lines, files sent by the
//! kernel.

mod chunk_extensions;
mod file_queue;
pub(crate) mod io;
mod request_line;
pub(crate) mod sendfile_body;
pub(crate) mod socket;
pub(crate) mod timeouts;
