//! Clients that keep a connection and ask without pause.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// What a client does when it is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    AtOnce,
    BackingOff,
}

impl Retry {
    pub fn name(self) -> &'static str {
        match self {
            Retry::AtOnce => "retry at once",
            Retry::BackingOff => "back off",
        }
    }
}

#[derive(Default)]
pub struct Load {
    /// Milliseconds of each request that was answered with 200.
    pub took: Vec<f64>,
    pub refused: usize,
    /// Connections that were closed or not accepted.
    pub closed: usize,
}

impl Load {
    pub fn quantile(&self, at: f64) -> f64 {
        let mut took = self.took.clone();
        took.sort_by(f64::total_cmp);
        let index = (took.len() as f64 * at) as usize;
        took.get(index.min(took.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// Nothing is counted while the clients connect, nor before an overload can have been noticed.
const WARM_UP: Duration = Duration::from_secs(3);

/// What clients get while they ask for so long, and the server's CPU time meanwhile.
pub async fn load(
    addresses: &[SocketAddr],
    clients: usize,
    retry: Retry,
    length: Duration,
    cpu: impl Fn() -> Duration,
) -> (Load, Duration) {
    let load = Rc::new(RefCell::new(None));
    let connected = Rc::new(Cell::new(0));
    let local = LocalSet::new();
    for number in 0..clients {
        let client = Client {
            address: addresses[number % addresses.len()],
            connected: connected.clone(),
            retry,
            load: load.clone(),
            seed: number as u64 + 1,
        };
        local.spawn_local(client.run());
    }
    local
        .run_until(async {
            for _ in 0..60 {
                tokio::time::sleep(WARM_UP).await;
                if connected.get() >= clients {
                    break;
                }
            }
            *load.borrow_mut() = Some(Load::default());
            let before = cpu();
            tokio::time::sleep(length).await;
            let used = cpu().saturating_sub(before);
            (load.borrow_mut().take().unwrap_or_default(), used)
        })
        .await
}

struct Client {
    address: SocketAddr,
    /// How often a client has connected.
    connected: Rc<Cell<usize>>,
    retry: Retry,
    /// None while nothing is counted.
    load: Rc<RefCell<Option<Load>>>,
    seed: u64,
}

impl Client {
    async fn run(mut self) {
        let mut pause = Duration::from_secs(1);
        let mut connection = None;
        loop {
            let began = Instant::now();
            let answer = self.ask(&mut connection).await;
            if let Some(load) = self.load.borrow_mut().as_mut() {
                match answer {
                    Ok(200) => load.took.push(began.elapsed().as_secs_f64() * 1e3),
                    Ok(_) => load.refused += 1,
                    Err(_) => load.closed += 1,
                }
            }
            if matches!(answer, Ok(200)) {
                pause = Duration::from_secs(1);
                continue;
            }
            if answer.is_err() {
                connection = None;
            }
            match self.retry {
                Retry::AtOnce => tokio::task::yield_now().await,
                Retry::BackingOff => {
                    tokio::time::sleep(pause.mul_f64(0.5 + self.random())).await;
                    pause = (pause * 2).min(Duration::from_secs(8));
                }
            }
        }
    }

    /// From 0 to 1 (xorshift).
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % 1000) as f64 / 1000.0
    }

    /// The status of an answer.
    async fn ask(&self, connection: &mut Option<TcpStream>) -> io::Result<u16> {
        let stream = match connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                self.connected.set(self.connected.get() + 1);
                // Closed without leaving a port in TIME_WAIT.
                stream.set_zero_linger()?;
                connection.insert(stream)
            }
        };
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: overload\r\n\r\n")
            .await?;
        let mut answer = Vec::with_capacity(512);
        loop {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(status) = whole(&answer) {
                return Ok(status);
            }
        }
    }
}

/// The status of an answer that is complete.
fn whole(answer: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>())
    })?;
    (body.len() >= length.ok()?).then(|| head.get(9..12)?.parse().ok())?
}
