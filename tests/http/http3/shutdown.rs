//! The end of a server with connections of HTTP/3.

use super::client::{Client, PATIENCE, answer, get, serve_h3};
use crate::wire::site;

#[tokio::test]
async fn draining_answers_requests_in_flight_and_closes_connections() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    let idle = Client::connect(&secure).await;
    assert_eq!(client.get("/index.php").await.status(), 200);
    let waiting = client.send(get("/?until=go&mib=3"), b"").await.unwrap();
    let dripping = client.send(get("/?sleep=0&until=go"), b"").await.unwrap();
    // The requests have arrived once this one, sent later, is answered.
    let static_file = client.get("/static.txt").await;
    assert_eq!(static_file.status(), 200);
    secure.surus.signal("TERM");
    secure.surus.wait_for_log(|log| log.contains("draining"));
    std::fs::write(dir.path().join("go"), "").unwrap();
    let whole = answer(waiting).await.unwrap();
    assert_eq!(whole.body.len(), 3 << 20);
    assert_eq!(answer(dripping).await.unwrap().status(), 200);
    for quic in [&client.quic, &idle.quic] {
        let closed = tokio::time::timeout(PATIENCE, quic.closed()).await.unwrap();
        match closed {
            quinn::ConnectionError::ApplicationClosed(close) => {
                assert_eq!(close.error_code.into_inner(), 0x100);
            }
            // The client has closed it after GOAWAY.
            quinn::ConnectionError::LocallyClosed => {}
            other => panic!("{other}"),
        }
    }
    let status = tokio::task::spawn_blocking(move || {
        let mut secure = secure;
        secure.surus.wait()
    });
    assert!(status.await.unwrap().success());
}
