//! The source addresses of connections to this machine.
//!
//! One address has about 28,000 ports (`net.ipv4.ip_local_port_range`), and a closed connection
//! keeps its port for a while. Near that limit each `connect()` searches for a free port, for
//! milliseconds, and then fails. All of 127.0.0.0/8 is this machine, with as many ports for each
//! address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use tokio::net::{TcpSocket, TcpStream};

use crate::plan::Plan;

/// So many connections leave most ports of one address free.
const FEW: usize = 10_000;

/// 127.0.0.1 to 127.0.0.16.
const ADDRESSES: u32 = 16;

/// Which addresses connections come from.
#[derive(Debug)]
pub struct Sources {
    spreads: bool,
    next: AtomicU32,
}

impl Sources {
    /// Several addresses if the plan opens more connections than one address has ports for.
    pub fn new(plan: &Plan) -> Sources {
        Sources {
            spreads: plan.concurrency > FEW || !plan.keeps_alive,
            next: AtomicU32::new(0),
        }
    }

    /// Connects, from the next address if the server is on 127.0.0.1.
    pub async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        if !self.spreads || to.ip() != Ipv4Addr::LOCALHOST {
            return TcpStream::connect(to).await;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed) % ADDRESSES;
        let from = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + index);
        let socket = TcpSocket::new_v4()?;
        // The port is chosen by connect(), which knows the other end.
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        socket.bind(SocketAddrV4::new(from, 0).into())?;
        socket.connect(to).await
    }
}
