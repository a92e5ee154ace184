//! Connects to a host over TCP: tries its addresses one after the other, without waiting for each
//! until it fails (RFC 8305).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

/// The head start of each address (RFC 8305, 5).
const STEP: Duration = Duration::from_millis(250);

/// Looks up a host, and connects to one of its addresses.
pub async fn to_host(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    to_any(&addresses).await
}

/// Connects to the first address that answers. If packets to an address are lost, as on machines
/// with broken IPv6, the kernel alone waits two minutes for it. The caller limits the whole time.
pub async fn to_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut rest = addresses.iter().copied();
    // Dropping the set ends the other attempts.
    let mut attempts = JoinSet::new();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    loop {
        if let Some(address) = rest.next() {
            attempts.spawn(TcpStream::connect(address));
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(failed))) => error = failed,
                Some(Err(failed)) => error = failed.into(),
                None => return Err(error),
            },
            () = tokio::time::sleep(STEP), if rest.len() > 0 => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Instant;

    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::*;

    /// A listener that lets in no more clients, and those that it has.
    async fn full_listener() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        while let Ok(client) = timeout(2 * STEP, TcpStream::connect(address)).await {
            clients.push(client.unwrap());
            assert!(clients.len() < 64, "the backlog has no end");
        }
        (listener, clients)
    }

    async fn closed_address() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    #[tokio::test]
    async fn address_that_does_not_answer_delays_the_next_one_by_a_moment() {
        let (silent, _clients) = full_listener().await;
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.local_addr().unwrap(), open.local_addr().unwrap()];
        let begun = Instant::now();
        let stream = to_any(&addresses).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
        // The kernel would wait for two minutes.
        let took = begun.elapsed();
        assert!(took >= STEP && took < Duration::from_secs(60), "{took:?}");
    }

    #[tokio::test]
    async fn refused_address_is_followed_by_the_next_one_at_once() {
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = open.local_addr().unwrap();
        let addresses = [closed_address().await, address];
        let stream = to_any(&addresses).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        let stream = to_host("127.0.0.1", address.port()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn error_of_the_last_address_is_returned_if_none_answers() {
        let addresses = [closed_address().await, closed_address().await];
        let error = to_any(&addresses).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = to_any(&[]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
