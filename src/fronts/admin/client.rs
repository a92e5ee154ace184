//! Asks the running Surus of a project, for `surus status`, `surus reload` and `surus top`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::PROJECT;
use crate::fronts::address::Address;

const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Sends a request and returns the whole response.
pub async fn ask(
    address: &Address,
    project: &Path,
    method: Method,
    path: &str,
) -> anyhow::Result<(StatusCode, String)> {
    let response = open(address, project, method, path).await?;
    Ok((response.status(), text(response).await?))
}

/// Sends a request and returns the response, whose body may be arriving.
pub async fn open(
    address: &Address,
    project: &Path,
    method: Method,
    path: &str,
) -> anyhow::Result<Response<Incoming>> {
    let project = percent_encode(project.as_os_str().as_bytes(), ENCODED);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "surus")
        .header(&PROJECT, project.to_string())
        .body(Full::new(Bytes::new()))?;
    let not_running = || {
        format!(
            "no running surus answers at {address}; is it started for this directory, by this \
             user, and with the same --config?"
        )
    };
    let ended = || {
        format!(
            "{address} closed the connection before it answered: the surus there has ended, is \
             ending or has lost its front end; see its log, and start it again if it has ended"
        )
    };
    let response = match address {
        Address::Unix(socket) => {
            let stream = UnixStream::connect(socket)
                .await
                .with_context(not_running)?;
            exchange(stream, request).await
        }
        Address::Tcp(socket) => {
            let stream = TcpStream::connect(socket).await.with_context(not_running)?;
            exchange(stream, request).await
        }
    }
    .with_context(ended)?;
    if response.status() == StatusCode::MISDIRECTED_REQUEST {
        bail!(
            "{address}: {}; two projects need two addresses (admin.listen)",
            text(response).await?.trim_end()
        );
    }
    Ok(response)
}

async fn text(response: Response<Incoming>) -> anyhow::Result<String> {
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Response<Incoming>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn surus_that_ends_before_it_answers_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let address = Address::Unix(socket);
        let asked = ask(&address, directory.path(), Method::POST, "/-/reload");
        let ends = async { drop(listener.accept().await.unwrap()) };
        let (answer, ()) = tokio::join!(asked, ends);
        let error = format!("{:#}", answer.unwrap_err());
        let expected = format!("{address} closed the connection before it answered");
        assert!(error.starts_with(&expected), "{error}");
    }
}
