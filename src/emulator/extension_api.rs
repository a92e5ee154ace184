//! The Extensions API over HTTP: handles each of its calls.

use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;

use super::api_error::{ApiError, MAX_PAYLOAD};
use super::extensions;
use super::function::EmulatedFunction;
use super::invoke_response::FunctionError;
use super::reply::{RuntimeReply, accepted, collect, json, reply, text};
use super::sandbox::Sandbox;

#[derive(Deserialize)]
struct Registration {
    #[serde(default)]
    events: Vec<String>,
}

pub async fn register(
    function: &EmulatedFunction,
    sandbox: &Sandbox,
    request: Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let (parts, body) = request.into_parts();
    let name = text(&parts.headers, "lambda-extension-name").unwrap_or_default();
    let Ok((bytes, _)) = collect(body, MAX_PAYLOAD).await else {
        return Err(ApiError::truncated());
    };
    let registration: Registration = serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::extension("InvalidRequestFormat", error.to_string()))?;
    let id = sandbox
        .state()
        .extensions
        .register(&name, &registration.events)?;
    let mut registered = serde_json::json!({
        "functionName": function.name,
        "functionVersion": function.version,
        "handler": function.handler,
    });
    let features = text(&parts.headers, "lambda-extension-accept-feature").unwrap_or_default();
    if features.split(',').any(|f| f.trim() == "accountId") {
        registered["accountId"] = serde_json::json!(function.account);
    }
    let mut reply = json(StatusCode::OK, registered.to_string());
    if let Ok(id) = HeaderValue::from_str(&id) {
        reply
            .headers_mut()
            .insert("lambda-extension-identifier", id);
    }
    Ok(reply)
}

pub async fn next(
    sandbox: &Sandbox,
    request: &Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let id = text(request.headers(), "lambda-extension-identifier");
    let next = {
        let mut state = sandbox.state();
        let next = state.extensions.next(id.as_deref())?;
        state.extension_is_ready();
        next
    };
    let event = match next {
        extensions::NextEvent::Now(event) => event,
        extensions::NextEvent::Wait(waiting) => waiting.await.map_err(|_| ApiError::internal())?,
    };
    let mut reply = reply(StatusCode::OK, event);
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Ok(id) = HeaderValue::from_str(&super::identifier::uuid()) {
        headers.insert("lambda-extension-event-identifier", id);
    }
    Ok(reply)
}

pub fn error(
    sandbox: &Sandbox,
    request: &Request<Incoming>,
    at_init: bool,
) -> Result<RuntimeReply, ApiError> {
    const TYPE: &str = "lambda-extension-function-error-type";
    let id = text(request.headers(), "lambda-extension-identifier");
    let kind = text(request.headers(), TYPE).filter(|kind| !kind.is_empty());
    let Some(kind) = kind else {
        return Err(ApiError::extension(
            "Extension.MissingHeader",
            "Lambda-Extension-Function-Error-Type not found",
        ));
    };
    let mut state = sandbox.state();
    let name = state.extensions.failed(id.as_deref(), at_init)?;
    let of_lambda = match at_init {
        true => "Extension.InitError",
        false => "Extension.ExitError",
    };
    let message = format!("the extension {name} has failed: {kind}");
    state.fail(FunctionError::from_platform(of_lambda, &message));
    Ok(accepted())
}
