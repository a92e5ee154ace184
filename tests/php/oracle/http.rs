//! An HTTP/1 client over TCP that sends exact bytes and parses responses strictly.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::answer::{Answer, split_head};
use super::watch::{Watch, Watched};

/// One request on one connection, closed after the answer.
pub fn ask(
    address: &str,
    request: &[u8],
    method: &str,
    watch: Option<Watch>,
) -> Result<Answer, String> {
    let connection =
        TcpStream::connect(address).map_err(|error| format!("connect to {address}: {error}"))?;
    connection
        .set_read_timeout(Some(Duration::from_secs(60)))
        .map_err(|error| error.to_string())?;
    let mut sender = connection.try_clone().map_err(|error| error.to_string())?;
    let request = request.to_vec();
    let sending = std::thread::spawn(move || drop(sender.write_all(&request)));
    let mut reader = BufReader::new(Watched::new(&connection, watch));
    let answer = receive(&mut reader, method);
    let _ = connection.shutdown(Shutdown::Both);
    let _ = sending.join();
    answer
}

fn receive(reader: &mut impl BufRead, method: &str) -> Result<Answer, String> {
    loop {
        let answer = receive_one(reader, method)?;
        // 100 Continue and 103 Early Hints precede the final response.
        if !(100..200).contains(&answer.status) {
            return Ok(answer);
        }
    }
}

fn receive_one(reader: &mut impl BufRead, method: &str) -> Result<Answer, String> {
    let line = read_line(reader)?;
    let (version, rest) = line
        .split_once(' ')
        .ok_or_else(|| format!("not a status line: {line:?}"))?;
    let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let status: u16 = code
        .parse()
        .map_err(|_| format!("not a status line: {line:?}"))?;
    if !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return Err(format!("not a status line: {line:?}"));
    }
    let mut head = Vec::new();
    loop {
        let from = head.len();
        reader
            .read_until(b'\n', &mut head)
            .map_err(|error| format!("reading headers: {error}"))?;
        if !head[from..].ends_with(b"\r\n") {
            return Err(format!(
                "a header line that does not end: {:?}",
                String::from_utf8_lossy(&head[from..])
            ));
        }
        if &head[from..] == b"\r\n" {
            break;
        }
    }
    let (headers, _) = split_head(&head)?;
    let mut answer = Answer {
        status,
        reason: reason.trim_end().to_string(),
        headers,
        body: Vec::new(),
        complete: true,
    };
    if method == "HEAD" || status == 204 || status == 304 || (100..200).contains(&status) {
        return Ok(answer);
    }
    let lengths = answer
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .count();
    let coding = answer
        .header("transfer-encoding")
        .map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
    if lengths > 1 || (lengths == 1 && coding.is_some()) {
        return Err(format!(
            "more than one word on the body's length: {}",
            String::from_utf8_lossy(&head)
        ));
    }
    let outcome = match (coding.as_deref(), answer.header("content-length")) {
        (Some("chunked"), _) => read_chunked(reader, &mut answer.body),
        (Some(other), _) => return Err(format!("unknown transfer encoding {other:?}")),
        (None, Some(length)) => {
            let length = String::from_utf8_lossy(length)
                .parse()
                .map_err(|_| "Content-Length is no number")?;
            let read = reader.by_ref().take(length).read_to_end(&mut answer.body);
            read.and_then(|read| {
                if read as u64 == length {
                    Ok(())
                } else {
                    Err(cut_off())
                }
            })
        }
        (None, None) => reader.read_to_end(&mut answer.body).map(drop),
    };
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err("the body did not end within a minute".into())
        }
        outcome => {
            answer.complete = outcome.is_ok();
            Ok(answer)
        }
    }
}

fn cut_off() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn read_line(reader: &mut impl BufRead) -> Result<String, String> {
    let mut line = Vec::new();
    reader
        .read_until(b'\n', &mut line)
        .map_err(|error| format!("reading the status line: {error}"))?;
    let line = String::from_utf8_lossy(&line).into_owned();
    line.strip_suffix("\r\n")
        .map(str::to_string)
        .ok_or_else(|| format!("not a whole line: {line:?}"))
}

fn read_chunked(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(reader).map_err(io::Error::other)?;
        let length = u64::from_str_radix(&line, 16).map_err(io::Error::other)?;
        if reader.by_ref().take(length).read_to_end(body)? as u64 != length {
            return Err(cut_off());
        }
        let end = read_line(reader).map_err(io::Error::other)?;
        match (length, end.is_empty()) {
            (0, true) => return Ok(()),
            (_, true) => {}
            // The request did not accept trailers.
            (_, false) => return Err(io::Error::other("a chunk that does not end where it said")),
        }
    }
}
