//! A FastCGI client over a Unix socket. Written only from the FastCGI specification 1.0, so that it
//! shares no bug with Surus.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::vars::Vars;
use super::watch::{Watch, Watched};

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const RESPONDER: u8 = 1;
const REQUEST_COMPLETE: u8 = 0;
const REQUEST_ID: u16 = 1;

/// What the application wrote before the end of the request.
#[derive(Default)]
pub struct Reply {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// One request on one connection.
pub fn ask(socket: &Path, vars: &Vars, body: &[u8], watch: Option<Watch>) -> io::Result<Reply> {
    let connection = UnixStream::connect(socket)?;
    connection.set_read_timeout(Some(Duration::from_secs(60)))?;

    // Flags 0: the application closes the connection after the request.
    let mut request = record(BEGIN_REQUEST, &[0, RESPONDER, 0, 0, 0, 0, 0, 0]);
    let mut params = Vec::new();
    for (name, value) in vars {
        push_length(&mut params, name.len());
        push_length(&mut params, value.len());
        params.extend_from_slice(name.as_bytes());
        params.extend_from_slice(value);
    }
    push_stream(&mut request, PARAMS, &params);
    push_stream(&mut request, STDIN, body);

    // An application may answer without reading its input. Send and receive concurrently to avoid a
    // deadlock.
    let mut sender = connection.try_clone()?;
    let sending = std::thread::spawn(move || sender.write_all(&request));
    let reply = receive(Watched::new(&connection, watch));
    let _ = connection.shutdown(Shutdown::Both);
    // An application may reject the body; only its answer counts.
    let _ = sending.join();
    reply
}

fn receive(mut connection: impl Read) -> io::Result<Reply> {
    let mut reply = Reply::default();
    loop {
        let mut header = [0; 8];
        connection.read_exact(&mut header)?;
        let [version, kind, id1, id0, length1, length0, padding, _] = header;
        if version != VERSION || u16::from_be_bytes([id1, id0]) != REQUEST_ID {
            return Err(io::Error::other(format!(
                "not a record of this request: {header:?}"
            )));
        }
        let length = u16::from_be_bytes([length1, length0]) as usize;
        let mut content = vec![0; length + padding as usize];
        connection.read_exact(&mut content)?;
        content.truncate(length);
        match kind {
            STDOUT => reply.stdout.extend_from_slice(&content),
            STDERR => reply.stderr.extend_from_slice(&content),
            END_REQUEST if content[4] == REQUEST_COMPLETE => return Ok(reply),
            _ => {
                return Err(io::Error::other(format!(
                    "unexpected record {header:?} {content:?}"
                )));
            }
        }
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [id1, id0] = REQUEST_ID.to_be_bytes();
    let [length1, length0] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let mut record = vec![VERSION, kind, id1, id0, length1, length0, 0, 0];
    record.extend_from_slice(content);
    record
}

/// A stream is any number of records and an empty one at the end.
fn push_stream(request: &mut Vec<u8>, kind: u8, content: &[u8]) {
    for part in content.chunks(u16::MAX as usize) {
        request.extend(record(kind, part));
    }
    request.extend(record(kind, &[]));
}

/// One byte below 128, otherwise four with the highest bit set.
fn push_length(params: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 128 => params.push(short),
        _ => params.extend((u32::try_from(length).unwrap() | 1 << 31).to_be_bytes()),
    }
}
