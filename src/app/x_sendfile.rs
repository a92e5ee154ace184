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
use crate::app::site::{Found, Resolution, Site, Symlinks, Trouble, normalize};
use crate::event::{Response, ResponseBody};
use crate::units::checked;

static X_SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");
static X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Directories besides the project from which `X-Sendfile` may name files; relative to the
    /// project.
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
        let mut files = |directory: &Path| Site::of_files(&project.join(directory), symlinks);
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
        let (mut head, body) = response.into_parts();
        discard(body);
        let found = match found {
            Ok(found) => found,
            Err(Unsent::Failed(trouble)) => {
                return plain(RequestRejection::from(trouble).status, "");
            }
            Err(Unsent::Wrong(status, why)) => {
                let name = by_path.or(by_url);
                tracing::warn!(?name, why, "PHP named a file that cannot be sent");
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

        let content_type = head
            .headers
            .remove(header::CONTENT_TYPE)
            .filter(is_deliberate);
        for name in OF_THE_BODY {
            head.headers.remove(name);
        }
        for (name, value) in &file.headers {
            if *name == header::VARY {
                vary(&mut head.headers, header::ACCEPT_ENCODING);
            } else {
                head.headers.insert(name, value.clone());
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
            head.headers.insert(header::CONTENT_TYPE, content_type);
        }
        if status == StatusCode::OK {
            head.status = file.status;
        }
        Response::from_parts(head, body)
    }

    fn by_path(&self, path: &[u8]) -> Result<Found, Unsent> {
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

    fn by_url(&self, url: &[u8]) -> Result<Found, Unsent> {
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

    fn as_file(&self, resolution: Resolution) -> Result<Found, Unsent> {
        let why = match resolution {
            Resolution::File(found) if self.site.is_secret(&found) => {
                "it is the configuration of surus"
            }
            Resolution::File(found) => return Ok(found),
            Resolution::Failed(trouble) => return Err(Unsent::Failed(trouble)),
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
    Failed(Trouble),
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
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tempfile::TempDir;
    use tokio::sync::mpsc;

    use super::*;
    use crate::app::site;
    use crate::event::Failure;

    struct Case {
        _dir: TempDir,
        project: PathBuf,
        outside: PathBuf,
        send: SendFile,
    }

    fn case(symlinks: Symlinks) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in [
            "app/public/index.php",
            "app/public/pub.txt",
            "app/files/report.pdf",
            "app/files/a b.txt",
            "app/files/sub/deep.txt",
            "app/.env",
            "app/src/Secret.php",
            "media/film.mp4",
            "secret.txt",
        ] {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        symlink("../../secret.txt", base.join("app/files/link.txt")).unwrap();
        let project = base.join("app");
        let settings = Settings {
            directories: vec![base.join("media")],
            internal: BTreeMap::from([
                ("/protected/".to_owned(), PathBuf::from("files")),
                ("/protected/media".to_owned(), base.join("media")),
            ]),
        };
        let site = Site::open(&project, &site::Settings::default(), None).unwrap();
        let send = SendFile::open(&project, Arc::new(site), symlinks, &settings).unwrap();
        Case {
            _dir: dir,
            project,
            outside: base,
            send,
        }
    }

    fn php(of: &[(&str, &str)]) -> Response {
        let mut response = Response::new(ResponseBody::from("PHP's own"));
        for (name, value) in of {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            response.headers_mut().append(name, value.parse().unwrap());
        }
        response
    }

    impl Case {
        fn get(&self, of: &[(&str, &str)]) -> Response {
            self.send.replace(&Method::GET, &HeaderMap::new(), php(of))
        }

        async fn says(&self, name: &str, value: &str) -> String {
            let response = self.get(&[(name, value)]);
            assert!(!response.headers().contains_key(&X_SENDFILE));
            assert!(!response.headers().contains_key(&X_ACCEL_REDIRECT));
            let status = response.status();
            let text = text(response).await;
            if status == 200 {
                text
            } else {
                status.as_str().to_owned()
            }
        }
    }

    async fn text(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn path_is_sent_from_the_project_and_configured_directories() {
        let case = case(Symlinks::Owner);
        let (app, base) = (case.project.display(), case.outside.display());
        for (path, expected) in [
            (format!("{app}/files/report.pdf"), "app/files/report.pdf"),
            (
                format!("{app}/public/../files/a b.txt"),
                "app/files/a b.txt",
            ),
            (format!("{app}/files/a%20b.txt"), "app/files/a b.txt"),
            (format!("{base}/media/film.mp4"), "media/film.mp4"),
            (format!("{base}/secret.txt"), "404"),
            (format!("{app}/../secret.txt"), "404"),
            (format!("{app}/%2e%2e/secret.txt"), "404"),
            (format!("{app}/files/link.txt"), "404"),
            (format!("{app}/.env"), "404"),
            (format!("{app}/src/Secret.php"), "404"),
            (format!("{app}/files"), "404"),
            (format!("{app}/none"), "404"),
            ("files/report.pdf".to_owned(), "404"),
            ("/etc/passwd".to_owned(), "404"),
            ("".to_owned(), "404"),
        ] {
            assert_eq!(case.says("X-Sendfile", &path).await, expected, "{path}");
        }
    }

    #[tokio::test]
    async fn url_is_looked_up_in_internal_paths_before_the_site() {
        for (symlinks, link) in [(Symlinks::Inside, "404"), (Symlinks::Follow, "secret.txt")] {
            let case = case(symlinks);
            for (url, expected) in [
                ("/protected/report.pdf", "app/files/report.pdf"),
                ("/protected/sub/deep.txt", "app/files/sub/deep.txt"),
                ("/protected/a%20b.txt?x", "app/files/a b.txt"),
                ("/protected/media/film.mp4", "media/film.mp4"),
                ("/pub.txt", "app/public/pub.txt"),
                ("/protected/link.txt", link),
                ("/protected/../pub.txt", "app/public/pub.txt"),
                ("/protected/../../secret.txt", "404"),
                ("/protected/%2e%2e/%2e%2e/secret.txt", "404"),
                ("/protected/..%2fsecret.txt", "404"),
                ("/protectedreport.pdf", "404"),
                ("/protected", "404"),
                ("/index.php", "404"),
                ("/none", "404"),
                ("pub.txt", "404"),
                ("@named", "404"),
            ] {
                assert_eq!(case.says("X-Accel-Redirect", url).await, expected, "{url}");
            }
        }
    }

    #[tokio::test]
    async fn headers_about_the_file_stay_and_those_about_the_body_go() {
        let case = case(Symlinks::Owner);
        let response = case.get(&[
            ("X-Accel-Redirect", "/protected/report.pdf"),
            ("X-Sendfile-Type", "x"),
            ("Content-Type", "text/html; charset=UTF-8"),
            ("Content-Disposition", "attachment; filename=\"r.pdf\""),
            ("Cache-Control", "private"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("Expires", "0"),
            ("Access-Control-Allow-Origin", "*"),
            ("Content-Length", "9"),
            ("Content-Encoding", "gzip"),
            ("ETag", "\"php\""),
        ]);
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/pdf");
        assert_eq!(
            headers["content-disposition"],
            "attachment; filename=\"r.pdf\""
        );
        assert_eq!(headers["cache-control"], "private");
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(headers["expires"], "0");
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert_eq!(headers["content-length"], "20");
        assert_ne!(headers["etag"], "\"php\"");
        assert!(!headers.contains_key("content-encoding"));
        assert_eq!(text(response).await, "app/files/report.pdf");
        for (said, expected) in [
            ("application/x-report", "application/x-report"),
            (
                "text/html; charset=iso-8859-1",
                "text/html; charset=iso-8859-1",
            ),
            ("text/html", "application/pdf"),
            ("text/html;charset=utf-8", "application/pdf"),
        ] {
            let response = case.get(&[
                ("X-Accel-Redirect", "/protected/report.pdf"),
                ("Content-Type", said),
            ]);
            assert_eq!(response.headers()["content-type"], expected);
        }
    }

    #[tokio::test]
    async fn ranges_and_conditions_apply_to_the_file() {
        let case = case(Symlinks::Owner);
        let named = || php(&[("X-Accel-Redirect", "/pub.txt"), ("Content-Type", "a/b")]);
        let range = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=0-2"))]);
        let part = case.send.replace(&Method::GET, &range, named());
        assert_eq!(part.status(), 206);
        assert_eq!(part.headers()["content-type"], "a/b");
        let etag = part.headers()["etag"].clone();
        assert_eq!(text(part).await, "app");
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, etag)]);
        let not_modified = case.send.replace(&Method::GET, &known, named());
        assert_eq!(not_modified.status(), 304);
        assert!(!not_modified.headers().contains_key("content-type"));
        assert_eq!(
            case.send.replace(&Method::POST, &known, named()).status(),
            200
        );
        let ranges =
            HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=0-0,2-2"))]);
        let parts = case.send.replace(&Method::GET, &ranges, named());
        assert!(
            parts.headers()["content-type"]
                .to_str()
                .unwrap()
                .starts_with("multipart/")
        );
        let head = case.send.replace(&Method::HEAD, &range, named());
        assert_eq!(
            (head.status(), &head.headers()["content-length"]),
            (StatusCode::OK, &HeaderValue::from(18))
        );

        let mut error = named();
        *error.status_mut() = StatusCode::FORBIDDEN;
        let error = case.send.replace(&Method::GET, &range, error);
        assert_eq!(error.status(), 403);
        assert_eq!(text(error).await, "app/public/pub.txt");
        let mut empty = named();
        *empty.status_mut() = StatusCode::NOT_MODIFIED;
        let empty = case.send.replace(&Method::GET, &range, empty);
        assert_eq!(empty.status(), 304);
        assert!(!empty.headers().contains_key(&X_ACCEL_REDIRECT));
    }

    #[tokio::test]
    async fn other_response_passes_and_a_replaced_body_is_read_to_its_end() {
        let case = case(Symlinks::Owner);
        assert_eq!(text(case.get(&[("ETag", "\"php\"")])).await, "PHP's own");

        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, Failure>>(1);
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        let mut response = php(&[("X-Accel-Redirect", "/pub.txt")]);
        *response.body_mut() = ResponseBody::stream(StreamBody::new(stream));
        let response = case.send.replace(&Method::GET, &HeaderMap::new(), response);
        assert_eq!(text(response).await, "app/public/pub.txt");
        for _ in 0..5 {
            // Fails if the receiver has been dropped.
            sender
                .send(Ok(Frame::data(Bytes::from_static(b"x"))))
                .await
                .unwrap();
        }
    }

    #[test]
    fn invalid_settings_stop_the_start() {
        let case = case(Symlinks::Owner);
        let fails = |settings: Settings, says: &str| {
            let site = case.send.site.clone();
            let error =
                SendFile::open(&case.project, site, Symlinks::Owner, &settings).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        };
        fails(
            Settings {
                directories: vec!["none".into()],
                ..Settings::default()
            },
            "/none",
        );
        for prefix in ["protected", "/a/../b", ""] {
            let internal = BTreeMap::from([(prefix.to_owned(), PathBuf::from("files"))]);
            fails(
                Settings {
                    internal,
                    ..Settings::default()
                },
                "takes URL paths",
            );
        }
        let internal = BTreeMap::from([("/x".to_owned(), PathBuf::from("none"))]);
        fails(
            Settings {
                internal,
                ..Settings::default()
            },
            "/none",
        );
    }
}
