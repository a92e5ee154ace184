//! A client of RabbitMQ that publishes properties as they are.

use std::io::Write;
use std::net::TcpStream;

use super::super::frames::{self, BODY, Frame, frame, header, long, method, short};

pub struct Raw(TcpStream);

impl Raw {
    pub fn connect(port: u16) -> Raw {
        let mut raw = Raw(TcpStream::connect(("127.0.0.1", port)).unwrap());
        raw.0.write_all(b"AMQP\0\0\x09\x01").unwrap();
        raw.wait_for([10, 10]);
        let plain = [
            long(&[]),
            short("PLAIN"),
            long(b"\0guest\0guest"),
            short("en_US"),
        ];
        raw.send(&method(0, [10, 11], &plain.concat()));
        let tune = raw.wait_for([10, 30]);
        raw.send(&method(0, [10, 31], tune.method().1));
        raw.send(&method(0, [10, 40], &[1, b'/', 0, 0]));
        raw.wait_for([10, 41]);
        raw.send(&method(1, [20, 10], &[0]));
        raw.wait_for([20, 11]);
        raw.send(&method(1, [85, 10], &[0]));
        raw.wait_for([85, 11]);
        raw
    }

    /// Publishes a message and waits until the server has stored it.
    pub fn publish(&mut self, queue: &str, properties: &[u8], body: &[u8]) {
        let args = [&[0, 0, 0][..], &short(queue), &[0]].concat();
        self.send(&method(1, [60, 40], &args));
        self.send(&header(1, body.len() as u64, properties));
        self.send(&frame(BODY, 1, body));
        self.wait_for([60, 80]);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn wait_for(&mut self, expected: [u8; 2]) -> Frame {
        loop {
            let frame = frames::read(&mut self.0).unwrap();
            let (method, args) = frame.method();
            assert!(
                ![[10, 50], [20, 40]].contains(&method),
                "closed: {}",
                String::from_utf8_lossy(args)
            );
            if method == expected {
                return frame;
            }
        }
    }
}
