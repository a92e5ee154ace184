//! A proxy to AWS that watches one kind of request, holds it, or loses its response.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// What happens to the request.
#[derive(Clone, Copy)]
pub enum Fault {
    None,
    /// It gets no response, and the connection stays open.
    Held,
    /// It reaches AWS, but the connection is closed without a response.
    ResponseLost,
}

pub struct Proxy {
    pub url: String,
    /// The bodies of the requests; empty for one that is held.
    pub arrived: Receiver<String>,
}

impl Proxy {
    /// `line`: the beginning of the request line.
    pub fn start(aws: String, line: &'static str, fault: Fault) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (arrival, arrived) = channel();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (aws, arrival) = (aws.clone(), arrival.clone());
                thread::spawn(move || exchange(client, &aws, line, fault, &arrival));
            }
        });
        Proxy { url, arrived }
    }
}

/// A network to AWS that can fail.
pub struct Network {
    pub url: String,
    is_down: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
}

impl Network {
    pub fn start(aws: String) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Network {
            url: format!("http://{}", listener.local_addr().unwrap()),
            is_down: Arc::default(),
            refused: Arc::default(),
        };
        let (is_down, refused) = (network.is_down.clone(), network.refused.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_down.load(Ordering::SeqCst) {
                    // Dropping the connection closes it.
                    refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let aws = aws.clone();
                let (arrival, _) = channel();
                thread::spawn(move || exchange(client, &aws, "no such", Fault::None, &arrival));
            }
        });
        network
    }

    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// How many connections it has closed without a response.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }
}

/// One exchange per connection.
fn exchange(
    mut client: TcpStream,
    aws: &str,
    line: &str,
    fault: Fault,
    arrival: &Sender<String>,
) -> io::Result<()> {
    let mut request = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if request.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let is_meant = head.starts_with(line);
    if is_meant && matches!(fault, Fault::Held) {
        let _ = arrival.send(String::new());
        // Until the client gives up.
        io::copy(&mut request, &mut io::sink())?;
        return Ok(());
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    request.read_exact(&mut body)?;
    let mut server = TcpStream::connect(aws.strip_prefix("http://").unwrap())?;
    let closing = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    server.write_all(closing.as_bytes())?;
    server.write_all(&body)?;
    let mut response = Vec::new();
    server.read_to_end(&mut response)?;
    if is_meant {
        let _ = arrival.send(String::from_utf8(body).unwrap());
        if matches!(fault, Fault::ResponseLost) {
            return Ok(());
        }
    }
    client.write_all(&response)
}
