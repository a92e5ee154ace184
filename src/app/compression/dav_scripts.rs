//! Remembers which scripts of an application serve WebDAV, whose clients compare entity tags.

use std::sync::{Arc, OnceLock};

use http::header::{self, HeaderMap};
use http::{HeaderName, StatusCode};

use crate::event::Response;

/// Later scripts are not remembered: an application has one or two.
const MAX: usize = 16;

/// WebDAV servers send this header in responses to OPTIONS, and some in others (RFC 4918, 10.1).
static DAV: HeaderName = HeaderName::from_static("dav");

/// The scripts, by `SCRIPT_NAME`, that have answered in the way of WebDAV. A slot that is filled
/// never changes, so requests read them without a lock.
#[derive(Debug, Default)]
pub struct DavScripts([OnceLock<Arc<str>>; MAX]);

impl DavScripts {
    /// Remembers the script of a response of WebDAV.
    pub fn learn(&self, script: &Arc<str>, response: &Response) {
        if is_of_dav(response) {
            // The first slot that is free, or has the script already.
            let _ = (self.0.iter()).find(|slot| slot.get_or_init(|| script.clone()) == script);
        }
    }

    /// Whether clients may compare the tag of this response of the script with that of a listing.
    /// Without a strong tag, compression changes none.
    pub fn keeps_tag(&self, script: &str, headers: &HeaderMap) -> bool {
        let mut known = self.0.iter().map_while(OnceLock::get);
        known.any(|known| **known == *script)
            && headers
                .get(header::ETAG)
                .is_some_and(|tag| !tag.as_bytes().starts_with(b"W/"))
    }
}

/// Batch APIs also answer 207, but with JSON.
fn is_of_dav(response: &Response) -> bool {
    let headers = response.headers();
    let is_xml = || {
        let content_type = headers.get(header::CONTENT_TYPE);
        content_type.is_some_and(|value| {
            let text = value.as_bytes().to_ascii_lowercase();
            text.starts_with(b"application/xml") || text.starts_with(b"text/xml")
        })
    };
    headers.contains_key(&DAV) || response.status() == StatusCode::MULTI_STATUS && is_xml()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::event::ResponseBody;

    fn response(status: u16, fields: &[(&'static str, &'static str)]) -> Response {
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(*name, value);
        }
        response
    }

    fn tagged(tag: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static(tag))])
    }

    #[test]
    fn strong_tags_of_scripts_that_serve_webdav_are_kept() {
        let xml = ("content-type", "Application/XML; charset=utf-8");
        for (answer, is_dav) in [
            (response(207, &[xml]), true),
            (response(200, &[("dav", "1, 3")]), true),
            (
                response(207, &[("content-type", "application/json")]),
                false,
            ),
            (response(207, &[]), false),
            (response(200, &[xml]), false),
        ] {
            let scripts = DavScripts::default();
            scripts.learn(&"/remote.php".into(), &answer);
            assert_eq!(
                scripts.keeps_tag("/remote.php", &tagged("\"a\"")),
                is_dav,
                "{answer:?}"
            );
            assert!(!scripts.keeps_tag("/index.php", &tagged("\"a\"")));
            assert!(!scripts.keeps_tag("/remote.php", &tagged("W/\"a\"")));
            assert!(!scripts.keeps_tag("/remote.php", &HeaderMap::new()));
        }
    }

    #[test]
    fn only_the_first_scripts_are_remembered() {
        let scripts = DavScripts::default();
        let answer = response(200, &[("dav", "1")]);
        for number in 0..=MAX {
            for _ in 0..2 {
                scripts.learn(&format!("/{number}.php").into(), &answer);
            }
        }
        let is_known =
            |number: usize| scripts.keeps_tag(&format!("/{number}.php"), &tagged("\"a\""));
        assert!((0..MAX).all(is_known));
        assert!(!is_known(MAX));
    }
}
