//! TODO

mod chunk_extensions;
mod io;
mod request_line;
mod sendfile_body;
mod timeouts;
