//! Sends a file instead of PHP's own body: `X-Sendfile` and `X-Accel-Redirect`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use percent_encoding::percent_decode;
use serde::{Deserialize, Deserializer, Serialize};

use super::compression::vary;
use super::response::plain;
use super::static_files;
use super::validate::RequestRejection;
use crate::app::site::{FoundFile, LookupError, Resolution, Site, Symlinks, normalize};
use crate::event::{Response, ResponseBody};
use crate::units::{checked, one_or_more};

static X_SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");
static X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Directories besides the project from which `X-Sendfile` may name files; relative to the
    /// project.
    #[serde(deserialize_with = "one_or_more")]
    pub directories: Vec<PathBuf>,
    /// URL paths for `X-Accel-Redirect`, and the directories that they stand for, relative to the
    /// project. Clients cannot request these paths. Other paths are looked up in the document root.
    #[serde(deserialize_with = "url_paths")]
    pub internal: BTreeMap<String, PathBuf>,
}

fn url_path(prefix: &String) -> Result<()> {
    let normal = normalize(prefix).map(|normal| normal.path() == prefix);
    ensure!(
        normal == Ok(true),
        "`internal` has {prefix:?}; it takes URL paths, such as \"/protected\""
    );
    Ok(())
}

fn url_paths<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, PathBuf>, D::Error> {
    checked(from, |internal: &BTreeMap<String, PathBuf>| {
        internal.keys().try_for_each(url_path)
    })
}

/// Whether PHP's response names a file to send.
pub fn is_asked(response: &Response) -> bool {
    let mut names = response.headers().keys();
    names.any(|name| *name == X_SENDFILE || *name == X_ACCEL_REDIRECT)
}

/// The directories from which PHP may have files sent. Dot files and PHP source are never sent.
#[derive(Debug)]
pub struct SendFile {
    directories: Vec<Site>,
    /// The longest prefix first, without a trailing slash.
    internal: Vec<(String, Site)>,
    site: Arc<Site>,
}

impl SendFile {
    /// Opens the configured directories. `symlinks` decides which symbolic links are followed.
    pub fn open(
        project: &Path,
        site: Arc<Site>,
        symlinks: Symlinks,
        settings: &Settings,
    ) -> Result<SendFile> {
        let mut files = |directory: &Path| Site::files_only(&project.join(directory), symlinks);
        SendFile::open_by(site, settings, &mut files)
    }

    /// Like [`open`](Self::open), but `open` opens the directories: the project first, then the
    /// configured ones in order.
    pub fn open_by(
        site: Arc<Site>,
        settings: &Settings,
        open: &mut dyn FnMut(&Path) -> Result<Site>,
    ) -> Result<SendFile> {
        let mut directories =
            vec![open(Path::new("")).context("the project is where `X-Sendfile` may name files")?];
        for directory in &settings.directories {
            directories.push(
                open(directory).context("`directories` are where `X-Sendfile` may name files")?,
            );
        }
        let mut internal = Vec::new();
        for (prefix, directory) in &settings.internal {
            url_path(prefix)?;
            let site = open(directory).with_context(|| format!("`internal` has {prefix:?}"))?;
            internal.push((prefix.trim_end_matches('/').to_owned(), site));
        }
        internal.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(SendFile {
            directories,
            internal,
            site,
        })
    }

