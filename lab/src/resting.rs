//! Measures a server at rest: what idle connections cost, and what stays once they have closed.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use surus_measure::Probe;

use crate::experiment::Load;
use crate::interrupt;
use crate::quantity::{Quantity, Sample};

/// How long a response may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server has after its last request, and after the connections have closed, until it
/// counts as resting; less if the load is shorter. Surus returns memory within 10 s after a peak.
const SETTLE: Duration = Duration::from_secs(15);
/// How often a rest looks whether it is interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// Opens a load's connections to `port`, lets each send one request, and then rests for `length`.
pub fn measure(load: &Load, port: u16, pids: Vec<i32>, length: Duration) -> anyhow::Result<Sample> {
    // The needs of the first request are no cost of a connection.
    drop(connect(load, port)?);
    let settle = SETTLE.min(length);
    rest(settle)?;
    let ended = "its processes have ended";
    let before = pss(Probe::begin(pids.clone()).context(ended)?)?;
    let mut idle = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        interrupt::check()?;
        idle.push(connect(load, port)?);
    }
    rest(settle)?;
    let probe = Probe::begin(pids.clone()).context(ended)?;
    rest(length)?;
    let usage = probe.end();
    let time = usage
        .samples
        .last()
        .map_or(length.as_secs_f64(), |it| it.at);
    let cpu = usage.cpu() / time;
    let resting = pss(Probe::begin(pids.clone()).context(ended)?)?;
    let closed = idle.iter().filter(|stream| !is_open(stream)).count();
    ensure!(
        closed == 0,
        "it closed {closed} of {} idle connections",
        load.connections
    );
    drop(idle);
    rest(settle)?;
    let after = pss(Probe::begin(pids).context(ended)?)?;
    let peak = usage.peak_pss().context("its memory cannot be read")? as f64;
    let each = |bytes: f64| ((bytes - before) / load.connections as f64).max(0.0);
    Ok(Sample::from([
        (Quantity::Memory, peak),
        (Quantity::PerConnection, each(resting)),
        (Quantity::Kept, each(after)),
        (Quantity::IdleCpu, cpu * 1e6),
    ]))
}

/// Opens a connection and waits for the response to its first request.
fn connect(load: &Load, port: u16) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let host = load.host.as_deref().unwrap_or("127.0.0.1");
    // In one piece: PHP's own server takes the first one for the whole request.
    let request = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", load.path);
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    let mut block = [0; 4096];
    while !contains(&response, load.body.as_bytes()) {
        match stream.read(&mut block).context("cannot read a response")? {
            0 => bail!("it answered {:?}", String::from_utf8_lossy(&response)),
            n => response.extend_from_slice(&block[..n]),
        }
    }
    ensure!(
        response.starts_with(b"HTTP/1.1 200"),
        "it answered {:?}",
        String::from_utf8_lossy(&response)
    );
    Ok(stream)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether the server has kept a connection. The unread rest of its response is left out.
fn is_open(mut stream: &TcpStream) -> bool {
    let mut block = [0; 4096];
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    loop {
        match stream.read(&mut block) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

fn pss(probe: Probe) -> anyhow::Result<f64> {
    let pss = probe.end().peak_pss();
    Ok(pss.context("its memory cannot be read")? as f64)
}

fn rest(time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        interrupt::check()?;
        std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
