//! A loop by hand over mio and httparse, without a runtime.
#![forbid(unsafe_code)]

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use surus_lab_generators::{TestLoad, run};

/// Bytes that one read takes, as in `crates/load`.
const BUFFER: usize = 32 << 10;

struct MioConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

fn main() -> std::process::ExitCode {
    run(generate)
}

fn generate(load: &TestLoad) -> Result<u64> {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n",
        load.path, load.address
    );
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for number in 0..load.connections {
        let stream = std::net::TcpStream::connect(load.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry()
            .register(&mut stream, Token(number), Interest::READABLE)?;
        stream.write_all(request.as_bytes())?;
        connections.push(MioConnection {
            stream,
            buffer: vec![0; BUFFER],
            filled: 0,
        });
    }
    let deadline = Instant::now() + load.length;
    let mut events = Events::with_capacity(load.connections);
    let mut count = 0;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        poll.poll(&mut events, Some(left))?;
        for event in &events {
            count += connections[event.token().0].receive(request.as_bytes())?;
        }
    }
    Ok(count)
}

impl MioConnection {
    /// Reads what has come, and sends the next request for each response. Returns their number.
    fn receive(&mut self, request: &[u8]) -> Result<u64> {
        let mut count = 0;
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.filled += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            }
            if self.is_complete()? {
                self.filled = 0;
                count += 1;
                self.stream.write_all(request)?;
            }
        }
    }

    fn is_complete(&self) -> Result<bool> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let bytes = &self.buffer[..self.filled];
        let httparse::Status::Complete(head) = response.parse(bytes).map_err(Error::other)? else {
            return Ok(false);
        };
        if response.code != Some(200) {
            return Err(Error::other("another status than 200"));
        }
        let mut headers = response.headers.iter();
        let length = headers.find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
        let length: usize = length.ok_or_else(|| Error::other("no Content-Length"))?;
        Ok(self.filled >= head + length)
    }
}