    /// Returns the response itself, or the file that it names. The file keeps PHP's headers (type,
    /// disposition, caching, cookies and so on) except those about PHP's own body.
    ///
    /// If the file must not be sent or does not exist, the client gets 404 and the log a warning;
    /// if PHP cannot read it, 403.
    pub fn replace(
        &self,
        method: &Method,
        headers: &HeaderMap,
        mut response: Response,
    ) -> Response {
        let by_path = response.headers_mut().remove(&X_SENDFILE);
        let by_url = response.headers_mut().remove(&X_ACCEL_REDIRECT);
        let found = match (&by_path, &by_url) {
            (Some(path), _) => self.by_path(path.as_bytes()),
            (None, Some(url)) => self.by_url(url.as_bytes()),
            (None, None) => return response,
        };
        let status = response.status();
        if status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        discard(body);
        let found = match found {
            Ok(found) => found,
            Err(Unsent::Failed(error)) => {
                return plain(RequestRejection::from(error).status, "");
            }
            Err(Unsent::Wrong(status, why)) => {
                let name = by_path.or(by_url);
                tracing::warn!(?name, reason = why, "PHP named a file that cannot be sent");
                let mut response = Response::new(ResponseBody::empty());
                *response.status_mut() = status;
                return response;
            }
        };

        let none = HeaderMap::new();
        let safe = matches!(*method, Method::GET | Method::HEAD);
        // Conditions and ranges refer to the response to a GET.
        let headers = if safe && status == StatusCode::OK {
            headers
        } else {
            &none
        };
        let method = if safe { method } else { &Method::GET };
        let (file, body) = static_files::answer(found, method, headers, |_| None).into_parts();

        let content_type = parts
            .headers
            .remove(header::CONTENT_TYPE)
            .filter(is_deliberate);
        for name in OF_THE_BODY {
            parts.headers.remove(name);
        }
        for (name, value) in &file.headers {
            if *name == header::VARY {
                vary(&mut parts.headers, header::ACCEPT_ENCODING);
            } else {
                parts.headers.insert(name, value.clone());
            }
        }
        let is_parts = file
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|t| t.as_bytes().starts_with(b"multipart/byteranges"));
        if let Some(content_type) = content_type
            && file.headers.contains_key(header::CONTENT_TYPE)
            && !is_parts
        {
            parts.headers.insert(header::CONTENT_TYPE, content_type);
        }
        if status == StatusCode::OK {
            parts.status = file.status;
        }
        Response::from_parts(parts, body)
    }

    fn by_path(&self, path: &[u8]) -> Result<FoundFile, Unsent> {
        let literal = Path::new(OsStr::from_bytes(path));
        if !literal.is_absolute() {
            return Err("X-Sendfile takes an absolute path".into());
        }
        // Some frameworks percent-encode the path and some do not. Both are checked below.
        let real = self.site.real(literal).or_else(|denied| {
            let decoded: Vec<u8> = percent_decode(path).collect();
            let real = self.site.real(Path::new(OsStr::from_bytes(&decoded)));
            real.map_err(|also| denied.or(also))
        });
        let real = real.map_err(|denied| match denied {
            None => Unsent::from("there is no such file"),
            Some(why) => Unsent::Wrong(StatusCode::FORBIDDEN, why.why()),
        })?;
        let below = |site: &Site| real.strip_prefix(site.root()).ok().map(Path::to_owned);
        let found = self
            .directories
            .iter()
            .find_map(|site| Some((site, below(site)?)));
        let (site, relative) =
            found.ok_or("it is outside the project; `x_sendfile.directories` would allow it")?;
        let relative = relative.to_str().ok_or("its name is not UTF-8")?;
        self.as_file(site.resolve_plain(&format!("/{relative}")))
    }

    fn by_url(&self, url: &[u8]) -> Result<FoundFile, Unsent> {
        let url = std::str::from_utf8(url).map_err(|_| "the URL is not UTF-8")?;
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let path = normalize(path)?;
        let below = |prefix: &str| {
            path.path()
                .strip_prefix(prefix)
                .filter(|rest| rest.starts_with('/'))
        };
        match self
            .internal
            .iter()
            .find_map(|(prefix, site)| Some((site, below(prefix)?)))
        {
            Some((site, rest)) => self.as_file(site.resolve_plain(rest)),
            None => self.as_file(self.site.find_for_script(&path, Instant::now())),
        }
    }

    fn as_file(&self, resolution: Resolution) -> Result<FoundFile, Unsent> {
        let why = match resolution {
            Resolution::File(found) if self.site.is_secret(&found) => {
                "it is the configuration of surus"
            }
            Resolution::File(found) => return Ok(found),
            Resolution::Failed(error) => return Err(Unsent::Failed(error)),
            // Only for look-ups of requests.
            Resolution::Later(_) => return Err(Unsent::Failed(LookupError::Broken)),
            Resolution::Script(_) => "no file is there, and PHP is not asked twice",
            Resolution::Redirect(_) => "it is a directory",
            Resolution::RedirectTo(..) => "an .htaccess file leads elsewhere",
            Resolution::Status(_, why) => why,
            Resolution::NotFound => "no file is there, or it is a dot file or PHP source",
            Resolution::Denied(denial) if denial.is_about_permissions() => {
                return Err(Unsent::Wrong(StatusCode::FORBIDDEN, denial.why()));
            }
            Resolution::Denied(denial) => denial.why(),
            Resolution::Malformed(why) => why,
        };
        Err(why.into())
    }
}

/// Why a file is not sent.
enum Unsent {
    /// PHP should have named another file.
    Wrong(StatusCode, &'static str),
    Failed(LookupError),
}

impl From<&'static str> for Unsent {
    fn from(why: &'static str) -> Unsent {
        Unsent::Wrong(StatusCode::NOT_FOUND, why)
    }
}

/// Headers about PHP's own body.
const OF_THE_BODY: [HeaderName; 10] = [
    header::ACCEPT_RANGES,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
];

/// PHP sets `text/html; charset=UTF-8` if the application sets no type.
fn is_deliberate(content_type: &HeaderValue) -> bool {
    let value = content_type
        .to_str()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let mut parts = value.split(';').map(str::trim);
    parts.next() != Some("text/html")
        || parts.any(|part| !part.is_empty() && part != "charset=utf-8")
}

/// Reads PHP's body to its end. Dropping it would tell PHP that the client has disconnected, and
/// end the script.
fn discard(body: ResponseBody) {
    if let ResponseBody::Stream(mut body) = body {
        tokio::spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
