//! Tests which clients see which page, and what the page of a fatal error shows.

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Response, StatusCode, Uri, Version};

use super::details::{Escaped, Fatal, show};
use super::{Accepted, Audience, ErrorPages, ErrorView, MAX_PAGE, Settings, accepted};
use crate::app::forwarded::Peer;
use crate::app::response::{FATAL, plain};
use crate::app::site::{self, Site};
use crate::event::ResponseBody;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn peer(client: &str, server: &str) -> Peer {
    let address = |text: &str| {
        let socket: std::net::SocketAddr = text.parse().unwrap();
        Some(socket.into())
    };
    Peer {
        client: address(client),
        server: address(server),
        https: false,
    }
}

fn text(response: &crate::event::Response) -> String {
    match response.body() {
        ResponseBody::Full(body) => String::from_utf8(body.to_vec()).unwrap(),
        ResponseBody::Stream(_) => panic!("a stream"),
    }
}

fn pages(files: &[(&str, &str)]) -> ErrorPages {
    let place = tempfile::tempdir().unwrap();
    let errors = place.path().join("errors");
    std::fs::create_dir(&errors).unwrap();
    std::fs::write(place.path().join("index.php"), "").unwrap();
    for (name, content) in files {
        std::fs::write(errors.join(name), content).unwrap();
    }
    let site = Site::open(place.path(), &site::Settings::default(), None).unwrap();
    ErrorPages::read(&Settings::default(), &site, None, false, false)
}

#[test]
fn client_that_names_json_and_not_html_gets_no_page() {
    let accepts = |accept: &str| accepted(&headers(&[("accept", accept)]));
    assert_eq!(accepted(&HeaderMap::new()), Accepted::Any);
    assert_eq!(accepts("*/*"), Accepted::Any);
    assert_eq!(accepts("TEXT/*"), Accepted::Any);
    for accept in ["text/html", "application/json, Text/HTML;q=0.9, */*;q=0.8"] {
        assert_eq!(accepts(accept), Accepted::Html, "{accept}");
    }
    for accept in [
        "application/json",
        "application/json, text/plain, */*",
        "application/problem+json;q=1, */*",
        "image/png",
    ] {
        assert_eq!(accepts(accept), Accepted::Other, "{accept}");
    }
}

#[test]
fn own_page_goes_before_that_of_its_class() {
    let large = "x".repeat(MAX_PAGE as usize + 1);
    let pages = pages(&[
        ("404.html", "own 404"),
        ("4xx.html", "any 4xx"),
        ("503.html", "own 503"),
        ("500.html", &large),
        ("799.html", "no status"),
    ]);
    let shown = |status: StatusCode| text(&pages.apply(ErrorView::Page, plain(status, "why")));
    assert_eq!(shown(StatusCode::NOT_FOUND), "own 404");
    assert_eq!(shown(StatusCode::PAYLOAD_TOO_LARGE), "any 4xx");
    assert_eq!(shown(StatusCode::SERVICE_UNAVAILABLE), "own 503");
    let short = "500 Internal Server Error: why\n";
    assert_eq!(shown(StatusCode::INTERNAL_SERVER_ERROR), short);
    let response = plain(StatusCode::NOT_FOUND, "");
    assert_eq!(
        text(&pages.apply(ErrorView::Text, response)),
        "404 Not Found\n"
    );
}

#[test]
fn response_of_php_keeps_its_body_unless_it_is_an_empty_error() {
    let pages = pages(&[("4xx.html", "page"), ("5xx.html", "page")]);
    let shown = |status: u16, body: &'static str| {
        let response = Response::builder().status(status);
        let response = response.header(header::CONTENT_LENGTH, body.len());
        let response = response.body(ResponseBody::Full(body.into())).unwrap();
        text(&pages.apply(ErrorView::Page, response))
    };
    assert_eq!(shown(500, ""), "page");
    assert_eq!(shown(500, "php's"), "php's");
    assert_eq!(shown(404, ""), "");
    assert_eq!(shown(503, ""), "");
    assert_eq!(shown(200, ""), "");
}

