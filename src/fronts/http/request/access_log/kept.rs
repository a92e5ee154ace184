//! Values that a format needs of a request and its response, beyond those of every entry.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Request};

use crate::app::forwarded::Peer;
use crate::app::host;
use crate::fronts::http::transport::tls_session::TlsVariables;

/// A value that is copied when the request begins, or when its response does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A header of the request.
    Header(HeaderName),
    Cookie(String),
    /// The user that HTTP's basic authentication names. The password is not kept.
    User,
    /// The host without its port, in lower case.
    Host,
    Scheme,
    /// The name of the `[[site]]`, or else the host.
    Site,
    PeerAddress,
    ServerAddress,
    ServerPort,
    /// A variable of the TLS connection, named as in mod_ssl.
    Tls(&'static str),
    /// A header of the response.
    Sent(HeaderName),
}

/// Values of [`Field`]s, in their order; None where there is none.
pub type Kept = Vec<Option<Box<[u8]>>>;

/// A request that begins, and its connection.
pub struct BegunRequest<'a> {
    pub peer: &'a Peer,
    /// The client's address, and whether its connection is encrypted, after trusted proxies.
    pub client: Option<IpAddr>,
    pub https: bool,
    /// The name of the `[[site]]`; empty if there is none.
    pub site: &'a str,
    pub encryption: Option<&'a TlsVariables>,
}

impl Field {
    /// The values of a request that begins.
    pub fn keep<B>(fields: &[Field], request: &Request<B>, begun: &BegunRequest<'_>) -> Kept {
        let value = |field| Some(begun.value(field, request)?.into_boxed_slice());
        fields.iter().map(value).collect()
    }

    /// Adds the values of a response that begins.
    pub fn keep_sent(fields: &[Field], headers: &HeaderMap, kept: &mut Kept) {
        for (field, value) in fields.iter().zip(kept) {
            if let Field::Sent(name) = field {
                *value = joined(headers, name).map(Vec::into_boxed_slice);
            }
        }
    }
}

impl BegunRequest<'_> {
    fn value<B>(&self, field: &Field, request: &Request<B>) -> Option<Vec<u8>> {
        let headers = request.headers();
        let server = self.peer.server.as_ref();
        let text = |text: String| Some(text.into_bytes());
        match field {
            Field::Header(name) if *name == header::HOST => requested_host(request).map(Vec::from),
            Field::Header(name) => joined(headers, name),
            Field::Cookie(name) => cookie(headers, name).map(Vec::from),
            Field::User => user(headers.get(header::AUTHORIZATION)?),
            Field::Host => host_name(request),
            Field::Scheme => text(if self.https { "https" } else { "http" }.into()),
            Field::Site if !self.site.is_empty() => text(self.site.into()),
            Field::Site => host_name(request),
            Field::PeerAddress => text(self.peer.client.as_ref()?.ip_text().into()),
            Field::ServerAddress => text(server?.ip_text().into()),
            Field::ServerPort => text(server?.port_text().into()),
            Field::Tls(name) => {
                let mut all = self.encryption?.iter();
                text(all.find(|(known, _)| known == name)?.1.clone())
            }
            Field::Sent(_) => None,
        }
    }
}

/// All values of a header. HTTP/2 clients send each cookie in a field of its own.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let values: Vec<_> = headers.get_all(name).iter().collect();
    let bytes: Vec<_> = values.iter().map(|value| value.as_bytes()).collect();
    let separator: &[u8] = if name == header::COOKIE { b"; " } else { b", " };
    (!bytes.is_empty()).then(|| bytes.join(separator))
}

/// HTTP/2 and 3 have the host in the target.
fn requested_host<B>(request: &Request<B>) -> Option<&[u8]> {
    match request.headers().get(header::HOST) {
        Some(host) => Some(host.as_bytes()),
        None => Some(request.uri().authority()?.as_str().as_bytes()),
    }
}

fn host_name<B>(request: &Request<B>) -> Option<Vec<u8>> {
    let host = std::str::from_utf8(requested_host(request)?).ok()?;
    Some(host::name(host).to_ascii_lowercase().into_bytes())
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(header::COOKIE).iter();
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })
}

fn user(authorization: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, credentials) = authorization.as_bytes().split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut user = STANDARD.decode(credentials.trim_ascii()).ok()?;
    let end = user.iter().position(|byte| *byte == b':')?;
    user.truncate(end);
    (!user.is_empty()).then_some(user)
}
