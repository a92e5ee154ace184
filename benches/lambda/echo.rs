//! The floor: a runtime that answers every event with `{}`, in as few system calls as there can be.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use surus::emulator::Function;

pub const ARGUMENT: &str = "be-an-echo";

pub fn function() -> Function {
    Function::command(std::env::current_exe().unwrap(), [ARGUMENT])
}

pub fn run() {
    let api = std::env::var("AWS_LAMBDA_RUNTIME_API").unwrap();
    let stream = TcpStream::connect(&api).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let ask =
            format!("GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: {api}\r\n\r\n");
        writer.write_all(ask.as_bytes()).unwrap();
        let Some(head) = receive(&mut reader) else {
            return;
        };
        let id = header(&head, "lambda-runtime-aws-request-id").unwrap();
        let nonce = header(&head, "lambda-runtime-invocation-id")
            .map(|nonce| format!("Lambda-Runtime-Invocation-Id: {nonce}\r\n"))
            .unwrap_or_default();
        let answer = format!(
            "POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\r\nHost: \
                {api}\r\n{nonce}Content-Length: 2\r\n\r\n{{}}"
        );
        writer.write_all(answer.as_bytes()).unwrap();
        if receive(&mut reader).is_none() {
            return;
        }
    }
}

/// Reads one response; returns its header with names in lower case.
fn receive(reader: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut head = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) => head.push((name.to_ascii_lowercase(), value.to_string())),
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(head)
}

fn header<'a>(head: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = head.iter().find(|(found, _)| found == name);
    found.map(|(_, value)| value.as_str())
}
