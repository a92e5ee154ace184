//! Registration as a Lambda extension, so that Lambda sends SIGTERM before SIGKILL.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Uri};
use http_body_util::BodyExt;
use tracing::{debug, info};

use super::connection::{ApiRequest, RuntimeConnection};

/// Registers an extension without events. Lambda kills a runtime without SIGTERM unless there is an
/// extension. The runtime itself may be one, and without events it costs no time.
pub async fn register(connection: RuntimeConnection) {
    let attempt = tokio::spawn(async {
        if let Err(error) = attempt(connection).await {
            info!(
                error,
                "cannot register as an extension; Lambda will kill this process without SIGTERM \
                 (lambda.extension)"
            );
        }
    });
    // The attempt goes on: Lambda waits for a registered extension to ask for an event.
    if tokio::time::timeout(LIMIT, attempt).await.is_err() {
        info!("Lambda did not accept the extension in time (lambda.extension)");
    }
}

/// How long the start-up waits for the registration.
const LIMIT: Duration = Duration::from_secs(1);

async fn attempt(mut connection: RuntimeConnection) -> Result<(), String> {
    let uri = Uri::from_static("/2020-01-01/extension/register");
    let mut ask = ApiRequest::post(uri, Bytes::from_static(br#"{"events":[]}"#));
    let name = HeaderValue::from_static("surus");
    ask.headers.insert("lambda-extension-name", name);
    let json = HeaderValue::from_static("application/json");
    ask.headers.insert(http::header::CONTENT_TYPE, json);
    let response = connection.ask(&ask).await.map_err(|e| e.to_string())?;
    let (parts, body) = response.into_parts();
    // Reading to the end keeps the connection usable.
    let _ = body.collect().await;
    if parts.status != StatusCode::OK {
        return Err(format!("status {}", parts.status));
    }
    let identifier = parts.headers.get("lambda-extension-identifier");
    let identifier = identifier.ok_or("no Lambda-Extension-Identifier")?.clone();
    tokio::spawn(wait(connection, identifier));
    Ok(())
}

/// Asks for the next event, which never comes. The start-up is complete only once every extension
/// has asked.
async fn wait(mut connection: RuntimeConnection, identifier: HeaderValue) {
    let uri = Uri::from_static("/2020-01-01/extension/event/next");
    let mut ask = ApiRequest::get(uri);
    ask.headers
        .insert("lambda-extension-identifier", identifier);
    let mut pause = Duration::from_millis(100);
    loop {
        match connection.ask(&ask).await {
            Ok(response) => {
                debug!(status = %response.status(), "unexpected event for the extension")
            }
            // Connections do not survive a snapshot.
            Err(error) => debug!(%error, "extension connection closed"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(60));
    }
}
