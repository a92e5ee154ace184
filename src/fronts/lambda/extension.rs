//! How Lambda is brought to say SIGTERM before it ends this process.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Uri};
use http_body_util::BodyExt;
use tracing::{debug, info};

use super::connection::{Ask, Connection};

/// Lambda kills a runtime at once unless there is an extension. One that wants no events costs nothing and waits for nothing; the
/// runtime itself may be it.
pub async fn register(connection: Connection) {
    match tokio::time::timeout(LIMIT, attempt(connection)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => info!(
            why,
            "not registered as an extension (lambda.extension); Lambda will end this process without a warning"
        ),
        Err(_) => info!("Lambda takes no extensions here (lambda.extension)"),
    }
}

/// The start does not wait longer for it.
const LIMIT: Duration = Duration::from_secs(1);

async fn attempt(mut connection: Connection) -> Result<(), String> {
    let uri = Uri::from_static("/2020-01-01/extension/register");
    let mut ask = Ask::post(uri, Bytes::from_static(br#"{"events":[]}"#));
    let name = HeaderValue::from_static("surus");
    ask.headers.insert("lambda-extension-name", name);
    let json = HeaderValue::from_static("application/json");
    ask.headers.insert(http::header::CONTENT_TYPE, json);
    let response = connection.ask(&ask).await.map_err(|e| e.to_string())?;
    let (head, body) = response.into_parts();
    // Read to its end, so that the connection can be kept.
    let _ = body.collect().await;
    if head.status != StatusCode::OK {
        return Err(format!("status {}", head.status));
    }
    let identifier = head.headers.get("lambda-extension-identifier");
    let identifier = identifier.ok_or("no Lambda-Extension-Identifier")?.clone();
    tokio::spawn(wait(connection, identifier));
    Ok(())
}

/// The start is complete only when every extension asks for its next event, which never comes to one that wants none.
async fn wait(mut connection: Connection, identifier: HeaderValue) {
    let uri = Uri::from_static("/2020-01-01/extension/event/next");
    let mut ask = Ask::get(uri);
    ask.headers
        .insert("lambda-extension-identifier", identifier);
    let mut pause = Duration::from_millis(100);
    loop {
        match connection.ask(&ask).await {
            Ok(response) => {
                debug!(status = %response.status(), "an extension's event that nobody wants")
            }
            // A snapshot does not keep connections.
            Err(error) => debug!(%error, "the extension's connection ended"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(60));
    }
}
