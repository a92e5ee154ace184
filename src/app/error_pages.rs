//! The pages that browsers get instead of Surus's own short texts and of PHP's empty errors.

mod details;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{StatusCode, Uri, Version};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::forwarded::Peer;
use super::host;
use super::response::OwnText;
use super::site::{Resolution, Site, Symlinks};
use crate::event::{Response, ResponseBody};

/// The directory in the document root if none is configured.
const DIRECTORY: &str = "/errors";

/// A larger page is not sent.
const MAX_PAGE: u64 = 64 << 10;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The directory of the pages, relative to the project: `404.html`, `5xx.html` and so on. By
    /// default `errors` in the document root.
    pub directory: Option<PathBuf>,
    /// Which clients get a page with file, line and source of PHP's fatal error, if
    /// `display_errors` is on.
    pub details: Audience,
}

impl Settings {
    /// Opens the directory of the pages, if one is configured.
    pub fn open(&self, project: &Path, symlinks: Symlinks) -> anyhow::Result<Option<Site>> {
        let open = |directory: &PathBuf| {
            Site::files_only(&project.join(directory), symlinks)
                .context("`error_pages.directory` has the pages, relative to the project")
        };
        self.directory.as_ref().map(open).transpose()
    }
}

/// The clients that see the details of an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    None,
    /// Those on this machine, unless a proxy forwards their requests.
    #[default]
    Loopback,
    All,
}

/// What a client of an error sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ErrorView {
    /// The short text, or PHP's own response.
    #[default]
    Text,
    /// The site's page.
    Page,
    /// PHP's fatal error, else the site's page.
    Details,
}

/// The pages of a site, and who sees more.
#[derive(Debug, Clone, Default)]
pub struct ErrorPages {
    /// By name: `404`, `4xx`.
    pages: HashMap<String, Bytes>,
    details: Audience,
    /// This process may read what PHP may read, and nothing else.
    reads_source: bool,
}

impl ErrorPages {
    /// Reads the pages of `directory`, or those of the document root. A page that cannot be used is
    /// missing, with a warning. `displays_errors` is PHP's `display_errors`.
    pub fn read(
        settings: &Settings,
        site: &Site,
        directory: Option<&Site>,
        displays_errors: bool,
        reads_source: bool,
    ) -> ErrorPages {
        let (site, prefix) = match directory {
            Some(directory) => (directory, ""),
            None => (site, DIRECTORY),
        };
        let statuses = (400..600).filter_map(|status| StatusCode::from_u16(status).ok());
        let known = statuses.filter(|status| status.canonical_reason().is_some());
        let names = known.map(|status| status.as_str().to_owned());
        let names = names.chain(["4xx".to_owned(), "5xx".to_owned()]);
        let mut pages = HashMap::new();
        for name in names {
            let path = format!("{prefix}/{name}.html");
            match page(site, &path) {
                Ok(Some(page)) => drop(pages.insert(name, page)),
                Ok(None) => {}
                Err(error) => {
                    warn!(
                        path,
                        error = format!("{error:#}"),
                        "the error page is not used"
                    );
                }
            }
        }
        let mut read = ErrorPages {
            pages,
            details: Audience::None,
            reads_source,
        };
        read.set_details(settings, displays_errors);
        read
    }

    /// Selects the clients that see details. `displays_errors` is PHP's `display_errors`, which is
    /// known once the application has booted.
    pub fn set_details(&mut self, settings: &Settings, displays_errors: bool) {
        self.details = match displays_errors {
            true => settings.details,
            false => Audience::None,
        };
    }

    /// What the client of a request sees if it fails. `target` may name the host, as in HTTP/2.
    pub fn view(&self, target: &Uri, headers: &HeaderMap, peer: &Peer) -> ErrorView {
        let has_details = self.details != Audience::None;
        if self.pages.is_empty() && !has_details {
            return ErrorView::Text;
        }
        match (accepted(headers), self.details) {
            (Accepted::Other, _) => ErrorView::Text,
            (Accepted::Html, Audience::All) => ErrorView::Details,
            (Accepted::Html, Audience::Loopback) if is_local(target, headers, peer) => {
                ErrorView::Details
            }
            _ => ErrorView::Page,
        }
    }

    /// Replaces a short text of Surus and an empty error of PHP by the site's page.
    pub fn apply(&self, view: ErrorView, mut response: Response) -> Response {
        let status = response.status();
        if view == ErrorView::Text || status.as_u16() < 400 {
            return response;
        }
        let is_own = response.extensions_mut().remove::<OwnText>().is_some();
        let is_empty = matches!(response.body(), ResponseBody::Full(body) if body.is_empty());
        let is_failure = is_empty && status == StatusCode::INTERNAL_SERVER_ERROR;
        match self.page(status) {
            Some(page) if is_own || is_failure => replace(response, page.clone()),
            _ => response,
        }
    }

