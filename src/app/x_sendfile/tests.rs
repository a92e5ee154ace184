//! Tests of `x_sendfile.rs`.

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
    for (content_type, expected) in [
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
            ("Content-Type", content_type),
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
    let ranges = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=0-0,2-2"))]);
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
        let error = SendFile::open(&case.project, site, Symlinks::Owner, &settings).unwrap_err();
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
