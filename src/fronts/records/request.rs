//! The request that a record or another event that is not HTTP becomes: `POST /events`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request};

use crate::event::{Address, Body, Origin};

/// The path of events that are not HTTP; AWS's Lambda Web Adapter uses the same.
pub const PATH: &str = "/events";

/// The variable that only events that are not HTTP have: no header becomes this name.
pub const MARK: &str = "LAMBDA_EVENT";

/// The response header in which the PHP library reports an error's kind.
pub const ERROR_KIND: &str = "lambda-runtime-function-error-type";

/// An event as a request.
pub fn request(payload: Bytes) -> Request<Body> {
    let mut request = Request::new(Body::Memory(payload));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(PATH);
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    request
}

/// The origin of events that did not come over HTTP.
pub fn origin() -> Origin {
    static LOCAL: LazyLock<Address> =
        LazyLock::new(|| Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    Origin {
        client: Some(LOCAL.clone()),
        server: Some(LOCAL.clone()),
        https: false,
    }
}
