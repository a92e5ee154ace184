//! Tests of files whose type an `.htaccess` file names.

use super::*;

#[test]
fn type_named_by_htaccess_is_sent_and_not_guessed() {
    let (_dir, mut found) = at("x.html", 1_000_000_000, b"x");
    for (named, expected) in [
        (None, "text/html; charset=utf-8"),
        (Some("text/plain"), "text/plain; charset=utf-8"),
        (Some("TEXT/plain;charset=x"), "TEXT/plain;charset=x"),
        (Some("image/x"), "image/x"),
        (Some("a\nb"), "application/octet-stream"),
    ] {
        found.media_type = named.map(Into::into);
        for range in [&[][..], &[("range", "bytes=0-0")]] {
            let response = answer(again(&found), &Method::GET, &headers(range), |_| None);
            assert_eq!(response.headers()["content-type"], expected);
            let nosniff = response.headers().get("x-content-type-options");
            assert_eq!(nosniff.is_some(), named.is_some(), "{named:?}");
        }
    }
}