    /// The same for a response of PHP, whose fatal error may be shown.
    pub async fn apply_to_php(
        &self,
        view: ErrorView,
        version: Version,
        response: Response,
    ) -> Response {
        // nginx's bare `proxy_pass` speaks HTTP/1.0, and names an address of this machine as host.
        let is_proxied = version < Version::HTTP_11 && self.details == Audience::Loopback;
        if view == ErrorView::Details && !is_proxied && details::is_fatal(&response) {
            // Boxed, because it is large and rare.
            return Box::pin(details::show(response, self.reads_source)).await;
        }
        self.apply(view, response)
    }

    fn page(&self, status: StatusCode) -> Option<&Bytes> {
        let class = match status.as_u16() {
            400..500 => "4xx",
            _ => "5xx",
        };
        let own = self.pages.get(status.as_str());
        own.or_else(|| self.pages.get(class))
    }
}

/// Reads a page. None if there is none.
fn page(site: &Site, path: &str) -> anyhow::Result<Option<Bytes>> {
    let normal = super::site::normalize(path).map_err(anyhow::Error::msg)?;
    match site.find_for_script(&normal, Instant::now()) {
        Resolution::File(found) => {
            ensure!(
                found.metadata.len() <= MAX_PAGE,
                "it has more than {} KiB",
                MAX_PAGE >> 10
            );
            let mut bytes = Vec::new();
            let mut file = found.file.take(MAX_PAGE);
            file.read_to_end(&mut bytes).context("cannot read it")?;
            Ok(Some(bytes.into()))
        }
        Resolution::Denied(denial) => bail!("{}", denial.why()),
        Resolution::Failed(error) => bail!("cannot look it up: {error:?}"),
        _ => Ok(None),
    }
}

fn replace(mut response: Response, page: Bytes) -> Response {
    let headers = response.headers_mut();
    for name in [
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_DISPOSITION,
        header::ETAG,
    ] {
        headers.remove(name);
    }
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    *response.body_mut() = ResponseBody::Full(page);
    response
}

/// What a client wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepted {
    /// It names HTML, as browsers do.
    Html,
    /// Anything, as curl says, or nothing is said.
    Any,
    /// Something else. Clients that read JSON often take `*/*`, too.
    Other,
}

fn accepted(headers: &HeaderMap) -> Accepted {
    let mut all = headers.get_all(header::ACCEPT).iter().peekable();
    let mut takes_any = all.peek().is_none();
    let mut takes_json = false;
    for value in all {
        let value = value.as_bytes().to_ascii_lowercase();
        for kind in value.split(|byte| *byte == b',') {
            let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
            match kind.trim_ascii() {
                b"text/html" | b"application/xhtml+xml" => return Accepted::Html,
                b"*/*" | b"text/*" => takes_any = true,
                kind => takes_json |= kind.ends_with(b"json"),
            }
        }
    }
    match takes_any && !takes_json {
        true => Accepted::Any,
        false => Accepted::Other,
    }
}

/// Whether the client is on this machine. A proxy here connects for clients elsewhere; the header
/// that it adds, or a public host, gives it away.
fn is_local(target: &Uri, headers: &HeaderMap, peer: &Peer) -> bool {
    let is_loopback = |address: &crate::event::Address| address.ip().to_canonical().is_loopback();
    peer.client.as_ref().is_some_and(is_loopback)
        && peer.server.as_ref().is_some_and(is_loopback)
        && !["x-forwarded-for", "x-real-ip", "forwarded", "via"]
            .iter()
            .any(|name| headers.contains_key(*name))
        && is_local_host(target, headers)
}

/// Whether the requested host is a name or an address of the machine itself. It also protects from
/// web pages whose domain leads to 127.0.0.1.
fn is_local_host(target: &Uri, headers: &HeaderMap) -> bool {
    // RFC 9112, 3.2.2: `Host` is ignored if the target names an authority.
    let named = target
        .host()
        .or_else(|| headers.get(header::HOST)?.to_str().ok());
    named.is_some_and(|named| {
        let name = host::name(named).to_ascii_lowercase();
        match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            // Resolvers answer such names themselves (RFC 6761, 6.3), unlike those of `.test`.
            Err(_) => name == "localhost" || name.ends_with(".localhost"),
        }
    })
}
