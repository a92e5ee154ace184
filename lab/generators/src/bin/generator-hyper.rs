//! hyper's client on tokio's current-thread runtime.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::io::{Error, Result};
use std::rc::Rc;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use surus_lab_generators::{TestLoad, run};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

fn main() -> std::process::ExitCode {
    run(|load| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, generate(load))
    })
}

async fn generate(load: &TestLoad) -> Result<u64> {
    let count = Rc::new(Cell::new(0));
    for _ in 0..load.connections {
        let stream = TcpStream::connect(load.address).await?;
        stream.set_nodelay(true)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(Error::other)?;
        tokio::task::spawn_local(connection);
        let (host, path, count) = (load.address.to_string(), load.path.clone(), count.clone());
        tokio::task::spawn_local(async move {
            loop {
                let request = hyper::Request::get(&path)
                    .header("Host", &host)
                    .body(Empty::<Bytes>::new())
                    .map_err(Error::other)?;
                let response = sender.send_request(request).await.map_err(Error::other)?;
                if response.status() != 200 {
                    return Err::<(), _>(Error::other("another status than 200"));
                }
                let body = response.into_body().collect().await;
                body.map_err(Error::other)?;
                count.set(count.get() + 1);
            }
        });
    }
    tokio::time::sleep(load.length).await;
    Ok(count.get())
}
