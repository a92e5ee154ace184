//! A network that can be cut, or that stops forwarding.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Forwards connections to a port of this machine.
pub struct Proxy {
    pub port: u16,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    gate: Arc<Gate>,
}

/// Passes nothing while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.changed.notify_all();
    }

    /// Waits until it is open. Returns whether it was closed.
    fn pass(&self) -> bool {
        let is_closed = self.is_closed.lock().unwrap();
        let had_to_wait = *is_closed;
        let opened = self.changed.wait_while(is_closed, |is_closed| *is_closed);
        drop(opened.unwrap());
        had_to_wait
    }
}

impl Proxy {
    pub fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            is_cut: Arc::default(),
            open: Arc::default(),
            gate: Arc::default(),
        };
        let (is_cut, open) = (proxy.is_cut.clone(), proxy.open.clone());
        let gate = proxy.gate.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut open = open.lock().unwrap();
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port)))
                else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    open.push(from.try_clone().unwrap());
                    let gate = gate.clone();
                    std::thread::spawn(move || forward(from, to, &gate));
                }
            }
        });
        proxy
    }

    /// Ends all connections, and those that are opened later.
    pub fn cut(&self) {
        let mut open = self.open.lock().unwrap();
        self.is_cut.store(true, Ordering::SeqCst);
        for connection in open.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Forwards nothing, and keeps connections open: neither end learns of it.
    pub fn hold(&self) {
        self.gate.set(true);
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
        self.gate.set(false);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut piece = buffer[..count].to_vec();
        if gate.pass() {
            // Of a connection that its end has given up, nothing arrives.
            let Some(rest) = arrived_since(&mut from) else {
                break;
            };
            piece.extend(rest);
        }
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    gate.pass();
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// What has arrived and was not read. None if the connection has ended.
fn arrived_since(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut rest = Vec::new();
    from.set_read_timeout(Some(Duration::from_millis(1))).ok()?;
    let error = from.read_to_end(&mut rest).err()?;
    from.set_read_timeout(None).ok()?;
    let is_open = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
    is_open.then_some(rest)
}