#[test]
fn details_are_for_clients_on_this_machine() {
    let with = |details| ErrorPages {
        details,
        ..ErrorPages::default()
    };
    let local = || peer("127.0.0.1:5000", "127.0.0.1:80");
    let html = ("accept", "text/html");
    let root = Uri::from_static("/");
    let view = |lines: &[(&'static str, &str)], peer: Peer| {
        let lines = [lines, &[html]].concat();
        with(Audience::Loopback).view(&root, &headers(&lines), &peer)
    };
    for host in [
        "localhost:8080",
        "LocalHost.",
        "127.0.0.1",
        "[::1]:8080",
        "app.localhost:8000",
    ] {
        assert_eq!(
            view(&[("host", host)], local()),
            ErrorView::Details,
            "{host}"
        );
    }
    let mapped = peer("[::ffff:127.0.0.1]:5000", "[::1]:80");
    assert_eq!(view(&[("host", "localhost")], mapped), ErrorView::Details);
    assert_eq!(view(&[], local()), ErrorView::Page, "no host");
    // The host of HTTP/2 is in the target.
    for (target, shown) in [
        ("http://localhost:8080/", ErrorView::Details),
        ("http://[::1]/", ErrorView::Details),
        ("http://example.org/", ErrorView::Page),
    ] {
        let target = Uri::from_static(target);
        let seen = with(Audience::Loopback).view(&target, &headers(&[html]), &local());
        assert_eq!(seen, shown, "{target}");
    }
    for lines in [
        [("host", "example.org")],
        [("host", "localhost.example.org")],
        [("host", "shop.test")],
        [("host", "notlocalhost")],
        [("host", "")],
    ] {
        assert_eq!(view(&lines, local()), ErrorView::Page, "{lines:?}");
    }
    let host = ("host", "localhost");
    for of_proxy in [
        ("x-forwarded-for", "192.0.2.1"),
        ("forwarded", "for=192.0.2.1"),
        ("via", "1.1 proxy"),
    ] {
        assert_eq!(
            view(&[host, of_proxy], local()),
            ErrorView::Page,
            "{of_proxy:?}"
        );
    }
    let other = || peer("192.0.2.1:5000", "192.0.2.2:80");
    assert_eq!(view(&[host], other()), ErrorView::Page);
    let container = peer("192.0.2.1:5000", "127.0.0.1:80");
    assert_eq!(view(&[host], container), ErrorView::Page);
    let browser = headers(&[html]);
    assert_eq!(
        with(Audience::All).view(&root, &browser, &other()),
        ErrorView::Details
    );
    assert_eq!(
        with(Audience::None).view(&root, &browser, &local()),
        ErrorView::Text
    );
    // Tools that read PHP's own text.
    let tool = headers(&[("accept", "*/*")]);
    assert_eq!(
        with(Audience::Loopback).view(&root, &tool, &local()),
        ErrorView::Page
    );
}

/// PHP's response with the header of `sapi/php/fatal_header.c`.
fn fatal(file: &str, message: &str, body: impl Into<Bytes>) -> crate::event::Response {
    let encode = |text: &str| {
        let all = percent_encoding::NON_ALPHANUMERIC;
        percent_encoding::utf8_percent_encode(text, all).to_string()
    };
    Response::builder()
        .header(&FATAL, format!("1 3 {} {}", encode(file), encode(message)))
        .header(header::CONTENT_LENGTH, 1)
        .body(ResponseBody::Full(body.into()))
        .unwrap()
}

#[tokio::test]
async fn fatal_error_becomes_a_page_with_message_place_source_and_trace() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("a.php");
    std::fs::write(&file, "<?php\n\nthrow new E('<b>');\n").unwrap();
    let file = file.to_str().unwrap();
    let message = format!(
        "Uncaught E: <script>alert(1)</script> in {file}:3\nStack trace:\n#0 {{main}}\n  thrown"
    );
    let shown = format!(
        "<p>before</p><br />\n<b>Fatal error</b>:  Uncaught E in <b>{file}</b> on line <b>3</b>\
         <br />\n"
    );
    let response = show(fatal(file, &message, shown.clone()), true).await;
    assert_eq!(response.status(), 500);
    assert!(response.headers().get(header::CONTENT_LENGTH).is_none());
    let page = text(&response);
    for part in [
        "Fatal error",
        "Uncaught E: &lt;script&gt;alert(1)&lt;/script&gt;",
        &format!("{file}:3"),
        "class=\"here\"><i>    3</i>  throw new E(&#39;&lt;b&gt;&#39;);",
        "<h2>Stack trace</h2>\n<pre class=\"\">#0 {main}</pre>",
        "&lt;p&gt;before&lt;/p&gt;",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(
        !page.contains("<!--") && !page.contains("<script"),
        "{page}"
    );
    let without = text(&show(fatal(file, &message, shown), false).await);
    assert!(!without.contains("throw new E"), "{without}");
}

#[tokio::test]
async fn client_of_http_1_0_is_not_local() {
    for (details, version, is_shown) in [
        (Audience::Loopback, Version::HTTP_11, true),
        (Audience::Loopback, Version::HTTP_10, false),
        (Audience::All, Version::HTTP_10, true),
    ] {
        let pages = ErrorPages {
            details,
            ..ErrorPages::default()
        };
        let response = fatal("/a.php", "message", "on line 3");
        let response = pages.apply_to_php(ErrorView::Details, version, response);
        let page = text(&response.await);
        let case = format!("{details:?} {version:?}: {page}");
        assert_eq!(page.contains("<h1>Fatal error"), is_shown, "{case}");
    }
}

#[tokio::test]
async fn error_page_of_the_application_is_kept() {
    let response = show(fatal("/a.php", "message", "<h1>Our page</h1>"), true).await;
    assert_eq!(
        (response.status().as_u16(), text(&response).as_str()),
        (200, "<h1>Our page</h1>")
    );
}

#[test]
fn fatal_header_is_parsed_or_ignored() {
    let parsed = Fatal::parse("4 12 /a%20b.php a%0A%FF").unwrap();
    assert_eq!((parsed.kind, parsed.line), (4, 12));
    assert_eq!(
        (&*parsed.file, &*parsed.message),
        ("/a b.php", "a\n\u{fffd}")
    );
    for wrong in ["", "1", "1 2", "1 2 a", "x 2 a b", "1 -2 a b"] {
        assert_eq!(Fatal::parse(wrong), None, "{wrong}");
    }
    assert_eq!(Escaped("a<&\"'>").to_string(), "a&lt;&amp;&quot;&#39;&gt;");
}
